"""A rollout on workers tells when its weights are handed over, so that the trainer can learn meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arpo_trainer.ray_rollouts.rollout_workers import RayEngine
from arpo_trainer.rollout.engine import GroupsUnderWay
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.tiny_model import tiny_tokenizer


class SlowWorkers:
    """Workers that play until they are told to end."""

    def __init__(self) -> None:
        self.ended = False

    async def play(self, parts: Any, settings: Any, limits: Any, jobs: Any, take: Any) -> Any:
        while not self.ended:
            await asyncio.sleep(0.01)
        for number in range(len(jobs)):
            take(number, RolloutTree([1, 2]))
        return SimpleNamespace(replayed=0, generate_seconds=1.0, tool_seconds=0.0)


class NoBackend:
    def __init__(self) -> None:
        self.time, self.begun = Stopwatch(), 0

    async def begin(self) -> None:
        self.begun += 1

    async def end(self) -> None: ...


def test_the_trainer_goes_on_when_the_workers_have_begun() -> None:
    env, workers, backend = world_env("short"), SlowWorkers(), NoBackend()
    engine = RayEngine(cast(Any, backend), tiny_tokenizer(), env, RolloutSettings(), workers=cast(Any, workers))
    groups = GroupsUnderWay(engine, [env.tasks.task(0)])  # it would not return if it waited for the end
    assert backend.begun == 1
    workers.ended = True
    assert len(groups.own().trees) == 1
    assert groups.own().spent["seconds_generate"] == 1.0


def test_a_rollout_that_cannot_begin_raises_its_error() -> None:
    env = world_env("short")
    engine = RayEngine(cast(Any, object()), tiny_tokenizer(), env, RolloutSettings(), workers=cast(Any, SlowWorkers()))
    groups = GroupsUnderWay(engine, [env.tasks.task(0)])  # it would not return if it waited for the weights
    with pytest.raises(AttributeError, match="time"):
        groups.own()
