"""The environments of one group: starts them, acts in them, copies and closes them, and notes how long it took.

What breaks down is made again by playing the same turns in a fresh environment, where that is safe (`path`). Whatever
happens, no environment stays open.
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
from arpo_trainer.rollout.concurrency import Gates
from arpo_trainer.rollout.live_trajectory import Path, may_repeat, played_again
from arpo_trainer.stopwatch import Stopwatch
from arpo_trainer.timeline import Event
from envs_registry import Task

logger = logging.getLogger(__name__)
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


@dataclass
class Worlds:
    """The environments of one group.

    Attributes:
        template: what they are copies of.
        task: what is played in them.
        gates: how many things go on at once, over all groups.
        timeline: where it is noted what they did.
        time: runs while at least one of them is at work.
        turn_timeout: seconds that a step, a reset, a fork or closing may take.
    """

    template: ToolEnv
    task: Task
    gates: Gates
    timeline: list[Event]
    time: Stopwatch
    turn_timeout: float = 900.0
    _open: set[ToolEnv] = field(default_factory=set)

    def spawn(self) -> ToolEnv:
        """Return a fresh environment; it still has to be started."""
        env = self.template.spawn()
        self._open.add(env)
        return env

    async def begin(self, path: Path) -> None:
        """Start a path's episode."""
        while not path.begun:
            try:
                async with self._doing(path, Event(path.number, "reset", 0.0, 0.0)):
                    await path.env.areset(options={"task": self.task})
                path.begun = True
            except Exception as error:
                await self._make_again(path, error)

    async def act(self, path: Path, text: str, room: int, cut: bool = False) -> StepResult:
        """Play one turn and return what `ToolEnv.step` returns.

        Args:
            path: whose episode.
            text: of the turn; "" with `cut`, if the last turn is to stay the last.
            room: tokens left for what follows the turn.
            cut: it is half a turn, which nobody may read: the episode is truncated.
        """
        tools = [] if cut else self._called(path, text)
        tool = tools[0] if tools else ""
        while True:
            try:
                event = Event(path.number, "tool" if tool else "answer", 0.0, 0.0, name=tool)
                async with self._doing(path, event, *(tools or ["answer"])):
                    path.env.episode.tokens_left = room
                    result = await (path.env.atruncate(text) if cut else path.env.astep(text))
                    event.status = result[4].get("tool", {}).get("status", "") if tool else result[4]["outcome"]
                return result
            except Exception as error:
                await self._make_again(path, error)

    async def fork(self, path: Path, event: Event) -> list[ToolEnv]:
        """Return `event.copies` copies of a path's environment."""
        async with self._doing(path, event):
            copies = await path.env.afork(event.copies)
            self._open.update(copies)
            return copies

    async def close(self, env: ToolEnv) -> None:
        """Close an environment; a sandbox that is gone has nothing left to give back."""
        try:
            async with asyncio.timeout(self.turn_timeout):
                await env.aclose()
        except Exception as error:
            logger.warning("closing an environment of %s failed: %r", self.task.id, error)
        self._open.discard(env)

    async def close_all(self) -> None:
        """Close what is still open."""
        for env in list(self._open):
            await self.close(env)

    @contextlib.asynccontextmanager
    async def _doing(self, path: Path, event: Event, *kinds: str, steps: int = 1) -> AsyncIterator[None]:
        """Do what takes as long as so many steps, in its place."""
        async with self.gates.doing(self.timeline, event, *kinds):
            with self.time.running():
                try:
                    async with asyncio.timeout(self.turn_timeout * steps) as limit:
                        yield
                except TimeoutError as error:
                    if not limit.expired():
                        raise
                    said = f"a {event.kind} took longer than turn_timeout = {self.turn_timeout:g} s"
                    raise TimeoutError(said) from error

    async def _make_again(self, path: Path, error: Exception) -> None:
        """Put a new environment in the place of one that broke down, or raise the error."""
        if not may_repeat(path, error):
            raise error
        path.retries -= 1
        logger.info("episode of %s broke down (%r): it is played again", self.task.id, error)
        await self.close(path.env)
        path.env = self.spawn()
        if not path.begun:
            return
        try:
            event = Event(path.number, "retry", 0.0, 0.0, name=type(error).__name__)
            async with self._doing(path, event, steps=1 + len(path.history)):
                await played_again(path.env, self.task, path.history)
        except Exception as again:
            error.add_note(f"and it could not be played again: {again}")
            raise error from again

    def _called(self, path: Path, text: str) -> list[str]:
        """Return the tools that a turn calls."""
        action = path.env.protocol.parse(text, path.env.schemas)
        return [call.name for call in action.calls] if isinstance(action, ToolCalls) else []
