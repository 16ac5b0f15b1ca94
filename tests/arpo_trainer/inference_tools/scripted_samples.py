"""A policy, a helper and a tool that say what a test tells them to, without a model and without a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.inference_tools.helper_model import HelperFailed, InferenceTools, Messages
from arpo_trainer.inference_tools.inference_settings import InferenceSettings
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.timeline import Stopwatch
from arpo_trainer.tree import RolloutTree
from envs_registry import Task


def python(code: str) -> str:
    """Run code that fails if it says so.

    Args:
        code: the source.
    """
    if "bad" in code:
        raise ValueError(f"line 1 of {code}")
    return f"value of {code}"


def toy_env(**options: Any) -> ToolEnv:
    """An environment whose Python is the function above."""
    env: Any = gym.make("arpo/Arithmetic-v0", level=1, tools=[python], **options)
    return env.unwrapped  # type: ignore[no-any-return]


@dataclass
class ScriptedTurns:
    """Writes the turn that a function returns for a request."""

    tokenizer: Any
    turn: Callable[[Request], str]
    seen: list[Request] = field(default_factory=list)
    time: Stopwatch = field(default_factory=Stopwatch)
    wants_messages = trains = False

    async def begin(self) -> None: ...

    async def end(self) -> None: ...

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        self.seen.append(request)
        await asyncio.sleep(0)
        ids = self.tokenizer(self.turn(request), add_special_tokens=False)["input_ids"]
        ended = "eos" if ids and ids[-1] == self.tokenizer.eos_token_id else "stop"
        finish: Any = ended if len(ids) <= request.max_tokens else "length"
        ids = ids[: request.max_tokens]
        return Generation(ids, [-0.5] * len(ids), [0.3] * len(ids), finish)


@dataclass
class ScriptedHelper:
    """Replies what a function returns for a prompt; None is a failure."""

    reply: Callable[[str, int], str | None]
    prompts: list[str] = field(default_factory=list)
    name: str = "scripted"

    async def complete(self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None) -> str:
        self.prompts.append(messages[-1]["content"])
        await asyncio.sleep(0)
        said = self.reply(messages[-1]["content"], seed)
        if said is None:
            raise HelperFailed("the server is down")
        return said


def play(
    env: ToolEnv,
    policy: ScriptedTurns,
    helper: ScriptedHelper | None,
    tasks: Sequence[Task],
    tools: InferenceSettings,
    **settings: Any,
) -> list[RolloutTree]:
    """Play each task once."""
    values = {"max_turn_length": None, "max_completion_length": 2000, **settings}
    rollout = RolloutSettings(algorithm="grpo", num_generations=1, initial_rollouts=1, **values)
    engine = Engine(policy, policy.tokenizer, env, rollout, inference=InferenceTools(tools, helper))
    return asyncio.run(engine.rollout(tasks))
