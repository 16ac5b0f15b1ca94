"""Locks a folder for its only writer: the operating system frees the lock when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)
LOCK = ".lock"
_TRIES, _PAUSE = 4, 0.05  # seconds


def lock_folder(folder: Path) -> IO[bytes]:
    """Return an open file that holds the lock of a folder until it is closed.

    Raises:
        BlockingIOError: another process holds it.
    """
    file = (folder / LOCK).open("ab")
    try:
        _take(file)
    except BlockingIOError as error:
        file.close()
        raise BlockingIOError(f"another process is writing to {str(folder)!r}; wait for it, or stop it") from error
    except OSError:
        file.close()
        raise
    return file


@contextlib.contextmanager
def only_writer(folder: Path, needed: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which is created if it is missing.

    If the block fails and has written nothing into a folder that was created here, the folder is removed.

    On a file system without locks this warns and goes on, as training there works all the same.

    Args:
        folder: the folder.
        needed: set this to False in processes that write nothing, such as those of higher rank.

    Raises:
        BlockingIOError: another process holds it.
    """
    with contextlib.ExitStack() as held:
        if needed:
            if not folder.exists():
                held.push(functools.partial(_remove_unused, folder))  # runs last, when the lock is free
            folder.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(lock_folder(folder))
            except BlockingIOError:
                raise
            except OSError as error:
                logger.warning("%s cannot be locked (%s): do not start a second run in it", folder, error)
        yield


def _remove_unused(folder: Path, kind: type[BaseException] | None, *_: object) -> None:
    if kind is None or kind is BlockingIOError or [path.name for path in folder.glob("*")] != [LOCK]:
        return
    with contextlib.suppress(OSError):  # another process may have begun to write
        (folder / LOCK).unlink()
        folder.rmdir()


def _take(file: IO[bytes]) -> None:
    for _ in range(_TRIES):
        # whoever looks whether a folder is written may hold the lock for a moment
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PAUSE)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
