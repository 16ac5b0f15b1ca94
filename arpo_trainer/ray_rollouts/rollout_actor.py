"""`RolloutActor`: what runs in an actor's process. It plays single groups with an engine and a sandbox of its own.

A group's seeds come from its step and its number, so its tree does not depend on the actor. Everything runs on the
background loop of the process, as in a trainer; Ray's own loop only carries the calls, and stays free.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arpo_env.event_loop import run_on_loop
from arpo_trainer.tree import Stopwatch

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.backends.base import Backend, GenerationError
    from arpo_trainer.inference_tools import InferenceSettings
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits
    from arpo_trainer.rollout.settings import RolloutSettings
    from arpo_trainer.tree import RolloutTree
    from envs_registry import Task

PARTS_KEPT = 4  # training, evaluation, and what comes after a change of either


class GroupJob(NamedTuple):
    """A group to play."""

    task: Task
    step: int  # part of its seed
    group: int  # its number, part of its seed
    env: int = 0  # which of the environments of the rollout is played
    opening: tuple[int, ...] = ()  # token ids that the first turn of each root begins with; see `Group`


@dataclass(frozen=True)
class PlayedGroup:
    """What an actor hands back."""

    tree: RolloutTree
    failure: GenerationError | None = None  # of the model, so that the unfinished trajectories count as failed


@dataclass(frozen=True)
class EngineParts:
    """What engines are made of and stays the same from rollout to rollout; it travels to an actor once."""

    backend: Backend  # has to pickle, and to work from other machines
    tokenizer: Any
    envs: tuple[ToolEnv, ...]  # an actor gets its own with the same settings
    chat_template_kwargs: dict[str, Any]
    inference: InferenceSettings | None = None  # an actor asks the helping model itself, with the key that it has

    def same_as(self, other: EngineParts) -> bool:
        """Return whether the other has the same objects, so that it need not be sent again."""
        ours, theirs = ([one.backend, one.tokenizer, *one.envs] for one in (self, other))
        same = list(map(id, ours)) == list(map(id, theirs))
        return same and self.chat_template_kwargs == other.chat_template_kwargs and self.inference == other.inference


@dataclass(frozen=True)
class RemoteRollout:
    """A rollout, as an actor needs to know it."""

    name: str  # unique among the rollouts of the driver
    key: int  # of the parts; equal keys are equal parts
    parts: list[Any]  # the reference to the pickled `EngineParts`, in a list: Ray would fetch a bare one for every call
    settings: tuple[RolloutSettings, ...]  # how trees are grown in each environment
    limits: dict[str, int]  # most operations of one kind at once, in each actor, over all environments


@dataclass
class _Session:
    """A rollout as this actor plays it."""

    engines: list[Engine]
    limits: ConcurrencyLimits
    backend: Backend
    before: float
    running: set[asyncio.Task[Any]] = field(default_factory=set)


class RolloutActor:
    """Plays groups; `RolloutWorkers` makes it a Ray actor, and `arpo_trainer.ray_rollouts` is the way to use it.

    Args:
        number: of the worker.
        variables: environment variables that hold here, too. RANK lets workers begin with different servers.
    """

    def __init__(self, number: int, variables: Mapping[str, str]) -> None:
        os.environ.update(variables)
        self.number = number
        self._parts: dict[int, asyncio.Future[EngineParts]] = {}
        self._sessions: dict[str, asyncio.Future[_Session]] = {}

    async def where(self) -> str:
        """Return number, host, Ray's node and the process, once this actor runs."""
        import ray

        node = ray.get_runtime_context().get_node_id()[:8]
        return f"{self.number} (host {socket.gethostname()}, node {node}, process {os.getpid()})"

    async def ping(self) -> None:
        """Return when the loop that plays has answered."""
        await run_on_loop(asyncio.sleep(0))

    async def prepare(self, rollout: RemoteRollout) -> None:
        """Get ready for a rollout."""
        await run_on_loop(self._prepare(rollout))

    async def play(self, rollout: RemoteRollout, job: GroupJob) -> PlayedGroup:
        """Play a group; see `Group`. The model's failure is part of what is returned."""
        return await run_on_loop(self._play(rollout, job))

    async def finish(self, name: str) -> tuple[float, float]:
        """End a rollout: what is still played is given up, and its environments are closed.

        Returns:
            The seconds during which at least one request was computed, and at least one environment was busy.
        """
        return await run_on_loop(self._finish(name))

    async def _prepare(self, rollout: RemoteRollout) -> None:
        from arpo_env.tools.python import PythonTool

        parts = await self._once(self._parts, rollout.key, lambda: self._fetch(rollout))
        python = [tool for env in parts.envs for tool in env.tools.values() if isinstance(tool, PythonTool)]
        await asyncio.to_thread(lambda: [tool.sandbox.isolation for tool in python])  # fails where there is none

    async def _fetch(self, rollout: RemoteRollout) -> EngineParts:
        while len(self._parts) > PARTS_KEPT:
            del self._parts[next(iter(self._parts))]
        # imports, and an environment that loads its tasks, take seconds in which pings have to be answered
        return await asyncio.to_thread(_unpickled, await rollout.parts[0])

    async def _play(self, rollout: RemoteRollout, job: GroupJob) -> PlayedGroup:
        from arpo_trainer.rollout.engine import Group

        session = await self._once(self._sessions, rollout.name, lambda: self._open(rollout))
        current = asyncio.current_task()
        assert current is not None  # this is a coroutine
        session.running.add(current)
        try:
            played = Group(session.engines[job.env], session.limits, job.task, job.step, job.group, job.opening)
            return PlayedGroup(played.tree, await played.grow_or_fail())
        finally:
            session.running.discard(current)

    async def _open(self, rollout: RemoteRollout) -> _Session:
        from arpo_trainer.inference_tools import open_inference_tools
        from arpo_trainer.rollout.engine import Engine
        from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES, ConcurrencyLimits

        parts = await self._once(self._parts, rollout.key, lambda: self._fetch(rollout))
        backend, tool_time = parts.backend, Stopwatch()
        largest = max(settings.num_generations for settings in rollout.settings)
        limits = ConcurrencyLimits({"trajectory": max(DEFAULT_TRAJECTORIES, largest), **rollout.limits})
        tools = open_inference_tools(parts.inference) if parts.inference else None
        given: dict[str, Any] = {"tool_time": tool_time, "inference": tools}
        engines = [
            Engine(backend, parts.tokenizer, env, settings, parts.chat_template_kwargs, **given)
            for env, settings in zip(parts.envs, rollout.settings, strict=True)
        ]
        await backend.begin()
        return _Session(engines, limits, backend, backend.time.seconds)

    async def _finish(self, name: str) -> tuple[float, float]:
        opened = self._sessions.pop(name, None)
        if opened is None or not opened.done() or opened.cancelled() or opened.exception():
            if opened is not None:
                opened.cancel()
            return 0.0, 0.0
        session = opened.result()
        for task in session.running:
            task.cancel()
        await asyncio.gather(*session.running, return_exceptions=True)
        others = [one.result() for one in self._sessions.values() if one.done() and not one.exception()]
        if all(one.backend is not session.backend for one in others):  # another rollout may still generate
            await session.backend.end()
        return session.backend.time.seconds - session.before, session.engines[0].tool_time.seconds

    async def _once(self, made: dict[Any, asyncio.Future[Any]], key: Any, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return what `make` returned for this key; groups that come together wait for the first of them."""
        if key not in made:
            made[key] = asyncio.ensure_future(make())
        try:
            return await asyncio.shield(made[key])
        except Exception:
            made.pop(key, None)  # the next rollout tries again
            raise


def _unpickled(pickled: bytes) -> EngineParts:
    import arpo_trainer.rollout.engine  # noqa: F401  (what `_open` will need)

    parts: EngineParts = pickle.loads(pickled)
    return parts
