"""`WorkerPool`: jobs in a few supervised child processes, which are killed when a job takes too long.

For work that may never end, need too much memory or crash: symbolic algebra, and parsing of foreign pages. A job that
crashes its process costs only itself; the next one gets a new process. Any thread and any event loop may call.

A child is a plain program, not one of `multiprocessing`: those run the user's main script again when they start, and a
fork of a process with threads and a GPU is not safe. It reads jobs from its standard input and writes replies to its
standard output, each with its length in front (4 bytes, big-endian). Before the first job it writes an empty reply when
it is ready, or a text that says what it lacks. It limits its own memory, and ends when its input ends, so that no
process is left when the parent dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from arpo_env.event_loop import DaemonThreads

_START = 120.0  # seconds for a process to come up, on a machine that is busy
_STARTS = 3  # tries to start a process that something kills meanwhile
_END = 5.0  # seconds for a process to be gone
_LENGTH = struct.Struct("!I")


class WorkerError(Exception):
    """Raised when a job has no reply; the text is the reason."""


class WorkerTimeout(WorkerError):
    """Raised when a job took too long; its process was killed."""


class WorkerDied(WorkerError):
    """Raised when the process of a job crashed or was killed from outside.

    Attributes:
        signal: number of the signal that ended it, 0 for none.
    """

    def __init__(self, message: str, signal: int = 0) -> None:
        super().__init__(message)
        self.signal = signal


class PoolClosed(WorkerError):
    """Raised when the pool was closed before the job was done."""


class WorkerStartError(WorkerError):
    """Raised when a process cannot be started.

    Attributes:
        lacks: what the process said it lacks, or "".
    """

    def __init__(self, message: str, lacks: str = "") -> None:
        super().__init__(message)
        self.lacks = lacks


class WorkerPool:
    """Runs jobs in child processes, each started when it is first needed.

    Args:
        command: of a child.
        processes: most children.
        seconds: limit of one job.
        name: of the threads that wait for the children.
        environment: variables of a child; None is those of this process.
        worn_out: whether a child is replaced, given the number of its jobs and its last reply.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        seconds: float,
        name: str,
        environment: Mapping[str, str] | None = None,
        worn_out: Callable[[int, bytes], bool] = lambda jobs, reply: False,
    ) -> None:
        self._command, self._environment = list(command), environment
        self._seconds, self._worn_out = seconds, worn_out
        self._threads = DaemonThreads(processes, name)
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._closed = False

    async def run(self, job: bytes) -> bytes:
        """Return the reply to a job.

        Raises:
            WorkerError: there is none.
        """
        if self._closed:
            raise PoolClosed("the pool is closed")
        return await asyncio.wrap_future(self._threads.submit(self._run, job))

    def close(self) -> None:
        """Kill the processes; may be called twice. Jobs under way raise `PoolClosed`, waiting ones are cancelled."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for worker in self._workers:
                # Busy ones, too: the threads that wait for them see the end of the output and stop.
                worker.process.kill()
            idle, self._idle = self._idle, []
        for worker in idle:
            self._discard(worker)

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are up."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def _run(self, job: bytes) -> bytes:
        worker = self._take()
        try:
            reply = worker.run(job, self._seconds)
        except BaseException as error:
            # After a failed job it may still be at work, or hold half of a reply.
            self._discard(worker)
            # `close` killed the process, so the job did not crash it.
            if self._closed and isinstance(error, WorkerDied):
                raise PoolClosed("the pool was closed") from None
            raise
        worn_out = self._worn_out(worker.jobs, reply)
        with self._lock:
            # Decided under the lock, so that `close` misses no process that becomes idle.
            keep = not (self._closed or worn_out)
            if keep:
                self._idle.append(worker)
        if not keep:
            self._discard(worker)
        return reply

    def _take(self) -> _Worker:
        """Return an idle process that is still alive, or a new one."""
        while True:
            with self._lock:
                if self._closed:
                    raise PoolClosed("the pool is closed")
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                return self._start()
            if worker.process.poll() is None:
                return worker
            self._discard(worker)  # it died while it was idle

    def _start(self) -> _Worker:
        for _ in range(_STARTS - 1):
            with contextlib.suppress(WorkerDied):
                return self._start_once()
        try:
            return self._start_once()
        except WorkerDied as error:
            raise WorkerStartError(f"a process was killed while it started, {_STARTS} times") from error

    def _start_once(self) -> _Worker:
        worker = _Worker(self._command, self._environment)
        with self._lock:
            # Listed before it is ready, so that `close` can kill it while it starts.
            self._workers.append(worker)
            if self._closed:  # `close` has already gone through the list
                worker.process.kill()
        try:
            worker.wait_until_ready()
        except BaseException as error:
            self._discard(worker)
            if self._closed and isinstance(error, WorkerError):
                raise PoolClosed("the pool was closed") from None
            raise
        return worker

    def _discard(self, worker: _Worker) -> None:
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
        worker.kill()


class _Worker:
    """One child process; not for use by two threads at once."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None) -> None:
        self.jobs = 0
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, bufsize=0
            )
        except OSError as error:
            raise WorkerStartError(f"a process cannot be started ({error})") from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._input, False)  # a child that does not read must not hold the thread

    def wait_until_ready(self) -> None:
        try:
            lacks = self._read_reply(time.monotonic() + _START).decode()
        except WorkerTimeout:
            raise WorkerStartError(f"a process was not ready within {_START:g} s") from None
        except WorkerDied as error:
            if error.signal:  # not by its own doing: another one may live
                raise
            raise WorkerStartError("a process ended before it was ready") from None
        if lacks:
            raise WorkerStartError(f"a process cannot work: {lacks}", lacks)

    def run(self, job: bytes, seconds: float) -> bytes:
        self.jobs += 1
        ends = time.monotonic() + seconds
        try:
            self._write(_LENGTH.pack(len(job)) + job, ends)
            return self._read_reply(ends)
        except WorkerTimeout:
            raise WorkerTimeout(f"more than {seconds:g} s") from None

    def kill(self) -> None:
        self.process.kill()
        # Collects the exit status, so that no zombie is left.
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _death(self) -> WorkerDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # its pipes are closed a moment before it is gone
            self.process.wait(_END)
        status = self.process.returncode or 0
        return WorkerDied("its process died: out of memory, or killed from outside", max(-status, 0))

    def _write(self, data: bytes, ends: float) -> None:
        rest = memoryview(data)
        while rest:
            _wait(self._input, select.POLLOUT, ends)
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._death() from error

    def _read_reply(self, ends: float) -> bytes:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, ends))
        return self._read(length, ends)

    def _read(self, length: int, ends: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            _wait(self._output, select.POLLIN, ends)
            chunk = os.read(self._output, min(length - len(data), 1 << 20))
            if not chunk:
                raise self._death()
            data += chunk
        return bytes(data)


def _wait(descriptor: int, event: int, ends: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left = ends - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise WorkerTimeout
