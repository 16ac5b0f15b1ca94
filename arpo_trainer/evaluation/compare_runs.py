"""Compares two evaluations task by task: difference, interval, test, and the tasks that were gained and lost.

    first, second = load_eval_run("evals/base"), load_eval_run("evals/arpo")
    for comparison in compare_runs(first, second):
        comparison.overall.difference, comparison.overall.p_value, comparison.gained

Both runs must have the same tasks; `common=True` compares those that they share. Tasks on which all samples of a model
broke are left out and counted. Pairing removes how hard the tasks are (Miller 2024, arXiv 2411.00640, section 4).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow
from arpo_trainer.evaluation.eval_metrics import ACCURACY, values_of
from arpo_trainer.statistics import PairedComparison, compare_paired
from envs_registry.nearest_name import nearest_hint

_log = logging.getLogger(__name__)

TaskKey = tuple[str, str]  # environment, task


@dataclass(frozen=True)
class ChangedTask:
    """A task on which the two differ.

    Attributes:
        env: label of the environment.
        task: id of the task.
        question: of the task.
        first: mean of the first model's samples.
        second: mean of the second model's samples.
    """

    env: str
    task: str
    question: str
    first: float
    second: float


@dataclass(frozen=True)
class RunComparison:
    """Two models on the same tasks.

    Attributes:
        first: the first model, "RUN: LABEL".
        second: the second model.
        metric: what was compared.
        environments: the comparison in each environment.
        overall: over the tasks of all environments together.
        gained: tasks on which the second is better, the largest difference first.
        lost: tasks on which the second is worse, the largest difference first.
        unscored: tasks that are left out since all samples of one of the models broke.
        apart: tasks that only one of the runs has; 0 unless only common tasks were asked for.
    """

    first: str
    second: str
    metric: str
    environments: dict[str, PairedComparison]
    overall: PairedComparison
    gained: list[ChangedTask]
    lost: list[ChangedTask]
    unscored: int
    apart: int

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return asdict(self)


def compare_runs(
    first: EvalRun,
    second: EvalRun,
    metric: str = ACCURACY,
    models: tuple[str, str] | None = None,
    common: bool = False,
) -> list[RunComparison]:
    """Compare each pair of models of two runs.

    Args:
        first: a run.
        second: another run, or the same one with two `models`.
        metric: as of `episode_values.episode_value`.
        models: label of the model in the first and in the second run. None: the only model of each, or those with the
            same label in both.
        common: compare the tasks that both have, instead of refusing different ones.

    Raises:
        ValueError: the runs have different tasks (the message counts and names them), the models are not clear or not
            there, or a metric is not among the components.
    """
    for env in first.facts.get("environments", {}):
        one, other = (run.facts.get("environments", {}).get(env, {}).get("revision") for run in (first, second))
        if one and other and one != other:
            _log.warning(
                "%s was read from the hub at %s and at %s, so answers may differ: the option revision=... reads one",
                *(env, one, other),
            )
    return [_compare(first, second, pair, metric, common) for pair in _pairs(first, second, models)]


def _pairs(first: EvalRun, second: EvalRun, models: tuple[str, str] | None) -> list[tuple[str, str]]:
    mine, theirs = ([*dict.fromkeys(row.model for row in run.rows)] for run in (first, second))
    for run, there in ((first, mine), (second, theirs)):
        if not there:
            raise ValueError(f"{run.folder} has no finished episode")
    if models is not None:
        for run, label, there in ((first, models[0], mine), (second, models[1], theirs)):
            if label not in there:
                hint = nearest_hint(label, there)
                raise ValueError(f"{run.folder} has no model {label!r}; there is {', '.join(there)}{hint}")
        return [models]
    if first.folder.resolve() == second.folder.resolve():
        raise ValueError(f"a run cannot be compared with itself; name two of its models: --models {' '.join(mine)}")
    if len(mine) == len(theirs) == 1:
        return [(mine[0], theirs[0])]
    if shared := [label for label in mine if label in theirs]:
        return [(label, label) for label in shared]
    raise ValueError(
        f"the runs have no model of the same label: {', '.join(mine)} and {', '.join(theirs)}; choose with --models A B"
    )


def _compare(first: EvalRun, second: EvalRun, pair: tuple[str, str], metric: str, common: bool) -> RunComparison:
    sides = [[row for row in run.rows if row.model == model] for run, model in zip((first, second), pair, strict=True)]
    questions = [_questions(rows) for rows in sides]
    apart = _different_tasks(questions, common)
    shared = {key for key, question in questions[0].items() if questions[1].get(key) == question}
    # in the order of the first run, so that both runs in the other order have the same test
    values = [_values(rows, metric, shared) for rows in sides]
    scored = [key for key in values[0] if key in values[1]]
    if not scored:
        raise ValueError("no task was scored in both runs")
    kept = [{key: each[key] for key in scored} for each in values]
    by_env = {env: [key for key in scored if key[0] == env] for env in dict.fromkeys(key[0] for key in scored)}
    environments = {env: _paired(kept, keys) for env, keys in by_env.items()}
    changed = [_changed(key, questions[0][key], kept) for key in scored]
    return RunComparison(
        f"{first.folder.resolve().name}: {pair[0]}",
        f"{second.folder.resolve().name}: {pair[1]}",
        metric,
        environments,
        environments[scored[0][0]] if len(by_env) == 1 else _paired(kept, scored),
        _by_size(each for each in changed if each.second > each.first),
        _by_size(each for each in changed if each.second < each.first),
        len(shared) - len(scored),
        apart,
    )


def _questions(rows: Iterable[UnitRow]) -> dict[TaskKey, str]:
    return {(row.env, row.task): row.question for row in rows}


def _different_tasks(questions: Sequence[Mapping[TaskKey, str]], common: bool) -> int:
    """Return how many tasks are in one run only; a task with another question under the same id is another task."""
    one, two = questions
    apart = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    if not set(one) - set(apart):
        raise ValueError(
            "the runs have no task in common: they have "
            + " and ".join(", ".join(sorted({env for env, _ in each})) or "none" for each in questions)
        )
    if apart and not common:
        some = ", ".join(f"{env} {task}" for env, task in sorted(apart)[:3])
        raise ValueError(
            f"the runs have different tasks: {len(apart)} are in one only or have another question ({some}). "
            "Evaluate both on the same tasks, or give --common to compare those that they share"
        )
    return len(apart)


def _values(rows: Sequence[UnitRow], metric: str, shared: set[TaskKey]) -> dict[TaskKey, list[float]]:
    found: dict[TaskKey, list[float]] = {}
    for env in dict.fromkeys(row.env for row in rows):
        kept = [row for row in rows if row.env == env and (env, row.task) in shared]
        found |= {(env, task): values for task, values in values_of(kept, metric).items()}
    return found


def _paired(values: Sequence[Mapping[TaskKey, list[float]]], keys: Sequence[TaskKey]) -> PairedComparison:
    first, second = ({f"{env} {task}": each[env, task] for env, task in keys} for each in values)
    return compare_paired(first, second)


def _changed(key: TaskKey, question: str, values: Sequence[Mapping[TaskKey, list[float]]]) -> ChangedTask:
    first, second = (sum(each[key]) / len(each[key]) for each in values)
    return ChangedTask(*key, question, first, second)


def _by_size(tasks: Iterable[ChangedTask]) -> list[ChangedTask]:
    return sorted(tasks, key=lambda each: -abs(each.second - each.first))
