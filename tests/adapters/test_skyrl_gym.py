"""SkyRL-gym's real package: exported rows, played as SkyRL's generator plays them, give the environment's rewards."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("skyrl_gym")

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.metrics import aggregate_for_environment

from arpo_env import EnvFactory
from arpo_env.adapters import FAULTS
from arpo_env.adapters import skyrl_gym as adapter
from arpo_env.adapters.task_rows import task_rows

from .scripts import Script, as_text, breaking_sandbox, native_rewards, script_for, sets


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    adapter.register("arpo")
    yield
    skyrl_gym.registry.pop("arpo")


def rows_of(factory: EnvFactory, episodes: int) -> list[dict[str, Any]]:
    """Return exported rows as SkyRL's data set hands them on: read from JSON, prompt and env_class taken out."""
    return [json.loads(json.dumps(row)) for row in task_rows(factory, "skyrl", episodes, leave_out=("sandbox",))]


class Generator:
    """What SkyRL's `SkyRLGymGenerator.agent_loop` does with an environment, with the script for the engine."""

    def __init__(self, script: Script, workers: int = 8) -> None:
        self.script, self.executor = script, ThreadPoolExecutor(workers)
        self.metrics: list[dict[str, Any]] = []

    def generate(self, rows: list[dict[str, Any]]) -> list[float]:

        async def play() -> list[Any]:
            return await asyncio.gather(*(self.agent_loop(dict(row)) for row in rows), return_exceptions=True)

        rewards = asyncio.run(play())
        for reward in rewards:
            if isinstance(reward, BaseException):
                raise reward
        return rewards

    async def agent_loop(self, row: dict[str, Any]) -> float:
        prompt, env_class = row.pop("prompt"), row.pop("env_class")
        row["max_turns"] = 1  # SkyRL's default
        env = skyrl_gym.make(env_class, env_config={}, extras=row)
        assert isinstance(env, BaseTextEnv)
        history, _ = await self._run(env.init, prompt)
        assert history == prompt
        rewards, done = [], False
        while not done:
            message = self.script.message(history)
            output = await self._run(env.step, as_text(message))
            history = [*history, message, *output["observations"]]
            done = output["done"]
            rewards.append(output["reward"])
        assert rewards[:-1] == [0.0] * (len(rewards) - 1)
        self.metrics.append(env.get_metrics())
        await self._run(env.close)
        return sum(rewards)

    async def _run(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, isolation: str, open_episodes: set[int]
) -> None:
    script = script_for(env_id, protocol)
    generator = Generator(script)
    rewards = generator.generate(rows_of(script.factory, script.episodes))
    assert rewards == native_rewards(script)
    assert {1.0, 0.0, -1.0} <= set(rewards)
    assert not open_episodes
    means = aggregate_for_environment("arpo", generator.metrics)
    assert means["answered"] + means["truncated"] == 1.0
    assert means["truncated"] == sum(number % 6 == 5 for number in range(script.episodes)) / script.episodes
    assert means["tool_calls"] > 0.5


def test_a_broken_sandbox_is_raised_and_nothing_stays_open(isolation: str, open_episodes: set[int]) -> None:
    with breaking_sandbox() as (factory, end):
        adapter.register("arpo", sandbox=factory.options["sandbox"])
        script = Script(factory, 6)
        rows = rows_of(factory, 6)
        assert Generator(script).generate(rows[:1]) == native_rewards(script)[:1]
        env = skyrl_gym.make("arpo", extras=rows[1])
        history, _ = env.init(rows[1]["prompt"])
        assert not env.step(script.text(history))["done"]
        end()
        with pytest.raises(FAULTS):
            env.step(script.text([*history, {"role": "assistant", "content": ""}, {"role": "user", "content": ""}]))
        with pytest.raises(FAULTS):
            Generator(script).generate(rows)
    assert not open_episodes


def test_an_episode_that_skyrl_breaks_off_counts_as_truncated(isolation: str) -> None:
    [row] = rows_of(EnvFactory("arpo/Arithmetic-v0", level=2), 1)
    env = skyrl_gym.make("arpo", extras=row)
    assert env.get_metrics() == {"turns": 0.0, "tool_calls": 0.0, "answered": 0.0, "truncated": 1.0}
    env.init(row["prompt"])
    env.step("<think>a</think><python>1</python>")
    assert env.get_metrics() == {"turns": 1.0, "tool_calls": 1.0, "answered": 0.0, "truncated": 1.0}
    env.close()
    env.close()
