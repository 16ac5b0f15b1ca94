"""A process with one thread that makes training runs, one after another, and ends when its parent ends.

The function that trains is given by the caller and has to be importable: the process is a fork of a server that has
imported PyTorch and what a run needs, which takes as long as a small run. A process makes several runs, too. What a run
prints goes to output.txt in its folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
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

from benchmarks.laboratory.grid_run import GridRun
from benchmarks.laboratory.run_store import check_record

OUTPUT = "output.txt"
TrainingRun = Callable[[GridRun, Path], dict[str, Any]]
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_RUNS = 20  # of one process, so that what a run leaves in memory does not add up
_PATIENCE = 10.0  # seconds
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["benchmarks.laboratory.grid_training"])


class RunProcess:
    """A process that makes runs.

    Args:
        run: trains, writes only into the folder, and returns the record.

    Attributes:
        spec: the run that goes on, or the last one.
        folder: of that run.
        fit: another run can be started here: the last one did not fail, and there were not too many.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=_child, args=(theirs, run), daemon=True)
        with _one_thread():
            self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self._made, self.fit = 0, True
        self.spec: GridRun
        self.folder: Path

    def start(self, spec: GridRun, folder: Path) -> None:
        """Start a run; its folder is created."""
        self.spec, self.folder, self._started = spec, folder, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(BrokenPipeError):  # the record says how the process has ended
            self._pipe.send((spec, folder))

    @property
    def waits_for(self) -> Connection:
        """What becomes readable when the run is over, for `multiprocessing.connection.wait`."""
        return self._pipe

    def record(self) -> dict[str, Any]:
        """Return the record of a run that is over; that of one that raised or was killed has its error."""
        record, spec = self._received(), self.spec
        self._made += 1
        self.fit = record["status"] != "failed" and self._made < _RUNS
        known = {"algorithm": spec.algorithm, "label": spec.label, "env": spec.env, "seed": spec.seed}
        seconds = round(time.monotonic() - self._started, 1)
        return {**known, "settings": spec.settings, "seconds": seconds, **record, **known, "wall_seconds": seconds}

    def end(self) -> None:
        """End a process in which no run goes on."""
        self._pipe.close()  # which it waits for
        self._process.join(_PATIENCE)
        self.stop()

    def stop(self) -> None:
        """End the process, also in the middle of a run."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _received(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return failed_record(_how_it_ended(self._process.exitcode))
        try:
            check_record(record)
        except (ValueError, KeyError, TypeError) as error:
            return failed_record(f"its record cannot be used: {error!r}")
        return record


def failed_record(error: str) -> dict[str, Any]:
    """Return the record of a run that broke."""
    return {"status": "failed", "error": error, "curve": [], "final": {}}


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        cause = "; the machine may have run out of memory" if -code == signal.SIGKILL else ""
        return f"the process was killed by {name}{cause}"
    return f"the process ended with status {code} and without a record"


def _child(pipe: Connection, run: TrainingRun) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    with contextlib.suppress(EOFError):  # the parent needs this process no more
        while True:
            spec, folder = pipe.recv()
            _print_to(folder / OUTPUT)
            pipe.send(_made(run, spec, folder))
            free_memory()


def free_memory() -> None:
    """Give what a run has left in memory back to the machine."""
    gc.collect()  # a trainer and its model are in circles of references
    with contextlib.suppress(AttributeError):  # glibc keeps freed blocks of a few megabytes; other C libraries do not
        ctypes.CDLL(None).malloc_trim(0)


def _made(run: TrainingRun, spec: GridRun, folder: Path) -> dict[str, Any]:
    try:
        return run(spec, folder)
    except Exception as error:
        traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        return failed_record(f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})")


def _print_to(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)


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
