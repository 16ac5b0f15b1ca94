"""Sums up an evaluation for its views: one `ScoreLine` for each model and environment.

Scores are those of results.json; while there is none, accuracy is computed from the rows.

    for line in score_lines(load_eval_run("evals/gsm8k")):
        line.model, line.env, line.score
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.episode_store import RESULTS, EvalRun
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow, broken_causes
from arpo_trainer.report.run_data import read_facts
from arpo_trainer.statistics.intervals import clustered_interval, clustered_share_interval
from arpo_trainer.statistics.repeated_samples import pass_at_k


@dataclass
class ScoreLine:
    """What one model did in one environment.

    Attributes:
        model: label of the model.
        env: label of the environment.
        metric: what `score` is the mean of, such as "accuracy".
        score: {"mean", "low", "high", "tasks", "samples"}; None if no episode has a score.
        source: where the score is from: "results.json" or "episodes.jsonl".
        episodes: number of episodes.
        planned: episodes of the whole run, if run.json has them.
        broken: episodes without a score, by what failed.
        calls: mean tool calls of an episode.
        tools: mean calls by tool.
        tokens: mean generated tokens of an episode.
        turns: mean turns of an episode.
        seconds: mean seconds of an episode.
        cost: of the model and the tools, if results.json has it.
        pass_at: pass@k and pass^k by name, as far as they are known.
        levels: score by level.
        metrics: further metrics by name.
        published: the published number, as in results.json.
    """

    model: str
    env: str
    metric: str
    score: dict[str, float] | None
    source: str = "episodes.jsonl"
    episodes: int = 0
    planned: int | None = None
    broken: dict[str, int] = field(default_factory=dict)
    calls: float | None = None
    tools: dict[str, float] = field(default_factory=dict)
    tokens: float | None = None
    turns: float | None = None
    seconds: float | None = None
    cost: float | None = None
    pass_at: dict[str, float] = field(default_factory=dict)
    levels: dict[str, dict[str, float]] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    published: dict[str, Any] | None = None


def score_lines(run: EvalRun) -> list[ScoreLine]:
    """Return the lines of a run in the order of its rows.

    Raises:
        ValueError: results.json cannot be read; names the line.
    """
    groups: dict[tuple[str, str], list[UnitRow]] = {}
    for row in run.rows:
        groups.setdefault((row.model, row.env), []).append(row)
    stored = stored_scores(run)
    keys = [*groups, *(key for key in stored if key not in groups)]
    return [_line(run, model, env, groups.get((model, env), []), stored.get((model, env), {})) for model, env in keys]


def stored_scores(run: EvalRun) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the entries of results.json by model and environment; none if there is no such file."""
    path = run.folder / RESULTS
    if not path.is_file():
        return {}
    scores = read_facts(path).get("scores")
    if not isinstance(scores, list):
        return {}
    entries = [entry for entry in scores if isinstance(entry, dict) and {"model", "env"} <= entry.keys()]
    return {(str(entry["model"]), str(entry["env"])): entry for entry in entries}


def metric_of(facts: Mapping[str, Any], env: str) -> str:
    """Return the name of an environment's metric."""
    environments = facts.get("environments")
    described = environments.get(env) if isinstance(environments, dict) else None
    metric = described.get("metric") if isinstance(described, dict) else None
    return metric if isinstance(metric, str) else "accuracy"


def episode_score(entry: EpisodeEntry, metric: str = "accuracy") -> float | None:
    """Return an episode's score: the component of this name, or else its reward; None if the episode broke."""
    if entry.reward is None:
        return None
    value = entry.components.get(metric, entry.components.get("accuracy", entry.reward))
    return value if math.isfinite(value) else None


def is_right(entry: EpisodeEntry, metric: str = "accuracy") -> bool | None:
    """Return whether an episode answered right, as the training report decides it; None if it broke."""
    score = episode_score(entry, metric)
    if score is None:
        return None
    return entry.components.get("accuracy", score) > 0


def task_scores(rows: Sequence[UnitRow], metric: str) -> dict[str, list[float]]:
    """Return the scores of each task's samples; those that broke are left out."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        found = [episode_score(entry, metric) for entry in row.episodes]
        scores.setdefault(row.task, []).extend(score for score in found if score is not None)
    return scores


def score_interval(values: Sequence[Sequence[float]]) -> dict[str, float] | None:
    """Return the mean of all samples with its 95 % interval as plain data; None without samples."""
    values = [each for each in values if each]
    if not values:
        return None
    share = all(0.0 <= value <= 1.0 for each in values for value in each)
    return vars(clustered_share_interval(values) if share else clustered_interval(values)).copy()


def pass_curve(rows: Sequence[UnitRow], metric: str) -> dict[str, float]:
    """Return pass@k for k = 1, 2, 4, ... and n, over tasks with as many scored samples; {} for single samples."""
    counts: dict[str, list[bool]] = {}
    for row in rows:
        found = [is_right(entry, metric) for entry in row.episodes]
        counts.setdefault(row.task, []).extend(right for right in found if right is not None)
    most = max(map(len, counts.values()), default=0)
    if most < 2:
        return {}
    ks = sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
    whole = [each for each in counts.values() if len(each) == most]
    return {f"pass@{k}": statistics.fmean(pass_at_k(most, sum(each), k) for each in whole) for k in ks}


def _line(run: EvalRun, model: str, env: str, rows: Sequence[UnitRow], stored: Mapping[str, Any]) -> ScoreLine:
    metric = str(stored.get("metric") or metric_of(run.facts, env))
    entries = [entry for row in rows for entry in row.episodes]
    score = stored.get("score")
    known = isinstance(score, dict) and isinstance(score.get("mean"), int | float)
    calls: Counter[str] = Counter()
    for entry in entries:
        calls.update(entry.calls)
    return ScoreLine(
        model,
        env,
        metric,
        score if known else score_interval(list(task_scores(rows, metric).values())),
        RESULTS if known else "episodes.jsonl",
        episodes=len(entries),
        planned=_planned(run.facts, env),
        broken=dict(broken_causes(rows)),
        calls=_mean([sum(entry.calls.values()) for entry in entries]),
        tools={name: count / len(entries) for name, count in calls.most_common()},
        tokens=_mean([entry.tokens for entry in entries]),
        turns=_mean([entry.turns for entry in entries]),
        seconds=_mean([entry.seconds for entry in entries]),
        cost=_number(stored.get("cost")),
        pass_at=_table(stored.get("pass")) or pass_curve(rows, metric),
        levels=_table(stored.get("levels")) or _levels(rows, metric),
        metrics=_table(stored.get("metrics")),
        published=_table(stored.get("published")) or None,
    )


def _levels(rows: Sequence[UnitRow], metric: str) -> dict[str, dict[str, float]]:
    by_level: dict[str, list[UnitRow]] = {}
    for row in rows:
        by_level.setdefault(row.level, []).append(row)
    if len(by_level) < 2:
        return {}
    scores = {level: score_interval(list(task_scores(some, metric).values())) for level, some in by_level.items()}
    return {level: score for level, score in sorted(scores.items()) if score is not None}


def _planned(facts: Mapping[str, Any], env: str) -> int | None:
    environments = facts.get("environments")
    described = environments.get(env) if isinstance(environments, dict) else None
    tasks = described.get("tasks") if isinstance(described, dict) else None
    samples = facts.get("samples", 1)
    return tasks * samples if isinstance(tasks, int) and isinstance(samples, int) else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
