"""The thread that looks after a pool: deadlines of those who wait, health of the containers.

It never waits for a container itself: what could is done by threads that live for a moment.
"""

from __future__ import annotations

import contextlib
import logging
import time
from concurrent.futures import Future
from queue import Empty
from typing import TYPE_CHECKING

from sandbox.daemon_threads import PythonExiting, daemon, start_thread
from sandbox.pool.connection import Connection, Reply
from sandbox.pool.container import Container
from sandbox.server.wire import PING

if TYPE_CHECKING:
    from sandbox.pool.pool import Pool

EVERY = 5.0
PATIENCE = 30.0
STARTING = 60.0
_OFTEN = 0.1
_log = logging.getLogger(__name__)


def keep(pool: Pool) -> None:
    """Look after a pool until it is closed."""
    busy, next_ping = False, time.monotonic() + EVERY
    while not pool.closed:
        action = None
        with contextlib.suppress(Empty):
            action = pool.wake.get(timeout=_OFTEN if busy else EVERY)
        try:
            if action is not None:
                action()
            busy = pool.look()
            if time.monotonic() >= next_ping:
                next_ping = time.monotonic() + EVERY
                _examine(pool)
        except PythonExiting:
            pass  # the pool is about to be closed
        except Exception:  # whatever it is, those who wait still need their keeper
            _log.exception("the keeper of the sandbox has stumbled")


def _examine(pool: Pool) -> None:
    for container in list(pool.fleet.containers):
        connection = container.connection
        if connection is None or connection.lost:
            continue
        starting = container.state == "starting"
        patience = STARTING if starting else PATIENCE
        if container.missed * EVERY > patience:
            container.give_up(f"it has not {'said hello' if starting else 'answered'} for {patience:g} s")
            pool.ended(container)
            continue
        container.missed += 1
        if not starting:
            start_thread(daemon(_ping, "sandbox ping", pool, container, connection))


def _ping(pool: Pool, container: Container, connection: Connection) -> None:
    def heard(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            pool.measured(container, reply.result())

    connection.request(PING, {}).add_done_callback(heard)
