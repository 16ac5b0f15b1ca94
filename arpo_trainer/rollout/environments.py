"""The environments of one group: starts them, plays turns in them, forks and closes them, and records the times.

An environment that breaks down is made again by replaying its turns in a fresh one, where that is safe (see
`live_trajectory`). No environment stays open, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_env.protocols.protocol import ToolCalls
from arpo_env.tools.toolbox import usable_schemas
from arpo_trainer.rollout.concurrency import ConcurrencyLimits
from arpo_trainer.rollout.corrected_code import running_instead
from arpo_trainer.rollout.live_trajectory import LiveEpisode, LiveTrajectory, replay
from arpo_trainer.timeline import Event, Stopwatch
from envs_registry import Task

logger = logging.getLogger(__name__)
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


@dataclass
class EnvironmentPool:
    """The environments of one group.

    Attributes:
        template: the environment they are copies of.
        task: the task they play.
        limits: on what runs at once, over all groups.
        timeline: where their events are recorded.
        time: runs while at least one of them is busy.
        turn_timeout: most seconds for a step, a reset, a fork or closing.
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
        tools = [] if cut else _called_tools(episode, text)
        tool = tools[0] if tools else ""
        while True:
            try:
                event = Event(trajectory.number, "tool" if tool else "answer", 0.0, 0.0, name=tool)
                async with self._timed(event, *(tools or ["answer"])):
                    # at each try: a replayed episode still has the room of its last replayed turn
                    episode.env.episode.tokens_left = room
                    with running_instead(episode.env, episode.correction):
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


def _called_tools(episode: LiveEpisode, text: str) -> list[str]:
    """Return the tools that a turn calls."""
    action = episode.env.protocol.parse(text, usable_schemas(episode.env.tools))
    return [call.name for call in action.calls] if isinstance(action, ToolCalls) else []
