"""What breaks while trees grow, for real: the container dies, the program is interrupted. Nothing is left behind."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from sandbox import Sandbox, SandboxUnavailable
from tests.arpo_trainer.text_policy import TextPolicy

CALL = "<think>c</think><python>import time; time.sleep(0.2); n = globals().get('n', 0) + 1; n</python>"
DONE = "<think>d</think><answer>\\boxed{3}</answer>"


class Policy(TextPolicy):
    """Three calls and an answer; entropies rise, so that it branches."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.time = tokenizer, Stopwatch()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        calls = self.tokenizer.decode(request.ids).count("<result>\n")
        entropy = 0.5 + calls + random.Random(request.seed).random()
        return self.said(request, CALL if calls < 3 else DONE, entropy, on_window)


@dataclass
class Box:
    """A Docker sandbox of its own, and the containers it began with."""

    sandbox: Sandbox
    containers: list[str]


@pytest.fixture
def box(isolation: str) -> Iterator[Box]:
    if shutil.which("docker") is None:
        pytest.skip("no docker command to kill containers with")
    before = own_containers(os.getpid())
    try:
        sandbox = Sandbox.open_sync("docker")
    except SandboxUnavailable as error:
        pytest.skip(f"no Docker here: {error}")
    sandbox.interpreter_sync().close()
    yield Box(sandbox, sorted(own_containers(os.getpid()) - before))
    sandbox.close_sync()


def own_containers(pid: int) -> set[str]:
    command = ["docker", "ps", "--quiet", "--all", "--filter", f"label=arpo.sandbox.client={pid}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def engine_of(sandbox: Sandbox, tokenizer: Any) -> Engine:
    env = ToolEnv("arpo/Arithmetic-v0", sandbox=sandbox)
    settings = RolloutSettings(num_generations=6, initial_rollouts=3, max_invalid=1.0)
    return Engine(Policy(tokenizer), tokenizer, env, settings)


@pytest.mark.docker
def test_a_container_that_dies_costs_nothing_where_episodes_can_be_played_again(box: Box, tokenizer: Any) -> None:
    engine = engine_of(box.sandbox, tokenizer)

    async def killed_meanwhile() -> RolloutTree:
        """Play a tree, and kill the container once some calls have been made."""
        playing = asyncio.create_task(engine.rollout([engine.env.tasks.task(0)]))
        while box.sandbox.stats().get("forks", 0) == 0 and not playing.done():
            await asyncio.sleep(0.02)
        await asyncio.to_thread(subprocess.run, ["docker", "kill", *box.containers], capture_output=True, check=True)
        return (await playing)[0]

    tree = asyncio.run(killed_meanwhile())
    assert len(tree.trajectories) == 6
    assert all(trajectory.valid for trajectory in tree.trajectories)
    results = [[span for span in tree.path(number) if span.kind == "environment"] for number in range(6)]
    # the counters in the interpreters are what they were
    assert [[span.text.split("\n")[2] for span in path] for path in results] == [["1", "2", "3"]] * 6
    assert any(event.kind == "retry" for event in tree.timeline)
    assert box.sandbox.stats()["sessions"] == 0


@pytest.mark.docker
def test_a_program_that_is_interrupted_leaves_no_container(tokenizer: Any, box: Box) -> None:
    script = "from tests.arpo_trainer.rollout.test_faults import play_for_ever; play_for_ever()"
    program = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout.readline() == "calls are made\n"
    assert own_containers(program.pid)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 60
    while own_containers(program.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not own_containers(program.pid)


def play_for_ever() -> None:
    """Roll out calls that take long, in a program of its own."""
    from transformers import AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer.models import get_model

    global CALL
    CALL = "<think>c</think><python>import time; time.sleep(9)</python>"
    sandbox = Sandbox.open_sync("docker")
    engine = engine_of(sandbox, AutoTokenizer.from_pretrained(get_model()))
    threading.Timer(2.0, lambda: print("calls are made", flush=True)).start()  # noqa: T201
    run(engine.rollout([engine.env.tasks.task(0)]))
