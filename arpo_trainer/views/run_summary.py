"""Sums up an evaluation for its views: one `ScoreLine` for each model and environment.

The numbers are those of results.json. While there is none, or it counts other episodes since the run went on, they are
computed from the rows.

    for line in score_lines(load_eval_run("evals/gsm8k")):
        line.model, line.env, line.score
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.episode_store import RESULTS, EvalRun
from arpo_trainer.evaluation.episode_values import ACCURACY, episode_value
from arpo_trainer.evaluation.eval_metrics import mean_seconds, results
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.report.run_data import read_facts

_PERCENT = 100


@dataclass
class ScoreLine:
    """What one model did in one environment.

    Attributes:
        model: label of the model.
        env: label of the environment.
        metric: what `score` is the mean of, such as "accuracy".
        score: {"mean", "low", "high", "tasks", "samples"}; None if no episode has a score.
        episodes: number of episodes.
        planned: episodes of the whole run, if run.json has them.
        broken: episodes without a score, by what failed.
        calls: mean calls of an episode by tool.
        tokens: mean generated tokens of an episode.
        turns: mean turns of an episode.
        seconds: mean seconds of an episode.
        cost: of the model and the tools, if prices are known.
        passes: pass@k and pass^k by name; {} for single samples.
        levels: score by level.
        categories: score by category.
        metrics: further metrics by name.
        productivity: tool productivity, as the papers define it.
        published: the papers' numbers for the whole set, see `published_numbers`; None if they do not use it.
        inference: {"used", "failed", "episodes"} of each tool at inference time.
        helper: requests, tokens and cost of the model that helps them.
    """

    model: str
    env: str
    metric: str = ACCURACY
    score: dict[str, Any] | None = None
    episodes: int = 0
    planned: int | None = None
    broken: dict[str, int] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    tokens: float | None = None
    turns: float | None = None
    seconds: float | None = None
    cost: float | None = None
    passes: dict[str, float] = field(default_factory=dict)
    levels: dict[str, Any] = field(default_factory=dict)
    categories: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    productivity: float | None = None
    published: dict[str, Any] | None = None
    inference: dict[str, Any] = field(default_factory=dict)
    helper: dict[str, Any] = field(default_factory=dict)


def score_lines(run: EvalRun) -> list[ScoreLine]:
    """Return the lines of a run, by model and environment.

    Raises:
        ValueError: results.json cannot be read; names the line.
    """
    computed = _entries(_results(run))
    stored = _entries(read_facts(path)) if (path := run.folder / RESULTS).is_file() else {}
    seconds = mean_seconds(run.rows)
    lines = []
    for key in [*computed, *(key for key in stored if key not in computed)]:
        # an older results.json may lack what is computed now
        entry = computed.get(key, {})
        if not _outdated(stored.get(key, {}), entry):
            entry = {**entry, **{name: value for name, value in stored.get(key, {}).items() if value}}
        line = _line(entry, seconds.get(key), _planned(run.facts, key[1]))
        described = _table(_table(run.facts.get("models")).get(line.model))
        names = (line.model, str(described.get("path", "")), str(described.get("name", "")))
        line.published = published_numbers(_table(entry.get("published")), names)
        lines.append(line)
    return lines


def _outdated(stored: Mapping[str, Any], computed: Mapping[str, Any]) -> bool:
    """Return whether results.json counts other episodes than the rows: it is written when a sitting ends."""
    counted = [name for name in ("episodes", "scored", "broken") if name in stored and name in computed]
    return any(stored[name] != computed[name] for name in counted)


def published_numbers(published: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Return what the papers report for a whole set, as shares; those of the same base model, if there are any.

    Args:
        published: of results.json.
        names: of the model: its label, path or name.

    Returns:
        {"subset", "differs", "same_model", "rows": [{"model", "method", "value", "source"}]}; None without numbers.
    """
    metric, rows = published.get("metric"), published.get("rows")
    whole = [row for row in rows if not row.get("part") and row.get("metric") == metric] if rows else []
    # sizes are written as "3B" in the tables, and in many ways in names: Qwen2.5-3B-Instruct, qwen2.5_3b
    plain = [_letters(name) for name in names if name]
    own = [row for row in whole if any(_letters(row["model"]) in name for name in plain)]
    if not whole:
        return None
    numbers = [
        {**{name: row.get(name, "") for name in ("model", "method", "source")}, "value": row["value"] / _PERCENT}
        for row in own or whole
    ]
    about = {"subset": published.get("subset", ""), "differs": list(published.get("differs", ()))}
    return {**about, "same_model": bool(own), "rows": numbers}


def _letters(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def metric_of(facts: Mapping[str, Any], env: str) -> str:
    """Return the name of an environment's metric."""
    metric = _described(facts, env).get("metric")
    return metric if isinstance(metric, str) else ACCURACY


def episode_score(entry: EpisodeEntry, metric: str = ACCURACY) -> float | None:
    """Return an episode's value of a metric; None if the episode broke or lacks it."""
    return None if entry.reward is None else episode_value(entry, metric)


def is_right(entry: EpisodeEntry) -> bool | None:
    """Return whether an episode answered right, as accuracy counts it; None if it broke."""
    return None if entry.reward is None else episode_value(entry) == 1.0


def task_scores(rows: Sequence[UnitRow], metric: str) -> dict[str, list[float]]:
    """Return the scores of each task's independent samples; those that broke are left out."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        found = [episode_value(entry, metric) for entry in row.scored]
        scores.setdefault(row.task, []).extend(score for score in found if score is not None)
    return scores


def _results(run: EvalRun) -> dict[str, Any]:
    try:
        return results(run.rows, run.facts)
    except ValueError:  # no episode has the environment's metric: the view shows accuracy then
        environments = {env: {**_described(run.facts, env), "metric": ACCURACY} for env in {r.env for r in run.rows}}
        return results(run.rows, {**run.facts, "environments": environments})


def _entries(found: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    scores = found.get("scores")
    entries = [entry for entry in scores if isinstance(entry, dict)] if isinstance(scores, list) else []
    return {(str(entry["model"]), str(entry["env"])): entry for entry in entries if {"model", "env"} <= entry.keys()}


def _line(entry: Mapping[str, Any], seconds: float | None, planned: int | None) -> ScoreLine:
    passes = _table(entry.get("pass"))
    return ScoreLine(
        str(entry["model"]),
        str(entry["env"]),
        str(entry.get("metric") or ACCURACY),
        _table(entry.get("score")) or None,
        int(_number(entry.get("episodes")) or 0),
        planned,
        _table(entry.get("broken")),
        _table(entry.get("calls")),
        _number(entry.get("tokens")),
        _number(entry.get("turns")),
        seconds,
        _number(entry.get("cost")),
        passes if len(passes) > 2 else {},  # pass@1 and pass^1 alone are accuracy
        _table(entry.get("levels")),
        _table(entry.get("categories")),
        _table(entry.get("metrics")),
        _number(entry.get("tool_productivity")),
        None,
        _table(entry.get("inference_tools")),
        _table(entry.get("helper")),
    )


def _described(facts: Mapping[str, Any], env: str) -> dict[str, Any]:
    return _table(_table(facts.get("environments")).get(env))


def _planned(facts: Mapping[str, Any], env: str) -> int | None:
    tasks, samples = _described(facts, env).get("tasks"), facts.get("samples", 1)
    return tasks * samples if isinstance(tasks, int) and isinstance(samples, int) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
