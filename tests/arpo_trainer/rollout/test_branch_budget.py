"""What a group's branch budget is spent on does not depend on which trajectory was faster."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arpo_trainer.rollout.branch_scheduler import BranchBudget, BranchRequest


@dataclass(frozen=True)
class World:
    """What paths do, as a function of their name and round."""

    seed: int
    roots: int
    reserve: int
    width: int
    points: int
    quota: int | None = None

    def act(self, name: str, clock: int) -> tuple[str, int]:
        """Return "end", "pass" or "request", and how much is wanted."""
        rng = random.Random(f"{self.seed}/{name}/{clock}")
        kind = rng.choices(["end", "pass", "request"], [1, 2, 3])[0]
        return kind, rng.randint(1, self.width - 1) if kind == "request" and self.width > 1 else 0

    def priority(self, name: str, clock: int) -> float:
        return random.Random(f"{self.seed}/order/{name}/{clock}").random()


Granted = dict[tuple[str, int], int]
Causes = dict[tuple[str, int], bool]


def in_rounds(world: World) -> tuple[Granted, int, Causes]:
    """Spend the budget as a lock-step engine would: round by round, each in the drawn order."""
    live, left, granted = {str(root): world.points for root in range(world.roots)}, world.reserve, {}
    room = dict.fromkeys(live, world.reserve if world.quota is None else world.quota)
    refused: Causes = {}
    for clock in range(1, 60):
        for name in sorted(live, key=lambda name: (world.priority(name, clock), name)):
            kind, wanted = world.act(name, clock)
            if kind == "end" or live[name] == 0:
                del live[name]
                continue
            live[name] -= 1
            if kind == "request":
                root = name.split(".")[0]
                n = granted[name, clock] = min(wanted, left, room[root])
                if not n:
                    refused[name, clock] = left > 0
                left -= n
                room[root] -= n
                live.update({f"{name}.{clock}.{copy}": live[name] for copy in range(n)})
    return granted, left, refused


def in_any_order(world: World, order: random.Random, **options: Any) -> Iterator[tuple[Granted, int, Causes]]:
    """Let paths act in a random order; yield what was granted so far, what was given up as surplus, and refusals."""
    budget = BranchBudget(world.reserve, world.width, world.priority, quota=world.quota, **options)
    live: dict[str, tuple[int, int]] = {}
    granted: Granted = {}
    surplus = 0
    for root in range(world.roots):
        live[str(root)] = (1, world.points)
        budget.start_path(str(root), 1, world.points)
    while live:
        name = order.choice(sorted(live))
        clock, points = live.pop(name)
        kind, wanted = world.act(name, clock)
        if kind == "end" or points == 0:
            budget.end_path(name, clock)
        else:
            live[name] = (clock + 1, points - 1)
            if kind == "request":
                budget.add_request(BranchRequest(name, clock, wanted, points - 1))
            else:
                budget.pass_point(name, clock, points - 1)
        while settled := budget.settle():
            request, n = settled
            granted[request.path, request.clock] = n
            for copy in range(n):
                twin = f"{request.path}.{request.clock}.{copy}"
                live[twin] = (request.clock + 1, request.points)
                budget.start_path(twin, request.clock + 1, request.points)
        fresh = budget.surplus()
        budget.taken += fresh
        surplus += fresh
        yield granted, surplus, {(request.path, request.clock): left for request, left in budget.denied()}


WORLDS = st.builds(
    World,
    seed=st.integers(0, 10**6),
    roots=st.integers(1, 5),
    reserve=st.integers(0, 9),
    width=st.integers(1, 4),
    points=st.integers(0, 5),
    quota=st.none() | st.integers(1, 4),
)


@settings(max_examples=300, deadline=None)
@given(WORLDS, st.integers(0, 10**6))
def test_any_order_spends_the_budget_as_rounds_do_and_takes_nothing_back(world: World, seed: int) -> None:
    seen: Granted = {}
    total = 0
    for spent in in_any_order(world, random.Random(seed)):
        granted, surplus, _ = spent
        assert seen.items() <= granted.items()
        assert total <= surplus
        seen, total = dict(granted), surplus
    assert spent == in_rounds(world)


def first(name: str, clock: int) -> float:
    return float(name.split(".")[0])


def opened(reserve: int | None, *names: str, points: int = 1, **options: Any) -> BranchBudget:
    """A budget for two branches a place at most, with these paths."""
    budget = BranchBudget(reserve, 2, first, **options)
    for name in names:
        budget.start_path(name, 1, points)
    return budget


def settled(budget: BranchBudget) -> tuple[str, int] | None:
    """The path that is answered next, and what it gets."""
    found = budget.settle()
    return found and (found[0].path, found[1])


def test_a_claim_waits_only_for_those_who_can_take_it_away() -> None:
    budget = opened(2, "0", "1", "2")
    budget.add_request(BranchRequest("2", 1, 1))
    assert settled(budget) is None  # 0 and 1 may both come first
    budget.pass_point("1", 1, 0)
    assert settled(budget) == ("2", 1)  # 0 may still take one: there are two


def test_nothing_is_settled_before_the_budget_is_known() -> None:
    budget = opened(None, "0")
    budget.add_request(BranchRequest("0", 1, 1))
    assert (settled(budget), budget.surplus()) == (None, 0)
    budget.reserve = 1
    assert settled(budget) == ("0", 1)


def test_with_a_quota_a_claim_waits_for_its_own_root_alone() -> None:
    budget = opened(3, "0", "1", "2", points=4, quota=1)
    budget.add_request(BranchRequest("2", 1, 1, 3))
    assert settled(budget) == ("2", 1)  # 0 and 1 come first, but they cannot take more than one each
    budget.start_path("2.1.0", 2, 3)
    budget.add_request(BranchRequest("2.1.0", 2, 1, 2))
    assert settled(budget) == ("2.1.0", 0)
    assert [(request.path, left) for request, left in budget.denied()] == [("2.1.0", True)]


@pytest.mark.parametrize("points", [1, 3])
def test_roots_that_can_claim_nothing_more_free_the_rest(points: int) -> None:
    assert opened(3, "0", points=points).surplus() == max(0, 3 - (2**points - 1))


def ranked(requests: Sequence[BranchRequest], given: Sequence[int]) -> list[float]:
    """Draw a score for each request, less what it has been given."""
    draws = [random.Random(f"{request.path}/{request.clock}").random() for request in requests]
    return [draw - count for draw, count in zip(draws, given, strict=True)]


@settings(max_examples=150, deadline=None)
@given(WORLDS, st.integers(0, 10**6), st.integers(1, 3))
@example(World(seed=5166, roots=4, reserve=3, width=3, points=1), 0, 2)
def test_no_order_of_events_changes_what_a_ranking_gives(world: World, seed: int, rounds: int) -> None:
    orders = (random.Random(seed), random.Random(seed + 1))
    options = {"best_first": True, "rank": ranked, "rounds": rounds}
    first, second = (list(in_any_order(world, order, **options))[-1] for order in orders)
    assert first == second
    granted, surplus, _ = first
    assert sum(granted.values()) + surplus == world.reserve
    families = Counter[str]()
    for (name, _), count in granted.items():
        families[name.split(".")[0]] += count
    assert not families or max(families.values()) <= (world.reserve if world.quota is None else world.quota)


def waiting(reserve: int, **options: Any) -> BranchBudget:
    """A budget whose three paths, the first one the best, have asked for two branches at their one point, and ended."""
    budget = BranchBudget(reserve, 3, first, best_first=True, **options)
    scores = {"0": 0.9, "1": 0.5, "2": 0.1}
    for name in scores:
        budget.start_path(name, 1, 1)
    for name, score in scores.items():
        budget.add_request(BranchRequest(name, 1, 2, score=score))
        budget.end_path(name, 2)
    return budget


def served(budget: BranchBudget) -> dict[str, int]:
    return {request.path: granted for request, granted in iter(budget.settle, None)}


def test_the_ranking_is_asked_again_after_every_branch() -> None:
    def fewest(requests: Sequence[BranchRequest], given: Sequence[int]) -> list[float]:
        return [-float(count) for count in given]

    assert served(waiting(3)) == {"0": 2, "1": 1, "2": 0}
    assert served(waiting(3, rank=fewest)) == {"0": 1, "1": 1, "2": 1}


def test_what_one_round_leaves_waits_for_the_branches_of_that_round() -> None:
    budget = waiting(4, rounds=2)
    assert settled(budget) == ("0", 2)
    budget.start_path("0.1.0", 2, 1)
    assert (settled(budget), budget.surplus()) == (None, 0)
    budget.add_request(BranchRequest("0.1.0", 2, 2, score=0.7))
    budget.end_path("0.1.0", 3)
    assert served(budget) == {"0.1.0": 2, "1": 0, "2": 0}
