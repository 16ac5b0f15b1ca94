"""Removes the directories of sessions that are gone, off the supervisor's loop. Runs inside the sandbox.

Used where all sessions share the supervisor's user; where each family has its own, see `slots`.
"""

from __future__ import annotations

import queue
import threading

from sandbox.server.kernel.remove_tree import remove_tree


class Janitor:
    """A thread that removes one directory after the other."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def remove(self, directory: str) -> None:
        """Have a directory removed."""
        self._waiting.put(directory)

    def _work(self) -> None:
        while True:
            remove_tree(self._waiting.get())
