"""What is still to be sampled: without tools first, then with tools where they are needed, then after hints.

The units follow from the settings and from what is stored alone, so that a run that was killed goes on with exactly
what is missing. What a model has answered without tools decides what that model plays with tools.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_trainer.evaluation.episode_store import EpisodeStore, EvalRun
from arpo_trainer.evaluation.eval_plan import missing_units
from arpo_trainer.evaluation.eval_runner import Unit
from arpo_trainer.evaluation.unit_row import UnitKey, UnitRow
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.synthesis.difficulty import Attempts, attempts, needs_tools
from arpo_trainer.synthesis.hints import NoPlaceForHint, Opener
from arpo_trainer.synthesis.question_sets import QuestionSet
from arpo_trainer.synthesis.stages import DIRECT, TIR, stage_label
from arpo_trainer.synthesis.synth_settings import SynthSettings
from envs_registry import Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SynthUnits:
    """The units of one model.

    Attributes:
        settings: what is sampled.
        sets: the questions.
        store: what has been sampled.
        model: label of the model.
        repeat_broken: whether samples that broke are played again.
    """

    settings: SynthSettings
    sets: Sequence[QuestionSet]
    store: EpisodeStore
    model: str
    repeat_broken: bool = False

    def direct(self) -> list[Unit]:
        """Return the missing samples without tools."""
        return [unit for one in self.sets for unit in self._missing(one, DIRECT, self.settings.direct)]

    def tir(self) -> list[Unit]:
        """Return the missing samples with tools; all without tools must have been played."""
        units = []
        for one in self.sets:
            wanted = self._need_tools(one)
            units += [unit for unit in self._missing(one, TIR, self.settings.tir) if unit.task.id in wanted]
        return units

    def hinted(self, renderers: Mapping[str, Renderer], room: int) -> tuple[list[Unit], dict[str, Counter[str]]]:
        """Return the missing continuations after hints, and for each hint how many were placed and why others not.

        Args:
            renderers: for each environment that of its engine with tools.
            room: most tokens of an opening.
        """
        units: list[Unit] = []
        counts: dict[str, Counter[str]] = {}
        for hint in self.settings.hints:
            counts[hint] = Counter()
            for one in self.sets:
                for row, task, index in self._plain_rows(one):
                    cause, unit = self._hinted(hint, one, row, (task, index), renderers[one.label], room)
                    counts[hint][cause] += 1
                    units += [unit] if unit is not None else []
        return units, counts

    def _missing(self, one: QuestionSet, stage: str, samples: int) -> list[Unit]:
        if not samples:
            return []
        planned, play = [one.stage(stage)], replace(self.settings.play, samples=samples)
        found = missing_units(planned, self.model, play, self.store)
        if self.repeat_broken:
            found += missing_units(planned, self.model, play, self.store, repeat_broken=True)
        return [unit for unit in found if unit.task.id not in one.contaminated and one.takes(unit.index)]

    def _need_tools(self, one: QuestionSet) -> set[str]:
        """Return the tasks that this model does not answer without tools."""
        tried = attempts(row for row in self.store.rows.values() if row.model == self.model)
        return {
            task.id
            for _, task in one.numbered()
            if self.settings.all_questions or needs_tools(tried.get((one.label, task.id), Attempts()), self.settings)
        }

    def _plain_rows(self, one: QuestionSet) -> Iterator[tuple[UnitRow, Task, int]]:
        wanted = self._need_tools(one) - one.contaminated
        for index, task in one.numbered():
            for sample in range(self.settings.direct if task.id in wanted else 0):
                row = self.store.rows.get(UnitKey(self.model, stage_label(one.label, DIRECT), task.id, sample))
                if row is not None and row.episodes[0].reward is not None:
                    yield row, task, index

    def _hinted(
        self, hint: str, one: QuestionSet, row: UnitRow, place: tuple[Task, int], renderer: Renderer, room: int
    ) -> tuple[str, Unit | None]:
        """Return what became of a hint, and the unit if it is still to be played."""
        task, index = place
        key = UnitKey(self.model, stage_label(one.label, hint), task.id, row.sample)
        stored = self.store.rows.get(key)
        if stored is not None and not (self.repeat_broken and stored.broken):
            return "placed", None
        tree = EvalRun(self.store.folder, {}, [], []).tree(row)
        spans = [span for span in tree.path(0) if span.kind == "model"]
        if len(spans) != 1:
            return "several turns", None
        rng = random.Random(f"{self.settings.seed}/{key}")
        try:
            opener = Opener(renderer, one.env.schemas, task.language)
            opening = opener.opening(hint, spans[0].ids, spans[0].entropies, row.episodes[0].answer, rng)
        except NoPlaceForHint as fault:
            return fault.cause, None
        if len(opening) > room:
            return "too long to continue", None
        return "placed", Unit(key, task, index, tuple(opening))


def add_counts(total: dict[str, Counter[str]], counts: Mapping[str, Mapping[str, Any]]) -> None:
    """Add counts of hints to those of other models."""
    for hint, found in counts.items():
        total[hint].update(found)
