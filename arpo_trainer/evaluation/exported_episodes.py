"""Stored episodes as exports need them: each trajectory with its text, and names, times and ids that never change.

for episode in exported_episodes(run, "smollm2", "GSM8K"):
    episode.row.question, episode.sample, episode.text
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.episode_values import ACCURACY
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.tree import RolloutTree, Span


@dataclass(frozen=True)
class ExportedEpisode:
    """One trajectory with everything that is stored of it.

    Attributes:
        row: its unit.
        number: of the trajectory in the unit.
        sample: number of the sample of its task, from 1, whether samples are units or roots of a tree.
        tree: the unit's tree.
    """

    row: UnitRow
    number: int
    sample: int
    tree: RolloutTree

    @property
    def entry(self) -> EpisodeEntry:
        """Its entry in the row."""
        return self.row.episodes[self.number]

    @property
    def path(self) -> list[Span]:
        """Its spans."""
        return self.tree.path(self.number)

    @property
    def text(self) -> str:
        """Everything after the prompt, results included."""
        return "".join(span.text for span in self.path)


def exported_episodes(run: EvalRun, model: str, env: str) -> Iterator[ExportedEpisode]:
    """Yield the independent samples of a model in an environment; trees are read one at a time."""
    seen: dict[str, int] = {}
    for row in rows_of_set(run, model, env):
        tree = run.tree(row)
        for number, entry in enumerate(row.episodes):
            if entry.counted:  # whoever reads an export takes means over it
                seen[row.task] = seen.get(row.task, 0) + 1
                yield ExportedEpisode(row, number, seen[row.task], tree)


def rows_of_set(run: EvalRun, model: str, env: str) -> list[UnitRow]:
    """Return the rows of a model in an environment."""
    return [row for row in run.rows if (row.model, row.env) == (model, env)]


def environments_of(run: EvalRun, model: str) -> list[str]:
    """Return the labels of the environments that a model has played."""
    return list(dict.fromkeys(row.env for row in run.rows if row.model == model))


def environment_id(run: EvalRun, env: str) -> str:
    """Return the id of an environment, or its label if run.json does not say."""
    return str(run.facts.get("environments", {}).get(env, {}).get("id", env))


def reported_metrics(run: EvalRun, env: str) -> list[str]:
    """Return the metric of an environment, then accuracy."""
    metric = run.facts.get("environments", {}).get(env, {}).get("metric", ACCURACY)
    return list(dict.fromkeys((metric, ACCURACY)))


def start_time(run: EvalRun) -> str:
    """Return when the run was started, as ISO 8601; the first second of 1970 if run.json does not say."""
    started = run.facts.get("started", 0)
    if isinstance(started, str):
        return datetime.datetime.fromisoformat(started).isoformat()
    return datetime.datetime.fromtimestamp(float(started), datetime.UTC).isoformat()


def file_name(text: str) -> str:
    """Return a label as a file name, such as "Qwen__Qwen3-8B"."""
    return re.sub(r"[^\w.-]+", "__", text).strip("_") or "model"


def stable_id(run: EvalRun, *parts: str) -> str:
    """Return an id of 22 characters; the same run always has the same ids, so that an export can be repeated."""
    return sha256_of("\n".join((run.folder.name, start_time(run), *parts)))[:22]


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()
