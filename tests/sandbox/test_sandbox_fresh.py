"""Interpreters without a memory."""

import asyncio

import pytest
from sandbox_under_test import behind, fastest, open_or_skip, wait_for

from sandbox import Sandbox, SandboxError


def test_nothing_stays_but_the_setup(sandbox: Sandbox) -> None:
    with sandbox.interpreter_sync("x = 1", fresh=True) as python:
        assert python.run("x += 1; y = 2; open('f', 'w').write('1'); x").value == "2"
        assert python.run("import os; x, 'y' in dir(), os.path.exists('f')").value == "(1, False, False)"


def test_every_slot_comes_back(sandbox: Sandbox) -> None:
    async def main() -> None:
        python = await own.interpreter(fresh=True)
        for pause in (0.0, 0.001, 0.01, 0.1):
            task = asyncio.create_task(python.run("while True: pass", timeout=60))
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        failing = await own.interpreter("1 / 0", fresh=True)
        for _ in range(2):
            with pytest.raises(SandboxError, match="ZeroDivisionError"):
                await failing.run("1")

    with open_or_skip(sandbox.backend) as own:
        before = own.stats()["free"]
        asyncio.run(main())
        wait_for(lambda: own.stats()["free"] == before)


def test_there_are_no_files(sandbox: Sandbox) -> None:
    python = sandbox.interpreter_sync(fresh=True)
    for call in (lambda: python.put("a", b""), lambda: python.get("a")):
        with pytest.raises(ValueError, match="keeps no files"):
            call()


def test_packages_are_there_at_once_where_they_are_named_and_on_demand_where_not(sandbox: Sandbox) -> None:
    loaded = "import sys; 'numpy' in sys.modules"
    if sandbox not in behind:  # a server opens a session before it knows the code
        assert sandbox.run_sync(loaded.replace("numpy", "n' + 'umpy")).value == "False"
    assert sandbox.run_sync(loaded).value == "True"
    assert sandbox.run_sync(loaded.replace("numpy", "n' + 'umpy"), setup="import sympy").value == "True"
    assert sandbox.run_sync("__import__('n' + 'umpy').arange(3).sum() == 3").value in ("True", "np.True_")


@pytest.mark.parametrize("dying", ["import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_setup_that_ends_its_session_is_a_result_of_the_run_and_gives_the_slot_back(dying: str) -> None:
    with open_or_skip(fastest(), containers=1, sessions=1) as own:
        for _ in range(3):
            execution = own.run_sync("1", setup=dying)
            assert (execution.status, execution.alive) == ("killed", False)
        assert own.run_sync("40 + x", setup="x = 2").value == "42"
        assert own.stats()["sessions"] == 0


def test_sessions_of_both_kinds_are_held_alike(isolated: Sandbox) -> None:
    """Whether a package is named or not: the same user's rights, limits, environment and random state of its own."""
    code = """
import os, resource, random
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
held = [status[name].split()[0] for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters")]
limits = [resource.getrlimit(kind) for kind in range(16)]
(held, limits, sorted(os.environ.items()), os.nice(0), os.getcwd(), os.listdir("."))
"""
    plain, named = isolated.run_sync(code), isolated.run_sync(f"{code}# numpy")
    plain_again = isolated.run_sync("import random; random.random()")
    assert plain.status == "ok", plain.text
    assert plain.value == named.value
    assert plain_again.value != isolated.run_sync("import random; random.random()").value
