"""`RolloutWorkers`: rollout actors on the nodes of a Ray cluster, started, watched, replaced and ended.

An actor that dies (its process, its node, the network to it) is replaced, and its groups are played again meanwhile by
the others: a group's tree does not depend on who plays it. The actors belong to this process. They end with it, however
it ends, and their sandboxes end with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from arpo_trainer.ray_rollouts.job_dispatch import JobDispatch, WorkerLost, WorkersGone
from arpo_trainer.ray_rollouts.ray_connection import RayClusterError, cluster_cpus, connect
from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, RemoteRollout, RolloutActor
from arpo_trainer.rollout.concurrency import DEFAULT_TRAJECTORIES
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)
Job = tuple[Task, int, int]  # the task, the step, and the number of the group in its step
_CALLS = 10_000  # calls that an actor takes at once; how many groups it plays is decided here
_FINISH_SECONDS = 30.0
_PARTS_KEPT = 4
_SHARED_VARIABLES = ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")


class RolloutWorkerError(RuntimeError):
    """Raised when rollout workers cannot start or cannot play; the message says where, and what to do."""


@dataclass(eq=False)
class _RemoteWorker:
    number: int
    actor: Any
    name: str = ""
    ready: bool = False


@dataclass(frozen=True)
class PlayedJobs:
    """What a rollout took.

    Attributes:
        replayed: groups that were played again because their worker was lost.
        generate_seconds: during which a worker generated; the mean of the workers.
        tool_seconds: during which a worker's environments were busy; the mean of the workers.
    """

    replayed: int
    generate_seconds: float
    tool_seconds: float


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
        silence: seconds without an answer after which an actor counts as lost.
        ray_options: more arguments of `ray.init`.

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
        silence: float = 120.0,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        _check_numbers(count, cpus, groups_at_once, start_timeout, silence)
        self._connected = connect(address, count, cpus, ray_options)
        import ray

        self._ray = ray
        self.count = count or sum(node["Alive"] for node in ray.nodes())
        self.cpus, self.resources = cpus, dict(resources or {})
        self.groups_at_once, self.start_timeout, self.silence = groups_at_once, start_timeout, silence
        self._names = itertools.count()
        self._sent: list[tuple[EngineParts, int, Any]] = []
        self._workers: list[_RemoteWorker] = []
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    async def play(
        self,
        parts: EngineParts,
        settings: RolloutSettings,
        limits: dict[str, int],
        jobs: Sequence[Job],
        take: Callable[[int, RolloutTree], object],
    ) -> PlayedJobs:
        """Play groups, each exactly once as far as `take` sees.

        Args:
            parts: what the actors' engines are made of.
            settings: how trees are grown.
            limits: most operations of one kind at once, in each actor.
            jobs: the groups.
            take: called with the position of each job and its tree, in the order of completion.

        Raises:
            GenerationError: the model failed.
            TypeError: the parts do not pickle.
            RolloutWorkerError: an actor cannot make the environment or has no sandbox, none is left, or a group ends
                its actors again and again.
        """
        rollout = self._rollout(parts, settings, limits)
        dispatch = JobDispatch[_RemoteWorker, RolloutTree](
            len(jobs),
            self._at_once(len(jobs), settings, limits),
            lambda worker, job: self._work(worker, rollout, jobs[job]),
            lambda worker: self._ready(self._restart(worker), rollout),
            take,
        )
        missing = set(range(self.count)) - {worker.number for worker in self._workers}
        everyone = [*self._workers, *map(self._start, sorted(missing))]
        seconds: list[tuple[float, float]] = []
        try:
            async with self._watching():
                await dispatch.run([], [self._ready(worker, rollout) for worker in everyone])
        except WorkersGone as error:
            raise RolloutWorkerError(
                f"{error}: they were lost and could not be started again within {self.start_timeout:g} s. "
                f"{self._room()} `ray status` shows the nodes"
            ) from error
        finally:
            seconds = await self._finish(rollout.name)
        means = [sum(column) / len(seconds) for column in zip(*seconds, strict=True)] or [0.0, 0.0]
        return PlayedJobs(dispatch.replayed, *means)

    def nodes(self) -> list[str]:
        """Return the host and the process of each actor that runs."""
        return [worker.name for worker in self._workers if worker.ready]

    def close(self) -> None:
        """End the actors and their sandboxes, and a cluster that was started here; may be called twice."""
        for worker in self._workers:
            with contextlib.suppress(Exception):  # it may be gone, and the cluster with it
                self._ray.kill(worker.actor)
        self._workers = []
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # starting and ending

    def _start_all(self) -> None:
        asked = [self._start(number) for number in range(self.count)]
        if (needed := self.count * self.cpus) > cluster_cpus()[0]:
            logger.warning("%d rollout workers need %g CPUs. %s", self.count, needed, self._room())
        references = [worker.actor.where.remote() for worker in asked]
        done, pending = self._ray.wait(references, num_returns=self.count, timeout=self.start_timeout)
        for worker, reference in zip(asked, references, strict=True):
            if reference in done:
                worker.name, worker.ready = self._started(worker, reference), True
        if pending:
            raise RolloutWorkerError(
                f"{len(pending)} of {self.count} rollout workers were not scheduled within {self.start_timeout:g} s. "
                f"{self._room()} Take {len(done) or 'fewer'}, let each ask for less, or add nodes"
            )

    def _started(self, worker: _RemoteWorker, reference: Any) -> str:
        try:
            return str(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            raise RolloutWorkerError(
                f"rollout worker {worker.number} could not start: {_last_line(error)}. Every node needs this package "
                "with the extra `ray`, in the same version as here"
            ) from error

    def _start(self, number: int) -> _RemoteWorker:
        shared = {
            name: os.environ[name] for name in os.environ if name.startswith("ARPO_") or name in _SHARED_VARIABLES
        }
        actor = self._ray.remote(RolloutActor).options(
            num_cpus=self.cpus, resources=self.resources, max_concurrency=_CALLS, scheduling_strategy="SPREAD"
        )
        worker = _RemoteWorker(number, actor.remote(number, shared), str(number))
        self._workers.append(worker)
        return worker

    def _restart(self, worker: _RemoteWorker) -> _RemoteWorker:
        self._drop(worker)
        return self._start(worker.number)

    def _drop(self, worker: _RemoteWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
        with contextlib.suppress(Exception):
            # it may still run where only the network to it broke, and then it must not play on
            self._ray.kill(worker.actor)

    def _room(self) -> str:
        more = f" and {self.resources}" if self.resources else ""
        with contextlib.suppress(Exception):
            total, free = cluster_cpus()
            return f"Each asks for {self.cpus:g} CPU{more}; the cluster has {total:g} CPUs, of which {free:g} are free."
        return f"Each asks for {self.cpus:g} CPU{more}."

    # one rollout

    def _rollout(self, parts: EngineParts, settings: RolloutSettings, limits: dict[str, int]) -> RemoteRollout:
        name = str(next(self._names))
        for known, key, reference in self._sent:
            same = known.backend is parts.backend and known.tokenizer is parts.tokenizer and known.env is parts.env
            if same and known.chat_template_kwargs == parts.chat_template_kwargs:
                return RemoteRollout(name, key, [reference], settings, limits)
        key, reference = int(name), self._ray.put(_pickled(parts))
        self._sent = [*self._sent[1 - _PARTS_KEPT :], (parts, key, reference)]
        return RemoteRollout(name, key, [reference], settings, limits)

    def _at_once(self, jobs: int, settings: RolloutSettings, limits: Mapping[str, int]) -> int:
        places = limits.get("trajectory", DEFAULT_TRAJECTORIES) // settings.num_generations
        return self.groups_at_once or max(1, min(places, -(-jobs // self.count)))

    async def _ready(self, worker: _RemoteWorker, rollout: RemoteRollout, tries: int = 2) -> _RemoteWorker | None:
        """Return a worker once it can play, another one if it is gone, or None if that does not start either."""
        try:
            async with asyncio.timeout(None if worker.ready else self.start_timeout):
                worker.name = await worker.actor.where.remote()
            worker.ready = True
            await worker.actor.prepare.remote(rollout)
            return worker
        except TimeoutError:
            logger.warning("rollout worker %d was not scheduled again. %s", worker.number, self._room())
        except self._ray.exceptions.RayTaskError as error:
            raise _unready(worker, error) from error
        except self._ray.exceptions.RayError as error:
            logger.warning("rollout worker %s is lost (%s)", worker.name, _last_line(error))
            if tries > 1:
                return await self._ready(self._restart(worker), rollout, tries - 1)
        self._drop(worker)
        return None

    async def _work(self, worker: _RemoteWorker, rollout: RemoteRollout, job: Job) -> RolloutTree:
        try:
            tree: RolloutTree = await worker.actor.play.remote(rollout, *job)
            return tree
        except self._ray.exceptions.RayTaskError as error:
            cause: Exception = getattr(error, "cause", None) or error
            cause.add_note(f"on rollout worker {worker.name}")
            raise cause from None
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(_last_line(error)) from error

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        """End actors that do not answer, upon which their groups are played elsewhere."""
        watch = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.silence / 4)
            await asyncio.gather(*(self._listen(worker) for worker in self._workers if worker.ready))

    async def _listen(self, worker: _RemoteWorker) -> None:
        try:
            async with asyncio.timeout(self.silence):
                await worker.actor.ping.remote()
        except TimeoutError:
            logger.warning("rollout worker %s has not answered for %g s", worker.name, self.silence)
            self._ray.kill(worker.actor)
        except self._ray.exceptions.RayError:
            return  # it is gone; the calls that wait for it say so

    async def _finish(self, name: str) -> list[tuple[float, float]]:
        async def finish(worker: _RemoteWorker) -> tuple[float, float] | None:
            with contextlib.suppress(TimeoutError, self._ray.exceptions.RayError):
                async with asyncio.timeout(_FINISH_SECONDS):
                    spent: tuple[float, float] = await worker.actor.finish.remote(name)
                    return spent
            return None

        spent = await asyncio.gather(*(finish(worker) for worker in self._workers if worker.ready))
        return [one for one in spent if one is not None]


def _check_numbers(count: int, cpus: float, at_once: int | None, start_timeout: float, silence: float) -> None:
    lowest = {"count": (count, 0), "cpus": (cpus, 0), "groups_at_once": (1 if at_once is None else at_once, 1)}
    for name, (value, low) in lowest.items():
        if value < low:
            raise ValueError(f"{name} must be at least {low}, got {value}")
    for name, seconds in (("start_timeout", start_timeout), ("silence", silence)):
        if seconds <= 0:
            raise ValueError(f"{name} must be above 0, got {seconds}")


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


def _unready(worker: _RemoteWorker, error: Exception) -> RolloutWorkerError:
    cause = getattr(error, "cause", None) or error
    cure = ""
    if type(cause).__name__ == "SandboxUnavailable":
        cure = (
            ". Every node with a rollout worker needs a sandbox: start Docker there, choose another backend with "
            "ARPO_SANDBOX, or choose the nodes by a resource (`ray start --resources`)"
        )
    said = str(cause).strip().rstrip(".")
    return RolloutWorkerError(f"rollout worker {worker.name} cannot play: {type(cause).__name__}: {said}{cure}")


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


__all__ = ["PlayedJobs", "RayClusterError", "RolloutWorkerError", "RolloutWorkers"]
