"""A container that dies while trees grow, for real. Interrupts: `test_rollouts` and `test_sandbox_lifetime`."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree
from sandbox import Sandbox, SandboxUnavailable
from tests.arpo_trainer.rollout.test_engine import DONE, ScriptedPolicy

CALL = "<think>c</think><python>import time; time.sleep(0.2); n = globals().get('n', 0) + 1; n</python>"


def own_containers() -> set[str]:
    command = ["docker", "ps", "--quiet", "--all", "--filter", f"label=arpo.sandbox.client={os.getpid()}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture
def box(isolation: str) -> Iterator[tuple[Sandbox, list[str]]]:
    """A Docker sandbox of its own, and the containers it began with."""
    if shutil.which("docker") is None:
        pytest.skip("no docker command to kill containers with")
    before = own_containers()
    try:
        sandbox = Sandbox.open_sync("docker")
    except SandboxUnavailable as error:
        pytest.skip(f"no Docker here: {error}")
    sandbox.interpreter_sync().close()
    yield sandbox, sorted(own_containers() - before)
    sandbox.close_sync()


@pytest.mark.docker
def test_a_container_that_dies_costs_nothing_where_episodes_can_be_played_again(box: Any, tokenizer: Any) -> None:
    sandbox, containers = box
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, CALL, DONE], [0.5, 1.5, 2.5, 3.5])  # it branches
    settings = RolloutSettings(num_generations=6, initial_rollouts=3, max_invalid=1.0)
    engine = Engine(policy, tokenizer, ToolEnv("arpo/Arithmetic-v0", sandbox=sandbox), settings)

    async def killed_meanwhile() -> RolloutTree:
        """Play a tree, and kill the container once some calls have been made."""
        playing = asyncio.create_task(engine.rollout([engine.env.tasks.task(0)]))
        while sandbox.stats().get("forks", 0) == 0 and not playing.done():
            await asyncio.sleep(0.02)
        await asyncio.to_thread(subprocess.run, ["docker", "kill", *containers], capture_output=True, check=True)
        return (await playing)[0]

    tree = asyncio.run(killed_meanwhile())
    assert len(tree.trajectories) == 6
    assert all(trajectory.valid for trajectory in tree.trajectories)
    results = [[span for span in tree.path(number) if span.kind == "environment"] for number in range(6)]
    # the counters in the interpreters are what they were
    assert [[span.text.split("\n")[2] for span in path] for path in results] == [["1", "2", "3"]] * 6
    assert any(event.kind == "retry" for event in tree.timeline)
    assert sandbox.stats()["sessions"] == 0
