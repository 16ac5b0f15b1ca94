"""Who gets the branches: a group's budget, spent in an order that does not depend on who came first.

Trajectories play at their own speed, but the budget is spent as if they played in rounds: a path's n-th turn is its
n-th round, and a branch made in round n plays on in round n + 1. A *claim* (a point that wants branches) is settled
when no point that comes before it can still take away what it asks for; nobody else waits for that, least of all the
path itself. Within a round the order is drawn at random (from the seed), so that no place in the group is favoured.

Settled early: a claim gets what it wants as soon as the budget covers everything that may come before it, and nothing
as soon as the claims before it use the budget up. That changes no outcome, only how long a branch waits.

Plain bookkeeping: no clocks, no tasks; `Group` says what happened and acts upon `settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Claim:
    """A point that wants branches.

    Attributes:
        path: the name of the path.
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

    def take(self, left: int) -> int:
        """Return how many it takes of what is left."""
        most = min(self.wanted, left)
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
    """

    reserve: int | None
    width: int
    priority: Callable[[str, int], float]
    patient: bool = False
    best: bool = False
    taken: int = 0
    last_clock: int = 0
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
        waiting = sum(claim.wanted * self.width**claim.points for claim in self._claims)
        possible = sum(self.width**live.points - 1 for live in self._live.values())
        return int(max(0, self.left - waiting - possible))

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
                self._claims.remove(claim)
                self.taken += granted
                return claim, granted
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
        self._claims.remove(claim)
        granted = claim.take(self.left)
        self.taken += granted
        return claim, granted

    def _key(self, claim: Claim) -> tuple[int, float, str]:
        return claim.clock, self.priority(claim.path, claim.clock), claim.path

    def _grant(self, claim: Claim, before: list[Claim]) -> int | None:
        """Return what a claim gets, or None while that is open."""
        possible = sum(self._most(name, live, claim) for name, live in self._live.items())
        if not before and not possible:
            return claim.take(self.left)
        if self.patient:
            return None
        certain = sum(earlier.wanted for earlier in before)
        if self.left <= certain:
            return 0
        rounds = [min(earlier.points, claim.clock - earlier.clock) for earlier in before]
        copies = sum(earlier.wanted * self.width**most for earlier, most in zip(before, rounds, strict=True))
        return claim.wanted if self.left >= possible + copies + claim.wanted else None

    def _most(self, name: str, live: _Live, claim: Claim) -> int:
        """Return how many branches a path and its copies can take before `claim`'s turn comes."""
        if live.clock > claim.clock or live.points < 1:
            return 0
        if live.clock == claim.clock:
            first = (self.priority(name, live.clock), name) < (self.priority(claim.path, claim.clock), claim.path)
            return self.width - 1 if first else 0
        return int(self.width ** min(live.points, claim.clock - live.clock + 1)) - 1
