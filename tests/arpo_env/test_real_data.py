r"""The gold answers of real data through whole environments.

Every gold answer, each alias of it, is given as a policy would give it, in `\boxed{}`. Judged sets are compared by EM
and F1 here.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_env.grading.check_pool import CheckPool
from envs_registry import Task, get_spec

SETS = [
    ("AIME24", "eval/aime24", "test", 30),
    ("AIME25", "eval/aime25", "test", 30),
    ("MATH500", "eval/math500", "test", 500),
    ("GSM8K", "eval/gsm8k", "test", 1319),
    ("HotpotQA", "eval/hotpotqa", "validation", 200),
    ("2Wiki", "eval/2wiki", "validation", 641),
    ("MuSiQue", "eval/musique", "validation", 286),
    ("Bamboogle", "eval/bamboogle", "test", 125),
    ("WebWalker", "eval/webwalker", "test", 200),
    ("SimpleQA", "eval/SimpleQA", "test", 500),
    ("Reasoning10K", "rl/train_10k.parquet", "train", 9944),
    ("Reasoning10K", "rl/valid.parquet", "validation", 180),
    ("DeepSearch1K", "rl/hard_search_1k.parquet", "train", 1071),
]
TOGETHER = 64  # episodes at a time
Outcome = tuple[Task, str, float, dict[str, Any]]


@pytest.fixture(scope="module", params=SETS, ids=[path.rpartition("/")[2] for _, path, *_ in SETS])
def gold_set(request: pytest.FixtureRequest, shared: Path) -> tuple[Any, int]:
    """The environment of a file, and the number of gold answers in it."""
    name, path, split, golds = request.param
    options = {"scorer": "qa"} if get_spec(f"arpo/{name}-v0").scorer == "judge" else {}
    env = gym.make(f"arpo/{name}-v0", data=shared / "data/arpo" / path, split=split, **options)
    return env.unwrapped, golds


def answered(env: ToolEnv, answers: Sequence[tuple[Task, str]]) -> list[Outcome]:
    """Give each answer in an episode of its own."""
    seats = asyncio.Semaphore(TOGETHER)

    async def one(task: Task, answer: str) -> Outcome:
        async with seats:
            episode = env.spawn()
            await episode.areset(options={"task": task})
            text = f"<think>So it is.</think><answer>\\boxed{{{answer}}}</answer>"
            _, reward, _, _, info = await episode.astep(text)
            await episode.aclose()
            return task, answer, reward, info["reward_components"]

    async def every() -> list[Outcome]:
        return await asyncio.gather(*(one(*answer) for answer in answers))

    return run(every())


def test_every_gold_answer_earns_exactly_one(gold_set: tuple[Any, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> None:
        raise AssertionError("an answer that equals its gold needs no algebra")

    monkeypatch.setattr(CheckPool, "check", check)
    env, golds = gold_set
    tasks = [env.tasks.task(number) for number in range(env.tasks.size)]
    given = [(task, gold) for task in tasks for gold in task.answers]
    assert len(given) == golds
    outcomes = answered(env, given[:: 1 + golds // 3000])
    bad = [(task.id, gold, reward) for task, gold, reward, parts in outcomes if reward != 1.0 or parts["format"] != 1.0]
    assert bad == []


def test_another_answer_earns_nothing(gold_set: tuple[Any, int]) -> None:
    env, _ = gold_set
    tasks = [env.tasks.task(number) for number in range(0, env.tasks.size, 1 + env.tasks.size // 300)]
    outcomes = answered(env, [(task, "zzyzx 987654321") for task in tasks])
    bad = [(task.id, task.answers, reward) for task, _, reward, parts in outcomes if reward or not parts["format"]]
    assert bad == []
