"""Plays the units of an evaluation, many at once, and stores each as soon as it has ended.

The units of all environments share one queue, so that the last slow episodes of one set do not leave the model idle. A
unit's random numbers depend on its task and sample alone: whatever was played before, or is missing, changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from arpo_trainer.backends.base import Backend, GenerationError
from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, UnitRow
from arpo_trainer.evaluation.eval_models import SERVED, EvalModel
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.inference_tools import ChatHelper, InferenceSettings, InferenceTools
from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, GroupJob
from arpo_trainer.ray_rollouts.rollout_workers import RolloutWorkers
from arpo_trainer.rollout.engine import Engine, first_error, rollout_context
from arpo_trainer.rollout.group import Group, RolloutContext
from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)
FAILURES_IN_A_ROW = 20


@dataclass(frozen=True)
class Unit:
    """One unit to play.

    Attributes:
        key: of the unit.
        task: its task.
        index: the task's position in its environment.
        opening: token ids that its first turn begins with.
    """

    key: UnitKey
    task: Task
    index: int
    opening: tuple[int, ...] = ()


@dataclass
class EvalRunner:
    """Plays units with one model.

    Attributes:
        backend: generates the turns; the engines use the same.
        engines: the engine of each environment, by its label.
        store: where units are stored.
        concurrency: most trajectories at once.
        limits: most operations of one kind at once, over all environments; see `ConcurrencyLimits`.
        on_row: called with each row after it was stored.
    """

    backend: Backend
    engines: Mapping[str, Engine]
    store: EpisodeStore
    concurrency: int = 64
    limits: Mapping[str, int] = field(default_factory=dict)
    on_row: Callable[[UnitRow], object] | None = None
    _running: int = 0
    _failed: list[tuple[Unit, RolloutTree]] = field(default_factory=list)

    @property
    def running(self) -> int:
        """The number of trajectories that are being played."""
        return self._running

    @property
    def per_unit(self) -> int:
        """The number of trajectories of the largest unit."""
        return max((engine.settings.num_generations for engine in self.engines.values()), default=1)

    async def play(self, units: Iterable[Unit]) -> None:
        """Play units in their order.

        What fails in an environment, and single failures of the model, are stored with the unit.

        Raises:
            GenerationError: the model failed `FAILURES_IN_A_ROW` times without a success in between. These units are
                not stored, so that a resumed run plays them.
        """
        per_unit = self.per_unit
        limits = ConcurrencyLimits({"trajectory": max(self.concurrency, per_unit), **self.limits})
        contexts = {label: rollout_context(engine, limits) for label, engine in self.engines.items()}
        queue = iter(units)
        await self.backend.begin()
        try:
            async with asyncio.TaskGroup() as workers:
                # as many units as may run at once: those that wait hold no prompt and no environment
                for _ in range(max(1, self.concurrency // per_unit)):
                    workers.create_task(self._work(queue, contexts, per_unit))
        except BaseExceptionGroup as several:
            error = first_error(several)  # callers expect the error itself, with the traceback of its cause
            raise error from error.__cause__
        finally:
            await self.backend.end()
        self._store_failed()

    async def _work(self, queue: Iterator[Unit], contexts: Mapping[str, RolloutContext], per_unit: int) -> None:
        for unit in queue:
            # the seeds of a group depend on these two numbers
            group = Group(contexts[unit.key.env], unit.task, unit.key.sample, unit.index, unit.opening)
            self._running += per_unit
            try:
                await group.grow()
            except BaseException as several:
                error = first_error(several)
                if not isinstance(error, GenerationError):
                    raise
                group.fail(error)
                self._model_failed(unit, group.tree, error)
                continue
            finally:
                self._running -= per_unit
            self._played(unit, group.tree)

    def _played(self, unit: Unit, tree: RolloutTree) -> None:
        self._store_failed()
        self._store(unit, tree)

    def _store(self, unit: Unit, tree: RolloutTree) -> None:
        row = self.store.add(unit.key, unit.index, tree)
        if self.on_row:
            self.on_row(row)

    def _store_failed(self) -> None:
        """Store the units in which the model failed: it works for others, so that the failures are theirs."""
        failed, self._failed = self._failed, []
        for unit, tree in failed:
            self._store(unit, tree)

    def _model_failed(self, unit: Unit, tree: RolloutTree, error: GenerationError) -> None:
        logger.warning("the model failed for %s of %s: %s", unit.key.task, unit.key.env, error)
        self._failed.append((unit, tree))
        if len(self._failed) >= FAILURES_IN_A_ROW:
            self._failed = []
            raise GenerationError(
                f"the model {unit.key.model} failed {FAILURES_IN_A_ROW} times in a row; the last error: {error}. What "
                "was scored is stored: mend the cause, and go on with --resume"
            ) from error


# `RayEvalRunner`: plays units on rollout workers (Ray); this process stores what they played, and nobody else writes.
#
# A worker has its own backend and environments, and hands trees back. A unit is stored when its tree has arrived, so
# one that is lost with its worker is played again and stored once.


@dataclass
class RayEvalRunner(EvalRunner):
    """Plays units with one model on rollout workers.

    `concurrency` is divided over the workers, each of which plays at least one unit at a time. `limits` hold for each
    worker, over all environments.

    Attributes:
        workers: play the units; several runners may share them.
    """

    workers: RolloutWorkers = field(kw_only=True)

    @property
    def running(self) -> int:
        """The number of trajectories that are being played, over all that share the workers."""
        return self.workers.playing * self.per_unit

    async def play(self, units: Iterable[Unit]) -> None:
        """Play units in their order; see `EvalRunner.play`.

        Raises:
            GenerationError: the model failed again and again.
            TypeError: the backend or an environment cannot be sent to the workers.
            RolloutWorkerError: a worker cannot play, or none is left.
        """
        units = list(units)
        if not units:
            return
        labels = list(dict.fromkeys(unit.key.env for unit in units))
        engines = [self.engines[label] for label in labels]
        first = engines[0]
        envs = tuple(engine.env for engine in engines)
        tools = tools_for_actors(first.inference)
        parts = EngineParts(self.backend, first.tokenizer, envs, first.chat_template_kwargs, tools)
        places = max(self.concurrency // self.workers.actors.count, self.per_unit)
        jobs = [GroupJob(u.task, u.key.sample, u.index, labels.index(u.key.env), u.opening) for u in units]

        def take(number: int, tree: RolloutTree) -> None:
            self._played(units[number], tree)

        def failed(number: int, tree: RolloutTree, error: GenerationError) -> None:
            self._model_failed(units[number], tree, error)

        await self.backend.begin()
        try:
            settings, limits = [engine.settings for engine in engines], {"trajectory": places, **self.limits}
            await self.workers.play(parts, settings, limits, jobs, take, failed)
        finally:
            await self.backend.end()
        self._store_failed()


def tools_for_actors(inference: InferenceTools | None) -> InferenceSettings | None:
    """Return tools with the address of their model, whose default may be another one in the environment of a node."""
    if inference is None or not isinstance(inference.helper, ChatHelper):
        return inference.settings if inference else None
    return replace(inference.settings, url=inference.helper.chat.base_url)


def check_for_workers(settings: EvalSettings, models: Sequence[EvalModel]) -> None:
    """Refuse what rollout workers cannot play.

    Raises:
        ValueError: a model is in this process, or everything is to be recorded.
    """
    for model in models:
        if model.kind not in SERVED:
            raise ValueError(
                f"rollout workers (--ray, --rollout-workers) reach no model of this process, and {model.label!r} would "
                f"be one ({model.kind}): serve it with vLLM and give --vllm-server URL, or give an --endpoint"
            )
    if settings.cache:
        raise ValueError(
            f"rollout workers cannot share the recording {settings.cache!r}, which is a file of one machine: leave out "
            "--cache, or play without --ray and --rollout-workers (with --shard on several machines)"
        )
