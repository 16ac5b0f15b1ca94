"""The thread that watches a pool: deadlines of waiting requests, health of the containers.

It never waits for a container itself. Calls that could block run in short-lived threads.
"""

from __future__ import annotations

import contextlib
import logging
import time
from concurrent.futures import Future
from queue import Empty
from typing import Any, Protocol

from sandbox.pool.connection import Connection, Reply
from sandbox.pool.container import Container
from sandbox.pool.daemon_threads import PythonExiting, daemon_thread, start_thread
from sandbox.pool.fleet import Fleet
from sandbox.pool.state import PoolState
from sandbox.server.wire import PING

PING_INTERVAL = 5.0
PING_TIMEOUT = 30.0
_TICK_INTERVAL = 0.1  # while requests wait
_log = logging.getLogger(__name__)


class MonitoredPool(Protocol):
    """What the monitor needs of a pool."""

    state: PoolState
    fleet: Fleet

    def tick(self) -> bool:
        """Fail requests that have waited too long, retry failed starts; returns whether requests wait."""

    def on_ping_reply(self, container: Container, reply: dict[str, Any]) -> None:
        """A container has answered a ping."""

    def on_end(self, container: Container) -> None:
        """A container is gone."""


def monitor(pool: MonitoredPool) -> None:
    """Watch a pool until it is closed."""
    busy, next_ping = False, time.monotonic() + PING_INTERVAL
    while not pool.state.closed:
        action = None
        with contextlib.suppress(Empty):
            action = pool.state.wake.get(timeout=_TICK_INTERVAL if busy else PING_INTERVAL)
        try:
            if action is not None:
                action()
            busy = pool.tick()
            if time.monotonic() >= next_ping:
                next_ping = time.monotonic() + PING_INTERVAL
                _ping_all(pool)
        except PythonExiting:
            pass  # the pool is about to be closed
        except Exception:  # waiting requests still need the monitor, whatever went wrong
            _log.exception("sandbox health monitor failed; it goes on")


def _ping_all(pool: MonitoredPool) -> None:
    for container in list(pool.fleet.containers):
        connection = container.connection
        if connection is None or connection.lost:
            continue
        starting = container.state == "starting"
        timeout = connection.stream.start_seconds if starting else PING_TIMEOUT
        if container.missed_pings * PING_INTERVAL > timeout:
            container.give_up(f"it has not {'started' if starting else 'answered'} for {timeout:g} s")
            pool.on_end(container)
            continue
        container.missed_pings += 1  # set to 0 by its next answer
        if not starting:
            start_thread(daemon_thread(_ping, "sandbox ping", pool, container, connection))


def _ping(pool: MonitoredPool, container: Container, connection: Connection) -> None:
    def on_reply(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            pool.on_ping_reply(container, reply.result())

    connection.request(PING, {}).add_done_callback(on_reply)
