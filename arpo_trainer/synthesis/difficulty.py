"""Sorts questions by how often they are answered: without tools, with tools only, or not at all.

Tool-Star (arXiv 2505.16410, sec. 3.3) sorts by one right or wrong answer of each kind; here the shares of several
samples decide, with `easy` and `hard` as limits. A sample that broke does not count. A question to which no sample
gives any answer is not hard: the teacher refused, or did not keep to the format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.synthesis.sample_checks import solved
from arpo_trainer.synthesis.stages import DIRECT, stage_of
from arpo_trainer.synthesis.synth_settings import SynthSettings

Question = tuple[str, str]  # label of the environment, id of the task
CLASSES = {
    "direct": "answered without tools",
    "tir": "answered with tools",
    "hard": "not answered, for reinforcement learning",
    "unanswered": "no sample gives an answer: refusals or texts without the format",
    "broken": "no sample that decides was scored",
    "contaminated": "in an evaluation set",
}


@dataclass
class Attempts:
    """What happened to one question.

    Attributes:
        direct: scored samples without tools.
        tools: scored samples with tools, those after hints included.
    """

    direct: list[EpisodeEntry] = field(default_factory=list)
    tools: list[EpisodeEntry] = field(default_factory=list)

    def rates(self, min_score: float) -> tuple[float | None, float | None]:
        """Return the shares of right answers without and with tools; None without a sample."""
        return _rate(self.direct, min_score), _rate(self.tools, min_score)


def attempts(rows: Iterable[UnitRow]) -> dict[Question, Attempts]:
    """Return the scored samples of each question."""
    found: dict[Question, Attempts] = defaultdict(Attempts)
    for row in rows:
        env, stage = stage_of(row.env)
        tried = found[env, row.task]
        kind = tried.direct if stage == DIRECT else tried.tools
        kind.extend(entry for entry in row.episodes if entry.reward is not None)
    return dict(found)


def needs_tools(tried: Attempts, settings: SynthSettings) -> bool:
    """Return whether too few answers without tools are right."""
    rate = _rate(tried.direct, settings.min_score)
    return rate is None or not settings.easy or rate < settings.easy


def difficulty(tried: Attempts, settings: SynthSettings) -> str:
    """Return the class of a question, a key of `CLASSES`."""
    if not needs_tools(tried, settings):
        return "direct"
    rate = _rate(tried.tools, settings.min_score)
    if rate is None:
        return "broken"
    if rate > settings.hard:
        return "tir"
    answered = any(entry.answer for entry in (*tried.direct, *tried.tools))
    return "hard" if answered else "unanswered"


def _rate(entries: list[EpisodeEntry], min_score: float) -> float | None:
    return sum(solved(entry, min_score) for entry in entries) / len(entries) if entries else None
