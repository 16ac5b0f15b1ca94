"""The branch budget of one group, spent in an order that does not depend on which trajectory was faster.

Trajectories play at their own speed, but the budget is spent as if they played in rounds: the n-th turn of a path is
its n-th round, and a branch made in round n continues in round n + 1. A *request* (a point that wants branches) is
settled when no point before it in this order can change what it gets. Only the branches wait for that; the path itself
plays on. Within a round the order is drawn at random from the seed, so that no position in the group is favoured.

A request is settled as early as possible: as soon as the least and the most that earlier points can take leave it the
same number of branches. This changes how long a branch waits, never the outcome.

A quota may limit what one root and all its descendants take of the budget. With `best_first` all requests wait until
every path has ended, and the highest scores are served; the scores may depend on how the paths ended (`rank`).

This module is plain bookkeeping without clocks or tasks. `BranchScheduler` reports what happened and acts on `settle`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar


@dataclass(eq=False)
class BranchRequest:
    """A point that wants branches.

    Attributes:
        path: name of the path; the part before the first "." is the name of its root.
        clock: the round of the point.
        wanted: maximum number of branches it asks for.
        points: how many points may follow on the path, and on each branch that it gets.
        score: of the point; used where the best points are served first.
        count: from the number of branches that are left, how many it takes; called once, when the request is settled.
    """

    path: str
    clock: int
    wanted: int
    points: int = 0
    score: float = 0.0
    count: Callable[[int], int] | None = None

    def take(self, left: float) -> int:
        """Return how many branches it takes of those that are left."""
        most = int(min(self.wanted, left))
        return self.count(most) if self.count else most


R = TypeVar("R", bound=BranchRequest)


def own_scores(requests: Sequence[BranchRequest], given: Sequence[int]) -> list[float]:
    """Return the scores that requests were made with, however many branches they have been given."""
    return [request.score for request in requests]


@dataclass
class _LivePath:
    clock: int
    points: int


@dataclass
class BranchBudget(Generic[R]):
    """The branches that one group may make.

    Attributes:
        reserve: number of branches in all; None until it is known, and nothing is settled before.
        width: Z, the number of paths that leave a branching point.
        priority: of a path's point in a round; the lowest comes first.
        in_sequence: settle strictly one request after the other, because what a request takes is not known before.
        best_first: wait until every path has ended, then serve the highest scores first. If budget is left when the
            branches have ended, the same happens again.
        quota: maximum number of branches of a root and all its descendants; None is no quota.
        rank: with `best_first`, scores the requests before each branch that is given out, from the requests and the
            branches that each has been given so far.
        rounds: with `best_first`, the number of rankings among which the budget is divided.
        settled: the settled requests and what each got, in the order of settling.
    """

    reserve: int | None
    width: int
    priority: Callable[[str, int], float]
    in_sequence: bool = False
    best_first: bool = False
    quota: int | None = None
    rank: Callable[[Sequence[Any], Sequence[int]], list[float]] = own_scores
    rounds: int = 1
    taken: int = 0
    last_clock: int = 0
    settled: list[tuple[R, int]] = field(default_factory=list)
    _used: Counter[str] = field(default_factory=Counter)
    _live: dict[str, _LivePath] = field(default_factory=dict)
    _requests: list[R] = field(default_factory=list)
    _ranked: list[tuple[R, int]] = field(default_factory=list)
    _rankings: int = 0

    def start_path(self, path: str, clock: int, points: int) -> None:
        """Note that a path has begun. Its next point is in round `clock` or later, and has at most `points` of them."""
        self._live[path] = _LivePath(clock, points)

    def pass_point(self, path: str, clock: int, points: int) -> None:
        """Note that the path's point in round `clock` is over; at most `points` more may follow."""
        self.last_clock = max(self.last_clock, clock)
        self._live[path] = _LivePath(clock + 1, points)

    def add_request(self, request: R) -> None:
        """Note that a path's point wants branches."""
        self._requests.append(request)
        self.pass_point(request.path, request.clock, request.points)

    def end_path(self, path: str, clock: int) -> None:
        """Note that a path has no more points; it ended in round `clock`."""
        self.last_clock = max(self.last_clock, clock)
        self._live.pop(path, None)

    @property
    def left(self) -> int:
        """What is left of the budget; 0 while the budget is not known."""
        return 0 if self.reserve is None else self.reserve - self.taken

    @property
    def idle(self) -> bool:
        """Whether no path is live and no request waits."""
        return not self._live and not self._requests

    def surplus(self) -> int:
        """Return how much of the budget no point can request any more."""
        if self.reserve is None:
            return 0
        # at every point a path becomes at most `width` paths, so p points make at most width**p paths of one
        waiting = ((request.path, request.wanted * self.width**request.points) for request in self._requests)
        possible = ((name, self.width**live.points - 1) for name, live in self._live.items())
        return int(max(0, self.left - sum(self._capped([*waiting, *possible]).values())))

    def most_for(self, request: BranchRequest) -> int:
        """Return the most branches that a request can get, as things are now."""
        room = math.inf if self.reserve is None else min(self.left, self._room(request.path))
        return int(min(request.wanted, room))

    def denied(self) -> list[tuple[R, bool]]:
        """Return the settled requests that got nothing, each with whether budget was left when its turn came.

        If budget was left, the quota of its root was used up. The turn is that of the virtual rounds, not the time of
        settling, so this is called once everything is settled.
        """
        in_order = self.settled if self.best_first else sorted(self.settled, key=lambda entry: self._key(entry[0]))
        left, found = self.reserve or 0, []
        for request, granted in in_order:
            if not granted:
                found.append((request, left > 0))
            left -= granted
        return found

    def settle(self) -> tuple[R, int] | None:
        """Settle one request that can be settled; return it with the number of branches it gets, or None.

        The caller calls `start_path` for those branches before it calls this again.
        """
        if self.reserve is None or not self._requests:
            return None
        if self.best_first:
            return self._settle_best()
        self._requests.sort(key=self._key)
        before: list[BranchRequest] = []  # the open ones
        for request in self._requests:
            granted = self._grant(request, before)
            if granted is not None:
                return self._record(request, granted)
            if self.in_sequence:
                return None
            before.append(request)
        return None

    def _settle_best(self) -> tuple[R, int] | None:
        # ranked once and served in this order; what the new branches request waits for the next ranking
        if not self._ranked and not self._live:
            self._ranked = self._rank_all()
        return self._record(*self._ranked.pop(0)) if self._ranked else None

    def _rank_all(self) -> list[tuple[R, int]]:
        """Return the requests that this ranking settles, and what each gets; the others wait for the next one."""
        waiting = sorted(self._requests, key=self._key)
        left = self.left - self.surplus()  # what is given up may have been counted already, depending on timing
        share = -(-left // max(1, self.rounds - self._rankings))
        self._rankings += 1
        first, given = self.rank(waiting, [0] * len(waiting)), [0] * len(waiting)
        for request, score in zip(waiting, first, strict=True):
            request.score = score
        self._give_out(waiting, given, share)
        # with no branch given out, no path would end and no other ranking would come
        again = 0 < sum(given) < left
        settled = [i for i, request in enumerate(waiting) if given[i] or not again or self._room(request.path) <= 0]
        return [(waiting[i], given[i]) for i in sorted(settled, key=lambda i: (-first[i], i))]

    def _give_out(self, waiting: Sequence[R], given: list[int], share: int) -> None:
        """Give out `share` branches one by one, each to the request that ranks highest at that moment."""
        used = Counter(self._used)
        for _ in range(share):
            scores = self.rank(waiting, given)
            free = [
                i
                for i, request in enumerate(waiting)
                if given[i] < request.wanted and used[_root(request.path)] < self._quota
            ]
            if not free:
                return
            best = max(free, key=lambda i: scores[i])  # of equals the first in the drawn order
            given[best] += 1
            used[_root(waiting[best].path)] += 1

    def _record(self, request: R, granted: int) -> tuple[R, int]:
        self._requests.remove(request)
        self.taken += granted
        self._used[_root(request.path)] += granted
        self.settled.append((request, granted))
        return request, granted

    def _room(self, path: str) -> float:
        """Return what the quota of a path's root has left."""
        return self._quota - self._used[_root(path)]

    @property
    def _quota(self) -> float:
        return math.inf if self.quota is None else self.quota

    def _capped(self, takers: Iterable[tuple[str, int]]) -> dict[str, float]:
        """Sum what paths take by their root, each root no more than its quota has left."""
        by_root: Counter[str] = Counter()
        for path, count in takers:
            by_root[_root(path)] += count
        return {root: min(self._room(root), count) for root, count in by_root.items()}

    def _key(self, request: BranchRequest) -> tuple[int, float, str]:
        return request.clock, self.priority(request.path, request.clock), request.path

    def _grant(self, request: BranchRequest, before: list[BranchRequest]) -> int | None:
        """Return what a request gets, or None while that is open; `before` are open requests that come first."""
        possible = [(name, self._most_before(name, live, request)) for name, live in self._live.items()]
        if self.in_sequence:
            return None if before or any(count for _, count in possible) else request.take(self.left)
        # Lower bound of what comes before: earlier requests take all they want unless the budget or their quota ends,
        # and in that case nothing is left here anyway. For the upper bound, what their branches may ask for need not
        # be added: an earlier request is open only if the live paths before it can leave it less than it wants, and
        # then they and its wish use up the budget or its quota.
        certain = [(earlier.path, earlier.wanted) for earlier in before]
        most, least = self._after(request, certain), self._after(request, [*certain, *possible])
        return most if most == least else None

    def _after(self, request: BranchRequest, takers: list[tuple[str, int]]) -> int:
        """Return what a request gets if others take so much before."""
        taken = self._capped(takers)
        room = self._room(request.path) - taken.get(_root(request.path), 0)
        return request.take(max(0, min(self.left - sum(taken.values()), room)))

    def _most_before(self, name: str, live: _LivePath, request: BranchRequest) -> int:
        """Return how many branches a path and its branches can take before the turn of `request`."""
        if live.clock > request.clock or live.points < 1:
            return 0
        # in the same round only its own point can come first: branches made there begin in the next round
        if live.clock == request.clock:
            first = (self.priority(name, live.clock), name) < (self.priority(request.path, request.clock), request.path)
            return self.width - 1 if first else 0
        # one path becomes width**n paths in n rounds, of which all but itself are branches
        return int(self.width ** min(live.points, request.clock - live.clock + 1)) - 1


def _root(path: str) -> str:
    return path.partition(".")[0]
