"""That a family gets its share of CPU and memory and no more, and that no other is ended for what it takes."""

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_under_test import open_or_skip, processes_of

from arpo_trainer.cli.arpo_command import main
from sandbox import Limits, Sandbox, SandboxError, SyncInterpreter
from sandbox import options as limits_module

LIMITS = Limits(memory="1g", session_memory=1 << 30, processes=80, disk=32 << 20, timeout=30, grace=0.5)
HOGS = """
import os
for _ in range({number}):
    if os.fork() == 0:
        while True: pass
"""
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


def settles(look: Callable[[], object], wanted: object, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}"
        time.sleep(0.05)


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
        settles(lambda: policies(fair), [])
        yield python


def test_what_outlives_its_cell_has_idle_priority(fair: Sandbox, neighbour: SyncInterpreter) -> None:
    with fair.interpreter_sync() as hog:
        hog.run(HOGS.format(number=6))
        settles(lambda: policies(fair), [5] * 6)


def test_threads_that_outlive_their_cell_have_idle_priority(fair: Sandbox, neighbour: SyncInterpreter) -> None:
    code = (
        "import hashlib, threading\ndata = bytes(1 << 22)\ndef burn():\n    while True: hashlib.sha256(data).digest()\n"
    )
    with fair.interpreter_sync() as hog:
        hog.run(code + "for _ in range(4): threading.Thread(target=burn, daemon=True).start()")
        settles(lambda: policies(fair), [5] * 4)
        assert hog.run("import os; os.sched_getscheduler(0)").value == "0"


def test_a_cell_has_one_share_whatever_it_starts(fair: Sandbox, neighbour: SyncInterpreter) -> None:
    with fair.interpreter_sync() as hog:
        thread = threading.Thread(target=lambda: hog.run(HOGS.format(number=6) + "while True: pass", timeout=4))
        thread.start()
        settles(lambda: policies(fair), [0, 5, 5, 5, 5, 5, 5])
        thread.join()


def test_each_running_branch_of_a_family_has_a_share(fair: Sandbox, neighbour: SyncInterpreter) -> None:
    with fair.interpreter_sync() as origin:
        family = [origin, *origin.fork(2)]
        threads = [
            threading.Thread(target=one.run, args=(HOGS.format(number=1) + "while True: pass", 3)) for one in family
        ]
        for thread in threads:
            thread.start()
        settles(lambda: policies(fair), [0, 0, 0, 5, 5, 5])
        for thread in threads:
            thread.join()


def test_sessions_can_not_take_their_priority_back(fair: Sandbox, neighbour: SyncInterpreter) -> None:
    code = """
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
    with fair.interpreter_sync() as hog:
        hog.run(code)
        settles(lambda: policies(fair), [5] * 3)
        assert policies(fair) == [5] * 3


@pytest.fixture(scope="module")
def crowd() -> Iterator[tuple[Sandbox, list[SyncInterpreter]]]:
    """A sandbox with neighbours that hold memory: eleven, seven of them a family."""
    with open_or_skip("docker", LIMITS, containers=1, sessions=8) as sandbox:
        neighbours = [sandbox.interpreter_sync("x = bytearray(b'x') * (120 << 20)")]
        forked = sandbox.interpreter_sync("x = bytearray(b'x') * (30 << 20)")
        neighbours += [forked, *forked.fork(6), *(sandbox.interpreter_sync("x = b''") for _ in range(3))]
        yield sandbox, neighbours


@pytest.mark.docker
def test_pages_of_the_zygote_that_are_written_between_cells_cost_no_neighbour_anything(crowd: Any) -> None:
    sandbox, neighbours = crowd
    sizes = [one.run("len(x)").value for one in neighbours]
    with sandbox.interpreter_sync() as greedy:
        greedy.run(GROW_BY_COLLECTING)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and alive(greedy):
            time.sleep(0.1)
        time.sleep(0.5)
        assert not alive(greedy)
        assert [one.run("len(x)").value for one in neighbours] == sizes


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
