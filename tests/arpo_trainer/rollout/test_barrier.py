"""The benchmark's engine of rounds is the published one: it reproduces the traces of the shared vectors."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import Stopwatch
from benchmarks.barrier import BarrierEngine
from envs_registry import Task

TASK = Task("t", "How long is the list?", ("3",), kind="math", setup="items = [1, 2, 3]")
ORIGINS = {"root": "init{}", "top-up": "fresh"}


class ScriptedPolicy:
    """Hands out scripts to bare prompts in the order they come; whoever inherits a text inherits the script's rest."""

    trains, wants_messages = True, False

    def __init__(self, tokenizer: Any, scripts: Sequence[Sequence[str]], entropies: Sequence[Sequence[float]]) -> None:
        self.tokenizer, self.scripts, self.entropies = tokenizer, scripts, entropies
        self.time, self.calls, self.started = Stopwatch(), 0, 0

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        text = self.tokenizer.decode(request.ids)
        turn, names = text.count("<result>\n"), re.findall(r"<think>script (\d+)</think>", text)
        number = int(names[0]) if names else self.started
        self.started += not names
        act = "<python>1</python>" if self.scripts[number][turn] == "T" else "<answer>\\boxed{3}</answer>"
        ids = self.tokenizer(f"<think>script {number}</think>{act}", add_special_tokens=False)["input_ids"]
        level = self.entropies[number][turn] if number < len(self.entropies) else 0.0
        first = level * math.log(len(self.tokenizer))  # a segment's entropy is the sum over its tokens
        return Generation(ids, [-0.1] * len(ids), [first] + [0.0] * (len(ids) - 1), "stop")


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, dict[str, Any]]:
    path = shared / "spec" / "vectors.json"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return {vector["id"]: vector for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]}


def play(env: ToolEnv, tokenizer: Any, given: dict[str, Any], algorithm: str) -> tuple[Any, list[str]]:
    scripts = [*given.get("script", []), *given["fresh"]]
    policy = ScriptedPolicy(tokenizer, scripts, given.get("entropies", []))
    settings = RolloutSettings(
        algorithm=algorithm,
        num_generations=given["n"],
        initial_rollouts=given["initial"],
        branch_width=given.get("beam", 1),
        branch_alpha=given.get("p_b", 0.5),
        branch_beta=given.get("w", 0.2),
    )
    draws = iter(given.get("uniforms", []))
    engine = BarrierEngine(policy, tokenizer, env, settings, lambda: next(draws))
    (tree,) = asyncio.run(engine.rollout([TASK]))
    origins = [
        ORIGINS.get(t.origin, f"branch_of_{t.parent}").format(number) for number, t in enumerate(tree.trajectories)
    ]
    assert all(trajectory.reward is not None for trajectory in tree.trajectories)
    return tree, origins


@pytest.mark.parametrize("name", ["arpo", "aepo"])
def test_a_batch_goes_as_published(name: str, vectors: dict[str, dict[str, Any]], env: ToolEnv, tokenizer: Any) -> None:
    vector = vectors[f"rollout.trace.{name}"]
    tree, origins = play(env, tokenizer, vector["inputs"], f"{name}-reference")
    assert origins == vector["expected"]["origins"]
    assert tree.meta["rounds"] == vector["expected"]["rounds"]


def test_what_is_missing_comes_one_a_round(vectors: dict[str, dict[str, Any]], env: ToolEnv, tokenizer: Any) -> None:
    vector = vectors["rollout.trace.topup"]
    tree, origins = play(env, tokenizer, {**vector["inputs"], "fresh": [["F"]] * 4}, "arpo-reference")
    assert origins == vector["expected"]["origins"]
    assert len(tree.meta["rounds"]) == vector["expected"]["rounds"]
