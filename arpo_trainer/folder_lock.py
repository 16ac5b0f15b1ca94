"""One run and one writer to a folder: how `arpo train`, `sft`, `dpo`, `synth` and `eval` share theirs with nobody.

The operating system frees a lock when its process ends, however it ends. `report.run_data.recorded` keeps the record.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)
LOCK = ".lock"
_TRIES, _PAUSE = 4, 0.05  # seconds


def lock_folder(folder: Path, name: str = LOCK) -> IO[bytes]:
    """Return an open file that holds the lock of a folder, or of a part with a lock of this name, until it is closed.

    On a file system without locks this warns and goes on, as runs there work all the same.

    Raises:
        BlockingIOError: another process holds it.
    """
    file = (folder / name).open("ab")
    try:
        _take(file)
    except BlockingIOError as error:
        file.close()
        what = str(folder) if name == LOCK else str(folder / name.removeprefix(".").removesuffix(LOCK))
        raise BlockingIOError(f"another process is writing to {what!r}; wait for it, or stop it") from error
    except OSError as error:
        logger.warning("%s cannot be locked (%s): do not start a second run in it", folder, error)
    return file


@contextlib.contextmanager
def only_writer(folder: Path, needed: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which is created if it is missing; processes that write nothing do not need it."""
    if not needed:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        yield


def refuse_earlier(folder: Path, found: Sequence[str], go_on: str = "add --resume") -> None:
    """Refuse a folder that holds something of an earlier run; `go_on` says how that is continued, "" if it cannot."""
    if found:
        cure = f"{go_on} to go on with it, or " if go_on else "without a checkpoint there is nothing to --resume; "
        raise FileExistsError(
            f"{str(folder)!r} holds a run ({', '.join(found[:4])}): {cure}give another folder for the output"
        )


def _take(file: IO[bytes]) -> None:
    for _ in range(_TRIES):
        # whoever looks whether a folder is written may hold the lock for a moment
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PAUSE)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
