"""That a family gets its share of CPU and memory and no more, and that no other is ended for what it takes."""

import contextlib
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_under_test import open_or_skip, processes_of, values, wait_for

from arpo_trainer.cli.arpo_command import main
from sandbox import Limits, Sandbox, SandboxError, SyncInterpreter
from sandbox import options as limits_module

LIMITS = Limits(memory="1g", session_memory=1 << 30, processes=80, disk=32 << 20, timeout=30, grace=0.5)
GROW_BY_COLLECTING = """
import gc, os, time
gc.unfreeze()
for _ in range(60):
    if os.fork() == 0:
        time.sleep(0.4)
        gc.collect()
        held = [gc.get_objects()] * 3
        time.sleep(100)
"""


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"])
def fair(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with open_or_skip(request.param, LIMITS, containers=1, sessions=8) as sandbox:
        if "uid" not in sandbox.isolation:
            pytest.skip("priorities are divided where each family has a user of its own")
        yield sandbox


def policies(sandbox: Sandbox) -> list[int]:
    """The scheduling policies of all tasks of sessions that want to run."""
    found = []
    for pid in processes_of(sandbox):
        with contextlib.suppress(OSError):
            for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
                fields = stat.read_text().rpartition(")")[2].split()
                if fields[0] == "R" and int(fields[16]) > 0:  # not supervisor and zygotes
                    found.append(int(fields[38]))
    return sorted(found)


@pytest.fixture
def neighbour(fair: Sandbox) -> Iterator[SyncInterpreter]:
    with fair.interpreter_sync() as python:
        wait_for(lambda: not policies(fair))
        yield python


HOGS = "import os\nfor _ in range({number}):\n    if os.fork() == 0:\n        while True: pass\n"
THREADS = """
import hashlib, threading
data = bytes(1 << 22)  # made once: threads that make it wait for each other, and are not seen to run
def burn():
    while True: hashlib.sha256(data).digest()
for _ in range(4): threading.Thread(target=burn, daemon=True).start()
"""
TAKE_BACK = """
import os
for _ in range(3):
    if os.fork() == 0:
        while True:
            for policy in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_RR):
                try: os.sched_setscheduler(0, policy, os.sched_param(policy == os.SCHED_RR))
                except OSError: pass
            try: os.setpriority(os.PRIO_PROCESS, 0, 0)
            except OSError: pass
"""


@pytest.mark.parametrize(("code", "number"), [(HOGS.format(number=6), 6), (THREADS, 4), (TAKE_BACK, 3)])
def test_what_outlives_its_cell_has_idle_priority(
    fair: Sandbox, neighbour: SyncInterpreter, code: str, number: int
) -> None:
    with fair.interpreter_sync() as hog:
        hog.run(code)
        wait_for(lambda: policies(fair) == [5] * number)
        assert hog.run("import os; os.sched_getscheduler(0)").value == "0"
        wait_for(lambda: policies(fair) == [5] * number)
        assert {policy for _ in range(10) for policy in policies(fair)} <= {5}  # and it stays so


def test_each_running_branch_of_a_family_has_one_share_whatever_it_starts(
    fair: Sandbox, neighbour: SyncInterpreter
) -> None:
    with fair.interpreter_sync() as origin, ThreadPoolExecutor(3) as threads:
        for one in (origin, *origin.fork(2)):
            threads.submit(one.run, HOGS.format(number=2) + "while True: pass", 3)
        wait_for(lambda: policies(fair) == [0, 0, 0, 5, 5, 5, 5, 5, 5])


@pytest.mark.docker
def test_pages_of_the_zygote_that_are_written_between_cells_cost_no_neighbour_anything() -> None:
    """Of eleven neighbours that hold memory, seven are a family."""
    with open_or_skip("docker", LIMITS, containers=1, sessions=8) as sandbox:
        neighbours = [sandbox.interpreter_sync("x = bytearray(b'x') * (120 << 20)")]
        forked = sandbox.interpreter_sync("x = bytearray(b'x') * (30 << 20)")
        neighbours += [forked, *forked.fork(6), *(sandbox.interpreter_sync("x = b''") for _ in range(3))]
        sizes = values(neighbours, "len(x)")
        with sandbox.interpreter_sync() as greedy:
            greedy.run(GROW_BY_COLLECTING)
            wait_for(lambda: not alive(greedy))
            time.sleep(0.5)
            assert values(neighbours, "len(x)") == sizes


def alive(session: SyncInterpreter) -> bool:
    try:
        return session.run("1").status == "ok"
    except SandboxError:
        return False


@pytest.mark.docker
def test_cpus_are_limited_by_the_engine() -> None:
    code = "import time\nbegan = time.time()\nwhile time.time() < began + 1: pass\ntime.process_time()"
    with open_or_skip("docker", Limits(cpus=0.5), containers=1) as sandbox, sandbox.interpreter_sync() as python:
        assert "no(" not in sandbox.isolation
        assert float(str(python.run(code).value)) < 0.8


@pytest.mark.parametrize("backend", ["bubblewrap", "unsafe_local"])
def test_cpus_that_can_not_be_limited_are_reported(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "_warned", set())
    open_or_skip(backend).close_sync()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Sandbox.open_sync(backend, Limits(cpus=1)) as sandbox:
            assert sandbox.isolation.split("+")[-1] == "no(cpus)"
            assert sandbox.run_sync("1").isolation == sandbox.isolation
    assert any("Limits.cpus is not enforced" in str(one.message) for one in caught)


def test_check_names_what_is_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert main(["sandbox", "check", "--backend", "unsafe_local"]) == 0
    out = capsys.readouterr().out
    assert "NOT KEPT" in out
    assert "42" in out
