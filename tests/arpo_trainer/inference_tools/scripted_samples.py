"""A policy, a helper and a tool that say what a test tells them to, without a model and without a sandbox."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.inference_tools import HelperFailed, InferenceSettings, InferenceTools, Messages, Spent
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from envs_registry import Task
from tests.arpo_trainer.text_policy import TextPolicy


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
class ScriptedTurns(TextPolicy):
    """Writes the turn that a function returns for a request.

    `pace` decides the timing alone; entropies are drawn from the seed of the request.
    """

    tokenizer: Any
    turn: Callable[[Request], str]
    seen: list[Request] = field(default_factory=list)
    pace: random.Random = field(default_factory=random.Random)
    time: Stopwatch = field(default_factory=Stopwatch)
    trains = False

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        self.seen.append(request)
        ids = self.tokenizer(self.turn(request), add_special_tokens=False)["input_ids"]
        ended = "eos" if ids and ids[-1] == self.tokenizer.eos_token_id else "stop"
        finish: Any = ended if len(ids) <= request.max_tokens else "length"
        ids = ids[: request.max_tokens]
        entropies = [random.Random(request.seed).uniform(0.0, 3.0)] * len(ids)
        for step in range(self.pace.randrange(6)):
            await asyncio.sleep(0)
            if step == 1 and on_window and request.window:
                on_window, _ = None, on_window(entropies[: request.window])
        if on_window and request.window:
            on_window(entropies[: request.window])
        return Generation(ids, [-0.5] * len(ids), entropies, finish)


@dataclass
class ScriptedHelper:
    """Replies what a function returns for a prompt; None is a failure."""

    reply: Callable[[str, int], str | None]
    prompts: list[str] = field(default_factory=list)
    name: str = "scripted"

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
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
    """Play each task once, or as the tree that the settings ask for."""
    values = {"algorithm": "grpo", "num_generations": 1, "initial_rollouts": 1, "max_turn_length": None}
    rollout = RolloutSettings(**{**values, "max_completion_length": 2000, **settings})
    engine = Engine(policy, policy.tokenizer, env, rollout, inference=InferenceTools(tools, helper))
    return asyncio.run(engine.rollout(tasks))
