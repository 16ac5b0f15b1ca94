"""Requests for branches: what is kept of a point until its branches start, and how they are made from forks.

`BranchScheduler` makes a `PendingBranch` for each point that wants branches. `BranchMaker` forks the environment at
once, because the episode goes on, and turns the forks into branches when the request has been settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from arpo_env import ToolEnv
from arpo_trainer.algorithms.branch_points import BranchSettings, Candidate, Point
from arpo_trainer.algorithms.ranking import RankFunction
from arpo_trainer.rollout.branch_budget import BranchRequest, RankRequests
from arpo_trainer.rollout.environments import EnvironmentPool
from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.timeline import Event
from arpo_trainer.tree import FORK_FAILED, Decision, RolloutTree, Span

logger = logging.getLogger(__name__)


@dataclass
class BranchState:
    """What the scheduler knows of one trajectory that may branch.

    Attributes:
        clock: the round it is in (see `branch_budget`).
        baseline: entropy that its next point is compared with; None before its first turn.
        chain: for each of its points so far, whether it was a high-entropy step.
        undecided: whether the tool result that it stands behind is a point that is not decided yet.
        forking: makes forks of its environment; it must be done before the episode goes on.
    """

    clock: int = 1
    baseline: float | None = None
    chain: list[bool] = field(default_factory=list)
    undecided: bool = False
    forking: asyncio.Task[list[ToolEnv]] | None = None

    def branch(self) -> BranchState:
        """Return the state of a branch: it has the baseline of its origin and continues the chain."""
        return BranchState(self.clock, self.baseline, list(self.chain))


@dataclass(eq=False, kw_only=True)
class PendingBranch(BranchRequest):
    """A request for branches, with what is needed to make them.

    Attributes:
        origin: the trajectory as it stood at the point.
        state: its branching state there.
        span: the tool result to branch after.
        point: what was measured there.
        decision: what was decided; it is kept in the tree.
        requested: when, in seconds since the rollout began.
        granted: resolved with the number of branches.
        forks: makes the environments.
        made: the event of making them.
        names: of the branches.
        fault: why the environments could not be forked; "" if they could.
    """

    origin: LiveTrajectory
    state: BranchState
    span: Span
    point: Point
    decision: Decision
    requested: float
    granted: asyncio.Future[int]
    forks: asyncio.Task[list[ToolEnv]] | None = None
    made: Event | None = None
    names: list[str] = field(default_factory=list)
    fault: str = ""


@dataclass
class BranchMaker:
    """Makes forks for requests, and branches from those that are granted.

    Attributes:
        environments: of the group.
        spawn: starts a task that the group waits for.
        retries: how often the environment of a branch may be made again.
    """

    environments: EnvironmentPool
    spawn: Callable[..., asyncio.Task[list[ToolEnv]]]
    retries: int

    def start(self, trajectory: LiveTrajectory, pending: PendingBranch, copies: int) -> asyncio.Task[list[ToolEnv]]:
        """Start to fork a trajectory's environment for a request, and return the task."""
        pending.forks = self.spawn(self._fork(trajectory, pending, copies))
        return pending.forks

    async def branches(self, pending: PendingBranch, granted: int) -> list[LiveTrajectory]:
        """Return the branches of a settled request, none if the fork failed, and close the forks that were denied."""
        assert pending.forks is not None
        envs = await pending.forks
        assert pending.made is not None
        pending.made.until = self.environments.limits.now()
        for env in envs[granted:]:
            await self.environments.close(env)
        return [pending.origin.branch(name, env, self.retries) for name, env in zip(pending.names, envs, strict=False)]

    async def _fork(self, trajectory: LiveTrajectory, pending: PendingBranch, copies: int) -> list[ToolEnv]:
        pending.made = Event(trajectory.number, "fork", 0.0, 0.0, copies=copies)
        try:
            return await self.environments.fork(trajectory, pending.made)
        except Exception as error:  # the original goes on without branches, and the budget becomes fresh roots
            logger.warning("could not fork an episode of %s: %r", self.environments.task.id, error)
            pending.made.copies = 0
            pending.fault = f"{FORK_FAILED}: {error}"
            return []


def ranking(rank: RankFunction, settings: BranchSettings, tree: RolloutTree) -> RankRequests:
    """Return the function that the branch budget ranks requests with.

    Args:
        rank: of the branch method.
        settings: that it reads.
        tree: that the requests are of.
    """
    known: dict[BranchRequest, Candidate] = {}  # paths have ended when they are ranked, so nothing changes later

    def scores(requests: Sequence[BranchRequest], given: Sequence[int]) -> list[float]:
        for request in requests:
            assert isinstance(request, PendingBranch)  # for the type checker: all requests are
            if request not in known:
                known[request] = Candidate(request.point, _later_turns(tree, request))
        return rank([replace(known[one], branches=n) for one, n in zip(requests, given, strict=True)], settings)

    return scores


def _later_turns(tree: RolloutTree, pending: PendingBranch) -> tuple[tuple[float, ...], ...]:
    # not searched for: a path whose thoughts were shortened later passes a copy of the point, at the same place
    place = len(tree.path_to(pending.span.index))
    return tuple(tuple(span.logprobs) for span in tree.path(pending.origin.number)[place:] if span.sampled)
