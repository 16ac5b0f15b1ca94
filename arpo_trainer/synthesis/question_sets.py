"""The questions of a synthesis: environments with and without their tools, and the questions that must not be used."""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_trainer.evaluation.episode_store import EpisodeStore, EvalRun, UnitKey, UnitRow
from arpo_trainer.evaluation.eval_plan import PlannedEnv, missing_units, task_count
from arpo_trainer.evaluation.eval_runner import Unit
from arpo_trainer.evaluation.eval_shard import EvalShard
from arpo_trainer.make_env import make_env
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.synthesis.sample_checks import Attempts, attempts, check_format, needs_tools
from arpo_trainer.synthesis.synth_settings import DIRECT, TIR, NoPlaceForHint, Opener, SynthSettings, stage_label
from envs_registry import Task
from envs_registry.contamination import overlap
from envs_registry.sources import LimitedSource, named_source

# options of tools, which an environment without tools refuses
_OF_TOOLS = ("tools", "tool_limits", "search")


@dataclass
class QuestionSet:
    """The questions of one environment.

    Attributes:
        planned: the environment with its tools.
        plain: the same without tools.
        contaminated: ids of tasks that are in an evaluation set.
        shard: the part of the questions that is taken; None is all. Question number k is in shard k modulo n.
    """

    planned: PlannedEnv
    plain: ToolEnv
    contaminated: set[str] = field(default_factory=set)
    shard: EvalShard | None = None

    @property
    def label(self) -> str:
        """Its name in tables and files."""
        return self.planned.label

    @property
    def env(self) -> ToolEnv:
        """The environment with its tools."""
        return self.planned.env

    def numbered(self) -> Iterator[tuple[int, Task]]:
        """Yield the tasks with their numbers."""
        for number in filter(self.takes, range(self.planned.count)):
            yield number, self.env.tasks.task(number)

    def takes(self, number: int) -> bool:
        """Return whether the question of a number is taken."""
        return self.shard is None or self.shard.owns(number)

    def stage(self, stage: str) -> PlannedEnv:
        """Return the environment as it is played in a stage, under the label of the stage."""
        env = self.plain if stage == DIRECT else self.env
        return replace(self.planned, label=stage_label(self.label, stage), env=env)


@contextlib.contextmanager
def open_question_sets(settings: SynthSettings, cache: Cache | None = None) -> Iterator[list[QuestionSet]]:
    """Make the environments, and close them afterwards.

    Args:
        settings: of the synthesis.
        cache: records and replays their services.

    Raises:
        UnknownEnvError: an environment is not known.
        ValueError: an option is invalid, the environment has no tools or may fold, or the tasks are endless and no
            number is set.
        RuntimeError: a service is not configured.
    """
    with contextlib.ExitStack() as opened:
        sets = []
        for name in dict.fromkeys(settings.environments):
            services = {"cache": cache} if cache else {}
            env = make_env(name, {**settings.env_options, **services})
            opened.callback(env.close)
            env.check()
            if not env.tools:
                raise ValueError(f"{name} has no tools, so nothing with tools can be sampled; add tools=[python]")
            if env.budget.folds:
                raise ValueError(f"folds={env.budget.folds}: a training row is one conversation; leave folds out")
            if env.services.show_images:
                raise ValueError("show_images=True: a training row is text, and has no pictures; leave show_images out")
            check_format(settings.format, env.protocol)
            plain_options = {n: value for n, value in settings.env_options.items() if n not in _OF_TOOLS}
            plain = make_env(name, {**plain_options, **services, "tools": []})
            opened.callback(plain.close)
            label = name.rpartition(":")[2].removeprefix("arpo/")
            count = task_count(label, env, settings.tasks, None)
            sets.append(QuestionSet(PlannedEnv(label, name, settings.env_options, "accuracy", "", env, count), plain))
        yield sets


def find_contaminated(settings: SynthSettings, sets: list[QuestionSet]) -> dict[str, dict[str, int]]:
    """Note the questions that are in evaluation sets, and count them by set: the same, and similar ones.

    Raises:
        UnknownEnvError: there is no such evaluation set.
    """
    counts: dict[str, dict[str, int]] = {}
    for text in settings.against:
        name, held_out = named_source(text, "held out")
        counted = counts.setdefault(name, {"same": 0, "similar": 0})
        for one in sets:
            found = overlap(LimitedSource(one.env.tasks, one.planned.count), held_out)
            same, near = ({task.id for task, _ in pairs} for pairs in (found.exact, found.near))
            one.contaminated |= same | near
            counted["same"] += len(same)
            counted["similar"] += len(near - same)
    return counts


# What is still to be sampled: without tools first, then with tools where they are needed, then after hints.
#
# The units follow from the settings and from what is stored alone, so that a run that was killed goes on with exactly
# what is missing. What a model has answered without tools decides what that model plays with tools.

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
