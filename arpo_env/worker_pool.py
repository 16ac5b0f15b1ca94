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
import struct
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence

from arpo_env.event_loop import run_on_loop

_START = 120.0  # seconds for a process to come up, on a machine that is busy
_STARTS = 3  # tries to start a process that something kills meanwhile
_END = 5.0  # seconds for a process to be gone
_LENGTH = struct.Struct("!I")


class WorkerError(Exception):
    """Raised when a job has no reply; the text is the reason."""


class WorkerTimeout(WorkerError):
    """Raised when a job took too long; its process was killed."""


class WorkerDied(WorkerError):
    """Raised when the process of a job crashed or was killed from outside; `signal` ended it, 0 for none."""

    def __init__(self, message: str, signal: int = 0) -> None:
        super().__init__(message)
        self.signal = signal


class PoolClosed(WorkerError):
    """Raised when the pool was closed before the job was done."""


class WorkerStartError(WorkerError):
    """Raised when a process cannot be started; `lacks` is what the process said it lacks, or ""."""

    def __init__(self, message: str, lacks: str = "") -> None:
        super().__init__(message)
        self.lacks = lacks


class WorkerPool:
    """Runs jobs in child processes, each started when it is first needed. After a fork, make a new pool.

    Args:
        command: of a child.
        processes: maximum number of children.
        seconds: limit of one job.
        environment: variables of a child; None is those of this process.
        worn_out: whether a child is replaced, given the number of its jobs and its last reply.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        worn_out: Callable[[int, bytes], bool] = lambda jobs, reply: False,
    ) -> None:
        self._command, self._environment = list(command), environment
        self._seconds, self._worn_out = seconds, worn_out
        # used on the background loop alone, so no locks are needed
        self._slots = asyncio.Semaphore(processes)
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._closed = False

    async def run(self, job: bytes) -> bytes:
        """Return the reply to a job. If this is cancelled, its process is killed.

        Raises:
            WorkerError: there is none.
        """
        return await run_on_loop(self._run(job))

    def close(self) -> None:
        """Kill the processes; may be called twice. Jobs under way and waiting ones raise `PoolClosed`."""
        self._closed = True
        for worker in list(self._workers):
            worker.kill()

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are up."""
        return [worker.process.pid for worker in list(self._workers)]

    async def _run(self, job: bytes) -> bytes:
        try:
            async with self._slots:
                worker = await self._take()
                try:
                    reply = await worker.run(job, self._seconds)
                except BaseException:
                    await self._discard(worker)  # it may still be at work, or hold half of a reply
                    raise
                if self._closed or self._worn_out(worker.jobs, reply):
                    await self._discard(worker)
                else:
                    self._idle.append(worker)
                return reply
        except WorkerError as error:
            # `close` killed the process, so the job did not crash it
            raise PoolClosed("the pool is closed") if self._closed else error from None

    async def _take(self) -> _Worker:
        """Return an idle process that is still alive, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            await self._discard(worker)  # it died while it was idle
        for _ in range(_STARTS):
            with contextlib.suppress(WorkerDied):  # not by its own doing: another one may live
                return await self._start()
        raise WorkerStartError(f"a process was killed while it started, {_STARTS} times")

    async def _start(self) -> _Worker:
        if self._closed:
            raise PoolClosed("the pool is closed")
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=self._environment, limit=1 << 20
            )
        except OSError as error:
            raise WorkerStartError(f"a process cannot be started ({error})") from error
        worker = _Worker(process)
        self._workers.append(worker)  # before it is ready, so that `close` can kill it while it starts
        try:
            await worker.wait_until_ready()
        except BaseException:
            await self._discard(worker)
            raise
        return worker

    async def _discard(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()
        await worker.process.wait()


class _Worker:
    """One child process; not for use by two jobs at once."""

    def __init__(self, process: Process) -> None:
        self.process, self.jobs = process, 0

    async def wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(_START):
                lacks = (await self._reply()).decode()
        except TimeoutError:
            raise WorkerStartError(f"a process was not ready within {_START:g} s") from None
        except WorkerDied as error:
            if error.signal:
                raise
            raise WorkerStartError("a process ended before it was ready") from None
        if lacks:
            raise WorkerStartError(f"a process cannot work: {lacks}", lacks)

    async def run(self, job: bytes, seconds: float) -> bytes:
        assert self.process.stdin is not None
        self.jobs += 1
        try:
            async with asyncio.timeout(seconds):
                self.process.stdin.write(_LENGTH.pack(len(job)) + job)
                await self.process.stdin.drain()
                return await self._reply()
        except TimeoutError:
            raise WorkerTimeout(f"more than {seconds:g} s") from None
        except OSError as error:
            raise await self._death() from error

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def _reply(self) -> bytes:
        assert self.process.stdout is not None
        try:
            (length,) = _LENGTH.unpack(await self.process.stdout.readexactly(_LENGTH.size))
            return await self.process.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise await self._death() from None

    async def _death(self) -> WorkerDied:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _END)  # its pipes are closed a moment before it is gone
        status = self.process.returncode or 0
        return WorkerDied("its process died: out of memory, or killed from outside", max(-status, 0))
