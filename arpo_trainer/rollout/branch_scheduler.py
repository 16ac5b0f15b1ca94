"""Where the trajectories of one group branch: measures entropies, asks the branch method, and starts the branches.

A trajectory that wants branches gets forks of its environment made at once, while the model generates its next turn,
and plays on. The branches start when the branch budget has settled the request; forks that were not granted are closed.
`PublishedScheduler` does as the published engines do, for the reference rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from arpo_env import ToolEnv
from arpo_trainer.algorithms.branching import NOT_DRAWN, chain_length, entropy_level, segment_entropy
from arpo_trainer.algorithms.registry import branch_quota
from arpo_trainer.rollout.live_trajectory import EnvironmentPool, LiveTrajectory
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import FORK_FAILED, QUOTA, SPENT, Decision, Event, RolloutTree, Span

logger = logging.getLogger(__name__)
NO_WIDTH = "branch_width is 1"

# The budget of one group, spent in an order that does not depend on which trajectory was faster. Trajectories play at
# their own speed, but the budget is spent as if they played in rounds: the n-th turn of a path is its n-th round, and a
# branch made in round n continues in round n + 1. A *request* (a point that wants branches) is settled when no point
# before it in this order can change what it gets. Only the branches wait for that; the path itself plays on. Within a
# round the order is drawn at random from the seed, so that no position in the group is favoured.
#
# A request is settled as early as possible: as soon as the least and the most that earlier points can take leave it the
# same number of branches. This changes how long a branch waits, never the outcome. A quota may limit what one root and
# all its descendants take. With `best_first` all requests wait until every path has ended, and the highest scores are
# served. The budget is plain bookkeeping without clocks or tasks: `BranchScheduler` reports what happened.


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
        rank: with `best_first`, scores the requests before each branch that is given out, from the requests and the
            branches that each has been given so far.
        rounds: with `best_first`, the number of rankings among which the budget is divided.
        quota: maximum number of branches of a root and all its descendants; None is no quota.
        settled: the settled requests and what each got, in the order of settling.
    """

    reserve: int | None
    width: int
    priority: Callable[[str, int], float]
    in_sequence: bool = False
    best_first: bool = False
    quota: int | None = None
    rank: Callable[[Sequence[Any], Sequence[int]], list[float]] = lambda requests, given: [
        one.score for one in requests
    ]
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
            # ranked once and served in this order; what the new branches request waits for the next ranking
            if not self._ranked and not self._live:
                self._ranked = self._rank_all()
            return self._record(*self._ranked.pop(0)) if self._ranked else None
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

    def _rank_all(self) -> list[tuple[R, int]]:
        """Return the requests that this ranking settles, and what each gets; the others wait for the next one."""
        waiting = sorted(self._requests, key=self._key)
        left = self.left - self.surplus()  # what is given up may have been counted already, depending on timing
        share = -(-left // max(1, self.rounds - self._rankings))
        self._rankings += 1
        given, used = [0] * len(waiting), Counter(self._used)
        for request, score in zip(waiting, self.rank(waiting, given), strict=True):
            request.score = score
        for _ in range(share):  # one by one, each to the request that ranks highest at that moment
            scores = self.rank(waiting, given)
            free = [n for n, one in enumerate(waiting) if given[n] < one.wanted and used[_root(one.path)] < self._quota]
            if not free:
                break
            best = max(free, key=scores.__getitem__)  # of equals the first in the drawn order
            given[best] += 1
            used[_root(waiting[best].path)] += 1
        # with no branch given out, no path would end and no other ranking would come
        again = 0 < sum(given) < left
        settled = [n for n, one in enumerate(waiting) if given[n] or not again or self._room(one.path) <= 0]
        return [(waiting[n], given[n]) for n in sorted(settled, key=lambda n: (-waiting[n].score, n))]

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


@dataclass
class BranchState:
    """What the scheduler knows of one trajectory that may branch.

    Attributes:
        clock: the round it is in.
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
        decision: what was measured and decided there; it is kept in the tree.
        requested: when, in seconds since the rollout began.
        granted: resolved with the number of branches.
        forks: makes the environments; `made` is the event of that.
        names: of the branches.
        fault: why the environments could not be forked; "" if they could.
    """

    origin: LiveTrajectory
    state: BranchState
    span: Span
    decision: Decision
    requested: float
    granted: asyncio.Future[int]
    forks: asyncio.Task[list[ToolEnv]] | None = None
    made: Event
    names: list[str] = field(default_factory=list)
    fault: str = ""


class BranchScheduler:
    """Decides where the trajectories of one group branch.

    Args:
        settings: of the rollout.
        seed_name: what the draws of the group are made from.
        vocabulary: V of the tokenizer; only the published entropy measure depends on it.
        environments: of the group.
        tree: of the group.
        spawn: starts a task that the group waits for.
        launch: plays a branch: the trajectory, the number of its parent, and the span it forks from.
        top_up: starts this many fresh roots.
    """

    published = False

    def __init__(
        self,
        settings: RolloutSettings,
        seed_name: str,
        vocabulary: int,
        environments: EnvironmentPool,
        tree: RolloutTree,
        spawn: Callable[..., asyncio.Task[Any]],
        launch: Callable[[LiveTrajectory, int, Span], None],
        top_up: Callable[[int], None],
    ) -> None:
        self.settings, self.seed_name, self.vocabulary = settings, seed_name, vocabulary
        self.environments, self.tree, self.method = environments, tree, settings.parts.method
        self._roots_only = self.method is not None and self.method.roots_only
        self._spawn, self._launch, self._top_up = spawn, launch, top_up
        self._states: dict[str, BranchState] = {}  # by name; a trajectory without a state may not branch
        self._numbers: dict[str, int] = {}
        self._later: dict[PendingBranch, Decision] = {}
        self.budget: BranchBudget[PendingBranch] = BranchBudget(
            None, settings.branch_width, self._priority, self.published
        )
        if self.method is not None:
            self.budget.best_first, self.budget.rounds = self.method.best, self.method.rounds
            if self.method.rank is not None:
                self.budget.rank = self._rank

    # what the group reports

    def set_roots(self, roots: int) -> None:
        """Note how many trajectories start at the prompt; the others may be branches."""
        total, quota = self.settings.num_generations, self.settings.branch_quota
        self.budget.reserve = total - roots
        if quota is None and self.method and self.method.quota:
            quota = branch_quota(total, roots)
        self.budget.quota = quota or None

    def root_started(self, root: LiveTrajectory, topped_up: bool) -> None:
        """Note that a root has begun. One from unused budget may branch only in the published code."""
        if self.method is None or (topped_up and not self.published):
            return
        self._numbers[root.name] = len(self._numbers)
        state = self._states[root.name] = BranchState(self.budget.last_clock + 1 if topped_up else 1)
        self.budget.start_path(root.name, state.clock, root.env.budget.results_left())

    def trajectory_ended(self, trajectory: LiveTrajectory) -> None:
        """Note that a trajectory has come to its end."""
        if state := self._states.get(trajectory.name):
            self.budget.end_path(trajectory.name, state.clock)
            self.settle()

    def window(self, trajectory: LiveTrajectory) -> int:
        """Return how many entropies of a trajectory's next turn are wanted as soon as they are there."""
        state = self._states.get(trajectory.name)
        # the published engines measure a whole turn, the one before the result
        wanted = state is not None and not self.published and (state.baseline is None or state.undecided)
        return self.settings.entropy_window if wanted else 0

    def first_tokens(self, trajectory: LiveTrajectory, entropies: Sequence[float]) -> None:
        """Take the entropies of a turn's first tokens: they are the baseline, or they decide a point."""
        state = self._states[trajectory.name]
        # a chain that was shortened stands behind a copy of the result
        span = self.tree.spans[trajectory.node] if state.undecided and trajectory.node is not None else None
        state.undecided = False
        self._measured(trajectory, state, span, entropies)

    def result_shown(self, trajectory: LiveTrajectory, span: Span, entropies: Sequence[float]) -> None:
        """Note that a trajectory has been shown a result, `span`, which answers a turn with these entropies."""
        state = self._states.get(trajectory.name)
        if state is None:
            return
        is_point = span.is_result
        if self.published:
            self._measured(trajectory, state, span if is_point else None, entropies)
        elif is_point:
            state.undecided = True
        if not is_point:  # a message of the environment, not the result of a tool
            self.budget.pass_point(trajectory.name, state.clock, trajectory.results_left)
            state.clock += 1
            self.settle()

    async def forks_made(self, trajectory: LiveTrajectory) -> None:
        """Wait until the forks of a trajectory's environment are made: they must show the episode as it stood."""
        state = self._states.get(trajectory.name)
        if state is not None and state.forking is not None:
            await asyncio.wait([state.forking])
            state.forking = None

    def settle(self) -> None:
        """Settle the requests that can be settled, and start fresh roots from budget that no point can request."""
        while settled := self.budget.settle():
            self._settled(*settled)
        self._use_surplus()

    def explain_denials(self) -> None:
        """Write to the decisions of points that got nothing why they did not; called when everything is settled."""
        for request, left in self.budget.denied():
            request.decision.reason = QUOTA if left else SPENT

    def order(self, trajectory: LiveTrajectory, topped_up: bool = False) -> tuple[float, ...]:
        """Return the position of a trajectory in the group, in the order of the virtual rounds."""
        # "3.1.0" left the root 3 in round 1
        place = tuple(map(float, trajectory.name.split(".")))
        played = place[-2] if len(place) > 1 else 0.0
        return (float("inf") if topped_up else played, *place)

    # how it is decided

    def uniform(self, *place: object) -> float:
        """Return the random number in [0, 1) that belongs to a place of the tree."""
        name = "/".join(map(str, (self.seed_name, "branch", *place)))
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest()) / 2.0**56

    def _level(self, entropies: Sequence[float]) -> float:
        """Return H of a turn from the entropies of its tokens, in nats, shape (n,)."""
        return entropy_level(entropies, self.settings.entropy_window)

    def _priority(self, name: str, clock: int) -> float:
        return self.uniform("order", name, clock)

    def _measured(
        self, trajectory: LiveTrajectory, state: BranchState, span: Span | None, entropies: Sequence[float]
    ) -> None:
        """Take the entropies of a turn: they may be the baseline, and decide the point at `span`, if there is one."""
        now, clock = self._level(entropies), state.clock
        if state.baseline is None:
            state.baseline = now
        if span is None:
            return
        point = Decision(now, now - state.baseline, consecutive=chain_length(state.chain))
        span.decision, wanted = self._scored(trajectory.name, clock, point)
        state.clock += 1
        state.chain.append(wanted > 0)
        if wanted:
            self._request(trajectory, state, span, span.decision, clock, wanted)
        else:
            self.budget.pass_point(trajectory.name, clock, trajectory.results_left)
            self.settle()

    def _scored(self, path: str, clock: int, point: Decision) -> tuple[Decision, int]:
        """Return a path's point in a round with its score, and the number of branches that it wants."""
        point.uniform, width = self.uniform(path, clock, 0), self.settings.branch_width
        scores = self._scores(path, clock, point, width - 1)
        none = point.scored(0.0, self.settings.branch_threshold, False, "" if width > 1 else NO_WIDTH)
        said = next((score for score in scores if score.branch), scores[0] if scores else none)
        return replace(said, uniform=point.uniform), sum(score.branch for score in scores)

    def _scores(self, path: str, clock: int, point: Decision, copies: int) -> list[Decision]:
        """Return the scores of the copies that may leave a point, each with a random number of its own."""
        assert self.method is not None
        draws = [replace(point, uniform=self.uniform(path, clock, copy)) for copy in range(copies)]
        return [self.method.score(draw, self.settings) for draw in draws]

    def _rank(self, requests: Sequence[PendingBranch], given: Sequence[int]) -> list[float]:
        """Score waiting requests, of which each has been given some branches, by the method's rank function."""
        assert self.method is not None
        assert self.method.rank is not None
        for one in requests:
            if one not in self._later:  # paths have ended when they are ranked, so nothing changes later
                # not searched for: a path whose thoughts were shortened passes a copy of the point, at the same place
                place = len(self.tree.path_to(one.span.index))
                turns = (span for span in self.tree.path(one.origin.number)[place:] if span.sampled)
                self._later[one] = replace(one.decision, later=tuple(tuple(span.logprobs) for span in turns))
        points = [replace(self._later[one], branches=count) for one, count in zip(requests, given, strict=True)]
        return self.method.rank(points, self.settings)

    def _request(
        self, trajectory: LiveTrajectory, state: BranchState, span: Span, decision: Decision, clock: int, wanted: int
    ) -> None:
        pending = PendingBranch(
            trajectory.name,
            clock,
            wanted,
            trajectory.results_left,
            decision.score,
            origin=trajectory.snapshot(),
            state=state.branch(),
            span=span,
            decision=decision,
            requested=self.environments.limits.now(),
            granted=asyncio.get_running_loop().create_future(),
            made=Event(trajectory.number, "fork", 0.0, 0.0),
        )
        self._add(pending)
        self.settle()
        # not settled yet: fork now all the environments that may be granted, since the episode is about to go on
        copies = pending.granted.result() if pending.granted.done() else self.budget.most_for(pending)
        if copies:
            pending.made.copies = copies
            state.forking = pending.forks = self._spawn(self._fork(trajectory, pending))
            self._spawn(self._launch_branches(pending))

    def _add(self, pending: PendingBranch) -> None:
        self.budget.add_request(pending)

    def _settled(self, pending: PendingBranch, granted: int) -> None:
        pending.decision.branches = granted
        if self.budget.best_first:
            pending.decision.score = pending.score
        for copy in range(granted):
            name = f"{pending.path}.{pending.clock}.{copy}"
            pending.names.append(name)
            self._numbers[name] = len(self._numbers)
            if not self._roots_only:
                self.budget.start_path(name, pending.clock + 1, pending.points)
        pending.granted.set_result(granted)

    def _use_surplus(self) -> None:
        if fresh := self.budget.surplus():
            self.budget.taken += fresh
            self._top_up(fresh)

    # how branches are made

    async def _fork(self, trajectory: LiveTrajectory, pending: PendingBranch) -> list[ToolEnv]:
        try:
            return await self.environments.fork(trajectory, pending.made)
        except Exception as error:  # the original goes on without branches, and the budget becomes fresh roots
            logger.warning("could not fork an episode of %s: %r", self.environments.task.id, error)
            pending.made.copies = 0
            pending.fault = f"{FORK_FAILED}: {error}"
            return []

    async def _launch_branches(self, pending: PendingBranch) -> None:
        waited = not pending.granted.done()
        granted = await pending.granted
        settled = self.environments.limits.now()
        assert pending.forks is not None
        envs = await pending.forks
        pending.made.until = self.environments.limits.now()
        for env in envs[granted:]:
            await self.environments.close(env)
        for name, env in zip(pending.names, envs, strict=False):
            branch = pending.origin.branch(name, env, self.settings.retries)
            if not self._roots_only:
                self._states[name] = self._branch_state(pending)
            self._launch(branch, pending.origin.number, pending.span)
            if waited:
                event = Event(branch.number, "settle", pending.requested, settled, settled - pending.requested)
                self.environments.timeline.append(event)
        # these were granted and are counted as taken, so the group would end with too few trajectories
        if granted and not envs:
            self._replace_by_roots(pending)

    def _branch_state(self, pending: PendingBranch) -> BranchState:
        state = pending.state.branch()
        state.clock = pending.clock + 1
        return state

    def _replace_by_roots(self, pending: PendingBranch) -> None:
        """Start fresh roots instead. A fork may fail by chance of timing, so no other request may profit from it."""
        pending.decision.branches, pending.decision.reason = 0, pending.fault
        for name in pending.names:
            self.budget.end_path(name, pending.clock)
        self._top_up(len(pending.names))
        self.settle()


class PublishedScheduler(BranchScheduler):
    """Branches as the published engines do: points are decided in turn, and drawn from what is left then."""

    published = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._busy_rounds: set[int] = set()

    def order(self, trajectory: LiveTrajectory, topped_up: bool = False) -> tuple[float, ...]:
        """Return the number of a trajectory."""
        return (float(self._numbers[trajectory.name]),)

    def explain_denials(self) -> None:
        """Do nothing: why a point got nothing is known at once."""

    def _level(self, entropies: Sequence[float]) -> float:
        return segment_entropy(entropies, self.vocabulary, self.settings.entropy_window)

    def _priority(self, name: str, clock: int) -> float:
        return float(self._numbers[name])

    def _scored(self, path: str, clock: int, point: Decision) -> tuple[Decision, int]:
        # the point asks for all copies, and `_draw` decides when its turn has come
        most = self.settings.branch_width - 1
        return point.scored(0.0, self.settings.branch_threshold, False, "" if most else NO_WIDTH), most

    def _add(self, pending: PendingBranch) -> None:
        pending.count = lambda left: self._draw(pending, left)
        super()._add(pending)

    def _draw(self, pending: PendingBranch, left: int) -> int:
        """Draw once per copy, and return the number of branches."""
        assert self.method is not None
        decision = pending.decision
        earlier = sum(number < pending.clock for number in self._busy_rounds)
        decision.consecutive = earlier if self.method.penalised else 0
        scores = self._scores(pending.path, pending.clock, decision, left)
        if scores:
            said = next((score for score in scores if score.branch), scores[-1])
            decision.score, decision.threshold, decision.reason = said.score, said.threshold, said.reason
        return sum(score.branch for score in scores)

    def _settled(self, pending: PendingBranch, granted: int) -> None:
        if granted:
            self._busy_rounds.add(pending.clock)
        else:
            pending.decision.reason = NOT_DRAWN if self.budget.left else SPENT
        super()._settled(pending, granted)

    def _use_surplus(self) -> None:
        if self.budget.idle and self.budget.left > 0:  # one per round
            self.budget.taken += 1
            self._busy_rounds.add(self.budget.last_clock)
            self._top_up(1)

    def _branch_state(self, pending: PendingBranch) -> BranchState:
        state = super()._branch_state(pending)
        state.baseline = None  # a branch is compared with its own first turn
        return state
