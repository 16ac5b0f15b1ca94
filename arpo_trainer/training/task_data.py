"""What a trainer plays: an environment by its id or its maker, and rows of a data set as tasks of an environment."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from arpo_env import ToolEnv
from arpo_trainer.make_env import make_env
from arpo_trainer.training.config import ARPOConfig
from envs_registry import Task, TaskSource
from envs_registry.contamination import keep_apart
from envs_registry.datasets.loading import row_reader
from envs_registry.sources import LimitedSource, ListSource

logger = logging.getLogger(__name__)


def as_env(env: Any, name: str) -> ToolEnv:
    """Return a checked environment from one, its id, or a function without arguments; `name` is the argument's."""
    given = env
    if isinstance(env, str):
        env = make_env(env, {})
    elif callable(env) and not isinstance(env, gymnasium.Env):
        try:
            inspect.signature(env).bind()
        except TypeError as error:
            raise TypeError(
                f"{name}={env!r:.80} is a function with arguments: give an environment, its id such as "
                "'arpo/GSM8K-v0', or a function without arguments that makes one. Reward functions are reward_funcs"
            ) from error
        env = env()
    if not isinstance(env, ToolEnv):
        made = "" if env is given else f", which makes a {type(env).__name__}"
        wrapped = ": rollouts run on copies of the environment itself, which a wrapper would not follow. Pass "
        wrapped += "`env.unwrapped`, and limits as its own options (max_turns=...)"
        raise TypeError(
            f"{name} must be a ToolEnv, its id such as 'arpo/GSM8K-v0', or a function that makes one; got "
            f"{type(given).__name__}{made}{wrapped if isinstance(env, gymnasium.Env) else ''}"
        )
    env.check()
    return env


def with_tasks(dataset: Any, env: ToolEnv, name: str) -> Any:
    """Return the rows of a data set with the columns "prompt" and "task", as the environment plays them.

    It is a `Dataset` or `IterableDataset`, or a list of rows; several by name are each converted.
    """
    import datasets

    if isinstance(dataset, Mapping):
        if name == "train_dataset":
            raise TypeError(f"{name} has splits: give one of them, as in {name}[{next(iter(dataset), 'train')!r}]")
        return {key: with_tasks(rows, env, f"{name}[{key!r}]") for key, rows in dataset.items()}
    streamed = isinstance(dataset, datasets.IterableDataset)
    if isinstance(dataset, str) or not (streamed or hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"{name} must be a data set or a list of rows, got {dataset!r:.80}. Load it first, as in "
            "datasets.load_dataset(NAME, split='train'), or give a file to the environment: data='rows.jsonl'"
        )
    first = next(iter(dataset), None)
    if not isinstance(first, Mapping):
        raise TypeError(
            f"{name} must have rows that are dictionaries; the first is {first!r:.80} (None: there is none)"
        )
    if _is_task(first.get("task")):
        return dataset if hasattr(dataset, "column_names") else datasets.Dataset.from_list(list(dataset))
    read = row_reader(env.env_spec)

    def converted(row: Mapping[str, Any], number: int) -> dict[str, Any]:
        task = read(dict(row), number, f"{name}, row {number}")
        return {**row, "prompt": env.messages(task), "task": _as_json(task)} if task else {"task": ""}

    if streamed:
        return dataset.map(converted, with_indices=True).filter(lambda row: row["task"])
    rows = [converted(row, number) for number, row in enumerate(dataset)]
    kept = [row for row in rows if row["task"]]
    if len(kept) < len(rows):
        logger.warning(
            "%s: %d of %d rows are left out, as %s does", name, len(rows) - len(kept), len(rows), env.env_spec.id
        )
    return datasets.Dataset.from_list(kept)


def rows_apart(dataset: Any, evaluated: Any, overlap: str) -> Any:
    """Return the training rows that are not evaluated on, by the column "task"; see `keep_apart`, also for errors."""
    many = evaluated.values() if isinstance(evaluated, Mapping) else [evaluated]
    if overlap == "allow" or not hasattr(dataset, "select"):  # a stream is read once
        return dataset
    for rows in many:
        if hasattr(rows, "select"):
            trained, other = (
                ListSource([Task.from_dict(json.loads(t)) for t in each["task"]]) for each in (dataset, rows)
            )
            left = keep_apart(trained, other, overlap)
            if left is not trained:
                kept = {id(left.task(number)) for number in range(left.size or 0)}
                dataset = dataset.select([number for number, task in enumerate(trained.tasks) if id(task) in kept])
    return dataset


def _is_task(value: Any) -> bool:
    try:
        return isinstance(value, str) and {"id", "question", "answers"} <= json.loads(value).keys()
    except (ValueError, AttributeError):
        return False


def _as_json(task: Task) -> str:
    return json.dumps(task.as_dict(), ensure_ascii=False)


def training_tasks(env: ToolEnv, args: ARPOConfig) -> TaskSource:
    """Return the tasks of the environment; of an endless source as many as training needs."""
    source: TaskSource = env.tasks
    if source.size is not None:
        return source
    if args.max_steps <= 0:
        return LimitedSource(source, 1000)
    rollouts = -(
        -args.max_steps * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    )
    return LimitedSource(source, rollouts * max(1, (args.generation_batch_size or 1) // (args.num_generations or 1)))


def task_dataset(env: ToolEnv, args: ARPOConfig) -> Any:
    """Return a `datasets.Dataset` with the tasks to train on."""
    source = training_tasks(env, args)
    return task_rows(env, [source.task(number) for number in range(source.size or 0)])


def task_rows(env: ToolEnv, tasks: Sequence[Task]) -> Any:
    """Return a `datasets.Dataset` with the columns "prompt" and "task", one row per task."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": env.messages(task), "task": _as_json(task)} for task in tasks])
