"""Chooses the training rows from the stored samples: checks, difficulty, duplicates, and a limit for each question."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow
from arpo_trainer.sft.own_traces import RejectionSampling
from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.synthesis.question_sets import QuestionSet
from arpo_trainer.synthesis.sample_checks import (
    CAUSES,
    CLASSES,
    DroppedSample,
    Question,
    Sample,
    SampleChecks,
    attempts,
    dataset_info,
    difficulty,
    hard_row,
    solved,
    training_row,
)
from arpo_trainer.synthesis.synth_settings import DIRECT, STAGES, SynthSettings, stage_of
from envs_registry import Task

# `SynthReport`: what became of every question and every sample, as JSON and as a table.
#
# Each sample is kept or dropped for one cause, and each question has one class, so that the counts add up.

Line = tuple[str, str, str]
_WIDTH = 60  # characters of an example in the table


@dataclass
class SynthReport:
    """The counts of a synthesis.

    Attributes:
        questions: number of questions by class (`difficulty.CLASSES`).
        played: samples by stage.
        kept: kept samples by stage.
        dropped: for each cause the dropped samples by stage.
        examples: for each cause the first dropped sample, and what was found in it.
        hints: for each kind of hint how many were placed ("placed"), and why others were not.
        rates: right answers and scored samples, by stage.
        against: for each evaluation set how many questions are the same and how many are similar.
        files: the files that were written, with the number of rows.
        covered: questions of which a sample is kept.
    """

    questions: Counter[str] = field(default_factory=Counter)
    played: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    examples: dict[str, str] = field(default_factory=dict)
    hints: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rates: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    against: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    covered: set[tuple[str, str]] = field(default_factory=set)

    def keep(self, sample: Sample) -> None:
        """Count a sample that is kept."""
        self.covered.add((stage_of(sample.row.env)[0], sample.row.task))
        self.played[sample.stage] += 1
        self.kept[sample.stage] += 1

    def drop(self, sample: Sample, fault: DroppedRow) -> None:
        """Count a sample that is dropped."""
        self.played[sample.stage] += 1
        self.dropped[fault.cause][sample.stage] += 1
        row = sample.row
        found = str(fault).removeprefix(f"{fault.cause}: ")
        self.examples.setdefault(fault.cause, f"{stage_of(row.env)[0]} {row.task}, sample {row.sample}: {found}")

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "questions": {"all": self.questions.total(), **{name: self.questions[name] for name in CLASSES}},
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
        lines += [(name, f"{self.questions[name]:,}", text) for name, text in CLASSES.items() if self.questions[name]]
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
        return [cause for cause in CAUSES if self.dropped.get(cause)]

    def _stage(self, stage: str) -> dict[str, Any]:
        right, scored = self.rates[stage]
        dropped = {cause: self.dropped[cause][stage] for cause in self._causes() if self.dropped[cause][stage]}
        counts = {"played": self.played[stage], "kept": self.kept[stage], "scored": scored, "right": right}
        return {**counts, "dropped": dropped}

    def _stage_text(self, stage: str) -> str:
        right, scored = self.rates[stage]
        share = f"{right / scored:.0%} of {scored:,} right" if scored else "none scored"
        return f"{self.kept[stage]:,} kept; {share}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]} ..."


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


# Writes the files of a synthesis; each replaces the old one as a whole.

SFT, HARD, REPORT, INFO = "sft.jsonl", "hard", "report.json", "dataset_info.json"


def write_files(folder: Path, chosen: Selection, form: str, sets: Sequence[QuestionSet]) -> None:
    """Write the training rows, the hard questions and the report; a file without rows is removed.

    Args:
        folder: the output folder.
        chosen: what is written; its report gets the names of the files.
        form: format of the training rows.
        sets: the environments.
    """
    files = {SFT: chosen.rows}
    files |= {f"{HARD}/{label.replace('/', '-')}.jsonl": rows for label, rows in chosen.hard.items()}
    for name, rows in files.items():
        if rows:
            _replace(folder / name, _lines(rows))
            chosen.report.files[name] = len(rows)
        else:
            (folder / name).unlink(missing_ok=True)
    info = dataset_info(folder.resolve().name, SFT, form, sets[0].env.protocol)
    _replace(folder / INFO, json.dumps(info, indent=2) + "\n")
    _replace(folder / REPORT, json.dumps(chosen.report.as_dict(), indent=2, ensure_ascii=False) + "\n")


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.unfinished")
    # a model may write half of a surrogate pair, which UTF-8 cannot encode
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)
