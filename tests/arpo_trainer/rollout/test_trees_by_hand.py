"""Whole trees of rows that decide at once, worked out by hand: each path writes turns that were given for its place."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from arpo_trainer.algorithms.branching import ENTROPY_UNIT
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.branch_scheduler import BranchScheduler
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import SPENT, RolloutTree, Stopwatch
from benchmarks.laboratory.paper_rows import EVERY_POINT
from tests.arpo_trainer.rollout.test_rollouts import make_env
from tests.arpo_trainer.text_policy import TextPolicy

Turn = tuple[str, float]  # its text, and H of each of its tokens


def call(what: str, level: float = 1.0) -> Turn:
    return f"<think>c</think><look>{what}</look>", level


def answer(what: int, level: float = 1.0) -> Turn:
    return f"<think>d</think><answer>\\boxed{{{what}}}</answer>", level


@dataclass
class PlacedTurns(TextPolicy):
    """A policy that writes the turn that is given for a place, such as "1.2.0/3": turn 3 of the path 1.2.0."""

    tokenizer: Any
    turns: Mapping[str, Turn]
    time: Stopwatch = field(default_factory=Stopwatch)

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        [(text, level)] = [turn for place, turn in self.turns.items() if seed(request.group, place) == request.seed]
        return self.said(request, text, level * ENTROPY_UNIT, on_window)


def seed(group: str, place: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{group}/{place}".encode(), digest_size=8).digest())


def play(policy: PlacedTurns, **settings: Any) -> RolloutTree:
    env = make_env()
    engine = Engine(policy, policy.tokenizer, env, RolloutSettings(**settings))
    [tree] = asyncio.run(engine.rollout([env.tasks.task(0)]))
    return tree


def leaves(tree: RolloutTree) -> dict[str, tuple[str, str | None, int]]:
    """Return for each trajectory, by its answer: its origin, the answer of its parent, and the results they share."""
    found: dict[str, tuple[str, str | None, int]] = {}
    for trajectory in tree.trajectories:
        parent = None if trajectory.parent is None else tree.trajectories[trajectory.parent].answer
        shared = [] if trajectory.fork_span is None else tree.path_to(trajectory.fork_span)
        found[trajectory.answer] = trajectory.origin, parent, sum(span.is_result for span in shared)
    return found


def points(tree: RolloutTree) -> dict[str, tuple[int, str]]:
    """Return the number of branches of each point and the reason, by what the tool was asked for."""
    return {
        span.text.split(": ")[1].split("\n")[0]: (span.decision.branches, span.decision.reason)
        for span in tree.spans
        if span.decision
    }


# Z = 3, N = 2. What a path looks at is named after it: "0a" is the first result of root 0, "110b" the second of path
# 1.1.0. All paths of a round that call ask for Z - 1 = 2 branches, whatever their entropies do (they fall here).
#   round 1: 0 and 1 call                    -> 0.1.0 0.1.1 1.1.0 1.1.1, so 6 trajectories
#   round 2: 1.1.0, 1 and 0.1.0 call; the drawn order is theirs. 0, 0.1.1 and 1.1.1 answer.
#   round 3: of these three and their branches, 0.1.0 calls once more.
# M = 9: 7 may branch, 3 are left for round 2: 2 for 110b, 1 for 1b, none for 010b; none in round 3. The family of root
# 1 gets 5, which a quota of ceil(7 / 2) = 4 would not allow.
# M = 15: 13 may branch, 9 are left for round 2, which takes 6; round 3 takes 2; nobody can take the last one, so it
# becomes a fresh root, 2, which calls and does not branch.
TREEPO = {
    **{"0/0": call("0a", 3), "0/1": answer(1), "1/0": call("1a", 3), "1/1": call("1b"), "1/2": answer(2)},
    **{"0.1.0/1": call("010b"), "0.1.0/2": call("010c"), "0.1.0/3": answer(3), "0.1.1/1": answer(4)},
    **{"1.1.0/1": call("110b"), "1.1.0/2": answer(5), "1.1.1/1": answer(6)},
    **{"1.2.0/2": answer(7), "1.2.1/2": answer(8), "1.1.0.2.0/2": answer(9), "1.1.0.2.1/2": answer(10)},
    **{"0.1.0.2.0/2": answer(11), "0.1.0.2.1/2": answer(12), "0.1.0.3.0/3": answer(13), "0.1.0.3.1/3": answer(14)},
    **{"2/0": call("2a", 3), "2/1": answer(15)},
}
NINE = {"1": ("root", None, 0), "2": ("root", None, 0)}
NINE |= dict.fromkeys("34", ("branch", "1", 1)) | dict.fromkeys("56", ("branch", "2", 1))
NINE |= {"7": ("branch", "2", 2)} | dict.fromkeys(("9", "10"), ("branch", "5", 2))
SIX_MORE = {"8": ("branch", "2", 2), "15": ("top-up", None, 0)}
SIX_MORE |= dict.fromkeys(("11", "12"), ("branch", "3", 2)) | dict.fromkeys(("13", "14"), ("branch", "3", 3))


@pytest.mark.parametrize(
    ("total", "grown", "late"),
    [
        (9, NINE, {"1b": (1, EVERY_POINT), "010b": (0, SPENT), "010c": (0, SPENT)}),
        (15, NINE | SIX_MORE, dict.fromkeys(("1b", "010b", "010c"), (2, EVERY_POINT))),
    ],
)
def test_treepo_branches_everywhere_until_the_width_is_used_up(
    whole_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, total: int, grown: dict[str, Any], late: dict[str, Any]
) -> None:
    order = {"1.1.0": 0.1, "1": 0.2, "0.1.0": 0.3}
    # a place is "order", path, round
    monkeypatch.setattr(BranchScheduler, "uniform", lambda self, *place: order.get(place[1], 0.0))
    policy = PlacedTurns(whole_tokenizer, TREEPO)
    tree = play(policy, algorithm="treepo", num_generations=total, initial_rollouts=2, branch_width=3)
    early = dict.fromkeys(("0a", "1a", "110b"), (2, EVERY_POINT))
    assert leaves(tree) == grown
    assert points(tree) == early | late
