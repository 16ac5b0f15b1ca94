"""Tools and rewards for verl's own `ToolAgentLoop`: `VerlTool`, `tools_yaml` and `compute_score`.

    Path("tools.yaml").write_text(tools_yaml(EnvFactory("arpo/GSM8K-v0")))

    actor_rollout_ref.rollout.multi_turn.tool_config_path=tools.yaml
    reward.custom_reward_function.path=pkg://arpo_env.adapters.verl

The rows come from `arpo data export --format verl --env-set protocol=hermes` with `agent_name` set to "tool_agent". All
tools of a trajectory share one episode, so an interpreter keeps its variables. What verl plays in this way is graded by
its last message alone; `arpo_trainer.adapters.verl_agent_loop` plays and grades whole episodes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import re
import weakref
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import yaml

from arpo_env.adapters import load_peer
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.adapters.task_rows import find_task
from arpo_env.env import ToolEnv
from arpo_env.episode import Call, Turn
from arpo_env.protocols.protocol import Malformed, ToolCalls
from arpo_env.registration import EnvFactory

USED = "arpo_tools"  # in verl's extra fields of a trajectory: names of the tools that were executed
# what precedes the last message in a decoded response: the last result, and the name of the role
_BEFORE_LAST = re.compile(r"(?s)\A.*</tool_response>(?:\s*assistant\b)?")


def tools_yaml(factory: EnvFactory) -> str:
    """Return the text of the file for `multi_turn.tool_config_path` with the tools of an environment."""
    env: ToolEnv = factory()
    target = f"{__name__}.VerlTool"
    tools = [{"class_name": target, "config": {"type": "native"}, "tool_schema": schema} for schema in env.schemas]
    return yaml.safe_dump({"tools": tools}, sort_keys=False, allow_unicode=True)


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any], **_: Any
) -> dict[str, float]:
    """Return the reward of a response and its components, for verl's `custom_reward_function`.

    Args:
        data_source: not used.
        solution_str: the decoded response, tool results included.
        ground_truth: not used; the environment has the gold answers.
        extra_info: of the row.

    Returns:
        "score" is the reward. None is called "acc", as verl calls a plain number: its validation counts a sample that
        was left out as one with an acc of 0.

    Raises:
        GradingError: the grader could not decide. verl leaves the sample out.
    """
    factory, task = find_task(extra_info)
    env = _native(factory)()
    try:
        # the answer needs no tools, so the task's variables are not set up again
        await env.areset(options={"task": dataclasses.replace(task, setup="")})
        used = [Call(str(name), "ok") for name in extra_info.get(USED) or ()]
        env.episode.turns += [Turn("", calls=used)] if used else []
        text = _BEFORE_LAST.sub("", solution_str).lstrip()
        unfinished = isinstance(env.protocol.parse(text, env.schemas), ToolCalls | Malformed)
        _, reward, _, _, info = await (env.atruncate(text) if unfinished else env.astep(text))
    finally:
        await env.aclose()
    components = info["reward_components"]
    named = ("accuracy", "format", "multi_tool")
    return {"score": reward, **{name: float(components.get(name, math.nan)) for name in named}}


def _native(factory: EnvFactory) -> EnvFactory:
    """Return the factory with a protocol that has structured calls."""
    return factory if factory().protocol.native else EnvFactory(factory.id, **{**factory.options, "protocol": "hermes"})


class _SharedEpisode:
    """The episode of a trajectory, which all its tools share."""

    def __init__(self, reference: Mapping[str, Any]) -> None:
        factory, self.task = find_task(reference)
        self.episode = ChatEpisode(_native(factory)())
        self._one_at_a_time = asyncio.Lock()
        self._started = False

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        async with self._one_at_a_time:  # verl may execute several calls of a turn at once
            if not self._started:
                await self.episode.start(task=self.task)
                self._started = True
            if self.episode.done:
                return "The episode has ended: no more calls are possible."
            return await self.episode.call(name, arguments)


_episodes: weakref.WeakKeyDictionary[Any, _SharedEpisode] = weakref.WeakKeyDictionary()
_closing: set[asyncio.Task[None]] = set()


def _episode_of(trajectory: Any, reference: Mapping[str, Any]) -> _SharedEpisode:
    if trajectory not in _episodes:
        shared = _episodes[trajectory] = _SharedEpisode(reference)
        # verl releases a tool after each call, and tells nobody when the trajectory is over
        weakref.finalize(trajectory, _close, shared.episode, asyncio.get_running_loop()).atexit = False
    return _episodes[trajectory]


def _close(episode: ChatEpisode, loop: asyncio.AbstractEventLoop) -> None:
    def begin() -> None:
        task = loop.create_task(episode.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    if not loop.is_closed():
        loop.call_soon_threadsafe(begin)


@functools.cache
def _tool_class() -> type:
    base: Any = load_peer("verl.tools.base_tool").BaseTool
    response = load_peer("verl.tools.schemas").ToolResponse

    class VerlTool(base):  # type: ignore[misc]
        """One tool of the environment that the row of a trajectory names."""

        def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
            super().__init__(config, tool_schema)
            self._references: dict[str, Mapping[str, Any]] = {}
            self._faults: dict[str, Exception] = {}

        async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, Any]:
            """Remember the row's reference to its task; verl calls this before each call."""
            identity = instance_id or uuid4().hex
            self._references[identity] = kwargs.get("create_kwargs") or {}
            return identity, response()

        async def execute(
            self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
        ) -> tuple[Any, float, dict[str, Any]]:
            """Execute a call in the trajectory's episode and return its text."""
            trajectory = kwargs["agent_data"]
            try:
                shared = _episode_of(trajectory, self._references[instance_id])
                text = await shared.call(self.name, parameters)
            except Exception as error:  # verl would show it to the model; `release` raises it again
                self._faults[instance_id] = error
                raise
            trajectory.extra_fields[USED] = list(shared.episode.env.episode.tools_used)
            return response(text=text), 0.0, {}

        async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
            """Return 0: a tool has no reward; `compute_score` grades the response."""
            return 0.0

        async def release(self, instance_id: str, **kwargs: Any) -> None:
            """Forget the call."""
            self._references.pop(instance_id, None)
            if fault := self._faults.pop(instance_id, None):
                raise fault

    VerlTool.__module__, VerlTool.__qualname__ = __name__, "VerlTool"
    return VerlTool


def __getattr__(name: str) -> Any:
    if name == "VerlTool":
        return _tool_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
