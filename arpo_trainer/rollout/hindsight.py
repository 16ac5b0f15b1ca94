"""What is known of a waiting point once all paths have ended: requests and the tree become `Candidate`s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arpo_trainer.algorithms.branch_points import BranchSettings, Candidate
from arpo_trainer.algorithms.ranking import RankFunction
from arpo_trainer.rollout.branch_budget import BranchRequest, RankRequests
from arpo_trainer.rollout.branch_requests import PendingBranch
from arpo_trainer.tree import RolloutTree, Span


def ranking(rank: RankFunction, settings: BranchSettings, tree: RolloutTree) -> RankRequests:
    """Return the function that the branch budget ranks requests with.

    Args:
        rank: of the branch method.
        settings: that it reads.
        tree: that the requests are of.
    """
    known = _Known(tree)

    def scores(requests: Sequence[BranchRequest], given: Sequence[int]) -> list[float]:
        listed = [replace(known(request), branches=count) for request, count in zip(requests, given, strict=True)]
        return rank(listed, settings)

    return scores


class _Known:
    """The candidates so far, by request: paths have ended when they are ranked, so nothing changes later."""

    def __init__(self, tree: RolloutTree) -> None:
        self.tree = tree
        self._candidates: dict[BranchRequest, Candidate] = {}

    def __call__(self, request: BranchRequest) -> Candidate:
        assert isinstance(request, PendingBranch)  # for the type checker: all requests are
        if request not in self._candidates:
            self._candidates[request] = candidate(self.tree, request)
        return self._candidates[request]


def candidate(tree: RolloutTree, pending: PendingBranch) -> Candidate:
    """Return a request as a candidate; its path must have ended."""
    path = tree.path(pending.origin.number)
    # not searched for: a path whose thoughts were shortened later passes a copy of the point, at the same place
    place = len(tree.path_to(pending.span.index)) - 1
    turns = [span for span in path[place + 1 :] if span.sampled]
    return Candidate(
        pending.point,
        pending.path.partition(".")[0],
        sum(span.is_result for span in path[: place + 1]),
        _tokens(path[: place + 1]),
        _tokens(path),
        tuple(tuple(span.entropies) for span in turns),
        tuple(tuple(span.logprobs) for span in turns),
        tree.trajectories[pending.origin.number].reward,
    )


def _tokens(spans: Sequence[Span]) -> int:
    return sum(len(span.ids) for span in spans)
