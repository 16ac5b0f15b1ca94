"""GEM's real package: its vector environments give the environment's rewards, and `spawn` copies running episodes."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("gem")

import gem
from gem.envs.registration import ENV_REGISTRY

from arpo_env import EnvFactory
from arpo_env.adapters import FAULTS
from arpo_env.adapters import gem as adapter

from .scripts import Script, as_text, breaking_sandbox, native_rewards, script_for, sets


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    known = set(ENV_REGISTRY)
    yield
    for name in set(ENV_REGISTRY) - known:
        del ENV_REGISTRY[name]


class Player:
    """Plays the tasks of a script in a vector of GEM, as its examples do; each environment plays several in turn."""

    def __init__(self, script: Script, width: int, parallel: bool = True) -> None:
        adapter.register("arpo:scripted", script.factory)
        self.script = script
        self.vec = gem.make_vec(["arpo:scripted"] * width, async_mode=parallel, seed=7)
        self.width = width
        left = iter(range(script.episodes))
        for env in self.vec.envs:
            tasks_in_turn(env, left)

    def rewards(self) -> dict[int, float]:
        _, infos = self.vec.reset()
        histories = [list(info["messages"]) for info in infos]
        rewards: dict[int, float] = {}
        active = list(range(self.width))
        while len(rewards) < self.script.episodes:
            active = [number for number in active if histories[number]]
            messages = {number: self.script.message(histories[number]) for number in active}
            actions = {number: as_text(message) for number, message in messages.items()}
            observed, earned, terminated, truncated, infos = self.vec.step(actions)
            for place, number in enumerate(active):
                if terminated[place] or truncated[place]:  # GEM has reset it already
                    question = histories[number][1]["content"]
                    rewards[self.script.numbers[question]] = float(earned[place])
                    histories[number] = list(infos[place].get("messages", ()))
                else:
                    result = {"role": "user", "content": observed[place]}
                    histories[number] += [messages[number], result]
        return rewards


def tasks_in_turn(env: Any, left: Iterator[int]) -> None:
    """Let an environment play the next task that is left at each reset, and the first again when none is."""
    areset = env.env.areset

    async def next_task(**options: Any) -> Any:
        return await areset(options={"index": next(left, 0)})

    env.env.areset = next_task


@pytest.mark.parametrize("parallel", [True, False], ids=["threads", "one by one"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(env_id: str, parallel: bool, isolation: str) -> None:
    script = script_for(env_id)
    rewards = Player(script, 5, parallel).rewards()
    native = native_rewards(script)
    assert [rewards[number] for number in range(script.episodes)] == native
    assert {1.0, 0.0, -1.0} <= set(native)


def made(**options: Any) -> Any:
    adapter.register("arpo:Arithmetic-v0", "arpo/Arithmetic-v0", level=2)
    return gem.make("arpo:Arithmetic-v0", **options)


def python(env: Any, code: str) -> str:
    return str(env.step(f"<think>a</think><python>{code}</python>")[0])


def test_spawn_with_the_same_state_copies_the_interpreter(isolation: str) -> None:
    env = made()
    env.reset(seed=1)
    python(env, "import random; random.seed(5); x = random.random(); f = open('kept', 'w+'); f.write('one')")
    twin = env.spawn(same_state=True)
    assert isinstance(twin, gem.Env)
    python(env, "x = 0")
    assert "0.62290" in python(twin, "x")
    after = "f.flush(); f.seek(0); (f.read(), random.random())"
    assert python(env, after) == python(twin, after)
    answer = f"<think>a</think><answer>\\boxed{{{env.env.episode.task.answers[0]}}}</answer>"
    assert env.step(answer)[1:4] == twin.step(answer)[1:4] == (1.0, True, False)
    for each in (env, twin):
        each.close()
        each.close()


def test_spawn_without_state_plays_its_own_tasks(isolation: str) -> None:
    env = made(seed=3)
    first = env.reset()[0]
    for other in (
        env.spawn(),
        env.spawn(seed=4),
        env.spawn(same_state=False, level=3),
        gem.make("arpo:Arithmetic-v0", seed=4),
    ):
        assert other.env is not env.env
        assert other.reset()[0] != first
    assert env.spawn(seed=3).reset()[0] == first == gem.make("arpo:Arithmetic-v0", seed=3).reset()[0]
    assert env.spawn(level=3).env.factory == EnvFactory("arpo/Arithmetic-v0", level=3)
    with pytest.raises(ValueError, match="takes no options"):
        env.spawn(same_state=True, level=3)


def test_a_broken_sandbox_is_raised(isolation: str) -> None:
    with breaking_sandbox() as (factory, end):
        adapter.register("arpo:breaking", factory)
        vec = gem.make_vec(["arpo:breaking"] * 2, async_mode=True)
        vec.reset(seed=0)
        vec.step(["<think>a</think><python>x = 1</python>"] * 2)
        end()
        with pytest.raises(FAULTS):
            vec.envs[0].spawn(same_state=True)
        with pytest.raises(FAULTS):
            vec.step(["<think>a</think><python>x</python>"] * 2)
