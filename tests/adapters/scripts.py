"""A scripted policy for the contract tests of the adapters, and the rewards that the native environment gives for it.

The script of a task depends on the task alone, so a peer may play tasks in any order and in any process. Scripts are
right, wrong, malformed, use the interpreter's state from call to call, call unknown tools, or never answer.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env import EnvFactory
from arpo_env.chat_messages import text_of
from envs_registry import Task
from sandbox import Sandbox

SHARED = Path(__file__).resolve().parents[3] / "shared"
GSM8K = SHARED / "data" / "arpo" / "eval" / "gsm8k"
# id -> number of episodes, options
SETS: dict[str, tuple[int, dict[str, Any]]] = {
    "arpo/Arithmetic-v0": (20, {"level": 2}),
    "arpo/GSM8K-v0": (10, {"data": str(GSM8K), "split": "test"}),
    "arpo/MultiHop-v0": (10, {}),
}
KINDS = ("right", "state", "wrong", "malformed", "unknown tool", "endless")


def _message(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


class Script:
    """The policy for the first `episodes` tasks of an environment, in the form of tags or of native calls."""

    def __init__(self, factory: EnvFactory, episodes: int) -> None:
        self.factory, self.episodes = factory, episodes
        env = factory()
        self.native = env.protocol.native
        self.tools = list(env.tools)
        self.tasks: list[Task] = [env.tasks.task(index) for index in range(episodes)]
        self.numbers = {task.question: index for index, task in enumerate(self.tasks)}
        assert len(self.numbers) == episodes, "two tasks have the same question"

    def message(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        question = next(text_of(each["content"]) for each in messages if each["role"] == "user")
        number = self.number_of(question)
        turn = sum(each["role"] == "assistant" for each in messages)
        return self.turn(number, turn, text_of(messages[-1]["content"]))

    def number_of(self, prompt: str) -> int:
        return next(number for known, number in self.numbers.items() if known in prompt)

    def text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the text of the next message, for peers without native calls."""
        return str(self.message(messages)["content"])

    def turn(self, number: int, turn: int, last: str) -> dict[str, Any]:
        """Return turn `turn` of task `number` after the text `last`."""
        task, kind = self.tasks[number], KINDS[number % len(KINDS)]
        if kind == "endless":
            return self._call(number, turn)
        if kind == "state" and "python" in self.tools:
            if turn == 0:
                return self._call(number, turn, "python", code=f"kept = {number} + 1000")
            if turn == 1:
                return self._call(number, turn, "python", code="print('kept is', kept)")
            # the answer is right only if the interpreter kept its variables
            return self._answer(task.answers[0] if f"kept is {number + 1000}" in last else "lost")
        if turn == 0:
            if kind == "malformed":
                return self._malformed()
            if kind == "unknown tool":
                return self._call(number, turn, "pythn", code="1")
            return self._call(number, turn)
        return self._answer("-987654321" if kind == "wrong" else task.answers[0])

    def _call(self, number: int, turn: int, tool: str = "", **arguments: Any) -> dict[str, Any]:
        name = tool or self.tools[0]
        given = arguments or ({"code": f"print({number} * 7)"} if name == "python" else {"query": f"who is {number}"})
        if not self.native:
            [value] = given.values()
            return _message(f"<think>Step {turn}.</think><{name}>{value}</{name}>")
        call = {"name": name, "arguments": json.dumps(given)}
        identity = f"call_{number}_{turn}"
        return {**_message("I call a tool."), "tool_calls": [{"id": identity, "type": "function", "function": call}]}

    def _malformed(self) -> dict[str, Any]:
        name = self.tools[0]
        if not self.native:
            return _message(f"<think>I forget to close this.<{name}>1</{name}>")
        broken = {"name": name, "arguments": '{"code": '}
        return {**_message(""), "tool_calls": [{"id": "call_bad", "type": "function", "function": broken}]}

    def _answer(self, answer: str) -> dict[str, Any]:
        boxed = f"\\boxed{{{answer}}}"
        return _message(f"The answer is {boxed}." if self.native else f"<think>Done.</think><answer>{boxed}</answer>")


class AnsweringScript(Script):
    """A script, with native calls, that hands in its answers by the tool `answer` and then stops."""

    def turn(self, number: int, turn: int, last: str) -> dict[str, Any]:
        if "The answer was taken" in last:
            return _message("Done.")
        message = super().turn(number, turn, last)
        if "\\boxed" not in message["content"]:
            return message
        return self._call(number, turn, "answer", answer=message["content"])


def native_rewards(script: Script) -> list[float]:
    """Return the reward of each task, played by the script in the environment itself, without any adapter."""
    return [reward for reward, _ in asyncio.run(_play_each(script))]


def turns_of(script: Script) -> int:
    return sum(turns for _, turns in asyncio.run(_play_each(script)))


async def _play_each(script: Script) -> list[tuple[float, int]]:
    return list(await asyncio.gather(*(_play(script, number) for number in range(script.episodes))))


async def _play(script: Script, number: int) -> tuple[float, int]:
    env = script.factory()
    await env.areset(options={"index": number})
    turn, text, reward, ended = 0, "", 0.0, False
    while not ended:
        message = Script.turn(script, number, turn, text)
        text, reward, terminated, truncated, _ = await env.astep(as_text(message))
        turn, ended = turn + 1, terminated or truncated
    await env.aclose()
    return reward, turn


def as_text(message: Mapping[str, Any]) -> str:
    """Return a message as a model writes it, calls in the Hermes format."""
    calls = [each["function"] for each in message.get("tool_calls", ())]
    written = [f'{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}' for call in calls]
    return message["content"] + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in written)


def sets() -> list[Any]:
    """Return the sets as parameters of a test; a set whose data is missing is skipped with the reason."""
    missing = "the shared folder with data and test vectors is not here"
    skip = pytest.mark.skipif(not SHARED.is_dir(), reason=missing)
    return [pytest.param(env_id, marks=skip if "GSM8K" in env_id else (), id=env_id) for env_id in SETS]


def script_for(env_id: str, protocol: str = "arpo-tags", **options: Any) -> Script:
    episodes, own = SETS[env_id]
    return Script(EnvFactory(env_id, protocol=protocol, **own, **options), episodes)


@contextlib.contextmanager
def own_sandbox() -> Iterator[tuple[Sandbox, EnvFactory]]:
    """A sandbox whose sessions nobody else opens, and environments that use it, which so stay in this process."""
    with Sandbox.open_sync(backend="unsafe_local") as sandbox:
        yield sandbox, EnvFactory("arpo/Arithmetic-v0", level=2, sandbox=sandbox)


@contextlib.contextmanager
def breaking_sandbox() -> Iterator[tuple[EnvFactory, Callable[[], None]]]:
    """Yield such environments, and what ends their sandbox: then every call of Python raises a `SandboxError`."""
    with own_sandbox() as (sandbox, factory):
        yield factory, sandbox.close_sync
