"""Processes of a tensor-parallel group: every one gives its engine the same requests in the same order.

The engine is a stand-in that writes down what is done to it: two real ones need two GPUs. The processes and their
group are real.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import ready_processes

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import asyncio, json, sys
import torch.distributed as dist
from arpo_trainer.backends.vllm_engine import Lockstep, VLLMEngineBackend
from arpo_trainer.backends.base import GenerationError, Request
from tests.arpo_trainer.backends.recording_engine import RecordingLLM

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)

async def path(backend, number, answers):
    await asyncio.sleep(0.01 * number * (1 + rank))
    for turn in range(1 + number % 2):
        made = await backend.generate(Request((rank, number, turn), 3 + number, seed=number))
        answers.append([rank, number, made.ids, made.finish])

async def give_up(backend, llm):
    task = asyncio.create_task(backend.generate(Request((rank, 99, 0), 10**6)))
    while not any(entry[0] == "add" and tuple(entry[2]) == (rank, 99, 0) for entry in llm.log):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

async def rollout(backend, paths, answers, leaves=None):
    await backend.begin()
    try:  # as the engine does: who is left over when one fails asks for nothing more
        async with asyncio.TaskGroup() as tasks:
            for number in range(paths):
                tasks.create_task(path(backend, number, answers))
            if leaves:
                tasks.create_task(give_up(backend, leaves))
    except BaseExceptionGroup as several:
        raise several.exceptions[0]
    finally:
        await backend.end()

async def play(paths, leaves=False, fails_at=None):
    llm, answers, failed = RecordingLLM(fails_at), [], False
    backend = VLLMEngineBackend(llm, lockstep=Lockstep(dist.group.WORLD))
    backend._sampling = lambda request: request  # the stand-in takes requests as they are
    try:
        await rollout(backend, paths, answers, leaves and llm)
    except GenerationError:
        failed, answers, llm.fails_at = True, [], None
        await rollout(backend, paths, answers)
    await rollout(backend, 1, answers)
    return {"log": llm.log, "answers": answers, "left": llm.has_unfinished_requests(), "failed": failed}

async def main():
    return {
        "uneven": await play(5 if rank else 2),
        "idle": await play(4 * rank),
        "cancels": await play(3, leaves=rank == 0),
        "fails": await play(3, fails_at=4),
    }

with open(f"{folder}/{rank}.json", "w") as file:
    json.dump(asyncio.run(main()), file)
"""
PATHS = {"uneven": (2, 5), "idle": (0, 4), "cancels": (3, 3), "fails": (3, 3)}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two processes play the same plans; what each one's engine saw, and its answers."""
    folder = tmp_path_factory.mktemp("lockstep")
    program = folder / "play.py"
    program.write_text(PROGRAM, encoding="utf-8")
    processes = [
        ready_processes.start(str(program), str(rank), str(folder), folder=ROOT, said=folder / f"{rank}.out")
        for rank in (0, 1)
    ]
    for process in processes:
        process.join(180)
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0], ready_processes.errors_of(folder / "0.out")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("plan", PATHS)
def test_both_engines_are_given_the_same_and_each_process_gets_its_own_answers(played: Any, plan: str) -> None:
    first, second = (one[plan] for one in played)
    assert first["log"] == second["log"]
    assert len(first["log"]) > 10
    assert not first["left"]
    for rank, one in enumerate(played):
        asked = sorted([number for n in (PATHS[plan][rank], 1) for number in range(n) for _ in range(1 + number % 2)])
        assert sorted(number for _, number, _, _ in one[plan]["answers"]) == asked
        for whose, number, ids, finish in one[plan]["answers"]:
            assert (whose, len(ids), finish) == (rank, 3 + number, "length")


def test_who_gives_up_leaves_both_engines(played: list[dict[str, Any]]) -> None:
    for one in played:
        left = [names for what, names, *_ in one["cancels"]["log"] if what == "abort"]
        assert len(left) == 1
        assert left[0][0].startswith("arpo-0-")


def test_an_engine_that_fails_fails_all_and_is_empty_afterwards(played: list[dict[str, Any]]) -> None:
    assert all(one["fails"]["failed"] for one in played)
    assert not any(one[plan]["failed"] for one in played for plan in PATHS if plan != "fails")
