"""`HostedEpisodes`: the episodes of an MCP server, each under a handle, and what its tools do. It does not import MCP.

Tools of the environment are called in an episode. Besides them there are `start_episode`, `answer`, `end_episode` and,
if the operator allows it, `episode_reward`. An episode without a task has the tools alone: no limits and no reward.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium.error import ResetNeeded

from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.adapters.one_conversation import check_one_conversation
from arpo_env.adapters.served_episode import ServedEpisode
from arpo_env.adapters.split_tasks import SplitTasks
from arpo_env.env_factory import EnvFactory
from arpo_env.errors import ServiceError
from arpo_env.protocols.parse_tool_calls import UnreadableCall, checked_call
from arpo_env.tools.execute_tool_call import INFRASTRUCTURE_ERRORS, call_tool
from arpo_env.tools.function_schema import JsonSchema, function_schema
from arpo_env.tools.toolbox import usable_schemas, usable_tools

NATIVE = "hermes"


@dataclass(frozen=True)
class ToolReply:
    """What a tool returns: its text, the same as data where there is some, and whether the call was wrong."""

    text: str
    is_error: bool = False
    data: dict[str, Any] | None = None


class HostedEpisodes:
    """The running episodes of a server.

    Args:
        factory: the environment.
        max_episodes: most episodes at the same time.
        idle_seconds: after this time without a call an episode is closed and forgotten.
        show_reward: whether clients may read rewards.

    Raises:
        ValueError: the environment has a tool under a name that the server needs, or its reward reads tags.
    """

    def __init__(
        self, factory: EnvFactory, max_episodes: int = 64, idle_seconds: float = 600.0, show_reward: bool = False
    ) -> None:
        self.id, self._factory = factory.id, factory
        self._max_episodes, self._idle_seconds, self.show_reward = max_episodes, idle_seconds, show_reward
        env = factory()
        # structured calls, whatever format the environment's own policy writes
        self._root = env if env.protocol.native else env.with_protocol(NATIVE)
        check_one_conversation(self._root)
        self.schemas: list[JsonSchema] = self._root.schemas
        taken = {start_episode.__name__, answer.__name__, end_episode.__name__, episode_reward.__name__} & {*env.tools}
        if taken:
            raise ValueError(f"the server has a tool {', '.join(taken)} of its own; rename that of the environment")
        self._tasks = SplitTasks(factory)
        self._running: dict[str, _Hosted] = {}

    def __len__(self) -> int:
        self._forget_closed()
        return len(self._running)

    def has(self, handle: str) -> bool:
        """Return whether an episode runs under this handle."""
        self._forget_closed()
        return handle in self._running

    def has_task(self, handle: str) -> bool:
        """Return whether an episode can be answered."""
        return self.has(handle) and self._running[handle].has_task

    async def start(self, index: int | None = None, seed: int | None = None, handle: str = "") -> ToolReply:
        """Start an episode, and return its handle and opening messages.

        Args:
            index: number of the task.
            seed: chooses a task, if there is no number. Without both, the episode has the tools alone.
            handle: the handle; by default a new one that cannot be guessed.
        """
        self._forget_closed()
        if seed is not None and seed < 0:
            return ToolReply(f"the seed has to be 0 or more, not {seed}", True)
        if len(self._running) >= self._max_episodes and handle not in self._running:
            return ToolReply(f"{self._max_episodes} episodes are running, which is the most: end one, or wait", True)
        try:
            task = None if index is None else self._tasks.task(self._tasks.default, index)
        except IndexError as error:
            return ToolReply(str(error), True)
        await self.end(handle)
        hosted = _Hosted(ServedEpisode(self._root.spawn(), self._idle_seconds), index is not None or seed is not None)
        handle = handle or secrets.token_urlsafe(16)
        self._running[handle] = hosted  # at once, so that the number of episodes is right
        try:
            messages = await hosted.start(task, seed)
        except BaseException:
            await self.end(handle)
            raise
        data = {"episode": handle, "messages": messages}
        return ToolReply(json.dumps(data, ensure_ascii=False), data=data)

    async def end(self, handle: str) -> ToolReply:
        """Close an episode."""
        hosted = self._running.pop(handle, None)
        if hosted is None:
            return self._unknown(handle)
        await hosted.served.close()
        return ToolReply("The episode was closed.")

    async def call(self, handle: str, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Call a tool of the environment, or `answer` or `episode_reward`, in an episode.

        Raises:
            EpisodeVoid: the environment failed, or the episode was closed meanwhile.
        """
        if not self.has(handle):
            return self._unknown(handle)
        hosted = self._running[handle]
        if name == "episode_reward" and self.show_reward:
            return await hosted.served.use(_reward)
        try:
            if name != "answer":
                return await hosted.call(name, arguments)
            given = arguments.get("answer")
            if set(arguments) != {"answer"} or not isinstance(given, str):
                return ToolReply("answer takes one argument, answer, a string", True)
            return await hosted.answer(given)
        except ResetNeeded:
            return ToolReply("the episode has ended; start another one", True)

    async def close(self) -> None:
        """Close all episodes."""
        for handle in list(self._running):
            await self.end(handle)

    def _unknown(self, handle: str) -> ToolReply:
        why = f"it was ended, or closed after {self._idle_seconds:g} s without a call"
        return ToolReply(f"there is no episode {handle[:64]!r} ({why}); start another", True)

    def _forget_closed(self) -> None:
        self._running = {handle: hosted for handle, hosted in self._running.items() if hosted.served.open}


@dataclass(frozen=True)
class _Hosted:
    served: ServedEpisode
    has_task: bool

    async def start(self, task: Any, seed: int | None) -> list[dict[str, Any]]:
        if self.has_task:
            return await self.served.start(task=task, seed=seed)
        await self.served.use(_reset_tools)
        return []

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        work = _call_in_task if self.has_task else _call_alone
        return await self.served.use(lambda episode: work(episode, name, arguments))

    async def answer(self, answer: str) -> ToolReply:
        if not self.has_task:
            return ToolReply("this episode has no task to answer: it was started without index and seed", True)
        await self.served.use(lambda episode: episode.reply(answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"))
        return ToolReply("The answer was taken. The episode has ended.")


async def _reset_tools(episode: ChatEpisode) -> None:
    for tool in episode.env.tools.values():
        await tool.reset("")


async def _call_in_task(episode: ChatEpisode, name: str, arguments: Mapping[str, Any]) -> ToolReply:
    text = await episode.call(name, arguments)
    calls = episode.env.episode.turns[-1].calls
    return ToolReply(text, not calls or calls[-1].status != "ok")


async def _call_alone(episode: ChatEpisode, name: str, arguments: Mapping[str, Any]) -> ToolReply:
    env = episode.env
    try:
        call = checked_call(name, dict(arguments), usable_schemas(env.tools))
    except UnreadableCall as error:
        return ToolReply(f"Error: {error}.", True)
    try:
        result = await call_tool(usable_tools(env.tools)[call.name], call.arguments, env._toolbox.timeout)
    except INFRASTRUCTURE_ERRORS:
        raise
    except Exception as error:  # a tool whose failures void the sample
        raise ServiceError(name, f"{type(error).__name__}: {error}") from error
    return ToolReply(result.text, result.status != "ok")


async def _reward(episode: ChatEpisode) -> ToolReply:
    data = {"done": episode.done, "reward": episode.reward}
    return ToolReply(json.dumps(data), data=data)


def start_episode(index: int | None = None, seed: int | None = None) -> None:
    """Start an episode; without index and seed, one that has the tools alone.

    Args:
        index: number of the task.
        seed: chooses a task, if there is no number.
    """


def answer(answer: str) -> None:
    """Give the final answer to the task, which ends the episode.

    Args:
        answer: the answer, without explanation.
    """


def episode_reward() -> None:
    """Return whether the episode has ended, and its reward."""


def end_episode() -> None:
    """Close the episode; call it when the episode is not needed any more."""


START, ANSWER, REWARD, END = (function_schema(each) for each in (start_episode, answer, episode_reward, end_episode))
