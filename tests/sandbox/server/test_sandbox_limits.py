"""What happens to code that does not come to an end by itself, or takes too much; more of it is in `attacks`."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sandbox_under_test import open_or_skip

from sandbox import Limits, SessionLost, SyncInterpreter
from sandbox.server.wire import PING


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
        "import threading; threading.Event().wait()",
    ],
)
def test_waiting_is_interrupted_too(python: SyncInterpreter, code: str) -> None:
    execution = python.run(code, timeout=0.3)
    assert (execution.status, execution.alive) == ("timeout", True)
    assert python.run("1").value == "1"


def test_long_output_keeps_head_and_tail(python: SyncInterpreter) -> None:
    execution = python.run("print('head'); print('x' * 300_000); print('tail')")
    assert (execution.status, execution.truncated) == ("ok", True)
    assert re.fullmatch(r"head\nx+\n.* bytes left out.*\nx+\ntail\n", execution.stdout)
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
        (container,) = sandbox._pool.containers
        stream: Any = container.stream
        most = container.request(PING, {}).result(30)["memory"] + (60 << 20)
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
    python.restart()
    assert python.run("6 * 7").value == "42"
