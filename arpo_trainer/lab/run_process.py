"""One training run in a process of its own, with one thread, which ends when the process that started it ends.

The function that trains is given by the caller and has to be importable, since the process starts from nothing (spawn).
What it prints goes to output.txt in the run's folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from arpo_trainer.lab.grid_run import GridRun
from arpo_trainer.lab.run_store import check_record

OUTPUT = "output.txt"
TrainingRun = Callable[[GridRun, Path], dict[str, Any]]
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_SPAWN = multiprocessing.get_context("spawn")


class RunProcess:
    """A run that goes on in a process of its own.

    Args:
        run: trains, writes only into the folder, and returns the record.
        spec: the run.
        folder: of the run; it is created.

    Attributes:
        spec: the run.
        folder: of the run.
    """

    def __init__(self, run: TrainingRun, spec: GridRun, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        self._receiver, sender = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(target=_child, args=(sender, run, spec, folder), daemon=True)
        with _one_thread():
            self._process.start()
        sender.close()  # so that the end of the process is the end of the pipe

    @property
    def waits_for(self) -> Connection:
        """What becomes readable when the run is over, for `multiprocessing.connection.wait`."""
        return self._receiver

    def record(self) -> dict[str, Any]:
        """Return the record of a run that is over; that of one that raised or was killed has its error."""
        try:
            record: dict[str, Any] = self._receiver.recv()
        except EOFError:
            self._process.join()
            record = failed_record(_how_it_ended(self._process.exitcode))
        else:
            try:
                check_record(record)
            except (ValueError, KeyError, TypeError) as error:
                record = failed_record(f"its record cannot be used: {error!r}")
        self._process.join()
        self._receiver.close()
        spec = self.spec
        known = {"algorithm": spec.algorithm, "label": spec.label, "env": spec.env, "seed": spec.seed}
        seconds = round(time.monotonic() - self._started, 1)
        return {**known, "settings": spec.settings, "seconds": seconds, **record, **known}

    def stop(self) -> None:
        """End the process without a record."""
        self._process.kill()
        self._process.join()
        self._receiver.close()


def failed_record(error: str) -> dict[str, Any]:
    """Return the record of a run that broke."""
    return {"status": "failed", "error": error, "curve": [], "final": {}}


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        cause = "; the machine may have run out of memory" if -code == signal.SIGKILL else ""
        return f"the process was killed by {name}{cause}"
    return f"the process ended with status {code} and without a record"


def _child(sender: Connection, run: TrainingRun, spec: GridRun, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _print_to(folder / OUTPUT)
    try:
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        record = run(spec, folder)
    except Exception as error:
        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
        record = failed_record(text)
    sender.send(record)
    sender.close()


def _print_to(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set the variables that libraries read when they are loaded, for the processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(_VARIABLES)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
