"""The ledger: what a group's budget is spent on does not depend on who came first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_trainer.rollout.branch_budget import Claim, Ledger


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
        """Return "end", "pass" or "claim", and how much is wanted."""
        rng = random.Random(f"{self.seed}/{name}/{clock}")
        kind = rng.choices(["end", "pass", "claim"], [1, 2, 3])[0]
        return kind, rng.randint(1, self.width - 1) if kind == "claim" and self.width > 1 else 0

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
            if kind == "claim":
                root = name.split(".")[0]
                n = granted[name, clock] = min(wanted, left, room[root])
                if not n:
                    refused[name, clock] = left > 0
                left -= n
                room[root] -= n
                live.update({f"{name}.{clock}.{copy}": live[name] for copy in range(n)})
    return granted, left, refused


def in_any_order(world: World, order: random.Random) -> Iterator[tuple[Granted, int, Causes]]:
    """Let paths act in a random order; yield what was granted so far, what was given up as surplus, and refusals."""
    ledger = Ledger(world.reserve, world.width, world.priority, quota=world.quota)
    live: dict[str, tuple[int, int]] = {}
    granted: Granted = {}
    surplus = 0
    for root in range(world.roots):
        live[str(root)] = (1, world.points)
        ledger.opens(str(root), 1, world.points)
    while live:
        name = order.choice(sorted(live))
        clock, points = live.pop(name)
        kind, wanted = world.act(name, clock)
        if kind == "end" or points == 0:
            ledger.ends(name, clock)
        else:
            live[name] = (clock + 1, points - 1)
            if kind == "claim":
                ledger.claims(Claim(name, clock, wanted, points - 1))
            else:
                ledger.passes(name, clock, points - 1)
        while settled := ledger.settle():
            claim, n = settled
            granted[claim.path, claim.clock] = n
            for copy in range(n):
                twin = f"{claim.path}.{claim.clock}.{copy}"
                live[twin] = (claim.clock + 1, claim.points)
                ledger.opens(twin, claim.clock + 1, claim.points)
        fresh = ledger.surplus()
        ledger.taken += fresh
        surplus += fresh
        yield granted, surplus, {(claim.path, claim.clock): budget for claim, budget in ledger.refused()}


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
def test_any_order_spends_the_budget_as_rounds_do(world: World, seed: int) -> None:
    wanted, left, refused = in_rounds(world)
    *_, (granted, surplus, causes) = in_any_order(world, random.Random(seed))
    assert granted == wanted
    assert surplus == left
    assert causes == refused


@settings(max_examples=100, deadline=None)
@given(WORLDS, st.integers(0, 10**6))
def test_what_was_settled_early_is_never_taken_back(world: World, seed: int) -> None:
    seen: Granted = {}
    total = 0
    for granted, surplus, _ in in_any_order(world, random.Random(seed)):
        assert seen.items() <= granted.items()
        assert total <= surplus
        seen, total = dict(granted), surplus


def first(name: str, clock: int) -> float:
    return float(name.split(".")[0])


def test_a_claim_waits_only_for_those_who_can_take_it_away() -> None:
    ledger = Ledger(2, 2, first)
    for name in ("0", "1", "2"):
        ledger.opens(name, 1, 1)
    ledger.claims(Claim("2", 1, 1))
    assert ledger.settle() is None  # 0 and 1 may both come first
    ledger.passes("1", 1, 0)
    settled = ledger.settle()
    assert settled is not None
    assert settled[1] == 1  # 0 may still take one: there are two


def test_a_claim_that_others_have_used_up_is_denied_at_once() -> None:
    ledger = Ledger(1, 2, first)
    for name in ("0", "1", "2"):
        ledger.opens(name, 1, 1)
    ledger.claims(Claim("1", 1, 1))
    ledger.claims(Claim("2", 1, 1))
    denied = ledger.settle()  # 0 is open, so 1 waits; whoever gets it, 2 does not
    assert denied is not None
    assert (denied[0].path, denied[1]) == ("2", 0)


def test_nothing_is_settled_before_the_budget_is_known() -> None:
    ledger = Ledger(None, 2, first)
    ledger.opens("0", 1, 1)
    ledger.claims(Claim("0", 1, 1))
    assert ledger.settle() is None
    assert ledger.surplus() == 0
    ledger.reserve = 1
    assert ledger.settle() is not None


def test_the_best_come_first_when_all_have_ended() -> None:
    ledger = Ledger(1, 2, first, best=True)
    for name in ("0", "1"):
        ledger.opens(name, 1, 1)
    ledger.claims(Claim("0", 1, 1, score=0.1))
    ledger.claims(Claim("1", 1, 1, score=0.9))
    ledger.ends("0", 2)
    assert ledger.settle() is None
    ledger.ends("1", 2)
    best, rest = ledger.settle(), ledger.settle()
    assert best is not None
    assert rest is not None
    assert (best[0].path, best[1], rest[0].path, rest[1]) == ("1", 1, "0", 0)


def test_with_a_quota_a_claim_waits_for_its_own_root_alone() -> None:
    ledger = Ledger(3, 2, first, quota=1)
    for name in ("0", "1", "2"):
        ledger.opens(name, 1, 4)
    ledger.claims(Claim("2", 1, 1, 3))
    settled = ledger.settle()  # 0 and 1 come first, but they cannot take more than one each
    assert settled is not None
    assert settled[1] == 1
    ledger.opens("2.1.0", 2, 3)
    ledger.claims(Claim("2.1.0", 2, 1, 2))
    refused = ledger.settle()
    assert refused is not None
    assert refused[1] == 0
    assert ledger.refused() == [(refused[0], True)]


def test_the_best_of_a_group_are_spread_over_its_roots() -> None:
    ledger = Ledger(2, 2, first, best=True, quota=1)
    for name in ("0", "1"):
        ledger.opens(name, 1, 2)
    for name, clock, score in (("0", 1, 0.8), ("0", 2, 0.9), ("1", 1, 0.1)):
        ledger.claims(Claim(name, clock, 1, 2 - clock, score=score))
    for name in ("0", "1"):
        ledger.ends(name, 3)
    got = [(claim.path, claim.clock, granted) for claim, granted in iter(ledger.settle, None)]
    assert got == [("0", 2, 1), ("0", 1, 0), ("1", 1, 1)]
    assert [left for _, left in ledger.refused()] == [True]


@pytest.mark.parametrize("points", [1, 3])
def test_roots_that_can_claim_nothing_more_free_the_rest(points: int) -> None:
    ledger = Ledger(3, 2, first)
    ledger.opens("0", 1, points)
    assert ledger.surplus() == max(0, 3 - (2**points - 1))
