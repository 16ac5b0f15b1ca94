"""Slots, the queue for them, and what happens to those who wait; containers that die, hang, wear out."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sandbox_under_test import LIMITS, containers_of, fastest, open_or_skip, wait_for

from sandbox import Sandbox, SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox import pool as pool_module

pytestmark = pytest.mark.filterwarnings("ignore:sandbox backend 'unsafe_local':RuntimeWarning")


def pool(backend: str = "", **options: Any) -> Sandbox:
    return open_or_skip(backend or fastest(), **options)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health checks at once rather than every few seconds."""
    monkeypatch.setattr(pool_module, "PING_INTERVAL", 0.2)
    monkeypatch.setattr(pool_module, "PING_TIMEOUT", 1.0)


def test_those_who_wait_are_served_in_their_order() -> None:
    served: list[int] = []

    def take(number: int) -> None:
        with sandbox.interpreter_sync():
            served.append(number)

    async def take_async(number: int) -> None:
        async with await sandbox.interpreter():
            served.append(number)

    with pool(containers=1, sessions=1) as sandbox, ThreadPoolExecutor(12) as threads:
        held = sandbox.interpreter_sync()
        for number in range(12):
            threads.submit((lambda n: asyncio.run(take_async(n))) if number % 2 else take, number)
            wait_for(lambda number=number: sandbox.stats()["waiting"] == number + 1)  # type: ignore[misc]
        held.close()
    assert served == list(range(12))


def test_cancelled_requests_leave_the_queue_and_take_nothing() -> None:
    async def main() -> None:
        held = await sandbox.interpreter()
        tasks = [asyncio.create_task(sandbox.interpreter()) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.sleep(0)
        closing = asyncio.create_task(held.close())  # the slot comes while some are being cancelled
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], closing, return_exceptions=True)
        if not tasks[0].cancelled():
            await tasks[0].result().close()
        async with await sandbox.interpreter("x = 1") as python:
            assert (await python.run("x")).value == "1"

    with pool(containers=1, sessions=1, wait=10) as sandbox:
        for _ in range(10):
            asyncio.run(main())
        wait_for(lambda: sandbox.stats()["free"] == 1)
        assert sandbox.stats()["waiting"] == 0


def test_ctrl_c_ends_the_waiting_and_takes_nothing() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pool(containers=1, sessions=1) as sandbox:
            with sandbox.interpreter_sync() as python:
                for act in (sandbox.interpreter_sync, lambda: python.run("import time; time.sleep(5)", timeout=9)):
                    signal.setitimer(signal.ITIMER_REAL, 0.2)
                    with pytest.raises(KeyboardInterrupt):
                        act()
                    assert sandbox.stats()["waiting"] == 0
            assert sandbox.run_sync("6 * 7").value == "42"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_forks_need_no_slot_and_a_family_keeps_its_own_to_the_last() -> None:
    with pool(containers=1, sessions=1, wait=0.3) as sandbox:
        python = sandbox.interpreter_sync("x = 1")
        copies = python.fork(3)
        (grandchild,) = copies[0].fork()
        for member in (python, *copies):
            member.close()
        started = time.monotonic()
        with pytest.raises(SandboxFull, match=r"1 are open .* 1 of 1 containers with 1 slots each"):
            sandbox.interpreter_sync()
        with pytest.raises(SandboxFull):
            asyncio.run(sandbox.interpreter())
        assert 0.5 < time.monotonic() - started < 3
        assert grandchild.run("x").value == "1"
        grandchild.close()
        sandbox.interpreter_sync().close()
        assert sandbox.stats()["waiting"] == 0


def test_starting_does_not_block_the_event_loop() -> None:
    async def main() -> tuple[float, float]:
        started = last = time.monotonic()
        longest = 0.0
        opening = asyncio.create_task(sandbox.interpreter())
        while not opening.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        took = time.monotonic() - started
        await (await opening).close()
        return longest, took

    with pool():  # whatever a first start needs is there now
        pass
    with Sandbox(fastest(), LIMITS) as sandbox:
        longest, took = asyncio.run(main())
    assert longest < max(0.1, took / 2)


@pytest.mark.parametrize(("slots", "replaced"), [(0, True), (3, True), (4, False)])
def test_a_container_that_has_lost_its_slots_is_drained_and_replaced(slots: int, replaced: bool) -> None:
    with pool(containers=1, sessions=8) as sandbox:
        kept = sandbox.interpreter_sync("x = 'kept'")
        (container,) = sandbox._pool.containers
        sandbox._pool.on_ping_reply(container, {"slots": slots})
        assert kept.run("x").value == "'kept'"
        with sandbox.interpreter_sync("x = 1") as python:
            kept.close()
            wait_for(lambda: sandbox.stats()["containers"] == 1)
            assert python.run("x").value == "1"
        assert (sandbox._pool.containers[0] is not container) == replaced
        assert (sandbox.stats()["lost"], sandbox.stats()["recycled"]) == (0, replaced)


@pytest.mark.docker
def test_a_container_that_is_killed_takes_only_its_own_sessions() -> None:
    others = own_containers()  # of sandboxes that other tests have left open
    with pool("docker", containers=2, sessions=1) as sandbox:
        victim = sandbox.interpreter_sync("x = 'victim'")
        (doomed,) = own_containers(others)
        other = sandbox.interpreter_sync("x = 'other'")
        doomed.kill()
        with pytest.raises(SessionLost, match="its container ended with code 137"):
            victim.run("x")
        assert other.run("x").value == "'other'"
        victim.restart()
        assert victim.run("x").value == "'victim'"
        stats = sandbox.stats()
        assert (stats["lost"], stats["replaced"], stats["containers"]) == (1, 1, 2)


@pytest.mark.docker
def test_a_container_that_hangs_is_found_and_replaced(impatient: None) -> None:
    others = own_containers()
    with pool("docker", containers=1, sessions=2) as sandbox:
        python = sandbox.interpreter_sync("x = 1")
        own_containers(others)[0].pause()
        with pytest.raises(SessionLost, match="has not answered for 1 s"):
            python.run("x", timeout=60)
        with sandbox.interpreter_sync("y = 2") as other:
            assert other.run("y").value == "2"
        wait_for(lambda: len(own_containers(others)) == 1)


def test_a_busy_container_is_not_taken_for_a_hung_one(impatient: None) -> None:
    with pool(containers=1) as sandbox, sandbox.interpreter_sync() as python:
        assert python.run("import time\nwhile time.perf_counter() < 1e9: pass", timeout=2).status == "timeout"
        assert sandbox.stats()["lost"] == 0


def test_many_threads_and_tasks_share_eight_slots() -> None:
    def blocking(number: int) -> str | None:
        with sandbox.interpreter_sync(f"n = {number}") as python, python.fork()[0] as copy:
            return copy.run("n").value

    async def task(number: int) -> str | None:
        async with await sandbox.interpreter(f"n = {number}") as python:
            return (await python.run("n")).value

    async def tasks() -> list[str | None]:
        return await asyncio.gather(*(task(number) for number in range(24)))

    with pool(containers=2, sessions=4) as sandbox, ThreadPoolExecutor(25) as threads:
        loop = threads.submit(lambda: asyncio.run(tasks()))
        seen = [list(threads.map(blocking, range(24), timeout=120)), loop.result(120)]
        wait_for(lambda: sandbox.stats()["free"] == 8)
        stats = sandbox.stats()
    assert seen == [[str(number) for number in range(24)]] * 2
    assert (stats["sessions"], stats["waiting"], stats["opened"], stats["closed"]) == (0, 0, 48, 72)


def test_who_waits_for_a_sandbox_that_is_closed_is_told() -> None:
    with pool(containers=1, sessions=1) as sandbox, ThreadPoolExecutor(1) as threads:
        kept = sandbox.interpreter_sync()
        waiting = threads.submit(sandbox.interpreter_sync)
        wait_for(lambda: sandbox.stats()["waiting"] == 1)
        sandbox.close_sync()
        sandbox.close_sync()
        for call in (lambda: waiting.result(5), sandbox.interpreter_sync):
            with pytest.raises(SandboxError, match="closed"):
                call()
        with pytest.raises(SessionLost, match="closed"):
            kept.run("1")
        kept.close()


def test_a_sandbox_that_is_dropped_ends_its_containers() -> None:
    with pool():
        before = threading.active_count()
        sandbox: Sandbox | None = Sandbox.open_sync(fastest(), LIMITS)
        assert threading.active_count() > before
        del sandbox
        gc.collect()
        wait_for(lambda: threading.active_count() <= before)


def test_a_sandbox_that_never_worked_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise SandboxError("no room at the inn")

    monkeypatch.setattr("sandbox.pool.start", refuse)
    started = time.monotonic()
    with Sandbox("unsafe_local", wait=60) as sandbox:
        for _ in range(2):
            with pytest.raises(SandboxError, match="no room at the inn"):
                sandbox.interpreter_sync()
    assert time.monotonic() - started < 5


def test_one_that_has_worked_tries_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = pool_module.start, []

    def refuse_twice(*arguments: Any) -> Any:
        tries.append(time.monotonic())
        if len(tries) in (2, 3):
            raise SandboxUnavailable("the engine is being restarted")
        return real(*arguments)

    monkeypatch.setattr(pool_module, "start", refuse_twice)
    with pool("unsafe_local", containers=1, wait=20) as sandbox:
        os.kill(_server_of(sandbox), 9)
        with sandbox.interpreter_sync("x = 1") as python:
            assert python.run("x").value == "1"
    assert len(tries) == 4
    assert tries[3] - tries[2] > tries[2] - tries[1] > 0.4


def test_and_then_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise SandboxUnavailable("the engine does not come back")

    with pool("unsafe_local", containers=1, wait=1.5) as sandbox:
        monkeypatch.setattr("sandbox.pool.start", refuse)
        os.kill(_server_of(sandbox), 9)
        wait_for(lambda: sandbox.stats()["containers"] == 0)
        with pytest.raises(SandboxUnavailable, match=r"within 1\.5 s: the engine does not come back"):
            sandbox.interpreter_sync()


def _server_of(sandbox: Sandbox) -> int:
    (container,) = sandbox._pool.containers
    return int(container.stream._process.pid)  # type: ignore[union-attr]


def own_containers(besides: Sequence[object] = ()) -> list[Any]:
    return [one for one in containers_of(os.getpid()) if one not in besides]
