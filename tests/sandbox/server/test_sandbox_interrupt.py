"""A cell can be stopped from outside, and is stopped when nobody waits for it any more."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandbox_under_test import wait_for

from sandbox import Execution, Sandbox, SessionLost, SyncInterpreter

COUNT = "import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.001)"
STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


def run_aside(python: SyncInterpreter, code: str) -> Callable[[], Execution]:
    """Run a cell on a thread; returns what waits for its outcome."""
    return ThreadPoolExecutor(1).submit(python.run, code, timeout=60).result


def interrupt(python: SyncInterpreter) -> None:
    """Interrupt as soon as a cell runs."""
    wait_for(python.interrupt)


def still_counts(python: SyncInterpreter) -> bool:
    """Whether something goes on counting `n`; looked at twice, by cells that wait for their turn."""
    first = python.run("n").value
    time.sleep(0.05)
    return python.run("n").value != first


def test_an_interrupt_stops_the_cell_and_keeps_the_variables(python: SyncInterpreter) -> None:
    for _ in range(20):  # also before the session has begun the cell
        outcome = run_aside(python, "x = 1\nprint('begun')\nwhile True: pass")
        interrupt(python)
        execution = outcome()
        assert (execution.status, execution.alive) == ("interrupted", True)
        assert "stopped on request; variables are kept" in str(execution.error)
        assert execution.duration < 5
    assert python.run("6 * 7").value == "42"


def test_an_interrupt_of_nothing_does_nothing(python: SyncInterpreter) -> None:
    assert python.interrupt() is False
    assert python.run("6 * 7").value == "42"
    python.close()
    assert python.interrupt() is False


def test_an_interrupt_does_not_hit_the_next_cell(python: SyncInterpreter) -> None:
    for number in range(50):
        outcome = run_aside(python, f"x = {number}")
        python.interrupt()
        assert outcome().status in ("ok", "interrupted")
        assert python.run("6 * 7").value == "42"


def test_a_cell_that_will_not_stop_is_ended_with_its_session(python: SyncInterpreter) -> None:
    outcome = run_aside(python, STUBBORN)
    time.sleep(0.2)
    interrupt(python)
    wait_for(lambda: not python.interrupt())  # again and again, which gives the cell no more time
    execution = outcome()
    assert (execution.status, execution.alive) == ("interrupted", False)
    assert "could not be interrupted" in str(execution.error)
    with pytest.raises(SessionLost, match="open a new interpreter"):
        python.run("1")


def test_code_is_given_time_to_clean_up_undisturbed(python: SyncInterpreter) -> None:
    code = "import time\ntry:\n    time.sleep(60)\nfinally:\n    time.sleep(0.3)\n    cleaned = True"
    outcome = run_aside(python, code)
    time.sleep(0.5)
    interrupt(python)
    assert outcome().alive
    assert python.run("cleaned").value == "True"


def test_the_asynchronous_face_interrupts_the_running_cell_only(sandbox: Sandbox) -> None:
    async def main() -> list[str]:
        async with await sandbox.interpreter() as python:
            cells = [asyncio.create_task(python.run(code)) for code in ("while True: pass", "x = 1", "x")]
            await asyncio.sleep(0.3)
            assert await python.interrupt()
            return [(await cell).status for cell in cells]

    assert asyncio.run(main()) == ["interrupted", "ok", "ok"]


def test_a_fork_is_not_interrupted_with_its_origin(python: SyncInterpreter) -> None:
    (copy,) = python.fork()
    outcome = run_aside(python, "while True: pass")
    other = run_aside(copy, "import time; time.sleep(0.6); 'done'")
    time.sleep(0.3)
    assert python.interrupt()
    assert outcome().status == "interrupted"
    assert other().value == "'done'"
    copy.close()


def test_fresh_runs_are_interrupted(sandbox: Sandbox) -> None:
    python = sandbox.interpreter_sync("y = 1", fresh=True)
    assert python.interrupt() is False
    outcome = run_aside(python, "while True: pass")
    interrupt(python)
    assert outcome().status == "interrupted"
    assert python.run("y").value == "1"


def test_cancelling_a_run_stops_the_cell(sandbox: Sandbox) -> None:
    async def main() -> None:
        async with await sandbox.interpreter("n = 0") as python:
            for pause in (0.0, 0.01, 0.3):
                task = asyncio.create_task(python.run(COUNT, timeout=60))
                await asyncio.sleep(pause)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert not await asyncio.to_thread(still_counts, python.sync)

    asyncio.run(main())


def test_cancelling_runs_that_wait_for_their_turn_stops_only_those(sandbox: Sandbox) -> None:
    async def main() -> tuple[str | None, str | None]:
        async with await sandbox.interpreter("late = []") as python:
            first = asyncio.create_task(python.run("import time; time.sleep(0.3); 'first'"))
            late = [asyncio.create_task(python.run(f"late.append({n})")) for n in range(3)]
            await asyncio.sleep(0.1)
            for task in late:
                task.cancel()
            return (await first).value, (await python.run("late")).value

    assert asyncio.run(main()) == ("'first'", "[]")
