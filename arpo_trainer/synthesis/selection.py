"""Chooses the training rows from the stored samples: checks, difficulty, duplicates, and a limit for each question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.unit_row import UnitRow
from arpo_trainer.sft.own_traces import RejectionSampling
from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.synthesis.difficulty import Question, attempts, difficulty
from arpo_trainer.synthesis.question_sets import QuestionSet
from arpo_trainer.synthesis.sample_checks import DroppedSample, Sample, SampleChecks, solved
from arpo_trainer.synthesis.stages import DIRECT, STAGES, stage_of
from arpo_trainer.synthesis.synth_report import SynthReport
from arpo_trainer.synthesis.synth_settings import SynthSettings
from arpo_trainer.synthesis.training_rows import hard_row, training_row
from envs_registry import Task


@dataclass
class Selection:
    """What is written.

    Attributes:
        rows: the rows of sft.jsonl.
        hard: for each environment the rows of its file of hard questions.
        report: the counts.
    """

    report: SynthReport
    rows: list[dict[str, Any]] = field(default_factory=list)
    hard: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def select(settings: SynthSettings, sets: Iterable[QuestionSet], run: EvalRun, report: SynthReport) -> Selection:
    """Choose the rows from stored samples.

    Args:
        settings: the limits.
        sets: the questions of the environments.
        run: the stored samples.
        report: what is known already; the counts are added.
    """
    selection = Selection(report)
    rows: dict[str, list[UnitRow]] = defaultdict(list)
    for row in run.rows:
        rows[stage_of(row.env)[0]].append(row)
        for entry in row.episodes:
            report.rates[stage_of(row.env)[1]][0] += entry.reward is not None and solved(entry, settings.min_score)
            report.rates[stage_of(row.env)[1]][1] += entry.reward is not None
    for one in sets:
        classes = _classes(settings, one, rows[one.label])
        report.questions.update(classes.values())
        checks = SampleChecks(settings, one.env.protocol, one.env.schemas, one.env.rewards.counts_format)
        sampling = RejectionSampling(float("-inf"), settings.max_per_task)
        for sample in _in_turn(rows[one.label], run):
            try:
                selection.rows.append(_chosen(sample, classes, one, checks, sampling))
                report.keep(sample)
            except DroppedRow as fault:
                report.drop(sample, fault)
        selection.hard[one.label] = [
            hard_row(task.as_dict(), index) for index, task in one.numbered() if classes[one.label, task.id] == "hard"
        ]
    return selection


def _classes(settings: SynthSettings, one: QuestionSet, rows: Iterable[UnitRow]) -> Mapping[Question, str]:
    """Return the class of each question, also of those that are stored and not asked for any more."""
    found = {key: difficulty(tried, settings) for key, tried in attempts(rows).items()}
    asked = {(one.label, task.id): "broken" for _, task in one.numbered()}
    out = {(one.label, task): "contaminated" for task in one.contaminated}
    return {**asked, **found, **{key: name for key, name in out.items() if key in asked or key in found}}


def _in_turn(rows: Iterable[UnitRow], run: EvalRun) -> Iterator[Sample]:
    """Yield the samples question by question, and of each one sample of every stage before the next."""
    order = {row: number for number, row in enumerate(STAGES)}
    for row in sorted(rows, key=lambda row: (row.index, row.task, row.sample, order[stage_of(row.env)[1]], row.model)):
        yield Sample(row, run.tree(row))


def _chosen(
    sample: Sample,
    classes: Mapping[Question, str],
    one: QuestionSet,
    checks: SampleChecks,
    sampling: RejectionSampling,
) -> dict[str, Any]:
    kind = classes[one.label, sample.row.task]
    if kind == "contaminated":
        raise DroppedSample("contaminated")
    trace = checks.trace(sample, one.env.messages(Task.from_dict(sample.tree.task)))
    if kind == "hard":
        raise DroppedSample("hard question")
    if (kind == "direct") != (sample.stage == DIRECT):
        raise DroppedSample("needs no tools" if kind == "direct" else "needs tools")
    sampling.check(trace)
    row = training_row(trace, checks.settings.format, one.env.protocol, one.env.schemas)
    sampling.keep(trace)
    return {**row, "id": sample.row.task, "stage": sample.stage, "model": sample.row.model, "sample": sample.row.sample}
