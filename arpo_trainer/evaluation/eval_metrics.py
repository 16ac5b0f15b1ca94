"""The results of an evaluation as plain data: `results(rows, facts)`, which is what results.json holds.

    run = load_eval_run("evals/gsm8k")
    results(run.rows, run.facts)["scores"][0]["score"]     # {"mean": 0.41, "low": 0.32, "high": 0.51, ...}

Numbers are rounded, keys are sorted and no times are included, so that a replay of the same episodes writes the same
bytes, in whatever order they were finished. docs/reference/evaluation-metrics.md defines each number.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_env.grading.published_metrics import answers_per_call, tool_productivity, tool_star_m1m2
from arpo_trainer.evaluation.episode_store import (
    HELPER_TOKENS,
    RESULTS,
    EpisodeEntry,
    EvalRun,
    UnitRow,
    broken_causes,
    in_order,
)
from arpo_trainer.evaluation.suites import published_for
from arpo_trainer.report.run_data import write_whole
from arpo_trainer.statistics import (
    MeanInterval,
    PairedComparison,
    clustered_interval,
    clustered_share_interval,
    compare_paired,
    mean_over_tasks,
)
from envs_registry.nearest_name import nearest_hint

# An episode that broke has no value and is in no mean. Neither are the branches and top-ups of a tree, which are no
# independent samples.

ACCURACY, REWARD = "accuracy", "reward"
Value = Callable[[EpisodeEntry], float | None]


def episode_value(entry: EpisodeEntry, metric: str = ACCURACY) -> float | None:
    """Return a metric of an episode that was scored; None if the episode has no such component.

    It is "accuracy" (1 for an answer whose score is 1, else 0: partly right is not right), "reward", or a component
    such as "em", "f1" or "correct". An episode without an answer, which no grader saw, has 0.
    """
    if metric == REWARD:
        return entry.reward
    if metric == ACCURACY:
        return float(entry.components.get(ACCURACY, entry.reward or 0.0) >= 1.0)
    return entry.components.get(metric, 0.0 if entry.answer is None else None)


def scored_episodes(rows: Iterable[UnitRow]) -> dict[str, list[EpisodeEntry]]:
    """Return task -> its independent samples that have a reward, in the order of the rows; no task without any."""
    found: dict[str, list[EpisodeEntry]] = {}
    for row in rows:
        if scored := row.scored:
            found.setdefault(row.task, []).extend(scored)
    return found


def component_names(rows: Iterable[UnitRow]) -> list[str]:
    """Return the names of all components of the scored episodes, sorted."""
    scored = (entry for each in scored_episodes(rows).values() for entry in each)
    return sorted({name for entry in scored for name in entry.components})


def values_of(rows: Iterable[UnitRow], metric: str = ACCURACY) -> dict[str, list[float]]:
    """Return task -> the values of its scored episodes.

    A set may mix graders by the kind of its tasks (HLE has multiple-choice questions): only episodes that have the
    component count.
    """
    rows = list(rows)
    episodes = scored_episodes(rows)
    graded = [entry for each in episodes.values() for entry in each if entry.answer is not None]
    having = [entry for entry in graded if episode_value(entry, metric) is not None]
    if graded and not having:
        names = sorted({ACCURACY, REWARD, *component_names(rows)})
        raise ValueError(
            f"no episode has the metric {metric!r}; there is {', '.join(names)}{nearest_hint(metric, names)}. "
            "`arpo eval score` grades stored answers with another scorer"
        )
    mixed = len(having) < len(graded)
    found = {
        task: [
            value
            for entry in each
            if (value := episode_value(entry, metric)) is not None and not (mixed and metric not in entry.components)
        ]
        for task, each in episodes.items()
    }
    return {task: values for task, values in found.items() if values}


def interval_of(values: Mapping[Any, list[float]]) -> MeanInterval | None:
    """Return the mean with its interval, clustered by task; None without any value.

    Values between 0 and 1 have the interval of a share, which is Wilson's for one sample of each task.
    """
    groups = [each for each in values.values() if each]
    if not groups:
        return None
    share = all(0.0 <= value <= 1.0 for each in groups for value in each)
    return clustered_share_interval(groups) if share else clustered_interval(groups)


def usage_of(facts: Mapping[str, Any], rows: Iterable[UnitRow]) -> dict[str, Any]:
    """Return what episodes used: tokens (shared ones once), calls, and US dollars at the prices of run.json.

    A cost is None if a price is not known. `helper` and `helper_usd` are of the model that helps tools at inference
    time (`EpisodeEntry.helper`), and are in no other sum.
    """
    counts, calls, helper = Counter[str](), Counter[str](), Counter[str]()
    model_usd: float | None = 0.0
    search_usd: float | None = 0.0
    helper_usd: float | None = 0.0
    inference = facts.get("settings", {}).get("inference", {})
    for row in rows:
        context, cached = (sum(getattr(e, name) for e in row.episodes) for name in ("context", "cached"))
        counts.update(episodes=len(row.episodes), generated=row.generated, context=context, cached=cached)
        called, helped = (_total(getattr(e, name) for e in row.episodes) for name in ("calls", "helper"))
        calls += called
        model, env = (facts.get(n, {}).get(k, {}) for n, k in (("models", row.model), ("environments", row.env)))
        model_usd = _sum(model_usd, _model_cost(model, context, cached, row.generated))
        searches, each = called["search"], env.get("search_price")
        search_usd = _sum(search_usd, 0.0 if not searches else each and each * searches / 1000)
        if helped:
            helper.update(helped)
            # one at a server, or the policy itself
            helping = {"kind": "endpoint", "price": inference.get("price")} if inference.get("model") else model
            helper_usd = _sum(helper_usd, _model_cost(helping, *(helped[name] for name in HELPER_TOKENS)))
    amounts = {name: counts[name] for name in ("episodes", "generated", "context", "cached")}
    costs = {"model_usd": model_usd, "search_usd": search_usd, "usd": _sum(model_usd, search_usd)}
    found = {**amounts, **costs, "calls": dict(sorted(calls.items()))}
    return found | ({"helper": dict(helper), "helper_usd": helper_usd} if helper else {})


def _model_cost(model: Mapping[str, Any], context: int, cached: int, generated: int) -> float | None:
    """Return the cost of requests in US dollars; models that run here cost 0."""
    price = model.get("price")
    if price is None:
        return None if model.get("kind") == "endpoint" else 0.0
    spent = (context - cached) * price["input"] + cached * price["cached"] + generated * price["output"]
    return float(spent) / 1e6


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for each in counts:
        total.update(each)  # += would drop what is 0
    return total


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


FORMAT = 1
DIGITS = 6  # of every number in results.json


def results(rows: Iterable[UnitRow], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"format": 1, "scores": [...]} with an entry in `scores` for each model and environment.

    Args:
        rows: the rows in any order; of several attempts of a unit the last counts.
        facts: run.json.

    Raises:
        ValueError: the metric of an environment is not among the components of its episodes.
    """
    groups: dict[tuple[str, str], list[UnitRow]] = defaultdict(list)
    for row in in_order(facts, sorted(rows, key=lambda row: row.attempt)):
        groups[row.model, row.env].append(row)
    return {"format": FORMAT, "scores": [_entry(each, *pair, facts) for pair, each in groups.items()]}


def write_results(folder: str | Path, rows: Iterable[UnitRow], facts: Mapping[str, Any]) -> None:
    """Write results.json of a run."""
    text = json.dumps(results(rows, facts), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_whole(Path(folder) / RESULTS, text + "\n")


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
    # without an answer there is nothing but accuracy and reward to report
    names = sorted({ACCURACY, REWARD, *component_names(rows)}) if episodes else []
    return {
        "model": model,
        "env": env,
        "metric": metric,
        "score": interval_data(score),
        "metrics": {name: interval_data(interval_of(values_of(rows, name))) for name in names},
        **_passes(rows),
        "levels": _parts(rows, values, "level"),
        "categories": _parts(rows, values, "category"),
        **_tool_use(episodes, score),
        "tokens": _mean(entry.tokens for entry in episodes),
        "turns": _mean(entry.turns for entry in episodes),
        "outcomes": dict(sorted(Counter(e.outcome for row in rows for e in row.episodes).items())),
        "cost": _cost(usage["usd"]),
        "helper": {**usage["helper"], "cost": _cost(usage["helper_usd"])} if "helper" in usage else {},
        "broken": dict(sorted(broken_causes(rows).items())),
        "episodes": sum(len(row.episodes) for row in rows),
        "scored": len(episodes),
        "published": published_for(about.get("id", env), metric, about),
    }


def _cost(usd: float | None) -> float | None:
    return None if usd is None else _rounded(usd)


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
    calls = _total(entry.calls for entry in episodes)
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


# Comparisons of models, paired by task. Tasks on which all samples of a model broke are left out, and counted.

_log = logging.getLogger(__name__)

TaskKey = tuple[str, str]  # environment, task
Paired = dict[TaskKey, tuple[list[float], list[float]]]


def paired_values(first: Sequence[UnitRow], second: Sequence[UnitRow], metric: Callable[[str], str]) -> Paired:
    """Return the values of both models on each task that both have; `metric` names the metric of an environment.

    The same id with another question is another task.
    """
    asked, asks = ({(row.env, row.task): row.question for row in rows} for rows in (first, second))
    shared = {key: None for key, question in asked.items() if asks.get(key) == question}
    sides: list[dict[TaskKey, list[float]]] = []
    for rows in (first, second):
        values: dict[TaskKey, list[float]] = {}
        for env in dict.fromkeys(env for env, _ in shared):
            found = values_of((row for row in rows if row.env == env and (env, row.task) in shared), metric(env))
            values |= {(env, task): each for task, each in found.items()}
        sides.append(values)
    # in the order of the first, so that both in the other order have the same test
    return {key: (sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]}


def compare_environments(values: Paired) -> dict[str, PairedComparison]:
    """Return the comparison in each environment."""
    return {
        env: _compared({key: each for key, each in values.items() if key[0] == env})
        for env in dict.fromkeys(env for env, _ in values)
    }


def _compared(values: Paired) -> PairedComparison:
    first, second = ({f"{env} {task}": each[side] for (env, task), each in values.items()} for side in (0, 1))
    return compare_paired(first, second)


@dataclass(frozen=True)
class ChangedTask:
    """A task on which the two differ, with the means of their samples."""

    env: str
    task: str
    question: str
    first: float
    second: float


@dataclass(frozen=True)
class RunComparison:
    """Two models on the same tasks."""

    first: str  # "RUN: LABEL"
    second: str
    metric: str
    environments: dict[str, PairedComparison]
    overall: PairedComparison  # over the tasks of all environments together
    gained: list[ChangedTask]  # on which the second is better, the largest difference first
    lost: list[ChangedTask]
    unscored: int  # tasks that are left out since all samples of one of the models broke
    apart: int  # tasks that only one of the runs has


def compare_runs(
    first: EvalRun,
    second: EvalRun,
    metric: str = ACCURACY,
    models: tuple[str, str] | None = None,
    common: bool = False,
) -> list[RunComparison]:
    """Compare each pair of models of two runs task by task: difference, interval, test, and the tasks that changed.

    Args:
        first: a run.
        second: another run, or the same one with two `models`.
        metric: as of `episode_value`.
        models: labels in the first and the second run. None: the only model of each, or those with the same label.
        common: compare the tasks that both have, instead of refusing different ones.
    """
    for env in first.facts.get("environments", {}):
        one, other = (run.facts.get("environments", {}).get(env, {}).get("revision") for run in (first, second))
        if one and other and one != other:
            _log.warning("%s was read from the hub at %s and at %s, so answers may differ", env, one, other)
    return [_compare(first, second, pair, metric, common) for pair in _pairs(first, second, models)]


def _pairs(first: EvalRun, second: EvalRun, models: tuple[str, str] | None) -> list[tuple[str, str]]:
    mine, theirs = ([*dict.fromkeys(row.model for row in run.rows)] for run in (first, second))
    if models is not None:
        for run, label, there in ((first, models[0], mine), (second, models[1], theirs)):
            if label not in there:
                raise ValueError(f"{run.folder} has no model {label!r}; there is {', '.join(there)}")
        return [models]
    if first.folder.resolve() == second.folder.resolve():
        raise ValueError(f"a run cannot be compared with itself; name two of its models: --models {' '.join(mine)}")
    if len(mine) == len(theirs) == 1:
        return [(mine[0], theirs[0])]
    if shared := [label for label in mine if label in theirs]:
        return [(label, label) for label in shared]
    labels = " and ".join(", ".join(each) or "no finished episode" for each in (mine, theirs))
    raise ValueError(f"the runs have no model of the same label: {labels}; choose with --models A B")


def _compare(first: EvalRun, second: EvalRun, pair: tuple[str, str], metric: str, common: bool) -> RunComparison:
    one, two = (
        [row for row in run.rows if row.model == label] for run, label in zip((first, second), pair, strict=True)
    )
    asked, asks = ({(row.env, row.task): row.question for row in rows} for rows in (one, two))
    apart = sorted(key for key in {**asked, **asks} if asked.get(key) != asks.get(key))
    if apart and not common:
        raise ValueError(
            f"the runs have different tasks: {len(apart)} are in one only or have another question "
            f"({', '.join(f'{env} {task}' for env, task in apart[:3])}). "
            "Evaluate both on the same tasks, or give --common to compare those that they share"
        )
    values = paired_values(one, two, lambda _: metric)
    if not values:
        raise ValueError("the runs have no scored task in common")
    changed = [ChangedTask(*key, asked[key], *map(statistics.fmean, each)) for key, each in values.items()]
    changed.sort(key=lambda each: -abs(each.second - each.first))
    return RunComparison(
        f"{first.folder.resolve().name}: {pair[0]}",
        f"{second.folder.resolve().name}: {pair[1]}",
        metric,
        compare_environments(values),
        _compared(values),
        [each for each in changed if each.second > each.first],
        [each for each in changed if each.second < each.first],
        len({**asked, **asks}) - len(apart) - len(values),
        len(apart),
    )
