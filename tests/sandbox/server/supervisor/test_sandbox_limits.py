"""What happens to code that does not come to an end by itself, or takes too much; more of it is in `attacks`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sandbox_under_test import open_or_skip, skip_over_http

from sandbox import Limits, Sandbox, SessionLost, SyncInterpreter

COUNT_SLEEPS = """
import os
n = 0
for name in os.listdir('/proc'):
    if name.isdigit():
        try:
            n += 'NEEDLE' in open(f'/proc/{name}/cmdline').read()
        except OSError:
            pass
print(n)
"""


def running(python: SyncInterpreter, needle: str) -> int:
    """Count processes with a word in their command line, as seen from inside."""
    return int(python.run(COUNT_SLEEPS.replace("NEEDLE", needle)).stdout)


def settled(python: SyncInterpreter, needle: str) -> int:
    """The same, once it is 0 or five seconds have passed."""
    deadline = time.monotonic() + 5
    while (left := running(python, needle)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_a_timeout_interrupts_and_keeps_the_variables(python: SyncInterpreter) -> None:
    python.run("x = 5")
    execution = python.run("print('before')\nwhile True: x += 0", timeout=0.3)
    assert (execution.status, execution.alive, execution.stdout) == ("timeout", True, "before\n")
    assert "variables are kept" in str(execution.error)
    assert 0.3 <= execution.duration < 5
    assert python.run("x").value == "5"


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])",
        "import os; os.system('python3 -c \"import time; time.sleep(60)\"')",
        "import threading; threading.Event().wait()",
    ],
)
def test_waiting_is_interrupted_too(python: SyncInterpreter, code: str) -> None:
    execution = python.run(code, timeout=0.3)
    assert (execution.status, execution.alive) == ("timeout", True)
    assert python.run("1").value == "1"


def test_what_can_not_be_interrupted_is_killed(python: SyncInterpreter) -> None:
    execution = python.run("sum(range(10**13))", timeout=0.3)
    assert (execution.status, execution.alive) == ("timeout", False)
    assert "the session was ended" in str(execution.error)
    with pytest.raises(SessionLost, match="open a new interpreter"):
        python.run("1")


def test_a_kill_takes_all_descendants_along(sandbox: Sandbox, python: SyncInterpreter) -> None:
    stubborn = sandbox.interpreter_sync()
    code = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
nap = "import time; time.sleep(12345.5)"
subprocess.Popen([sys.executable, "-c", nap])
subprocess.Popen([sys.executable, "-c", nap], start_new_session=True)
subprocess.run(["/bin/sh", "-c", f"{sys.executable} -c '{nap}' &"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", nap])
    os._exit(0)
print("started", flush=True)
while True: pass
"""
    execution = stubborn.run(code, timeout=2)
    assert (execution.status, execution.stdout) == ("timeout", "started\n")
    assert settled(python, "12345.5") == 0


def processes_become(sandbox: Sandbox, holds: Callable[[int], bool]) -> bool:
    """Wait until the number of processes is as it should be; sessions do not see each other's everywhere."""
    deadline = time.monotonic() + 5
    while not (there := holds(sum(one["processes"] for one in sandbox.condition()))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return there


def settled_processes(sandbox: Sandbox) -> int:
    """The number of processes once what earlier tests have started is gone: the least in half a second."""
    skip_over_http(sandbox, "a server does not tell its clients how many processes it has")
    found = []
    for _ in range(10):
        found.append(sum(one["processes"] for one in sandbox.condition()))
        time.sleep(0.05)
    return min(found)


DAEMON = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"], start_new_session=True)
"""


def test_closing_takes_daemons_along(sandbox: Sandbox) -> None:
    before = settled_processes(sandbox)
    with sandbox.interpreter_sync() as other:
        other.run(DAEMON)
        assert processes_become(sandbox, lambda now: now >= before + 2)
    assert processes_become(sandbox, lambda now: now <= before)


def test_daemons_of_a_session_that_has_exited_are_swept_up(sandbox: Sandbox) -> None:
    before = settled_processes(sandbox)
    other = sandbox.interpreter_sync()
    other.run(DAEMON)
    assert processes_become(sandbox, lambda now: now >= before + 2)
    assert other.run("os._exit(4)").status == "killed"
    assert processes_become(sandbox, lambda now: now <= before)


def test_long_output_keeps_head_and_tail(python: SyncInterpreter) -> None:
    execution = python.run("print('head'); print('x' * 300_000); print('tail')")
    assert execution.status == "ok"
    assert execution.truncated
    assert execution.stdout.startswith("head\n")
    assert execution.stdout.endswith("tail\n")
    assert "bytes left out" in execution.stdout
    assert len(execution.stdout) < 70_000


@pytest.mark.docker
def test_a_kill_by_the_kernel_for_memory_is_told_and_spares_the_others() -> None:
    sandbox = open_or_skip("docker", Limits(memory="192m", session_memory=1 << 30))
    with sandbox, sandbox.interpreter_sync("x = 3") as innocent, sandbox.interpreter_sync() as greedy:
        execution = greedy.run("x = []\nwhile True: x.append(bytearray(10**6))", timeout=60)
        assert (execution.status, execution.alive) == ("memory_limit", False)
        assert innocent.run("x").value == "3"


@pytest.mark.docker
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_session_that_the_kernel_ends_for_the_memory_of_others_is_lost(busy: bool) -> None:
    """Where less is left than the limit says, the kernel is first: it takes the largest, whoever wants more."""
    sandbox = open_or_skip("docker", Limits(memory="1g"), containers=1, sessions=4)
    with (
        sandbox,
        sandbox.interpreter_sync() as large,
        sandbox.interpreter_sync() as greedy,
        ThreadPoolExecutor(1) as pool,
    ):
        large.run("import time; x = bytearray(b'x') * (300 << 20)")
        stream: Any = sandbox._pool.containers[0].connection.stream  # type: ignore[union-attr]
        most = sandbox.condition()[0]["memory"] + (60 << 20)
        stream._client.api.update_container(stream._container, mem_limit=most, memswap_limit=most)
        running = pool.submit(large.run, "time.sleep(5)" if busy else "1")
        grow = "import time\ny = []\nfor _ in range(200): y.append(b'y' * (1 << 20)); time.sleep(0.01)\nlen(y)"
        assert greedy.run(grow).value == "200"
        ended = running if busy else pool.submit(large.run, "len(x)")
        with pytest.raises(SessionLost, match="which others held"):
            ended.result()


@pytest.mark.docker
def test_mappings_are_charged_to_whom_they_belong() -> None:
    """The kernel keeps 15 MB for the 65,530 mappings of a process, which no size of the process shows."""
    code = """
import mmap, os, time
held = []
try:
    while True: held.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ if len(held) % 2 else 0))
except OSError: pass
for _ in range(30):
    if os.fork() == 0: time.sleep(100)
time.sleep(10)
"""
    sandbox = open_or_skip("docker", Limits(memory="384m"), containers=1, sessions=4)
    with sandbox, sandbox.interpreter_sync("x = bytearray(20 << 20)") as innocent, sandbox.interpreter_sync() as greedy:
        assert greedy.run(code, timeout=40).status == "memory_limit"
        assert innocent.run("len(x)").value == str(20 << 20)


def test_the_end_of_the_process_is_told_with_what_it_had_printed(python: SyncInterpreter) -> None:
    execution = python.run("import os\nprint('last words')\nos._exit(3)")
    assert (execution.status, execution.alive, execution.stdout) == ("killed", False, "last words\n")
    assert "exit code 3" in str(execution.error)
    with pytest.raises(SessionLost):
        python.run("1")
