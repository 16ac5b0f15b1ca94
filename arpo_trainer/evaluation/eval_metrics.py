"""The results of an evaluation as plain data: `results(rows, facts)`, which is what results.json holds.

    run = load_eval_run("evals/gsm8k")
    results(run.rows, run.facts)["scores"][0]["score"]     # {"mean": 0.41, "low": 0.32, "high": 0.51, ...}

Numbers are rounded, keys are sorted and no times are included, so that a replay of the same episodes writes the same
bytes, in whatever order they were finished. docs/reference/evaluation-metrics.md defines each number.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arpo_env.grading.published_metrics import answers_per_call, tool_productivity, tool_star_m1m2
from arpo_trainer.evaluation.episode_store import RESULTS, in_order
from arpo_trainer.evaluation.episode_values import (
    ACCURACY,
    REWARD,
    component_names,
    episode_value,
    interval_of,
    scored_episodes,
    values_of,
)
from arpo_trainer.evaluation.eval_usage import usage_of
from arpo_trainer.evaluation.published_results import published_for
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow, broken_causes
from arpo_trainer.statistics.intervals import MeanInterval
from arpo_trainer.statistics.repeated_samples import mean_over_tasks

FORMAT = 1
DIGITS = 6  # of every number in results.json


def results(rows: Iterable[UnitRow], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of an evaluation.

    Args:
        rows: the rows in any order; of several attempts of a unit the last counts.
        facts: run.json.

    Returns:
        {"format": 1, "scores": [...], "averages": {MODEL: {"mean", "environments"}}} with one entry in `scores` for
        each model and environment.

    Raises:
        ValueError: the metric of an environment is not among the components of its episodes.
    """
    facts = dict(facts)
    groups: dict[tuple[str, str], list[UnitRow]] = defaultdict(list)
    for row in in_order(facts, sorted(rows, key=lambda row: row.attempt)):
        groups[row.model, row.env].append(row)
    scores = [_entry(each, model, env, facts) for (model, env), each in groups.items()]
    means: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        if score["score"] is not None:
            means[score["model"]].append(score["score"]["mean"])
    averages = {
        model: {"mean": _rounded(statistics.fmean(each)), "environments": len(each)} for model, each in means.items()
    }
    return {"format": FORMAT, "scores": scores, "averages": averages}


def results_text(found: Mapping[str, Any]) -> str:
    """Return results as the text of results.json."""
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_results(folder: str | Path, rows: Iterable[UnitRow], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write results.json of a run, and return the results. The file is replaced as a whole."""
    found = results(rows, facts)
    path = Path(folder) / RESULTS
    part = path.with_name(f".{RESULTS}.part")
    part.write_text(results_text(found), encoding="utf-8", errors="replace")
    os.replace(part, path)
    return found


def mean_seconds(rows: Iterable[UnitRow]) -> dict[tuple[str, str], float]:
    """Return (model, environment) -> mean seconds of a scored episode. Times differ between equal runs."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        found[row.model, row.env] += [entry.seconds for entry in row.scored]
    return {key: statistics.fmean(each) for key, each in found.items() if each}


def _entry(rows: Sequence[UnitRow], model: str, env: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    about = facts.get("environments", {}).get(env, {})
    metric = about.get("metric", ACCURACY)
    episodes = [entry for each in scored_episodes(rows).values() for entry in each]
    values = values_of(rows, metric)
    score = interval_of(values)
    usage = usage_of(facts, rows)
    return {
        "model": model,
        "env": env,
        "metric": metric,
        "score": interval_data(score),
        "metrics": {name: interval_data(interval_of(values_of(rows, name))) for name in _metric_names(rows)},
        **_passes(rows),
        "levels": _parts(rows, values, "level"),
        "categories": _parts(rows, values, "category"),
        **_tool_use(episodes, score),
        "tokens": _mean(entry.tokens for entry in episodes),
        "turns": _mean(entry.turns for entry in episodes),
        "outcomes": dict(sorted(Counter(e.outcome for row in rows for e in row.episodes).items())),
        "cost": _cost(usage.usd),
        "helper": {**usage.helper, "cost": _cost(usage.helper_usd)} if usage.helper else {},
        "broken": dict(sorted(broken_causes(rows).items())),
        "episodes": sum(len(row.episodes) for row in rows),
        "scored": len(episodes),
        "published": published_for(about.get("id", env), metric, about),
    }


def _cost(usd: float | None) -> float | None:
    return None if usd is None else _rounded(usd)


def _metric_names(rows: Sequence[UnitRow]) -> list[str]:
    # without an answer there is nothing but accuracy and reward to report
    return sorted({ACCURACY, REWARD, *component_names(rows)}) if scored_episodes(rows) else []


def _passes(rows: Sequence[UnitRow]) -> dict[str, Any]:
    """Return pass@k and pass^k of right answers, and over how many tasks each was taken."""
    counts = [(len(each), int(sum(each))) for each in values_of(rows).values()]
    most = max((n for n, _ in counts), default=0)
    powers = [2**power for power in range(most.bit_length()) if 2**power < most]
    passes, tasks = {}, {}
    for k in [*powers, most] if most else []:
        for measure in ("pass@", "pass^"):
            mean, used = mean_over_tasks(measure, counts, k)
            passes[f"{measure}{k}"], tasks[str(k)] = _rounded(mean), used
    return {"pass": passes, "pass_tasks": tasks}


def _parts(rows: Sequence[UnitRow], values: Mapping[str, list[float]], field: str) -> dict[str, Any]:
    """Return the score of each level or category; empty for a set without any."""
    parts: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for row in rows:
        if row.task in values:
            parts[getattr(row, field)][row.task] = values[row.task]
    if set(parts) <= {""}:
        return {}
    return {name: interval_data(interval_of(each)) for name, each in sorted(parts.items())}


def _tool_use(episodes: Sequence[EpisodeEntry], score: MeanInterval | None) -> dict[str, Any]:
    calls: Counter[str] = Counter()
    for entry in episodes:
        calls.update(entry.calls)
    users = [entry for entry in episodes if sum(entry.calls.values())]
    right = [episode_value(entry) or 0.0 for entry in episodes]
    each = sum(calls.values()) / len(episodes) if episodes else 0.0
    share = len(users) / len(episodes) if episodes else 0.0
    return {
        "calls": {tool: _rounded(count / len(episodes)) for tool, count in sorted(calls.items())},
        "average_actions": _rounded(each) if episodes else None,
        "tasks_with_tools": _rounded(share) if episodes else None,
        "tool_productivity": _rounded(tool_productivity(score.mean, each)) if score else None,
        "tool_efficiency": _mean(episode_value(entry) or 0.0 for entry in users),
        "m1m2": _rounded(tool_star_m1m2(share, statistics.fmean(right), each)) if episodes else None,
        "answers_per_call": _rounded(answers_per_call(sum(right), calls.total())) if episodes else None,
        "inference_tools": _inference_tools(episodes),
    }


def _inference_tools(episodes: Sequence[EpisodeEntry]) -> dict[str, dict[str, int]]:
    """Return for each tool at inference time how often it was used, how often it failed, and in how many episodes."""
    found = {}
    for name in sorted({name.removesuffix(" failed") for entry in episodes for name in entry.inference}):
        used, failed = (sum(entry.inference.get(key, 0) for entry in episodes) for key in (name, f"{name} failed"))
        helped = sum(name in entry.inference for entry in episodes)
        found[name] = {"used": used, "failed": failed, "episodes": helped}
    return found


def interval_data(interval: MeanInterval | None) -> dict[str, Any] | None:
    """Return an interval as plain data; a bound that is not known (one task) is None."""
    if interval is None:
        return None
    bounds = {name: getattr(interval, name) for name in ("mean", "low", "high")}
    data = {name: _rounded(value) if math.isfinite(value) else None for name, value in bounds.items()}
    return {**data, "tasks": interval.tasks, "samples": interval.samples}


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return _rounded(math.fsum(found) / len(found)) if found else None


def _rounded(value: float) -> float:
    # + 0.0 turns -0.0 into 0.0
    return round(value, DIGITS) + 0.0
