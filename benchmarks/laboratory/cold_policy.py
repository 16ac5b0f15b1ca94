"""Policies to start from in tasks of tools: a small real model after a cold start that shows how to call and answer.

A demonstration makes the calls that solve its task, and before each of them it may give up and answer at once. So the
policy knows how to call and how to answer, and has to learn not to give up: each call is a decision. The first calls of
a task can be exempt from that; then they are routine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from arpo_env import ToolEnv
from arpo_trainer.make_env import make_env
from arpo_trainer.models import DEMO_MODEL, resolve_model
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import ModelTurn, ToolResults, Trace, Turn
from arpo_trainer.sft.trace_data import Example, tokenised
from arpo_trainer.validation import check_name, check_types
from benchmarks.laboratory.lab_policy import Material, StartSettings

SPARE = 2  # calls that may be wasted
_FIRST_TASK = 1_000_000  # demonstrations use tasks that training does not


@dataclass(frozen=True)
class ToolTasks:
    """Tasks that need several calls of a tool.

    Attributes:
        env_id: of the environment.
        options: knobs and their defaults, which are options of the environment.
        fixed: further options of the environment.
    """

    env_id: str
    options: dict[str, Any]
    fixed: dict[str, Any] = field(default_factory=dict)

    def make(self, knobs: dict[str, Any], **options: Any) -> ToolEnv:
        """Return the environment; its episodes end soon after the calls that a task needs.

        Raises:
            ValueError: a knob is unknown or out of range.
        """
        for name in knobs:
            check_name("knob", name, list(self.options))
        given = {"reward": {"accuracy": 1.0}, **self.fixed, **self.options, **knobs}
        most = calls_of(make_env(self.env_id, given)) + SPARE
        return make_env(self.env_id, {**given, "max_tool_calls": most, "max_turns": most + 1, **options})


TASKS: dict[str, ToolTasks] = {
    "arithmetic": ToolTasks("arpo/Arithmetic-v0", {"notes": 3}, {"level": 6}),
    "multihop": ToolTasks("arpo/MultiHop-v0", {"level": 3, "world_size": 300, "search_results": 1}),
}


def _weights(folder: Path) -> str:
    """Return a digest of the weights in a folder (a second for SmolLM2-135M)."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".gguf", ".bin")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


def calls_of(env: ToolEnv) -> int:
    """Return the most calls that one of the first tasks of an environment needs."""
    tasks: Any = env.tasks
    return max(len(tasks.solution(number)) for number in range(8))


@dataclass(frozen=True)
class ColdPolicySettings(StartSettings):
    """What a policy is made of.

    Attributes:
        level: name of the tasks that are demonstrated.
        knobs: options of their environment, in place of the defaults.
        model: a folder, a hub id, or the demo model.
        demonstrations: number of them.
        call_share: probability that a demonstration makes the next call; else it answers at once.
        routine: number of first calls that every demonstration makes.
        batch_size: demonstrations per step.
        learning_rate: initial learning rate; it falls linearly to 0.
        bf16: compute in bfloat16; the weights keep their type.
        seed: of demonstrations and their order.

    Raises:
        ValueError: unknown tasks or an unknown knob, or a number out of range.
    """

    level: str = "arithmetic"
    knobs: dict[str, Any] = field(default_factory=dict)
    model: str = DEMO_MODEL
    demonstrations: int = 640
    call_share: float = 0.7
    routine: int = 0
    batch_size: int = 16
    learning_rate: float = 2e-4
    bf16: bool = True
    seed: int = 0
    packing: ClassVar[bool | str] = "auto"  # prompts are as long as demonstrations

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        check_name("tasks", self.level, TASKS)
        calls = calls_of(TASKS[self.level].make(self.knobs))
        least_of = {"demonstrations": 1, "routine": 0, "batch_size": 1, "seed": 0, "learning_rate": 0.0}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.call_share <= 1:
            raise ValueError(f"call_share must be between 0 and 1, got {self.call_share}")
        if self.routine >= calls:
            raise ValueError(f"routine must be less than the {calls} calls that a task needs, got {self.routine}")

    @property
    def level_knobs(self) -> dict[str, Any]:
        """The knobs of the tasks."""
        return TASKS[self.level].options

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain data; the name of a folder does not tell which weights are in it."""
        weights = {"weights": _weights(Path(self.model))} if Path(self.model).is_dir() else {}
        return {**super().facts(), **weights}

    def material(self) -> Material:
        """Return the model, its tokenizer and the demonstrations."""
        path = resolve_model(self.model)
        tokenizer = AutoTokenizer.from_pretrained(path)
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32), tokenizer, self._examples(tokenizer)

    def _examples(self, tokenizer: Any) -> Iterator[Example]:
        env, rng = TASKS[self.level].make(self.knobs), random.Random(self.seed)
        renderer = Renderer(tokenizer, env.protocol)
        for number in range(self.demonstrations):
            trace = demonstration(env, _FIRST_TASK + number, self.call_share, rng, self.routine)
            yield tokenised(trace, renderer, env.schemas, end_token=False)


def demonstration(env: ToolEnv, index: int, call_share: float, rng: random.Random, routine: int = 0) -> Trace:
    """Return a demonstration of a task; results are those of the environment, the answer is always the right one.

    Args:
        env: the environment.
        index: number of the task.
        call_share: probability that the next call is made; else the demonstration answers at once.
        rng: draws that.
        routine: number of first calls that are always made.
    """
    source: Any = env.tasks
    task, tool = source.task(index), source.solution_tool
    _, info = env.reset(options={"task": task})
    turns: list[Turn] = []
    for number, cell in enumerate(source.solution(index)):
        if number >= routine and rng.random() >= call_share:
            break
        text = f"<{tool}>{cell}</{tool}>"
        *_, step = env.step(text)
        turns += [ModelTurn(text), ToolResults(tuple(step["results"]))]
    turns.append(ModelTurn(f"<answer>\\boxed{{{task.answers[0]}}}</answer>"))
    system, question = (message["content"] for message in info["messages"])
    return Trace(system, question, tuple(turns), env.protocol.name)
