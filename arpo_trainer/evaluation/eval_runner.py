"""Plays the units of an evaluation, many at once, and stores each as soon as it has ended.

The units of all environments share one queue, so that the last slow episodes of one set do not leave the model idle. A
unit's random numbers depend on its task and sample alone: whatever was played before, or is missing, changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from arpo_trainer.backends.base import Backend, GenerationError
from arpo_trainer.evaluation.episode_store import EpisodeStore
from arpo_trainer.evaluation.unit_row import UnitKey, UnitRow
from arpo_trainer.rollout.concurrency import ConcurrencyLimits
from arpo_trainer.rollout.engine import Engine, first_error, rollout_context
from arpo_trainer.rollout.group import Group
from arpo_trainer.rollout.rollout_context import RolloutContext
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
