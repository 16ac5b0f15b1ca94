"""Removes the directories of sessions that are gone, off the supervisor's loop. Runs inside the sandbox.

The trees were made by untrusted code: deep beyond any recursion limit, without permissions, full of links.
Nothing is followed, and nothing recurses: subdirectories are moved up to the top before they are emptied.
"""

from __future__ import annotations

import os
import queue
import threading


class Janitor:
    """A thread that removes one directory after the other."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def remove(self, directory: str) -> None:
        """Have a directory removed."""
        self._waiting.put(directory)

    def finish(self, seconds: float) -> None:
        """Wait until everything is removed, or the time is up."""
        self._waiting.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            directory = self._waiting.get()
            if directory is None:
                return
            remove_tree(directory)


def remove_tree(root: str) -> None:
    """Remove a directory and everything in it; what can not be removed is left."""
    try:
        _empty(root, root, 0)
        os.rmdir(root)
    except OSError:
        return


def _empty(root: str, directory: str, moved: int) -> None:
    """Empty `root`, taking its subdirectories apart one at a time."""
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        os.chmod(directory, 0o700)
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
                continue
            moved += 1
            up = os.path.join(root, f".removed-{moved}")
            while os.path.lexists(up):
                moved += 1
                up = os.path.join(root, f".removed-{moved}")
            os.chmod(path, 0o700)
            os.rename(path, up)
            waiting.append(up)
        if directory != root:
            os.rmdir(directory)
