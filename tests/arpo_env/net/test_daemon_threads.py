"""Threads that nobody waits for."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import pytest

from arpo_env.event_loop import DaemonThreads
from tests.arpo_env.local_server import LocalServer

ENDS = """
import asyncio, sys
from arpo_env.net import Http
async def main():
    asked = asyncio.ensure_future(Http("slow", timeout=60).request("GET", sys.argv[1]))
    await asyncio.sleep(0.3)
asyncio.run(main())
"""


def named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_so_many_work_at_once_and_idle_ones_are_used_again() -> None:
    threads, busy, most, lock = DaemonThreads(3, "test-some"), 0, 0, threading.Lock()

    def work() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.01)
        with lock:
            busy -= 1

    for future in [threads.submit(work) for _ in range(20)]:
        future.result()
    assert (most, named("test-some")) == (3, 3)
    one = DaemonThreads(3, "test-one")
    for _ in range(5):
        assert one.submit(max, 1, 2).result() == 2
        time.sleep(0.01)
    assert named("test-one") == 1


def test_an_error_is_the_future_s() -> None:
    with pytest.raises(ZeroDivisionError):
        DaemonThreads(1, "test").submit(lambda: 1 / 0).result()


def test_what_has_not_begun_can_be_dropped() -> None:
    threads, go = DaemonThreads(1, "test-drop"), threading.Event()
    first, second, third = threads.submit(go.wait), threads.submit(int), threads.submit(int)
    assert second.cancel()
    threads.shutdown(cancel_futures=True)
    go.set()
    assert first.result()
    assert third.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(int)


def test_threads_end_with_their_executor() -> None:
    threads = DaemonThreads(2, "test-end")
    for future in [threads.submit(time.sleep, 0.01) for _ in range(2)]:
        future.result()
    del threads
    gc.collect()
    time.sleep(0.1)
    assert named("test-end") == 0


def test_a_process_ends_without_waiting_for_a_slow_service() -> None:
    with LocalServer(lambda call: call.gone.wait(30) and None) as server:
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", ENDS, server.address], check=True, timeout=30)
        assert time.monotonic() - started < 10
