"""`JobDispatch`: gives numbered jobs to workers, a few at a time, and takes exactly one result of each.

A job is open, with one worker, or done. When a worker is lost, its jobs are open again and go to other workers. The
late answer of a lost worker is never taken, since nobody waits for it any more. Nothing here knows Ray: a worker is
whatever plays a job and raises `WorkerLost` when it is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
W = TypeVar("W", bound="JobWorker")
logger = logging.getLogger(__name__)


class WorkerLost(Exception):
    """Raised by a worker that cannot finish a job because it is gone, or its answer is; the message says what is."""


class WorkersGone(RuntimeError):
    """Raised when jobs are left and no worker is."""


class JobWorker(Protocol):
    """What a job is given to."""

    name: str


class JobDispatch(Generic[W, T]):
    """One run over all jobs.

    Args:
        jobs: number of jobs.
        at_once: most jobs that one worker has at a time.
        work: plays a job on a worker; raises `WorkerLost` when the worker is gone. Any other error ends the run.
        replace: returns a new worker in the place of a lost one, or None where there is none to be had; it may take
            long, and the others go on meanwhile.
        take: called with the number and the result of each job, once, in the order of completion.
        losses: how often a job may be lost with its worker; one more ends the run, since it is the job that ends them.
    """

    def __init__(
        self,
        jobs: int,
        at_once: int,
        work: Callable[[W, int], Awaitable[T]],
        replace: Callable[[W], Awaitable[W | None]],
        take: Callable[[int, T], object],
        losses: int = 2,
    ) -> None:
        if at_once < 1:
            raise ValueError(f"a worker needs at least one job at a time, got {at_once}")
        self._open = list(range(jobs))  # a heap: lost jobs, which are the oldest, go first
        self._left, self._at_once, self._most_losses = jobs, at_once, losses
        self._work, self._replace, self._take = work, replace, take
        self._load: Counter[W] = Counter()
        self._workers: list[W] = []
        self._playing: dict[asyncio.Task[T], tuple[W, int]] = {}
        self._coming: set[asyncio.Task[W | None]] = set()
        self._losses: Counter[int] = Counter()
        self.replayed = 0

    async def run(self, workers: Sequence[W], coming: Sequence[Awaitable[W | None]] = ()) -> None:
        """Return when every job is done.

        Args:
            workers: those that are ready.
            coming: others that will be.

        Raises:
            WorkersGone: no worker is left, and none is coming.
            RuntimeError: a job was lost with too many workers.
        """
        self._workers = list(workers)
        self._coming = {asyncio.ensure_future(self._arrival(one)) for one in coming}
        try:
            while self._left:
                self._hand_out()
                if not self._playing and not self._coming:
                    raise WorkersGone(f"{self._left} groups are left, and no rollout worker is")
                waiting: set[asyncio.Future[object]] = {*self._playing, *self._coming}  # type: ignore[arg-type]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._greet()
                self._collect()
        finally:
            # also when it failed or was cancelled: nobody plays on for a run that is over
            for task in (*self._playing, *self._coming):
                task.cancel()
            await asyncio.gather(*self._playing, *self._coming, return_exceptions=True)

    def _hand_out(self) -> None:
        while self._open and (free := [one for one in self._workers if self._load[one] < self._at_once]):
            worker, job = min(free, key=self._load.__getitem__), heapq.heappop(self._open)
            self._load[worker] += 1
            self._playing[asyncio.ensure_future(self._work(worker, job))] = worker, job

    def _greet(self) -> None:
        for task in [task for task in self._coming if task.done()]:
            self._coming.discard(task)
            if (worker := task.result()) is not None:
                self._workers.append(worker)

    def _collect(self) -> None:
        for task in [task for task in self._playing if task.done()]:
            worker, job = self._playing.pop(task)
            self._load[worker] -= 1
            try:
                result = task.result()
            except WorkerLost as lost:
                self._lost(worker, job, lost)
            else:
                self._left -= 1
                self._take(job, result)

    def _lost(self, worker: W, job: int, lost: WorkerLost) -> None:
        self._losses[job] += 1
        if self._losses[job] > self._most_losses:
            raise RuntimeError(
                f"group {job} was lost with its rollout worker {self._losses[job]} times ({lost}): it may be what ends "
                "them, for instance by its memory"
            ) from lost
        heapq.heappush(self._open, job)
        self.replayed += 1
        # all jobs of a worker fail with it; the first one says goodbye
        if worker in self._workers:
            logger.warning("rollout worker %s is lost (%s); its groups are played again", worker.name, lost)
            self._workers.remove(worker)
            self._coming.add(asyncio.ensure_future(self._arrival(self._replace(worker))))

    async def _arrival(self, coming: Awaitable[W | None]) -> W | None:
        return await coming
