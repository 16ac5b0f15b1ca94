"""Daemon threads that run what blocks: as many as there is work at the same time, kept for the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from sandbox.errors import SandboxError


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
            SandboxError: no thread can be started, since the interpreter is exiting.
        """
        with self._lock:
            new = self._idle == 0
            self._idle -= not new
            self._threads += new
        self._actions.put(action)
        if new:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError as error:
                raise SandboxError(f"Python is exiting: nothing can be asked of the sandbox ({error})") from error

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
