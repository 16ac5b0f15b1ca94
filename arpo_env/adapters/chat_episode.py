"""`ChatEpisode`: an episode as chat messages, for frameworks that hold the conversation and parse tool calls.

    episode = ChatEpisode(EnvFactory("arpo/GSM8K-v0", protocol="hermes")())
    messages = await episode.start(index=0)
    while not episode.done:
        message = await my_model(messages, tools=episode.tools, stop=episode.stop)
        messages += [message, *(await episode.reply(message))]
    print(episode.reward)

If the environment's protocol is native ("hermes", "llama3"), messages may carry `tool_calls` in OpenAI's form, and
results come back as messages of the role "tool". Otherwise the text holds tags ("arpo-tags"), and results come back as
messages of the role "user".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from arpo_env.chat_messages import Message, request_tools, result_messages, turn_text
from arpo_env.env import ToolEnv
from arpo_env.protocols.protocol import NativeProtocol, last_boxed
from arpo_env.tools.tool import JsonSchema, function_schema


def answer(answer: str) -> None:
    """Give the final answer to the task, which ends the episode.

    Args:
        answer: the answer, without explanation.
    """


ANSWER = function_schema(answer)  # a tool for frameworks in which the environment sees nothing but calls


def check_one_conversation(env: ToolEnv) -> None:
    """Refuse an environment that may fold or shows pictures.

    Raises:
        ValueError: it does; says where it can be played.
    """
    if env.services.show_images:
        raise ValueError(
            "show_images=True: this adapter passes on text alone. Leave show_images out, or play with "
            "`arpo eval --endpoint` or arpo_env.play (without in_place)"
        )
    if env.budget.folds:
        raise ValueError(
            f"folds={env.budget.folds}: this adapter holds one conversation that only grows, and a fold starts another "
            "one. Leave folds out, or play with arpo_trainer (train, eval, rollout) or arpo_env.play"
        )


class ChatEpisode:
    """One episode of an environment.

    Args:
        env: the environment; this object uses it alone.
        folds: whether the caller goes on from `env.context()` after a turn whose info says "folded", and passes on
            pictures, which are parts of a message's content in OpenAI's form. Otherwise such an environment is refused.

    Attributes:
        reward: reward of the episode; None until it has ended.
        info: the last info of the environment.
        done: whether the episode has ended, by an answer or by a limit.
        truncated: whether it was ended by a limit.
    """

    def __init__(self, env: ToolEnv, folds: bool = False) -> None:
        if not folds:
            check_one_conversation(env)
        self.env = env
        self.reward: float | None = None
        self.info: dict[str, Any] = {}
        self.done = self.truncated = False
        self._one_at_a_time = asyncio.Lock()  # frameworks may execute the calls of a turn at once

    @property
    def tools(self) -> list[JsonSchema]:
        """Schemas for the `tools` field of a request, of found tools as well; empty if tools are called by tags."""
        return request_tools(self.env)

    @property
    def stop(self) -> list[str]:
        """Strings at which generation has to stop; the text may end with one or just before it."""
        return self.env.protocol.stop_strings(self.env.schemas)

    async def start(self, *, index: int | None = None, seed: int | None = None, task: Any = None) -> list[Message]:
        """Start an episode and return the messages that open it.

        Args:
            index: number of the task; None lets the environment choose one.
            seed: seed of the environment's choice.
            task: an `envs_registry.Task` in place of a number.
        """
        self.reward, self.done, self.truncated = None, False, False
        chosen = {"task": task} if task is not None else {} if index is None else {"index": index}
        _, self.info = await self.env.areset(seed=seed, options=chosen)
        return [dict(message) for message in self.info["messages"]]

    async def reply(self, message: Message | str) -> list[Message]:
        """Take a message of the model, or its text, and return the messages that answer it; none after the last one.

        Messages that come at the same time are taken one after the other.

        Raises:
            ResetNeeded: there is no running episode.
            Exception: the infrastructure failed (`arpo_env.adapters.FAULTS`); the episode has no reward.
        """
        given = {"content": message} if isinstance(message, str) else message
        calls = list(given.get("tool_calls") or ()) if self.env.protocol.native else []
        text = turn_text(given, self.env.protocol)
        async with self._one_at_a_time:
            self._take(await self.env.astep(text if self.env.protocol.native else close_tag(text, self.stop)))
            if self.done or self.info.get("folded"):
                return []
            turn = self.env.episode.turns[-1]
        return result_messages(turn, [call.get("id") or "" for call in calls], self.env.protocol)

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Execute one tool call as a turn of its own and return the text of its result, or that the episode has ended.

        Raises:
            Exception: the infrastructure failed.
        """
        answer = await self.reply({"tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
        return str(answer[0]["content"]) if answer else "The episode has ended: no more calls are possible."

    async def answer(self, arguments: Mapping[str, Any]) -> str:
        """Take a call of the tool `ANSWER`, for a native protocol, and return its result; a wrong one ends nothing.

        Raises:
            ResetNeeded: there is no running episode.
            Exception: the infrastructure failed.
        """
        given = arguments.get("answer")
        if set(arguments) != {"answer"} or not isinstance(given, str):
            return "answer takes one argument, answer, a string"
        text = given if last_boxed(given) is not None else f"\\boxed{{{given}}}"
        await self.reply(cast("NativeProtocol", self.env.protocol).write_calls(text, []))  # calls in it are quotations
        await self.truncate()  # unless it was an answer
        return "The answer was taken. The episode has ended."

    async def truncate(self, text: str = "") -> None:
        """End the episode before its answer, because the context is full or the conversation was broken off."""
        async with self._one_at_a_time:
            if not self.done:
                self._take(await self.env.atruncate(text))

    async def close(self) -> None:
        """Close the environment."""
        await self.env.aclose()

    def _take(self, step: tuple[str, float, bool, bool, dict[str, Any]]) -> None:
        _, reward, terminated, self.truncated, self.info = step
        self.done = terminated or self.truncated
        self.reward = reward if self.done else None


def close_tag(text: str, stop: Sequence[str]) -> str:
    """Return the text with the stop string that a server cut off: the closing tag of the last tag that is open."""
    if text.rstrip().endswith(tuple(stop)):
        return text
    after_thoughts = text.rfind("</think>") + 1
    opened = {
        match.start(): closing
        for closing in stop
        for match in re.finditer(rf"{re.escape(closing.replace('</', '<')[:-1])}\b[^<>]*>", text)
        if match.start() >= after_thoughts
    }
    position, closing = max(opened.items(), default=(-1, ""))
    return text + closing if position >= 0 and text.find(closing, position) < 0 else text
