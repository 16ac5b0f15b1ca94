"""`SynthReport`: what became of every question and every sample, as JSON and as a table.

Each sample is kept or dropped for one cause, and each question has one class, so that the counts add up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.sft.plain_trace import DroppedRow
from arpo_trainer.synthesis.difficulty import CLASSES
from arpo_trainer.synthesis.sample_checks import CAUSES, Sample
from arpo_trainer.synthesis.stages import STAGES, stage_of

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
