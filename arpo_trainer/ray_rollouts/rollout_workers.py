"""`RolloutWorkers`: groups played by actors on the nodes of a Ray cluster, each exactly once.

When an actor dies (its process, its node, the network to it), the others play its groups again, and another actor is
started in its place: a group's tree does not depend on who plays it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from arpo_trainer.backends.base import GenerationError
from arpo_trainer.ray_rollouts.actor_group import ActorGroup, ActorHandle, RolloutWorkerError, connect, last_line
from arpo_trainer.ray_rollouts.rollout_actor import PARTS_KEPT, EngineParts, GroupJob, PlayedGroup, RemoteRollout
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

# `JobDispatch`: gives numbered jobs to workers, a few at a time, and takes exactly one result of each.
#
# A job is open, with one worker, or done. When a worker is lost, its jobs are open again and go to other workers. The
# late answer of a lost worker is never taken, since nobody waits for it any more. Nothing here knows Ray: a worker is
# whatever plays a job and raises `WorkerLost` when it is gone.

T = TypeVar("T")
W = TypeVar("W")
logger = logging.getLogger(__name__)


class WorkerLost(Exception):
    """Raised by a worker that cannot finish a job because it is gone, or its answer is; the message says what is."""


class WorkersGone(RuntimeError):
    """Raised when jobs are left and no worker is."""


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
        self._open = list(range(jobs))  # a heap: lost jobs, which are the oldest, go first
        self._left, self._at_once, self._most_losses = jobs, at_once, losses
        self._work, self._replace, self._take = work, replace, take
        self._load: Counter[W] = Counter()
        self._workers: list[W] = []
        self._playing: dict[asyncio.Task[T], tuple[W, int]] = {}
        self._coming: set[asyncio.Future[W | None]] = set()
        self._losses: Counter[int] = Counter()
        self.replayed = 0

    async def run(self, workers: Sequence[W], coming: Sequence[Awaitable[W | None]] = ()) -> None:
        """Return when every job is done, by workers that are ready and others that are `coming`.

        Raises:
            WorkersGone: no worker is left, and none is coming.
            RuntimeError: a job was lost with too many workers.
        """
        self._workers = list(workers)
        self._coming = {asyncio.ensure_future(one) for one in coming}
        try:
            while self._left:
                self._hand_out()
                if not self._playing and not self._coming:
                    raise WorkersGone(f"{self._left} groups are left, and no rollout worker is")
                waiting: set[asyncio.Future[Any]] = {*self._playing, *self._coming}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._greet()
                self._collect()
        finally:
            # also when it failed or was cancelled: nobody plays on for a run that is over
            left: list[asyncio.Future[Any]] = [*self._playing, *self._coming]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

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
            logger.warning("rollout worker %s is lost (%s); its groups are played again", worker, lost)
            self._workers.remove(worker)
            self._coming.add(asyncio.ensure_future(self._replace(worker)))


class RolloutWorkers:
    """Actors that play groups; `RayEngine` gives them out. Close it, or use it as a context manager.

    Args:
        count: number of actors; 0 is one for each node of the cluster.
        address: of the cluster, "HOST:PORT" or "auto"; this machine has to be one of its nodes. None takes the variable
            RAY_ADDRESS, or else starts Ray on this machine until this process ends.
        cpus: that each actor asks for.
        resources: custom resources that each actor asks for, as in {"sandbox": 1}, to choose its nodes.
        groups_at_once: most groups that an actor plays at a time. By default its share of the rollout, and no more than
            its limit of trajectories admits.
        start_timeout: most seconds until an actor runs.
        sharers: processes that each start actors of their own; with a count of 0 they divide the nodes.

    Attributes:
        playing: number of groups that are being played.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ValueError: a number is too low, or the address is none.
        RayClusterError: the cluster cannot be used.
        RolloutWorkerError: not all actors could be started; none is left running then.
    """

    def __init__(
        self,
        count: int = 0,
        address: str | None = None,
        *,
        cpus: float = 1.0,
        resources: Mapping[str, float] | None = None,
        groups_at_once: int | None = None,
        start_timeout: float = 300.0,
        sharers: int = 1,
    ) -> None:
        self._connected = connect(address, count, cpus)
        import ray

        self._ray, self.groups_at_once, self.playing = ray, groups_at_once, 0
        self._names = itertools.count()
        self._sent: list[tuple[EngineParts, int, Any]] = []
        try:
            count = count or -(-sum(node["Alive"] for node in ray.nodes()) // sharers)
            self.actors = ActorGroup(count, cpus, resources or {}, start_timeout)
        except BaseException:
            self._disconnect()
            raise

    async def play(
        self,
        parts: EngineParts,
        settings: Sequence[RolloutSettings],
        limits: dict[str, int],
        jobs: Sequence[GroupJob],
        take: Callable[[int, RolloutTree], object],
        failed: Callable[[int, RolloutTree, GenerationError], object] | None = None,
    ) -> tuple[int, float, float]:
        """Play groups, each exactly once as far as `take` sees.

        Args:
            parts: what the actors' engines are made of.
            settings: how trees are grown in each environment of the parts.
            limits: most operations of one kind at once, in each actor, over all environments.
            jobs: the groups.
            take: called with the position of each job and its tree, in the order of completion.
            failed: called in its place where the model failed, also with the error; by default that ends the rollout.

        Returns:
            How many groups were played again because their worker was lost, and for how many seconds the workers
            generated, and had tools that were busy, in the mean.

        Raises:
            GenerationError: the model failed, and nobody takes the failure.
            TypeError: the parts do not pickle.
            RolloutWorkerError: an actor cannot make the environment or has no sandbox, or none is left.
            RuntimeError: a group ends its actors again and again.
        """
        rollout = self._rollout(parts, tuple(settings), limits)

        def take_played(number: int, played: PlayedGroup) -> None:
            if played.failure is None:
                take(number, played.tree)
            elif failed is None:
                raise played.failure
            else:
                failed(number, played.tree, played.failure)

        dispatch = JobDispatch[ActorHandle, PlayedGroup](
            len(jobs),
            self._at_once(len(jobs), rollout.settings, limits),
            lambda worker, job: self._work(worker, rollout, jobs[job]),
            lambda worker: self.actors.ready(self.actors.restart(worker), rollout),
            take_played,
        )
        self.actors.start_missing()
        seconds: list[tuple[float, float]] = []
        try:
            async with self.actors.watched():
                await dispatch.run([], [self.actors.ready(worker, rollout) for worker in self.actors.members])
        except WorkersGone as error:
            raise RolloutWorkerError(
                f"{error}: they were lost and did not start again within {self.actors.start_timeout:g} s. "
                f"{self.actors.room()} `ray status` shows the nodes"
            ) from error
        finally:
            # also when it failed: what is still played elsewhere is given up
            seconds = await self.actors.finish(rollout.name)
        means = [sum(column) / len(seconds) for column in zip(*seconds, strict=True)] or [0.0, 0.0]
        return dispatch.replayed, means[0], means[1]

    def nodes(self) -> list[str]:
        """Return number, host and process of each actor that runs."""
        return [worker.name for worker in self.actors.members if worker.ready]

    def close(self) -> None:
        """End the actors and their sandboxes, and a cluster that was started here; may be called twice."""
        self.actors.close()
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _disconnect(self) -> None:
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    def _rollout(
        self, parts: EngineParts, settings: tuple[RolloutSettings, ...], limits: dict[str, int]
    ) -> RemoteRollout:
        name = str(next(self._names))
        for known, key, reference in self._sent:
            if known.same_as(parts):
                return RemoteRollout(name, key, [reference], settings, limits)
        key, reference = int(name), self._ray.put(_pickled(parts))
        self._sent = [*self._sent[1 - PARTS_KEPT :], (parts, key, reference)]
        return RemoteRollout(name, key, [reference], settings, limits)

    def _at_once(self, jobs: int, settings: Sequence[RolloutSettings], limits: Mapping[str, int]) -> int:
        largest = max(each.num_generations for each in settings)
        places = limits.get("trajectory", DEFAULT_TRAJECTORIES) // largest
        return self.groups_at_once or max(1, min(places, -(-jobs // self.actors.count)))

    async def _work(self, worker: ActorHandle, rollout: RemoteRollout, job: GroupJob) -> PlayedGroup:
        self.playing += 1
        try:
            played: PlayedGroup = await worker.actor.play.remote(rollout, job)
            if played.failure is not None:
                played.failure.add_note(f"on rollout worker {worker.name}")
            return played
        except self._ray.exceptions.RayTaskError as error:
            cause: Exception = getattr(error, "cause", None) or error
            cause.add_note(f"on rollout worker {worker.name}")
            raise cause from None
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(last_line(error)) from error
        finally:
            self.playing -= 1


def _pickled(parts: EngineParts) -> bytes:
    import ray.cloudpickle

    try:
        packed: bytes = ray.cloudpickle.dumps(parts)
    except Exception as error:  # objects raise what they like
        raise TypeError(
            f"backend ({type(parts.backend).__name__}), tokenizer and environment are sent to the rollout workers, and "
            f"one of them does not pickle: {error}. A backend has to generate elsewhere, as VLLMServerBackend does"
        ) from error
    return packed


# `RayEngine`: an engine whose groups are played by rollout workers; its trees are those of an `Engine`.


@dataclass
class RayEngine(Engine):
    """Plays tasks as trees on Ray.

        workers = RolloutWorkers(4, address="10.0.0.1:6379")
        engine = RayEngine(backend, tokenizer, env, settings, workers=workers)
        trees = run(engine.rollout(tasks))

    It takes the place of an `Engine` wherever one plays: in a trainer, in `evaluate`, or alone. The backend has to
    pickle and to generate elsewhere, such as `VLLMServerBackend`; each worker has its own copy, and that of this
    process only frames the rollout. `limits` hold for each worker. `on_trajectory` is called when the tree arrives.

    Attributes:
        workers: play the groups; several engines may share them.
        replayed: groups that were played again so far, because their worker was lost.

    Raises:
        ValueError: tools at inference time are given, which workers do not have.
    """

    workers: RolloutWorkers = field(kw_only=True)
    replayed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inference is not None:
            raise ValueError("rollout workers have no tools at inference time: use an Engine in this process")

    async def play(self, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> list[RolloutTree]:
        """Play each task as a tree, on whichever worker has a place; see `Engine.play`.

        Raises:
            GenerationError: the model failed.
            RolloutWorkerError: no worker can play, or one group ends its workers again and again.
        """
        trees: dict[int, RolloutTree] = {}

        def take(number: int, tree: RolloutTree) -> None:
            trees[number] = tree
            for _ in tree.trajectories if self.on_trajectory else ():
                self.on_trajectory()  # type: ignore[misc]  # checked one line above
            if self.on_tree:
                self.on_tree(tree)

        parts = EngineParts(self.backend, self.tokenizer, (self.env,), self.chat_template_kwargs)
        # of the trainer's backend this sends the weights to the servers
        await self.begin()
        try:
            jobs = [GroupJob(task, step, first_group + number) for number, task in enumerate(tasks)]
            replayed, generating, busy = await self.workers.play(parts, [self.settings], dict(self.limits), jobs, take)
        finally:
            await self.backend.end()
        self.replayed += replayed
        self.backend.time.seconds += generating
        self.tool_time.seconds += busy
        return [trees[number] for number in range(len(tasks))]
