"""Trajectories under way: `LiveTrajectory`, its `LiveEpisode`, and the environments of a group that they are played in.

Each part of the state has one owner that writes it: the group writes a `LiveTrajectory`, the environment pool its
`LiveEpisode`, and the branch scheduler keeps its own `BranchState` of each trajectory.

An environment that is lost (its container died) is made again by playing the same turns in a fresh one, if the tools
that were called may be called twice (`Tool.repeatable`). Every result is compared with the one that the model was
shown. If one differs, the new environment is not in the state that the model was in, and the sample is invalid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env import ServiceError, ToolEnv
from arpo_env.chat_messages import conversation
from arpo_env.protocols.protocol import ToolCalls
from arpo_env.tools.tool import usable_schemas, usable_tools
from arpo_trainer.backends.base import Generation
from arpo_trainer.inference_tools import BACKTRACER
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import Event, Stopwatch
from envs_registry import Task
from sandbox import SandboxError

logger = logging.getLogger(__name__)
KINDS = ("trajectory", "generate", "reset", "fork", "answer")
DEFAULT_TRAJECTORIES = 256  # as many as a sandbox has sessions by default
REPLAYED_ERRORS = (SandboxError, ServiceError, TimeoutError, OSError)
StepResult = tuple[str, float, bool, bool, dict[str, Any]]
Around = Callable[[ToolEnv], contextlib.AbstractContextManager[None]]


class ConcurrencyLimits:
    """Limits on what runs at once in one rollout; waiting operations are served in the order in which they asked.

    Args:
        limits: maximum number at once by kind: "trajectory" (episodes; a group that branches takes all of its places at
            once), "generate", "reset", "fork", "answer" (grading), or the name of a tool.

    Raises:
        ValueError: a limit is below 1.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        for kind, most in limits.items():
            if most < 1:
                raise ValueError(f"the limit of {kind!r} must be at least 1, got {most}")
        self._limited = {kind: (asyncio.Lock(), asyncio.Semaphore(most)) for kind, most in limits.items()}
        self._began = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the rollout began."""
        return time.perf_counter() - self._began

    @contextlib.asynccontextmanager
    async def acquire(self, *kinds: str, count: int = 1) -> AsyncIterator[float]:
        """Hold `count` places of each kind; yields the seconds spent waiting for them."""
        asked = self.now()
        async with contextlib.AsyncExitStack() as held:
            for kind in sorted(self._limited.keys() & set(kinds)):  # one order for all callers, so none deadlock
                queue, semaphore = self._limited[kind]
                async with queue:  # several places are taken together: two callers with half each would deadlock
                    for _ in range(count):
                        await held.enter_async_context(semaphore)
            yield self.now() - asked

    @contextlib.asynccontextmanager
    async def timed(self, timeline: list[Event], event: Event, *kinds: str) -> AsyncIterator[Event]:
        """Hold a place of the event's own kind (or of `kinds`), and record the event, also when the body fails."""
        event.start = self.now()
        try:
            async with self.acquire(*(kinds or (event.kind,))) as event.waited:
                yield event
        finally:
            event.end = self.now()
            timeline.append(event)


def check_limits(limits: Mapping[str, int], tools: list[str]) -> None:
    """Refuse limits of kinds that do not exist."""
    unknown = sorted(set(limits) - set(KINDS) - set(tools))
    if unknown:
        raise ValueError(f"limits names {', '.join(unknown)}; there are {', '.join((*KINDS, *tools))}")


@dataclass(frozen=True)
class PlayedTurn:
    """A turn that was played.

    Attributes:
        text: of the turn.
        room: tokens left before it.
        result: what the model was shown.
        withheld: whether the result did not fit and a notice was shown in its place.
        correction: changes the environment while the turn is played, where a tool at inference time did.
        images: the pictures with the result.
    """

    text: str
    room: int
    result: str
    withheld: bool = False
    correction: Around | None = None
    images: tuple[str, ...] = ()


@dataclass
class LiveEpisode:
    """One episode of an environment, and what is needed to play it again.

    Attributes:
        env: its environment.
        retries: how often the environment may still be made again.
        seed: of tools with noise.
        begun: whether the episode has been started.
        history: the turns that were played.
        correction: that of the turn that is played now; see `PlayedTurn`.
    """

    env: ToolEnv
    retries: int = 0
    seed: int | None = None
    begun: bool = False
    history: list[PlayedTurn] = field(default_factory=list)
    correction: Around | None = None

    def record(self, withheld: bool) -> None:
        """Add the last turn to the history."""
        turn, room = self.env.episode.turns[-1], self.env.episode.tokens_left or 0
        self.history.append(PlayedTurn(turn.text, room, turn.result, withheld, self.correction, tuple(turn.images)))
        self.correction = None

    def may_replay(self, error: BaseException) -> bool:
        """Return whether the environment may be made again after this error."""
        tools = usable_tools(self.env.tools)
        turns = self.env.episode.turns if self.begun else []
        # the failed turn counts with what it wanted to call; a call of an unknown name has run nothing
        called = {call.name for turn in turns for call in turn.calls}
        called |= set(self.called_tools(turns[-1].text)) if turns else set()
        safe = all(tools[name].repeatable for name in called if name in tools)
        return isinstance(error, REPLAYED_ERRORS) and self.retries > 0 and safe

    def called_tools(self, text: str) -> list[str]:
        """Return the tools that a turn calls."""
        action = self.env.protocol.parse(text, usable_schemas(self.env.tools))
        return [call.name for call in action.calls] if isinstance(action, ToolCalls) else []


@dataclass
class LiveTrajectory:
    """A trajectory under way.

    Attributes:
        name: where it began: "3" is the fourth root, "3.1.0" is the first branch that left it after its turn 1.
        episode: its episode.
        ids: token ids so far, the prompt included.
        node: index of the last span, None at the prompt.
        number: of its trajectory in the tree.
        turn: number of turns played.
        used: tools at inference time that were used, one entry for each use.
        notes: marks of these tools for the turn that it generates next, see `Span.interventions`; for its last span if
            it ends before.
        opening: ids that its next turn begins with; the model goes on from there.
    """

    name: str
    episode: LiveEpisode
    ids: list[int]
    node: int | None = None
    number: int = -1
    turn: int = 0
    used: tuple[str, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    opening: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """Where its next turn begins, for seeds; a turn that is generated again has another."""
        again = self.used.count(BACKTRACER)
        return f"{self.name}/{self.turn}" + (f"/{again}" if again else "")

    @property
    def env(self) -> ToolEnv:
        """The environment of its episode."""
        return self.episode.env

    @property
    def results_left(self) -> int:
        """How many more tool results it can reach: a result needs a call, and a turn that may follow it."""
        episode = self.env.episode
        return self.env.budget.results_left(len(episode.tools_used), len(episode.turns))

    @property
    def called(self) -> list[str]:
        """The tools whose results its last turn has, in order; none for one message of the environment."""
        turn = self.env.episode.turns[-1]
        names = [call.name for call in turn.calls]
        return names if len(names) == len(turn.results) else []

    def messages(self, renderer: Renderer) -> tuple[dict[str, Any], ...]:
        """Return what the model goes on from as chat messages; pictures are parts of a content, as OpenAI has them."""
        messages = conversation(self.env)
        if self.opening:
            messages.append({"role": "assistant", "content": renderer.turn_text(self.opening, first=True)})
        return tuple(messages)

    def opened(self, made: Generation) -> Generation:
        """Return a turn with the opening before it, which is used up; its tokens were not sampled and have zeros."""
        opening, self.opening = self.opening, ()
        zeros = [0.0] * len(opening)
        numbers = [*zeros, *made.logprobs], [*zeros, *made.entropies]
        return replace(made, ids=[*opening, *made.ids], logprobs=numbers[0], entropies=numbers[1]) if opening else made

    def snapshot(self) -> LiveTrajectory:
        """Return a copy that stays where this trajectory stands now; it shares the environment itself."""
        return replace(self, ids=list(self.ids), episode=replace(self.episode, history=list(self.episode.history)))

    def branch(self, name: str, env: ToolEnv, retries: int) -> LiveTrajectory:
        """Return a new trajectory that continues from here in `env`, a fork of this one's environment."""
        episode = LiveEpisode(env, retries, self.episode.seed, begun=True, history=list(self.episode.history))
        return replace(self, name=name, episode=episode, ids=list(self.ids))


class ReplayError(RuntimeError):
    """Raised when an episode that is replayed does not give the same results."""


async def replay(env: ToolEnv, task: Task, history: list[PlayedTurn], seed: int | None = None) -> None:
    """Bring a fresh environment to where an episode with this seed stood after `history`.

    Raises:
        ReplayError: a result differs from the recorded one.
    """
    await env.areset(seed=seed, options={"task": task})
    for number, turn in enumerate(history):
        env.episode.tokens_left = turn.room  # tools see how much room is left, so results may depend on it
        with turn.correction(env) if turn.correction else contextlib.nullcontext():
            result, _, terminated, truncated, _ = await env.astep(turn.text)
        if turn.withheld and not (terminated or truncated):
            env.withhold_result()
            # of memories that did not fit, what the model was told instead may not have fitted, either
            if env.episode.turns[-1].result != turn.result:
                env.withhold_result()
            result = env.episode.turns[-1].result
        if (result, tuple(env.episode.turns[-1].images)) != (turn.result, turn.images):
            raise ReplayError(f"turn {number} of the episode gave another result when it was replayed")


def error_message(error: BaseException) -> str:
    """Return what a failed trajectory says of its error: the class, the message, and its notes."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f"; {notes}" if notes else "")


@dataclass
class EnvironmentPool:
    """The environments of one group: starts them, plays turns in them, forks and closes them, and records the times.

    No environment stays open, whatever happens.

    Attributes:
        template: the environment they are copies of.
        task: the task they play.
        limits: on what runs at once, over all groups.
        timeline: where their events are recorded.
        time: runs while at least one of them is busy.
        turn_timeout: maximum number of seconds for a step, a reset, a fork or closing.
    """

    template: ToolEnv
    task: Task
    limits: ConcurrencyLimits
    timeline: list[Event]
    time: Stopwatch
    turn_timeout: float = 900.0
    _open: set[ToolEnv] = field(default_factory=set)

    def spawn(self) -> ToolEnv:
        """Return a fresh environment; it still has to be started."""
        env = self.template.spawn()
        self._open.add(env)
        return env

    async def start(self, trajectory: LiveTrajectory) -> None:
        """Start a trajectory's episode."""
        episode = trajectory.episode
        # this ends at the latest when no retries are left: `_make_again` raises the error then
        while not episode.begun:
            try:
                async with self._timed(Event(trajectory.number, "reset", 0.0, 0.0)):
                    await episode.env.areset(seed=episode.seed, options={"task": self.task})
                episode.begun = True
            except Exception as error:
                await self._make_again(trajectory, error)

    async def act(self, trajectory: LiveTrajectory, text: str, room: int, cut: bool = False) -> StepResult:
        """Play one turn and return what `ToolEnv.step` returns.

        Args:
            trajectory: whose episode.
            text: of the turn; "" with `cut` if the last turn stays the last one.
            room: tokens left for what follows the turn.
            cut: whether the turn is incomplete and must not be read, so that the episode is truncated.
        """
        episode = trajectory.episode
        tools = [] if cut else episode.called_tools(text)
        tool = tools[0] if tools else ""
        while True:
            try:
                event = Event(trajectory.number, "tool" if tool else "answer", 0.0, 0.0, name=tool)
                async with self._timed(event, *(tools or ["answer"])):
                    # at each try: a replayed episode still has the room of its last replayed turn
                    episode.env.episode.tokens_left = room
                    with episode.correction(episode.env) if episode.correction else contextlib.nullcontext():
                        result = await (episode.env.atruncate(text) if cut else episode.env.astep(text))
                    event.status = result[4].get("tool", {}).get("status", "") if tool else result[4]["outcome"]
                return result
            except Exception as error:
                await self._make_again(trajectory, error)

    async def fork(self, trajectory: LiveTrajectory, event: Event) -> list[ToolEnv]:
        """Return `event.copies` copies of a trajectory's environment."""
        async with self._timed(event):
            copies = await trajectory.env.afork(event.copies)
            self._open.update(copies)
            return copies

    async def close(self, env: ToolEnv) -> None:
        """Close an environment. An error is only logged: a sandbox that is gone has nothing left to give back."""
        try:
            async with asyncio.timeout(self.turn_timeout):
                await env.aclose()
        except Exception as error:
            logger.warning("closing an environment of %s failed: %r", self.task.id, error)
        # last, so that `close_all` still finds it if this is cancelled while it closes
        self._open.discard(env)

    async def close_all(self) -> None:
        """Close what is still open."""
        for env in list(self._open):
            await self.close(env)

    @contextlib.asynccontextmanager
    async def _timed(self, event: Event, *kinds: str, steps: int = 1) -> AsyncIterator[None]:
        """Run an operation under its limits and a timeout of `steps` steps, and record it."""
        async with self.limits.timed(self.timeline, event, *kinds):
            with self.time.running():
                try:
                    async with asyncio.timeout(self.turn_timeout * steps) as limit:
                        yield
                except TimeoutError as error:
                    if not limit.expired():  # a timeout of the tool itself, which says more than ours would
                        raise
                    said = f"a {event.kind} took longer than turn_timeout = {self.turn_timeout:g} s"
                    raise TimeoutError(said) from error

    async def _make_again(self, trajectory: LiveTrajectory, error: Exception) -> None:
        """Replace an environment that broke down by one that has replayed its turns, or raise the error."""
        episode = trajectory.episode
        if not episode.may_replay(error):
            raise error
        episode.retries -= 1
        logger.info("an environment of %s failed (%r); replaying its episode", self.task.id, error)
        # closed first: where sandboxes are few, the new environment may need its place
        await self.close(episode.env)
        episode.env = self.spawn()
        # there is nothing to replay; the caller tries to start it again
        if not episode.begun:
            return
        try:
            event = Event(trajectory.number, "retry", 0.0, 0.0, name=type(error).__name__)
            async with self._timed(event, steps=1 + len(episode.history)):
                await replay(episode.env, self.task, episode.history, episode.seed)
        except Exception as again:
            error.add_note(f"and the episode could not be replayed: {again}")
            raise error from again
