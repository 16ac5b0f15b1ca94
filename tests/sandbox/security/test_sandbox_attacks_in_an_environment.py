"""No code makes a step of an environment fail: a policy that ends its own session does not void its sample."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import pytest
from attacks import forged, own_death
from attacks.attack import Attack
from attacks.fortress import TOOLS
from sandbox_under_test import open_or_skip

import arpo_env  # noqa: F401  (registers the environments)
from envs_registry import Task
from sandbox import ForkError, Limits, Sandbox

LIMITS = Limits(memory="1g", session_memory=256 << 20, processes=64, disk=32 << 20, file_size=24 << 20, grace=0.5)
LIST = Task("t", "How long is the list?", ("4",), kind="math", setup="items = [1, 2, 3]")
AT_ONCE = 8
BUSY = {"memory_of_many_children"}  # these disturb what runs beside them, so they run alone
KNOWN_TO_STRANGERS = "VICTIMS = [{'pid': 1, 'child': 1, 'directory': '/slots/0/x', 'address': 0, 'socket': 'x'}]\n"
ATTACKS = {f"{one.kind}-{one.name}": one for one in (*own_death.ATTACKS, *forged.ATTACKS)}


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = open_or_skip(request.param, LIMITS, containers=1)
    yield opened
    opened.close_sync()


def call(code: str) -> str:
    return f"<think>c</think><python>{code}</python>"


def environment(sandbox: Sandbox) -> Any:
    made: Any = gym.make("arpo/Arithmetic-v0", tool_timeout=1.5, max_turns=20, max_tool_calls=20, sandbox=sandbox)
    made.reset(options={"task": LIST})
    return made


def played(sandbox: Sandbox, attack: Attack) -> str:
    """Play an episode with an attack in it, and return what is wrong with it, nothing if all is well."""
    env = environment(sandbox)
    try:
        for code in (TOOLS, KNOWN_TO_STRANGERS, attack.code):
            env.step(call(code))
        time.sleep(attack.pause)
        for code in ("6 * 7", "import os; os._exit(0)", "len(items + [4])"):
            result, _, terminated, truncated, info = env.step(call(code))
        lies = attack.kind == "forged"  # what a session says of its own cells is its own affair
        if terminated or truncated or (not lies and (info["tool"]["status"] != "ok" or "4" not in result)):
            return f"the episode does not go on: {result!r}"
        _, reward, terminated, _, _ = env.step("<think>d</think><answer>\\boxed{4}</answer>")
        return "" if (reward, terminated) == (1.0, True) else f"the reward is {reward}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        env.close()


def test_no_code_makes_a_step_fail(sandbox: Sandbox) -> None:
    together = [name for name, one in ATTACKS.items() if one.name not in BUSY]
    alone = [name for name in ATTACKS if name not in together]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = dict(zip(together, pool.map(lambda name: played(sandbox, ATTACKS[name]), together), strict=True))
    wrong |= {name: played(sandbox, ATTACKS[name]) for name in alone}
    found = {name: fault for name, fault in wrong.items() if fault}
    assert not found, "\n".join(
        [f"{len(found)} of {len(wrong)}", *(f"{name}: {fault}" for name, fault in found.items())]
    )


def test_a_fork_of_an_ended_session_fails_as_a_fork(sandbox: Sandbox) -> None:
    name, env = "own_death-killed", environment(sandbox)
    for code in (TOOLS, ATTACKS[name].code):
        env.step(call(code))
    time.sleep(ATTACKS[name].pause)
    with contextlib.suppress(ForkError):
        twin = env.unwrapped.fork()
        assert "42" in twin.step(call("6 * 7"))[0]
        twin.close()
    env.step(call("6 * 7"))
    assert "4" in env.step(call("len(items + [4])"))[0]
    env.close()
