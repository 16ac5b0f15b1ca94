"""A synthesis: the questions, what is sampled of them, the rows that are chosen, and the files.

    OUTPUT/traces.jsonl, episodes.jsonl   every sample, appended at once (the store of evaluations)
    OUTPUT/sft.jsonl, dataset_info.json   the training rows, and their description for LLaMA-Factory
    OUTPUT/hard/ENV.jsonl                 the questions for reinforcement learning
    OUTPUT/report.json, run.json          what was dropped and why; settings and status

What is missing follows from the settings and from what is stored alone, so that a run that was killed goes on with
exactly that. The files are written anew at the end of each sitting, from all stored samples.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_env.event_loop import run
from arpo_trainer.backends.base import Backend
from arpo_trainer.evaluation import eval_session, eval_settings
from arpo_trainer.evaluation.episode_store import FACTS, SYNTH, EpisodeStore, EvalRun, UnitKey, UnitRow
from arpo_trainer.evaluation.eval_shard import EvalShard
from arpo_trainer.make_env import make_env
from arpo_trainer.ray_rollouts.rollout_workers import RolloutWorkers
from arpo_trainer.report.run_data import read_facts, recorded, write_whole
from arpo_trainer.rollout.engine import Engine, only_first_error
from arpo_trainer.rollout.live_trajectory import check_limits
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.sft.trace_data import RejectionSampling
from arpo_trainer.synthesis import sample_checks
from arpo_trainer.synthesis.synth_settings import (
    DIRECT,
    STAGES,
    TIR,
    NoPlaceForHint,
    SynthSettings,
    opening,
    stage_of,
)
from envs_registry import Task
from envs_registry.contamination import overlap
from envs_registry.sources import LimitedSource, named_source

logger = logging.getLogger(__name__)
SFT, HARD, REPORT, INFO = "sft.jsonl", "hard", "report.json", "dataset_info.json"
Line = tuple[str, str, str]
Progress = Callable[[UnitRow], object]
_OF_TOOLS = ("tools", "tool_limits", "search")  # options that an environment without tools refuses
_SEED_OF_STAGE = 1_000_003  # stages draw other random numbers
_WIDTH = 60  # characters of an example in the table


@dataclass(kw_only=True)
class QuestionSet(eval_session.PlannedEnv):
    """The questions of one environment, with its tools."""

    metric: str = "accuracy"
    subset: str = ""
    plain: ToolEnv  # the same without tools
    contaminated: set[str] = field(default_factory=set)  # ids of tasks that are in an evaluation set
    played: dict[str, ToolEnv] = field(default_factory=dict)  # the environment as each model plays it, by its label
    # the part of the questions that is taken; None is all. Question number k is in shard k modulo n
    shard: EvalShard | None = None

    def numbered(self) -> Iterator[tuple[int, Task]]:
        """Yield the tasks that are taken with their numbers."""
        for number in filter(self.takes, range(self.count)):
            yield number, self.env.tasks.task(number)

    def takes(self, number: int) -> bool:
        """Return whether the question of a number is taken."""
        return self.shard is None or self.shard.owns(number)

    def stage(self, stage: str) -> eval_session.PlannedEnv:
        """Return the environment as it is played in a stage, under the label of the stage."""
        return replace(self, label=f"{self.label}/{stage}", env=self.plain if stage == DIRECT else self.env)


@contextlib.contextmanager
def open_question_sets(settings: SynthSettings, cache: Cache | None = None) -> Iterator[list[QuestionSet]]:
    """Make the environments, and close them afterwards."""
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
            plain_options = {n: value for n, value in settings.env_options.items() if n not in _OF_TOOLS}
            plain = make_env(name, {**plain_options, **services, "tools": []})
            opened.callback(plain.close)
            label = name.rpartition(":")[2].removeprefix("arpo/")
            count = eval_session.task_count(label, env, settings.tasks, None)
            about: Any = {"label": label, "env_id": name, "options": settings.env_options}
            sets.append(QuestionSet(**about, env=env, plain=plain, count=count))
        yield sets


def find_contaminated(settings: SynthSettings, sets: list[QuestionSet]) -> dict[str, dict[str, int]]:
    """Note the questions that are in evaluation sets, and count them by set: the same, and similar ones."""
    counts: dict[str, dict[str, int]] = {}
    for text in settings.against:
        name, held_out = named_source(text, "held out")
        counted = counts.setdefault(name, {"same": 0, "similar": 0})
        for one in sets:
            found = overlap(LimitedSource(one.env.tasks, one.count), held_out)
            same, near = ({task.id for task, _ in pairs} for pairs in (found.exact, found.near))
            one.contaminated |= same | near
            counted["same"] += len(same)
            counted["similar"] += len(near - same)
    return counts


# What became of every question and sample. Each sample is kept or dropped for one cause, and each question has one
# class, so that the counts add up.


@dataclass
class SynthReport:
    """The counts of a synthesis."""

    questions: Counter[str] = field(default_factory=Counter)  # number of questions by class, a key of `CLASSES`
    played: Counter[str] = field(default_factory=Counter)  # samples by stage
    kept: Counter[str] = field(default_factory=Counter)  # kept samples by stage
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # by cause and stage
    examples: dict[str, str] = field(default_factory=dict)  # for each cause the first dropped sample, and why
    # for each kind of hint how many were placed ("placed"), and why others were not
    hints: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    scored: Counter[str] = field(default_factory=Counter)  # scored samples by stage
    right: Counter[str] = field(default_factory=Counter)  # right ones
    # for each evaluation set how many questions are the same and how many are similar
    against: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)  # the files that were written, with the number of rows
    covered: set[tuple[str, str]] = field(default_factory=set)  # questions of which a sample is kept

    def keep(self, sample: sample_checks.Sample) -> None:
        """Count a sample that is kept."""
        self.covered.add((stage_of(sample.row.env)[0], sample.row.task))
        self.played[sample.stage] += 1
        self.kept[sample.stage] += 1

    def drop(self, sample: sample_checks.Sample, fault: DroppedRow) -> None:
        """Count a sample that is dropped."""
        self.played[sample.stage] += 1
        self.dropped[fault.cause][sample.stage] += 1
        where = f"{stage_of(sample.row.env)[0]} {sample.row.task}, sample {sample.row.sample}"
        self.examples.setdefault(fault.cause, f"{where}: {fault.detail}")

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "questions": {
                "all": self.questions.total(),
                **{name: self.questions[name] for name in sample_checks.CLASSES},
            },
            "samples": {
                "played": self.played.total(),
                "kept": self.kept.total(),
                "kept_of_questions": len(self.covered),
                "dropped": {cause: self.dropped[cause].total() for cause in self._causes()},
            },
            "stages": {stage: self._stage(stage) for stage in STAGES if self.played[stage]},
            "examples": {cause: self.examples[cause] for cause in self._causes()},
            "hints": {kind: dict(counts) for kind, counts in self.hints.items()},
            "against": self.against,
            "files": self.files,
        }

    def table(self) -> list[Line]:
        """Return the report as lines of a table: what, how many, and an example or an explanation."""
        lines = [("QUESTIONS", f"{self.questions.total():,}", "")]
        lines += [
            (name, f"{self.questions[name]:,}", text)
            for name, text in sample_checks.CLASSES.items()
            if self.questions[name]
        ]
        lines.append(("SAMPLES", f"{self.played.total():,}", ""))
        lines += [(stage, f"{self.played[stage]:,}", self._stage_text(stage)) for stage in STAGES if self.played[stage]]
        for kind, counts in self.hints.items():
            missing = ", ".join(f"{name} {count}" for name, count in counts.items() if name != "placed")
            lines.append((f"hint {kind}", f"{counts['placed']:,}", f"not placed: {missing}" if missing else "placed"))
        lines.append(("KEPT", f"{self.kept.total():,}", f"of {len(self.covered):,} questions"))
        lines += [
            (f"dropped: {cause}", f"{self.dropped[cause].total():,}", _cut(self.examples[cause]))
            for cause in self._causes()
        ]
        return lines + [(f"-> {file}", f"{count:,}", "rows") for file, count in self.files.items()]

    def nothing_left(self) -> str:
        """Return the causes in words, for an error."""
        if not self.played:
            classes = (f"{count:,} {name}" for name, count in self.questions.items())
            return f"no question was sampled ({', '.join(classes)})"
        causes = sorted(self._causes(), key=lambda cause: -self.dropped[cause].total())
        counts = (f"{self.dropped[cause].total():,} {cause} ({_cut(self.examples[cause])})" for cause in causes)
        return f"all {self.played.total():,} samples were dropped: {'; '.join(counts)}"

    def _causes(self) -> list[str]:
        return [cause for cause in sample_checks.CAUSES if self.dropped.get(cause)]

    def _stage(self, stage: str) -> dict[str, Any]:
        dropped = {cause: self.dropped[cause][stage] for cause in self._causes() if self.dropped[cause][stage]}
        counts = {name: getattr(self, name)[stage] for name in ("played", "kept", "scored", "right")}
        return {**counts, "dropped": dropped}

    def _stage_text(self, stage: str) -> str:
        right, scored = self.right[stage], self.scored[stage]
        share = f"{right / scored:.0%} of {scored:,} right" if scored else "none scored"
        return f"{self.kept[stage]:,} kept; {share}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]} ..."


Rows = list[dict[str, Any]]


def select(
    settings: SynthSettings, sets: Iterable[QuestionSet], run: EvalRun, report: SynthReport
) -> tuple[Rows, dict[str, Rows]]:
    """Choose from stored samples the rows of sft.jsonl, and for each environment those of its hard questions."""
    chosen: Rows = []
    hard: dict[str, Rows] = {}
    rows: dict[str, list[UnitRow]] = defaultdict(list)
    for row in run.rows:
        env, stage = stage_of(row.env)
        rows[env].append(row)
        for entry in row.episodes:
            report.right[stage] += entry.reward is not None and sample_checks.solved(entry, settings.min_score)
            report.scored[stage] += entry.reward is not None
    for one in sets:
        classes = _classes(settings, one, rows[one.label])
        report.questions.update(classes.values())
        sampling = RejectionSampling(float("-inf"), settings.max_per_task)
        for sample in _in_turn(rows[one.label], run):
            try:
                chosen.append(_chosen(sample, classes[one.label, sample.row.task], one, settings, sampling))
                report.keep(sample)
            except DroppedRow as fault:
                report.drop(sample, fault)
        hard[one.label] = [
            sample_checks.hard_row(task.as_dict(), index)
            for index, task in one.numbered()
            if classes[one.label, task.id] == "hard"
        ]
    return chosen, hard


def _classes(
    settings: SynthSettings, one: QuestionSet, rows: Iterable[UnitRow]
) -> Mapping[sample_checks.Question, str]:
    """Return the class of each question, also of those that are stored and not asked for any more."""
    found = {key: sample_checks.difficulty(tried, settings) for key, tried in sample_checks.attempts(rows).items()}
    asked = {(one.label, task.id): "broken" for _, task in one.numbered()}
    out = {(one.label, task): "contaminated" for task in one.contaminated}
    return {**asked, **found, **{key: name for key, name in out.items() if key in asked or key in found}}


def _in_turn(rows: Iterable[UnitRow], run: EvalRun) -> Iterator[sample_checks.Sample]:
    """Yield the samples question by question, and of each one sample of every stage before the next."""
    order = {row: number for number, row in enumerate(STAGES)}
    for row in sorted(rows, key=lambda row: (row.index, row.task, row.sample, order[stage_of(row.env)[1]], row.model)):
        yield sample_checks.Sample(row, run.tree(row))


def _chosen(
    sample: sample_checks.Sample, kind: str, one: QuestionSet, settings: SynthSettings, sampling: RejectionSampling
) -> dict[str, Any]:
    if kind == "contaminated":
        raise sample_checks.DroppedSample("contaminated")
    env = one.played[sample.row.model]
    trace = sample_checks.sample_trace(sample, settings, env)
    if kind == "hard":
        raise sample_checks.DroppedSample("hard question")
    if (kind == "direct") != (sample.stage == DIRECT):
        raise sample_checks.DroppedSample("needs no tools" if kind == "direct" else "needs tools")
    sampling.check(trace)
    row = sample_checks.training_row(trace, settings.format, env.protocol, env.schemas)
    sampling.keep(trace)
    return {**row, "id": sample.row.task, "stage": sample.stage, "model": sample.row.model, "sample": sample.row.sample}


def write_files(
    folder: Path, rows: Rows, hard: Mapping[str, Rows], report: SynthReport, form: str, sets: Sequence[QuestionSet]
) -> None:
    """Write the training rows, the hard questions and the report; each file replaces the old one as a whole."""
    (folder / HARD).mkdir(exist_ok=True)
    files = {SFT: rows} | {f"{HARD}/{label.replace('/', '-')}.jsonl": found for label, found in hard.items()}
    for name, found in files.items():
        if found:
            write_whole(folder / name, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in found))
            report.files[name] = len(found)
        else:
            (folder / name).unlink(missing_ok=True)
    protocol = next(iter(sets[0].played.values())).protocol
    info = sample_checks.dataset_info(folder.resolve().name, SFT, form, protocol)
    write_whole(folder / INFO, json.dumps(info, indent=2) + "\n")
    write_whole(folder / REPORT, json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n")


# One sitting. Models on servers and endpoints are asked at the same time, those in this process one after the other. Of
# each model is sampled without tools first, then with tools where it did not answer without, then after hints.


@dataclass
class _Sitting:
    """One call of `synthesise`: what it works on, and what of it is still to be sampled."""

    settings: SynthSettings
    sets: Sequence[QuestionSet]
    store: EpisodeStore
    cache: Cache | None
    repeat_broken: bool
    progress: Progress | None
    workers: RolloutWorkers | None
    hints: dict[str, Counter[str]]  # of the report
    facts: dict[str, Any]  # of run.json

    def missing(self, model: str, stage: str, renderers: Mapping[str, Renderer]) -> list[eval_session.Unit]:
        """Return the missing samples of a model without or with tools; for the latter all others must be played."""
        samples = self.settings.direct if stage == DIRECT else self.settings.tir
        text = self.settings.opening if stage == TIR else ""
        units: list[eval_session.Unit] = []
        for one in self.sets if samples else ():
            opening = tuple(renderers[one.label].turn_ids(text, first=True)) if text else ()
            planned, play = [one.stage(stage)], replace(self.settings.play, samples=samples)
            found = eval_session.missing_units(planned, model, play, self.store)
            if self.repeat_broken:
                found += eval_session.missing_units(planned, model, play, self.store, repeat_broken=True)
            wanted = self._need_tools(model, one) if stage == TIR else {unit.task.id for unit in found}
            wanted -= one.contaminated
            found = [unit for unit in found if unit.task.id in wanted and one.takes(unit.index)]
            units += [replace(unit, opening=opening) for unit in found]
        return units

    def missing_after_hints(self, model: str, renderers: Mapping[str, Renderer], room: int) -> list[eval_session.Unit]:
        """Return the missing continuations after hints, and count the places that hints find."""
        units: list[eval_session.Unit] = []
        for hint in self.settings.hints:
            counts = self.hints[hint]
            for one in self.sets:
                for row, task, index in self._plain_rows(model, one):
                    key = UnitKey(model, f"{one.label}/{hint}", task.id, row.sample)
                    try:
                        stored = self.store.rows.get(key)
                        if stored is None or (self.repeat_broken and stored.broken):
                            ids = self._opening(key, hint, one, row, task, renderers[one.label], room)
                            units.append(eval_session.Unit(key, task, index, tuple(ids)))
                        cause = "placed"
                    except NoPlaceForHint as fault:
                        cause = str(fault)
                    counts[cause] += 1
        return units

    def _opening(
        self, key: UnitKey, hint: str, one: QuestionSet, row: UnitRow, task: Task, renderer: Renderer, room: int
    ) -> list[int]:  # fmt: skip
        tree = EvalRun(self.store.folder, {}, [], []).tree(row)
        spans = [span for span in tree.path(0) if span.kind == "model"]
        if len(spans) != 1:
            raise NoPlaceForHint("several turns")
        rng, answer = random.Random(f"{self.settings.seed}/{key}"), row.episodes[0].answer
        sampled = spans[0].ids, spans[0].entropies
        ids = opening(renderer, one.env.schemas, hint, *sampled, answer, rng, task.language)
        if len(ids) > room:
            raise NoPlaceForHint("too long to continue")
        return ids

    def _need_tools(self, model: str, one: QuestionSet) -> set[str]:
        """Return the tasks that a model does not answer without tools."""
        tried = sample_checks.attempts(row for row in self.store.rows.values() if row.model == model)
        return {
            task.id
            for _, task in one.numbered()
            if self.settings.all_questions
            or sample_checks.needs_tools(tried.get((one.label, task.id), sample_checks.Attempts()), self.settings)
        }

    def _plain_rows(self, model: str, one: QuestionSet) -> Iterator[tuple[UnitRow, Task, int]]:
        wanted = self._need_tools(model, one) - one.contaminated
        for index, task in one.numbered():
            for sample in range(self.settings.direct if task.id in wanted else 0):
                row = self.store.rows.get(UnitKey(model, f"{one.label}/{DIRECT}", task.id, sample))
                if row is not None and row.episodes[0].reward is not None:
                    yield row, task, index


class NothingLeft(ValueError):
    """Raised when no sample is kept."""

    def __init__(self, report: SynthReport, folder: Path) -> None:
        super().__init__(
            f"nothing is left to train on: {report.nothing_left()}. {folder / REPORT} has all counts; change the "
            "limits and go on with --resume, or take other questions or another model"
        )
        self.report = report


def _stored(folder: Path, settings: SynthSettings, resume: bool) -> dict[str, Any]:
    """Return the facts of the run in a folder, if there is one; ValueError if it is another one."""
    stored = eval_session.stored_facts(folder, settings.play, resume, SYNTH)
    begun = stored.get("synthesis", {}).get("opening", settings.opening)
    if begun != settings.opening:
        raise ValueError(f"the samples in {folder} begin with {begun!r}, not {settings.opening!r}: take another folder")
    return stored


def synthesise(
    settings: SynthSettings,
    models: Sequence[eval_settings.EvalModel],
    output: str | Path,
    *,
    resume: bool = False,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
    workers: RolloutWorkers | None = None,
    progress: Progress | None = None,
) -> SynthReport:
    """Sample what is missing, write the files, and return what became of all questions and samples.

    Arguments and errors are those of `run_evaluation`; with `repeat_broken` all that is missing is sampled as well. A
    shard takes a part of the questions: `merge_shards` joins the samples, and another call with `resume` chooses the
    rows from all. `progress` is called with each row after it was stored.

    Raises:
        NothingLeft: no sample is left to train on, and it is no shard; the files are written all the same.
    """
    if workers is not None:
        eval_settings.check_for_workers(models, settings.play.cache)
    folder, models = eval_session.shard_folder(output, shard), eval_settings.labelled(models)
    settings = replace(settings, models={model.label: model.facts() for model in models})
    _stored(folder, settings, resume)
    with contextlib.ExitStack() as held:
        cache: Cache | None = None
        if settings.cache:
            cache = held.enter_context(contextlib.closing(Cache(settings.cache, settings.cache_mode or "record")))
        sets = held.enter_context(open_question_sets(settings, cache))
        report = SynthReport(against=find_contaminated(settings, sets))
        check_limits(settings.limits, sorted({tool for one in sets for tool in one.env.tools}))
        store = held.enter_context(EpisodeStore(folder))
        stored = _stored(folder, settings, resume)  # again, now that no other process can write
        shard = EvalShard.of(stored) or shard
        for one in sets:
            one.shard = shard
        stages = [one.stage(stage) for one in sets for stage in STAGES]
        facts = eval_session.facts_of(folder, settings.play, stages, stored, shard)
        samples = max(settings.direct, settings.tir)
        facts |= {"kind": SYNTH, "samples": samples, "synthesis": settings.as_dict()}
        sitting = _Sitting(settings, sets, store, cache, repeat_broken, progress, workers, report.hints, facts)
        with recorded(folder / FACTS, facts):
            _play_models(sitting, models)
            rows, hard = select(settings, sets, EvalRun(folder, facts, list(store.rows.values()), []), report)
            write_files(folder, rows, hard, report, settings.format, sets)
    if not rows and shard is None:
        raise NothingLeft(report, folder)
    return report


def broken_samples(report: SynthReport) -> float:
    """Return the share of samples that have no score because something broke."""
    dropped = report.dropped.get("broken", Counter())
    return dropped.total() / report.played.total() if report.played.total() else 0.0


def _play_models(sitting: _Sitting, models: Sequence[eval_settings.EvalModel]) -> None:
    served = [model for model in models if model.kind in eval_settings.SERVED]
    # the protocols of all models are known before the first one plays
    engines = {model: _engines(sitting, model) for model in models}
    _check_protocols(sitting)

    async def all_served() -> None:
        with only_first_error():
            async with asyncio.TaskGroup() as running:
                for model in served:
                    running.create_task(_play_model(sitting, model, engines.pop(model)))

    for model in models:
        if model not in served:
            run(_play_model(sitting, model, engines.pop(model)))  # nothing here refers to a model that was played
            eval_settings.free_memory()
    if served:
        run(all_served())


def _check_protocols(sitting: _Sitting) -> None:
    """Refuse rows of a file in different forms, and a form that cannot hold the turns of a protocol."""
    played = [(model, env.protocol) for one in sitting.sets for model, env in one.played.items()]
    if len({protocol.native for _, protocol in played}) > 1:
        named = ", ".join(dict.fromkeys(f"{model}: {protocol.name}" for model, protocol in played))
        raise ValueError(
            f"the models would write rows of different forms into one file ({named}): choose a protocol, as in "
            "--env-set protocol=arpo-tags"
        )
    for _, protocol in played:
        sample_checks.check_format(sitting.settings.format, protocol)


async def _play_model(sitting: _Sitting, model: eval_settings.EvalModel, engines: dict[str, Engine]) -> None:
    """Play the three rounds of a model; each depends on what the one before has stored."""
    renderers = {one.label: engines[f"{one.label}/{TIR}"].renderer for one in sitting.sets}
    settings = sitting.settings
    room = min(engine.settings.max_completion_length for engine in engines.values()) // 2
    backend: list[Backend] = []

    async def play(missing: Sequence[eval_session.Unit]) -> None:
        if not missing:
            return
        if not backend:  # nothing is loaded where nothing is missing
            backend.append(eval_session.open_for(engines, model, sitting.cache, settings.concurrency))
        parts = (backend[0], engines, sitting.store, settings.concurrency, settings.limits, sitting.progress)
        await eval_session.runner_of(sitting.workers, *parts).play(missing)

    await play(sitting.missing(model.label, DIRECT, renderers))
    await play(sitting.missing(model.label, TIR, renderers))
    await play(sitting.missing_after_hints(model.label, renderers, room))


def _engines(sitting: _Sitting, model: eval_settings.EvalModel) -> dict[str, Engine]:
    """Return an engine for each environment and stage, without a backend so far."""
    stages = [(one.stage(name), _SEED_OF_STAGE * number) for one in sitting.sets for number, name in enumerate(STAGES)]
    engines = eval_session.unloaded_engines(stages, model, sitting.settings.play, sitting.facts, sitting.cache)
    for one in sitting.sets:  # samples are checked as the model writes them
        one.played[model.label] = engines[f"{one.label}/{TIR}"].env
    eval_session.keep_protocols(sitting.store.folder, sitting.facts, model.label, engines)
    return engines


def stored_settings(folder: Path) -> SynthSettings:
    """Return the settings of a folder that holds samples."""
    facts = read_facts(folder / FACTS) if (folder / FACTS).is_file() else {}
    if facts.get("kind") != SYNTH:
        raise FileNotFoundError(f"no synthesis in {str(folder)!r} to go on with; give the --output of `arpo synth`")
    return SynthSettings.from_dict(json.loads(json.dumps(facts["synthesis"])))
