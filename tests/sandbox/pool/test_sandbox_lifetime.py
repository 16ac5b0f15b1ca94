"""Many sessions, threads, event loops and processes; and that nothing is left behind."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_under_test import behind, containers_of, open_or_skip, processes_of, wait_for

from sandbox import Interpreter, Sandbox, SandboxError, SessionLost, SyncInterpreter, default_sandbox
from sandbox.server.processes import descendants
from tests.arpo_env.forks import holds_in_a_child

OPEN_AND_WAIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
from sandbox import Sandbox
sandbox = Sandbox.open_sync(sys.argv[1])
python = sandbox.interpreter_sync()
pid = python.run("import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(500)'])")
print(python.run("print(os.path.realpath(os.getcwd()))").stdout, end="", flush=True)
time.sleep(60)
"""


def test_one_session_serves_threads_and_changing_event_loops(sandbox: Sandbox) -> None:
    python = asyncio.run(sandbox.interpreter("x = 0"))
    for expected in range(1, 4):
        assert asyncio.run(python.run("x += 1; x")).value == str(expected)
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(python.sync.run, ["x += 1"] * 10))
    assert python.sync.run("x").value == "13"
    asyncio.run(python.close())


def test_sessions_whose_opening_or_forking_was_cancelled_are_closed(sandbox: Sandbox) -> None:
    async def main() -> None:
        async with await sandbox.interpreter() as python:
            before = len(processes_of(sandbox))
            for start in (lambda: python.fork(3), lambda: sandbox.interpreter()):
                task = asyncio.ensure_future(start())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(wait_for, lambda: len(processes_of(sandbox)) <= before)

    asyncio.run(main())


def test_a_close_during_a_cell_ends_it(sandbox: Sandbox) -> None:
    async def main() -> None:
        python = await sandbox.interpreter()
        task = asyncio.create_task(python.run("while True: pass", timeout=60))
        await asyncio.sleep(0.1)
        await python.close()
        with pytest.raises(SessionLost, match="closed"):
            await task

    asyncio.run(main())


def test_an_interpreter_that_is_dropped_is_closed(sandbox: Sandbox) -> None:
    before = sandbox.stats()["sessions"]
    kept = sandbox.interpreter_sync()
    sandbox.interpreter_sync()
    gc.collect()
    assert sandbox.stats()["sessions"] == before + 1
    kept.close()
    assert sandbox.stats()["sessions"] == before


def test_many_sessions_leave_nothing_behind(sandbox: Sandbox) -> None:
    async def measure() -> tuple[int, int, int]:
        """How many processes, also ended ones, and the most descriptors and kilobytes that one has room for."""
        await asyncio.sleep(0.3)
        pids = processes_of(sandbox)
        told = "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
        descriptors, kilobytes = (max(map(int, re.findall(rf"{name}:\s+(\d+)", told))) for name in ("FDSize", "VmRSS"))
        return len(pids), descriptors, kilobytes

    async def life(python: Interpreter) -> None:
        (copy,) = await python.fork()
        await copy.run("x = 1")
        await copy.close()

    async def main() -> None:
        async with await sandbox.interpreter("x = 0") as python:
            for _ in range(50):
                await life(python)
            before = await measure()
            for _ in range(40):
                await asyncio.gather(*(life(python) for _ in range(5)))
                for fresh in await asyncio.gather(*(sandbox.interpreter() for _ in range(5))):
                    await fresh.close()
            processes, descriptors, kilobytes = await measure()
            assert processes <= before[0]
            assert descriptors <= max(before[1], 256)  # a burst may double the table, a leak would fill it
            assert kilobytes < before[2] + 8000

    asyncio.run(main())


def test_the_client_keeps_no_descriptors_or_threads(sandbox: Sandbox) -> None:
    if sandbox in behind:
        pytest.skip("the server is in this process, too")

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    open_or_skip(sandbox.backend).close_sync()
    before = held()
    for _ in range(3):
        opened = open_or_skip(sandbox.backend)
        opened.interpreter_sync().run("1")
        opened.close_sync()
    assert held() == before


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_killed_leaves_nothing(sandbox: Sandbox, end: signal.Signals) -> None:
    if sandbox in behind:
        pytest.skip("a client starts nothing; the server closes what is idle (test_sandbox_server)")
    command = [sys.executable, "-c", OPEN_AND_WAIT, sandbox.backend]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert client.stdout is not None
    directory = Path(client.stdout.readline().rstrip("\n"))
    assert directory.name
    started = list(descendants(client.pid))

    def left() -> list[object]:
        if sandbox.backend == "docker":
            return containers_of(client.pid)
        return [pid for pid in started if os.path.exists(f"/proc/{pid}")]

    assert left()
    client.send_signal(end)
    client.wait(30)
    wait_for(lambda: not left(), 15)
    assert sandbox.backend != "unsafe_local" or not directory.parent.exists()  # elsewhere it is not one of this machine
    client.stdout.close()


def test_a_forked_process_harms_nothing_and_opens_its_own(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    monkeypatch.setenv("ARPO_SANDBOX", sandbox.backend)
    mine = sandbox.interpreter_sync("x = 'parent'")
    assert holds_in_a_child(lambda: _opens_its_own(sandbox, mine))
    assert mine.run("x").value == "'parent'"
    mine.close()


def _opens_its_own(sandbox: Sandbox, mine: SyncInterpreter) -> bool:
    with pytest.raises(SandboxError, match=r"default_sandbox\(\)"):
        mine.run("x")
    mine.close()
    sandbox.close_sync()
    with default_sandbox() as own:
        return own.run_sync("2 + 2").value == "4"


def test_the_default_sandbox_is_shared_lazy_and_replaced_when_closed(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    monkeypatch.setenv("ARPO_SANDBOX", sandbox.backend)
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: default_sandbox(), range(8)))
    (default,) = found
    assert default.run_sync("1").value == "1"
    default.close_sync()
    assert default_sandbox() is not default
    default_sandbox().close_sync()


def test_unsafe_local_warns_and_says_none() -> None:
    code = "from sandbox import Sandbox\nfor _ in range(2):\n"
    code += "    with Sandbox.open_sync('unsafe_local') as opened: print(opened.isolation)"
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.count("isolates nothing")) == ("none\nnone\n", 1)
