"""Who gets the branches: a group's budget, spent in an order that does not depend on who came first.

Trajectories play at their own speed, but the budget is spent as if they played in rounds: a path's n-th turn is its
n-th round, and a branch made in round n plays on in round n + 1. A *claim* (a point that wants branches) is settled
when no point that comes before it can still take away what it asks for; nobody else waits for that, least of all the
path itself. Within a round the order is drawn at random (from the seed), so that no place in the group is favoured.

There may be a quota besides: the most that one root and all its descendants may take of the budget.

Settled early: a claim is settled as soon as the least and the most that the points before it can take leave it the same
number of branches. That changes no outcome, only how long a branch waits.

Plain bookkeeping: no clocks, no tasks; `Group` says what happened and acts upon `settle`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Claim:
    """A point that wants branches.

    Attributes:
        path: the name of the path; up to its first "." it is its root's.
        clock: its round.
        wanted: at most so many.
        points: how many points may follow it on its path, and on each branch that it gets.
        score: of the point; looked at where the best points are taken.
        count: given what is left, how many it takes; asked once, when the claim is settled.
    """

    path: str
    clock: int
    wanted: int
    points: int = 0
    score: float = 0.0
    count: Callable[[int], int] | None = None

    def take(self, left: float) -> int:
        """Return how many it takes of what is left."""
        most = int(min(self.wanted, left))
        return self.count(most) if self.count else most


@dataclass
class _Live:
    clock: int
    points: int


@dataclass
class Ledger:
    """The budget of one group.

    Attributes:
        reserve: branches there are in all; None until it is known, and nothing is settled before.
        width: Z, paths that leave a branching point.
        priority: of a path's point in a round: the lower comes first.
        patient: settle strictly one after the other, because what a claim takes is not known before.
        best: wait until every path has ended, then take the highest scores first; the same again when the branches have
            ended, if something is left.
        quota: most branches of a root and all its descendants; None is no quota.
        settled: the claims that have been settled, and what each got, in the order of settling.
    """

    reserve: int | None
    width: int
    priority: Callable[[str, int], float]
    patient: bool = False
    best: bool = False
    quota: int | None = None
    taken: int = 0
    last_clock: int = 0
    settled: list[tuple[Claim, int]] = field(default_factory=list)
    _used: Counter[str] = field(default_factory=Counter)
    _live: dict[str, _Live] = field(default_factory=dict)
    _claims: list[Claim] = field(default_factory=list)
    _ranked: list[Claim] = field(default_factory=list)

    def opens(self, path: str, clock: int, points: int) -> None:
        """A path has begun; its next point comes in round `clock` at the earliest, and `points` of them at most."""
        self._live[path] = _Live(clock, points)

    def passes(self, path: str, clock: int, points: int) -> None:
        """A path's point in round `clock` wants nothing, or is a claim now; `points` more may follow."""
        self.last_clock = max(self.last_clock, clock)
        self._live[path] = _Live(clock + 1, points)

    def claims(self, claim: Claim) -> None:
        """A path's point wants branches."""
        self._claims.append(claim)
        self.passes(claim.path, claim.clock, claim.points)

    def ends(self, path: str, clock: int) -> None:
        """A path has no more points; it ended in round `clock`."""
        self.last_clock = max(self.last_clock, clock)
        self._live.pop(path, None)

    @property
    def left(self) -> int:
        """What is left of the budget; 0 while it is not known."""
        return 0 if self.reserve is None else self.reserve - self.taken

    @property
    def idle(self) -> bool:
        """Whether nothing lives and nothing waits."""
        return not self._live and not self._claims

    def surplus(self) -> int:
        """Return how much of the budget nobody can claim any more."""
        if self.reserve is None:
            return 0
        waiting = ((claim.path, claim.wanted * self.width**claim.points) for claim in self._claims)
        possible = ((name, self.width**live.points - 1) for name, live in self._live.items())
        return int(max(0, self.left - sum(self._capped([*waiting, *possible]).values())))

    def most(self, claim: Claim) -> int:
        """Return the most that a claim can get, as things are now."""
        room = math.inf if self.reserve is None else min(self.left, self._room(claim.path))
        return int(min(claim.wanted, room))

    def refused(self) -> list[tuple[Claim, bool]]:
        """Return the settled claims that got nothing, and of each whether budget was left when its turn came.

        If some was left, the quota of its root was used up. The turn is that of the virtual rounds, whenever the claim
        was settled; so this is asked once everything is settled.
        """
        in_order = self.settled if self.best else sorted(self.settled, key=lambda entry: self._key(entry[0]))
        left, found = self.reserve or 0, []
        for claim, granted in in_order:
            if not granted:
                found.append((claim, left > 0))
            left -= granted
        return found

    def settle(self) -> tuple[Claim, int] | None:
        """Settle one claim that can be settled; return it with what it gets, or None.

        The caller opens the branches it makes before it calls again.
        """
        if self.reserve is None or not self._claims:
            return None
        if self.best:
            return self._settle_best()
        self._claims.sort(key=self._key)
        before: list[Claim] = []
        for claim in self._claims:
            granted = self._grant(claim, before)
            if granted is not None:
                return self._note(claim, granted)
            if self.patient:
                return None
            before.append(claim)
        return None

    def _settle_best(self) -> tuple[Claim, int] | None:
        if not self._ranked and not self._live:
            self._ranked = sorted(self._claims, key=lambda claim: (-claim.score, *self._key(claim)))
        if not self._ranked:
            return None
        claim = self._ranked.pop(0)
        return self._note(claim, claim.take(min(self.left, self._room(claim.path))))

    def _note(self, claim: Claim, granted: int) -> tuple[Claim, int]:
        self._claims.remove(claim)
        self.taken += granted
        self._used[_root(claim.path)] += granted
        self.settled.append((claim, granted))
        return claim, granted

    def _room(self, path: str) -> float:
        """Return what the quota of a path's root has left."""
        return math.inf if self.quota is None else self.quota - self._used[_root(path)]

    def _capped(self, takers: Iterable[tuple[str, int]]) -> dict[str, float]:
        """Add up by root what paths take, each root no more than its quota has left."""
        by_root: Counter[str] = Counter()
        for path, count in takers:
            by_root[_root(path)] += count
        return {root: min(self._room(root), count) for root, count in by_root.items()}

    def _key(self, claim: Claim) -> tuple[int, float, str]:
        return claim.clock, self.priority(claim.path, claim.clock), claim.path

    def _grant(self, claim: Claim, before: list[Claim]) -> int | None:
        """Return what a claim gets, or None while that is open."""
        possible = [(name, self._most(name, live, claim)) for name, live in self._live.items()]
        if self.patient:
            return None if before or any(count for _, count in possible) else claim.take(self.left)
        certain = [(earlier.path, earlier.wanted) for earlier in before]
        rounds = [min(earlier.points, claim.clock - earlier.clock) for earlier in before]
        copies = [(earlier.path, earlier.wanted * self.width**most)
                  for earlier, most in zip(before, rounds, strict=True)]  # fmt: skip
        # claims before this one take all they want unless the budget or their quota ends, and then nothing is left here
        most, least = self._after(claim, certain), self._after(claim, [*copies, *possible])
        return most if most == least else None

    def _after(self, claim: Claim, takers: list[tuple[str, int]]) -> int:
        """Return what a claim gets if others take so much before."""
        taken = self._capped(takers)
        room = self._room(claim.path) - taken.get(_root(claim.path), 0)
        return claim.take(max(0, min(self.left - sum(taken.values()), room)))

    def _most(self, name: str, live: _Live, claim: Claim) -> int:
        """Return how many branches a path and its copies can take before `claim`'s turn comes."""
        if live.clock > claim.clock or live.points < 1:
            return 0
        if live.clock == claim.clock:
            first = (self.priority(name, live.clock), name) < (self.priority(claim.path, claim.clock), claim.path)
            return self.width - 1 if first else 0
        return int(self.width ** min(live.points, claim.clock - live.clock + 1)) - 1


def _root(path: str) -> str:
    return path.partition(".")[0]
