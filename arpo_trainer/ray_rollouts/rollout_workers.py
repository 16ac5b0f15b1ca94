"""`RolloutWorkers`: groups played by actors on the nodes of a Ray cluster, each exactly once.

When an actor dies (its process, its node, the network to it), the others play its groups again, and another actor is
started in its place: a group's tree does not depend on who plays it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from arpo_trainer.ray_rollouts.actor_group import ActorGroup, ActorHandle, RolloutWorkerError, last_line
from arpo_trainer.ray_rollouts.job_dispatch import JobDispatch, WorkerLost, WorkersGone
from arpo_trainer.ray_rollouts.ray_connection import connect
from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, GroupJob, PlayedGroup, RemoteRollout
from arpo_trainer.rollout.concurrency import DEFAULT_TRAJECTORIES
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree

if TYPE_CHECKING:
    from arpo_trainer.backends.base import GenerationError

_PARTS_KEPT = 4


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
        sharers: processes that each start actors of their own; with a count of 0 they divide the nodes.
        ray_options: more arguments of `ray.init`.

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
        silence: float = 120.0,
        sharers: int = 1,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        _check_numbers(count, cpus, groups_at_once, start_timeout, silence)
        self._connected = connect(address, count, cpus, ray_options)
        import ray

        self._ray, self.groups_at_once, self.playing = ray, groups_at_once, 0
        self._names = itertools.count()
        self._sent: list[tuple[EngineParts, int, Any]] = []
        try:
            count = count or -(-sum(node["Alive"] for node in ray.nodes()) // sharers)
            self.actors = ActorGroup(count, cpus, resources or {}, start_timeout, silence)
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
    ) -> PlayedJobs:
        """Play groups, each exactly once as far as `take` sees.

        Args:
            parts: what the actors' engines are made of.
            settings: how trees are grown in each environment of the parts.
            limits: most operations of one kind at once, in each actor, over all environments.
            jobs: the groups.
            take: called with the position of each job and its tree, in the order of completion.
            failed: called in its place where the model failed, also with the error; by default that ends the rollout.

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
        return PlayedJobs(dispatch.replayed, *means)

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
        self._sent = [*self._sent[1 - _PARTS_KEPT :], (parts, key, reference)]
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


def _check_numbers(count: int, cpus: float, at_once: int | None, start_timeout: float, silence: float) -> None:
    lowest = {
        "count, of rollout workers,": (count, 0),
        "cpus": (cpus, 0),
        "groups_at_once": (1 if at_once is None else at_once, 1),
    }
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
