"""Where the paths of one group branch: measures, asks the branch method, settles, and starts the branches.

A path that asks for branches gets copies of its environment made at once, while it generates, and plays on. The
branches start when the ledger has settled their claim; copies that got nothing are closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from arpo_env import ToolEnv
from arpo_trainer.algorithms.branching import NOT_DRAWN, BranchMethod, Point, Score, chain_length
from arpo_trainer.algorithms.budgets import branch_quota
from arpo_trainer.algorithms.entropy import entropy_level, segment_entropy
from arpo_trainer.rollout.branch_budget import Claim, Ledger
from arpo_trainer.rollout.environments import Worlds
from arpo_trainer.rollout.live_trajectory import Path
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.timeline import Event
from arpo_trainer.tree import FORK_FAILED, QUOTA, SPENT, Decision, Span

logger = logging.getLogger(__name__)
NO_WIDTH = "branch_width is 1"


@dataclass(eq=False, kw_only=True)
class _Wish(Claim):
    """A claim, with what is needed to make its branches."""

    twin: Path
    span: Span
    decision: Decision
    asked: float
    settled: asyncio.Future[int]
    forks: asyncio.Task[list[ToolEnv]] | None = None
    made: Event | None = None
    names: list[str] = field(default_factory=list)
    fault: str = ""


class Brancher:
    """Decides for one group where it branches.

    Args:
        settings: of the rollout.
        seed_name: what the group's draws are made from.
        vocabulary: V, of the tokenizer; only the published measure depends on it.
        worlds: the group's environments.
        spawn: starts a task that the group waits for.
        launch: plays a branch: its path, the number of its parent, and the span it forks from.
        top_up: starts so many fresh roots.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        seed_name: str,
        vocabulary: int,
        worlds: Worlds,
        spawn: Callable[..., asyncio.Task[object]],
        launch: Callable[[Path, int, Span], None],
        top_up: Callable[[int], None],
    ) -> None:
        self.settings, self.seed_name, self.vocabulary, self.worlds = settings, seed_name, vocabulary, worlds
        self.method: BranchMethod | None = settings.parts.method
        self.published = self.method is not None and self.method.published
        best = self.method is not None and self.method.best
        self.ledger = Ledger(None, settings.branch_width, self._priority, self.published, best)
        self._spawn, self._launch, self._top_up = spawn, launch, top_up
        self._numbers: dict[str, int] = {}
        self._busy_rounds: set[int] = set()

    # what the group says

    def divide(self, roots: int) -> None:
        """It is known how many trajectories start at the prompt: the others may be branches."""
        total, quota = self.settings.num_generations, self.settings.branch_quota
        self.ledger.reserve = total - roots
        if quota is None and self.method and self.method.quota:
            quota = branch_quota(total, roots)
        self.ledger.quota = quota or None

    def may_branch(self, topped_up: bool) -> bool:
        """Say whether a root may branch; one from unused budget does only in the published code."""
        return self.method is not None and (self.published or not topped_up)

    def opens(self, path: Path, topped_up: bool) -> None:
        """A root begins that may branch."""
        self._numbers[path.name] = len(self._numbers)
        path.clock = self.ledger.last_clock + 1 if topped_up else 1
        budget = path.env.budget
        self.ledger.opens(path.name, path.clock, min(budget.calls, budget.turns - 1))

    def ends(self, path: Path) -> None:
        """A path has come to its end."""
        if path.branches:
            self.ledger.ends(path.name, path.clock)
            self.settle()

    def window(self, path: Path) -> int:
        """Return how many entropies of a path's next turn are wanted."""
        wanted = path.branches and not self.published and (path.baseline is None or path.point is not None)
        return self.settings.entropy_window if wanted else 0

    def first_tokens(self, path: Path, entropies: Sequence[float]) -> None:
        """The first tokens of a path's turn are there: the baseline, or what a point is decided by."""
        if path.baseline is None:
            path.baseline = self._segment(entropies)
        point, path.point = path.point, None
        if point is not None:
            self._decide(path, point, self._segment(entropies))

    def result(self, path: Path, span: Span, entropies: Sequence[float]) -> None:
        """A path has been shown a result: `span`, which answers a turn with these entropies."""
        if not path.branches:
            return
        is_point = span.tool is not None and span.tool["status"] != "refused"
        if self.published:
            now = self._segment(entropies)
            path.baseline = now if path.baseline is None else path.baseline
            if is_point:
                self._decide(path, span, now)
        elif is_point:
            path.point = span
        if not is_point:  # a message of the environment, no tool's result
            self.ledger.passes(path.name, path.clock, path.points)
            path.clock += 1
            self.settle()

    def settle(self) -> None:
        """Settle what can be settled, and start the roots that nobody can claim any more."""
        while settled := self.ledger.settle():
            wish, granted = settled
            assert isinstance(wish, _Wish)  # for the type checker: nothing else is claimed
            self._settled(wish, granted)
        if self.published:
            if self.ledger.idle and self.ledger.left > 0:  # as published: one a round
                self.ledger.taken += 1
                self._busy_rounds.add(self.ledger.last_clock)
                self._top_up(1)
        elif fresh := self.ledger.surplus():
            self.ledger.taken += fresh
            self._top_up(fresh)

    def close(self) -> None:
        """Everything is settled: say of each point that got nothing what it was refused for."""
        if not self.published:  # there it is known at once
            for wish, left in self.ledger.refused():
                assert isinstance(wish, _Wish)  # for the type checker: nothing else is claimed
                wish.decision.reason = QUOTA if left else SPENT

    def order(self, path: Path, topped_up: bool = False) -> tuple[float, ...]:
        """Return a path's place in the group, in the order of virtual rounds."""
        if self.published:
            return (float(self._numbers[path.name]),)
        round_number = float("inf") if topped_up else path.clock - 1
        return (round_number, *map(float, path.name.split(".")))

    # how it is decided

    def _segment(self, entropies: Sequence[float]) -> float:
        window = self.settings.entropy_window
        if self.published:
            return segment_entropy(entropies, self.vocabulary, window, "sum")
        return entropy_level(entropies, window)

    def _uniform(self, *place: object) -> float:
        name = "/".join(map(str, (self.seed_name, "branch", *place)))
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest()) / 2.0**56

    def _priority(self, name: str, clock: int) -> float:
        return float(self._numbers[name]) if self.published else self._uniform("order", name, clock)

    def _score(self, path: str, clock: int, point: Point, copy: int) -> Score:
        assert self.method is not None
        return self.method.score(replace(point, uniform=self._uniform(path, clock, copy)), self.settings)

    def _decide(self, path: Path, span: Span, entropy: float) -> None:
        point = Point(entropy, path.baseline if path.baseline is not None else entropy, chain_length(path.chain))
        width = self.settings.branch_width - 1
        scores = [] if self.published else [self._score(path.name, path.clock, point, copy) for copy in range(width)]
        wanted = width if self.published else sum(score.branch for score in scores)
        none = Score(0.0, self.settings.tau, False, "" if width else NO_WIDTH)
        said = next((score for score in scores if score.branch), scores[0] if scores else none)
        span.decision = Decision(entropy, point.delta, said.value, said.threshold, 0, said.reason, point.consecutive)
        clock, path.clock = path.clock, path.clock + 1
        path.chain.append(wanted > 0)
        if not wanted:
            self.ledger.passes(path.name, clock, path.points)
            return self.settle()
        wish = _Wish(path.name, clock, wanted, path.points, said.value, twin=path.twin(), span=span,
                     decision=span.decision, asked=self.worlds.gates.now(),
                     settled=asyncio.get_running_loop().create_future())  # fmt: skip
        if self.published:
            wish.count = lambda left: self._draw(wish, point, left)
        self._claim(path, wish)

    def _draw(self, wish: _Wish, point: Point, left: int) -> int:
        """Decide as the published code does: when the point's turn has come, one draw a copy."""
        assert self.method is not None
        busy = sum(number < wish.clock for number in self._busy_rounds) if self.method.penalised else 0
        scores = [self._score(wish.path, wish.clock, replace(point, consecutive=busy), n) for n in range(left)]
        wish.decision.consecutive = busy
        if scores:
            said = next((score for score in scores if score.branch), scores[-1])
            wish.decision.score, wish.decision.threshold, wish.decision.reason = said.value, said.threshold, said.reason
        return sum(score.branch for score in scores)

    def _claim(self, path: Path, wish: _Wish) -> None:
        self.ledger.claims(wish)
        self.settle()
        copies = wish.settled.result() if wish.settled.done() else self.ledger.most(wish)
        if copies:
            wish.forks = path.forking = self._spawn(self._copies(path, wish, copies))  # type: ignore[assignment]
            self._spawn(self._follow(wish))

    def _settled(self, wish: _Wish, granted: int) -> None:
        wish.decision.branches = granted
        if self.published and not granted:
            wish.decision.reason = NOT_DRAWN if self.ledger.left else SPENT
        if granted:
            self._busy_rounds.add(wish.clock)
        for copy in range(granted):
            name = f"{wish.path}.{wish.clock}.{copy}"
            wish.names.append(name)
            self._numbers[name] = len(self._numbers)
            self.ledger.opens(name, wish.clock + 1, wish.points)
        wish.settled.set_result(granted)

    # how branches are made

    async def _copies(self, path: Path, wish: _Wish, n: int) -> list[ToolEnv]:
        wish.made = Event(path.number, "fork", 0.0, 0.0, copies=n)
        try:
            return await self.worlds.fork(path, wish.made)
        except Exception as error:  # no copy, no branch: the original goes on, the budget goes to fresh roots
            logger.warning("could not fork an episode of %s: %r", self.worlds.task.id, error)
            wish.made.copies = 0
            wish.fault = f"{FORK_FAILED}: {error}"
            return []

    async def _follow(self, wish: _Wish) -> None:
        waited = not wish.settled.done()
        granted = await wish.settled
        assert wish.forks is not None
        settled = self.worlds.gates.now()
        envs = await wish.forks
        assert wish.made is not None
        wish.made.until = self.worlds.gates.now()
        for env in envs[granted:]:
            await self.worlds.close(env)
        for name, env in zip(wish.names, envs, strict=False):
            twin = wish.twin.twin()
            twin.name, twin.env, twin.clock, twin.retries = name, env, wish.clock + 1, self.settings.retries
            if self.published:
                twin.baseline = None
            self._launch(twin, wish.twin.number, wish.span)
            if waited:
                waiting = settled - wish.asked
                self.worlds.timeline.append(Event(twin.number, "settle", wish.asked, settled, waiting))
        if granted and not envs:
            self._unmade(wish)

    def _unmade(self, wish: _Wish) -> None:
        """Start fresh roots instead: when a fork failed is a matter of timing, so no other claim may profit from it."""
        wish.decision.branches, wish.decision.reason = 0, wish.fault
        for name in wish.names:
            self.ledger.ends(name, wish.clock)
        self._top_up(len(wish.names))
        self.settle()
