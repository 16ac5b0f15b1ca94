"""Where the trajectories of one group branch: measures entropies, asks the branch method, and starts the branches.

A trajectory that wants branches gets forks of its environment made at once, while the model generates its next turn,
and plays on. The branches start when the branch budget has settled the request (`branch_requests` makes both). Forks
that were not granted are closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.algorithms.branching import (
    NOT_DRAWN,
    BranchMethod,
    BranchSettings,
    Candidate,
    Point,
    RankFunction,
    Score,
    chain_length,
)
from arpo_trainer.algorithms.entropy import entropy_level, segment_entropy
from arpo_trainer.algorithms.registry import branch_quota
from arpo_trainer.rollout.branch_budget import BranchBudget, BranchRequest, RankRequests
from arpo_trainer.rollout.live_trajectory import EnvironmentPool, LiveTrajectory
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import FORK_FAILED, QUOTA, SPENT, Decision, Event, RolloutTree, Span

# Requests for branches: what is kept of a point until its branches start, and how they are made from forks.
#
# `BranchScheduler` makes a `PendingBranch` for each point that wants branches. `BranchMaker` forks the environment at
# once, because the episode goes on, and turns the forks into branches when the request has been settled.

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


# Scores of the points of one group: measures turns, draws random numbers from the seed, and asks the branch method.

NO_WIDTH = "branch_width is 1"


class PointScorer:
    """Scores the points of one group.

    Args:
        settings: of the rollout.
        seed_name: what the draws of the group are made from.
        vocabulary: V of the tokenizer; only the published entropy measure depends on it.
    """

    def __init__(self, settings: RolloutSettings, seed_name: str, vocabulary: int) -> None:
        self.settings, self.seed_name, self.vocabulary = settings, seed_name, vocabulary
        self.method: BranchMethod | None = settings.parts.method
        self.published = self.method is not None and self.method.published

    def entropy(self, entropies: Sequence[float]) -> float:
        """Return H of a turn from the entropies of its tokens, in nats, shape (n,)."""
        window = self.settings.entropy_window
        if self.published:
            return segment_entropy(entropies, self.vocabulary, window, "sum")
        return entropy_level(entropies, window)

    def uniform(self, *place: object) -> float:
        """Return the random number in [0, 1) that belongs to a place of the tree."""
        name = "/".join(map(str, (self.seed_name, "branch", *place)))
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest()) / 2.0**56

    def scores(self, path: str, clock: int, point: Point, copies: int) -> list[Score]:
        """Return the scores of the copies that may leave a path's point in a round, each with its random number."""
        assert self.method is not None
        return [
            self.method.score(replace(point, uniform=self.uniform(path, clock, copy)), self.settings)
            for copy in range(copies)
        ]

    def decision(self, point: Point, scores: Sequence[Score]) -> Decision:
        """Record the first score that branches, or else the first one."""
        none = Score(0.0, self.settings.branch_threshold, False, "" if self.settings.branch_width > 1 else NO_WIDTH)
        said = next((score for score in scores if score.branch), scores[0] if scores else none)
        return Decision(point.entropy, point.delta, said.value, said.threshold, 0, said.reason, point.consecutive)


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
        self.settings, self.environments, self.tree = settings, environments, tree
        self.scorer = PointScorer(settings, seed_name, vocabulary)
        self.method, self.published = self.scorer.method, self.scorer.published
        self.budget = self._budget()
        self._maker = BranchMaker(environments, spawn, settings.retries)
        self._spawn, self._launch, self._top_up = spawn, launch, top_up
        self._states: dict[str, BranchState] = {}  # by name; a trajectory without a state may not branch
        self._numbers: dict[str, int] = {}
        self._busy_rounds: set[int] = set()

    def _budget(self) -> BranchBudget:
        budget = BranchBudget(None, self.settings.branch_width, self._priority, self.published)
        budget.arrival = self.settings.branch_order == "arrival"
        if self.method is not None:
            budget.best_first, budget.rounds = self.method.best, self.method.rounds
            if self.method.rank is not None:
                budget.rank = ranking(self.method.rank, self.settings, self.tree)
        return budget

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
        if state is None or self._before:
            return 0
        wanted = state.baseline is None or state.undecided or self._previous
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
        if self._before:
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
            request, granted = settled
            assert isinstance(request, PendingBranch)  # for the type checker: all requests are
            self._settled(request, granted)
        if self.published:
            if self.budget.idle and self.budget.left > 0:  # as published: one per round
                self.budget.taken += 1
                self._busy_rounds.add(self.budget.last_clock)
                self._top_up(1)
        elif fresh := self.budget.surplus():
            self.budget.taken += fresh
            self._top_up(fresh)

    def explain_denials(self) -> None:
        """Write to the decisions of points that got nothing why they did not; called when everything is settled."""
        if not self.published:  # there it is known at once
            for request, left in self.budget.denied():
                assert isinstance(request, PendingBranch)  # for the type checker: all requests are
                request.decision.reason = QUOTA if left else SPENT

    def order(self, trajectory: LiveTrajectory, topped_up: bool = False) -> tuple[float, ...]:
        """Return the position of a trajectory in the group, in the order of the virtual rounds."""
        if self.published:
            return (float(self._numbers[trajectory.name]),)
        # "3.1.0" left the root 3 in round 1
        place = tuple(map(float, trajectory.name.split(".")))
        played = place[-2] if len(place) > 1 else 0.0
        return (float("inf") if topped_up else played, *place)

    # how it is decided

    @property
    def _before(self) -> bool:
        """Whether the turn before a result is measured, not the one after it."""
        return self.method is not None and self.method.turn_end

    @property
    def _previous(self) -> bool:
        """Whether a turn is compared with the one before it on its path, not with the first of the tree."""
        return self.settings.branch_baseline == "previous"

    def _measured(
        self, trajectory: LiveTrajectory, state: BranchState, span: Span | None, entropies: Sequence[float]
    ) -> None:
        """Take the entropies of a turn: they decide the point at `span`, if there is one, and may be the baseline."""
        now = self.scorer.entropy(entropies)
        if state.baseline is None:
            state.baseline = now
        if span is not None:
            self._decide(trajectory, state, span, now)
        if self._previous:
            state.baseline = now

    def _priority(self, name: str, clock: int) -> float:
        return float(self._numbers[name]) if self.published else self.scorer.uniform("order", name, clock)

    def _decide(self, trajectory: LiveTrajectory, state: BranchState, span: Span, entropy: float) -> None:
        """Score a point, record the decision, advance the clock, and request the branches that it wants."""
        name, left = trajectory.name, trajectory.results_left
        baseline = state.baseline if state.baseline is not None else entropy
        # the published code draws only when the point's turn has come (`_draw`)
        uniform = 0.0 if self.published else self.scorer.uniform(name, state.clock, 0)
        point = Point(entropy, baseline, chain_length(state.chain), uniform)
        most = self.settings.branch_width - 1
        # Each possible copy is scored with its own random number. The published code draws only when the point's turn
        # comes, from what is left then, so there the point asks for all copies and `_draw` decides later.
        scores = [] if self.published else self.scorer.scores(name, state.clock, point, most)
        wanted = most if self.published else sum(score.branch for score in scores)
        span.decision = self.scorer.decision(point, scores)
        clock, state.clock = state.clock, state.clock + 1
        state.chain.append(wanted > 0)
        if wanted:
            self._request(trajectory, state, span, span.decision, point, clock, wanted)
        else:
            self.budget.pass_point(name, clock, left)
            self.settle()

    def _request(
        self,
        trajectory: LiveTrajectory,
        state: BranchState,
        span: Span,
        decision: Decision,
        point: Point,
        clock: int,
        wanted: int,
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
            point=point,
            decision=decision,
            requested=self.environments.limits.now(),
            granted=asyncio.get_running_loop().create_future(),
        )
        if self.published:
            pending.count = lambda left: self._draw(pending, point, left)
        self.budget.add_request(pending)
        self.settle()
        # not settled yet: fork now all the environments that may be granted, since the episode is about to go on
        copies = pending.granted.result() if pending.granted.done() else self.budget.most_for(pending)
        if copies:
            state.forking = self._maker.start(trajectory, pending, copies)
            self._spawn(self._launch_branches(pending))

    def _draw(self, pending: PendingBranch, point: Point, left: int) -> int:
        """Decide as the published code does: one draw per copy, when the point's turn has come."""
        assert self.method is not None
        busy = sum(number < pending.clock for number in self._busy_rounds) if self.method.penalised else 0
        scores = self.scorer.scores(pending.path, pending.clock, replace(point, consecutive=busy), left)
        decision = pending.decision
        decision.consecutive = busy
        if scores:
            said = next((score for score in scores if score.branch), scores[-1])
            decision.score, decision.threshold, decision.reason = said.value, said.threshold, said.reason
        return sum(score.branch for score in scores)

    def _settled(self, pending: PendingBranch, granted: int) -> None:
        pending.decision.branches = granted
        if self.method is not None and self.method.rank is not None:
            pending.decision.score = pending.score
        if self.published and not granted:
            pending.decision.reason = NOT_DRAWN if self.budget.left else SPENT
        if granted:
            self._busy_rounds.add(pending.clock)
        for copy in range(granted):
            name = f"{pending.path}.{pending.clock}.{copy}"
            pending.names.append(name)
            self._numbers[name] = len(self._numbers)
            if not self._roots_only:
                self.budget.start_path(name, pending.clock + 1, pending.points)
        pending.granted.set_result(granted)

    # how branches are made

    async def _launch_branches(self, pending: PendingBranch) -> None:
        waited = not pending.granted.done()
        granted = await pending.granted
        settled = self.environments.limits.now()
        branches = await self._maker.branches(pending, granted)
        for branch in branches:
            if not self._roots_only:
                self._states[branch.name] = self._branch_state(pending)
            self._launch(branch, pending.origin.number, pending.span)
            if waited:
                event = Event(branch.number, "settle", pending.requested, settled, settled - pending.requested)
                self.environments.timeline.append(event)
        # these were granted and are counted as taken, so the group would end with too few trajectories
        if granted and not branches:
            self._replace_by_roots(pending)

    @property
    def _roots_only(self) -> bool:
        return self.method is not None and self.method.roots_only

    def _branch_state(self, pending: PendingBranch) -> BranchState:
        state = pending.state.branch()
        state.clock = pending.clock + 1
        if self.published:
            state.baseline = None  # as published: a branch is compared with its own first turn
        return state

    def _replace_by_roots(self, pending: PendingBranch) -> None:
        """Start fresh roots instead. A fork may fail by chance of timing, so no other request may profit from it."""
        pending.decision.branches, pending.decision.reason = 0, pending.fault
        for name in pending.names:
            self.budget.end_path(name, pending.clock)
        self._top_up(len(pending.names))
        self.settle()
