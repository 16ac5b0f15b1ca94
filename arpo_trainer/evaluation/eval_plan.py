"""What an evaluation plays: its environments with their engines, and the units that are still missing.

`plan_environments` turns ids and suites into environments; `missing_units` compares them with what is stored.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_env.net import strip_credentials
from arpo_env.search.search_backend import search_price
from arpo_trainer.costs.estimate import search_backend
from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey
from arpo_trainer.evaluation.eval_runner import Unit
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.evaluation.eval_shard import EvalShard, UnitNumbers
from arpo_trainer.evaluation.suites import SUITES, SuiteRow, suite
from arpo_trainer.make_env import known_id, make_env
from arpo_trainer.rollout.live_trajectory import check_limits
from envs_registry.spec import get_spec, has_spec


@dataclass
class PlannedEnv:
    """An environment of an evaluation.

    Attributes:
        label: its name in tables and files: the id without "arpo/".
        env_id: the id.
        options: with which it was made.
        metric: the measure that is compared with published numbers.
        subset: which part of the set the tasks are, in words.
        env: the environment.
        count: number of tasks.
    """

    label: str
    env_id: str
    options: dict[str, Any]
    metric: str
    subset: str
    env: ToolEnv
    count: int

    def facts(self) -> dict[str, Any]:
        """Return the environment as plain data for run.json."""
        shown = {name: value for name, value in self.options.items() if name not in ("cache", "cache_mode")}
        plain = {n: strip_credentials(v) if isinstance(v, str) and "://" in v else v for n, v in shown.items()}
        return {
            "id": self.env_id,
            "options": plain,
            "tasks": self.count,
            "size": self.env.tasks.size,
            "split": plain.get("split"),
            # of the hub's data set, for the comparison with other runs
            "revision": getattr(getattr(self.env.tasks, "tasks", self.env.tasks), "revision", ""),
            "metric": self.metric,
            "subset": self.subset,
            "licence": self.env.env_spec.licence,
            "search_price": _search_price(self.env),
        }


def environment_rows(names: Iterable[str]) -> list[SuiteRow]:
    """Return the rows of suites and single environments, each environment once.

    Raises:
        ValueError: there is no suite of a name without a slash.
        UnknownEnvError: an environment is not known; the error lists the nearest ids.
    """
    rows: dict[str, SuiteRow] = {}
    for name in names:
        for row in suite(name) if name in SUITES or "/" not in name else (_single(name),):
            rows.setdefault(row.env, row)
    return list(rows.values())


def _single(name: str) -> SuiteRow:
    """Return the row of an environment that was named by itself: all tasks of the split for evaluation."""
    env_id = known_id(name)
    for known in suite("papers"):
        if known.env == env_id:
            return replace(known, tasks=None, subset="")
    splits = get_spec(env_id).splits if has_spec(env_id) else ()
    split = next((one for one in ("test", "validation") if one in splits), None)
    # the name as it was given, since it may begin with the module that registers it
    return SuiteRow(name, {"split": split} if split else {})


@contextlib.contextmanager
def plan_environments(settings: EvalSettings, cache: Cache | None = None) -> Iterator[list[PlannedEnv]]:
    """Make the environments of an evaluation, and close them afterwards.

    Args:
        settings: of the evaluation.
        cache: records and replays their services.

    Raises:
        UnknownEnvError: a name is neither a suite nor an environment.
        ValueError: an option is invalid, or the tasks are endless and no number is set.
        RuntimeError: a service is not configured.
    """
    with contextlib.ExitStack() as opened:
        planned = []
        rows = environment_rows(settings.environments)
        # a suite may mix sets with and without a search or a judge: each takes what it can use of these
        useless = [name for name in _USED_BY if not any(_uses(name, row, settings) for row in rows)]
        for row in rows:
            given = {n: v for n, v in settings.env_options.items() if n in useless or _uses(n, row, settings)}
            options = {**row.options, **given}
            services = {"cache": cache} if cache else {}
            env = make_env(row.env, {**options, **services})
            opened.callback(env.close)
            env.check()
            label = row.env.rpartition(":")[2].removeprefix("arpo/")
            count = task_count(label, env, settings.tasks, row.tasks)
            planned.append(PlannedEnv(label, row.env, options, row.metric, row.subset, env, count))
        yield planned


_USED_BY = ("search", "judge_model")


def _uses(name: str, row: SuiteRow, settings: EvalSettings) -> bool:
    """Return whether the environment of a row can use an option, of those that not all can."""
    env_id, options = known_id(row.env), {**row.options, **settings.env_options}
    if name not in _USED_BY or not has_spec(env_id):
        return True
    spec = get_spec(env_id)
    if name == "search":
        return "search" in (options.get("tools") or spec.tools)
    return bool((options.get("scorer") or spec.scorer) == "judge")


def missing_units(
    planned: Sequence[PlannedEnv],
    model: str,
    settings: EvalSettings,
    store: EpisodeStore,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
) -> list[Unit]:
    """Return the units of a model that have to be played, the first sample of each task before the second.

    Args:
        planned: the environments.
        model: the model's label.
        settings: of the evaluation.
        store: what has been played.
        repeat_broken: return the units that broke, instead of those that are missing.
        shard: return units of this shard only.

    Raises:
        ValueError: a stored episode is of another question than the task of that id now, or two tasks share an id.
    """
    units = []
    numbers = UnitNumbers({one.label: one.count for one in planned}, settings.samples, settings.first_task)
    for one in planned:
        first = settings.first_task
        tasks = {number: one.env.tasks.task(number) for number in range(first, first + one.count)}
        if len({task.id for task in tasks.values()}) < len(tasks):
            raise ValueError(f"two tasks of {one.label} have the same id; give each its own")
        for sample, (index, task) in itertools.product(range(settings.samples), tasks.items()):
            if shard is not None and not shard.owns(numbers.number(one.label, index, sample)):
                continue
            key = UnitKey(model, one.label, task.id, sample)
            row = store.rows.get(key)
            if row is not None and row.question != task.question:
                raise ValueError(
                    f"the tasks of {one.label} have changed since the run began: {task.id!r} asked "
                    f"{row.question[:80]!r}, and asks {task.question[:80]!r}. Evaluate into another folder"
                )
            if (row is not None and row.broken) if repeat_broken else row is None:
                units.append(Unit(key, task, index))
    return units


def task_count(label: str, env: ToolEnv, wanted: int | None, usual: int | None) -> int:
    """Return how many tasks are played: what is wanted, else what is usual, and no more than there are.

    Raises:
        ValueError: the tasks are endless, and no number is given.
    """
    sizes = [size for size in (wanted or usual, env.tasks.size) if size is not None]
    if not sizes:
        raise ValueError(f"{label} has endless tasks: say how many to play, such as --tasks 100")
    return min(sizes)


def _search_price(env: ToolEnv) -> float | None:
    """Return the price of 1,000 searches in US dollars; 0 without a search tool, None if it is not known."""
    if "search" not in env.tools:
        return 0.0
    price = search_price(search_backend(env))
    return price.usd if price else None


def share_limits(limits: Mapping[str, int], planned: Iterable[PlannedEnv]) -> dict[str, int]:
    """Check limits of concurrency against all environments, which share them.

    Raises:
        ValueError: a kind exists in none of them.
    """
    check_limits(limits, sorted({tool for one in planned for tool in one.env.tools}))
    return dict(limits)
