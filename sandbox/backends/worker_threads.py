"""Daemon threads that run what blocks: as many as there is work at the same time, kept for the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from sandbox.pool.daemon_threads import daemon_thread, start_thread


class WorkerThreads:
    """Runs actions, each at once.

    Unlike those of an executor, its threads do not keep Python from exiting.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._actions: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()

    def run(self, action: Callable[[], object]) -> None:
        """Run an action in a thread.

        Raises:
            PythonExiting: the interpreter is exiting.
        """
        with self._lock:
            new = self._idle == 0
            self._idle -= not new
            self._threads += new
        self._actions.put(action)
        if new:
            start_thread(daemon_thread(self._work, self._name))

    def _work(self) -> None:
        while (action := self._actions.get()) is not None:
            action()
            del action  # else it would be kept until the next one
            with self._lock:
                self._idle += 1

    def end(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._threads):
            self._actions.put(None)
