"""Tasks as rows of a file, in the formats that other frameworks read: TRL, verl, SkyRL, OpenRLHF, and prompts only.

    factory = EnvFactory("arpo/GSM8K-v0", split="train")
    write_rows("train.parquet", task_rows(factory, "verl", limit=1000))

A row names its task, so that the adapter of the framework finds it again: `{"env_id", "options", "index", "id",
"split", "digest"}`, where the options are JSON text and the digest is that of the question. It is the column
`extra_info` (of TRL: columns of their own; of OpenRLHF: the label, as JSON text); `find_task` reads it. Gold answers
are only where a framework has a place for them that the model does not see (verl and SkyRL).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arpo_env.adapters.chat_episode import check_one_conversation
from arpo_env.env import ToolEnv
from arpo_env.registration import EnvFactory
from envs_registry import Task
from envs_registry.install_line import install_line
from envs_registry.nearest_name import nearest_hint

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".parquet")


def _trl(env: ToolEnv, task: Task, reference: Row) -> Row:
    # Columns of their own: TRL passes them by name to `reset` and to reward functions.
    return {"prompt": env.messages(task), **reference}


def _verl(env: ToolEnv, task: Task, reference: Row) -> Row:
    return {
        "data_source": reference["env_id"],
        "agent_name": "arpo_agent",
        "prompt": env.messages(task),
        "ability": task.kind,
        "reward_model": {"style": "rule", "ground_truth": list(task.answers)},
        "extra_info": reference,
    }


def _skyrl(env: ToolEnv, task: Task, reference: Row) -> Row:
    return {
        "data_source": reference["env_id"],
        "prompt": env.messages(task),
        "env_class": "arpo",
        "reward_spec": {"method": "rule", "ground_truth": list(task.answers)},
        "max_turns": env.budget.turns,
        "extra_info": reference,
    }


def _openrlhf(env: ToolEnv, task: Task, reference: Row) -> Row:
    label = json.dumps(reference, ensure_ascii=False)
    return {"input": env.messages(task), "label": label, "datasource": reference["env_id"]}


def _prompts(env: ToolEnv, task: Task, reference: Row) -> Row:
    return {"prompt": env.messages(task), "extra_info": reference}


@dataclass(frozen=True)
class RowFormat:
    """A format of rows: how a row is made, options that the framework needs by default, the files that it reads."""

    row: Callable[[ToolEnv, Task, Row], Row]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    suffixes: tuple[str, ...] = SUFFIXES


FORMATS: dict[str, RowFormat] = {
    # TRL bounds the turns itself and executes each call of a turn alone, so that ours would count calls
    "trl": RowFormat(_trl, {"protocol": "hermes", "max_turns": 10_000}),
    "verl": RowFormat(_verl),
    "skyrl": RowFormat(_skyrl),
    "openrlhf": RowFormat(_openrlhf, suffixes=(".jsonl",)),
    "jsonl": RowFormat(_prompts, suffixes=(".jsonl",)),
}


def row_format(name: str) -> RowFormat:
    """Return the format of a name; an unknown one is refused with the nearest."""
    if name not in FORMATS:
        hint = nearest_hint(name, FORMATS)
        raise ValueError(f"no format {name!r}{hint}; the formats are {', '.join(FORMATS)}")
    return FORMATS[name]


def task_rows(
    factory: EnvFactory, format: str, limit: int | None = None, leave_out: Collection[str] = ()
) -> Iterator[Row]:
    """Return the rows of an environment's tasks, from the first one on.

    Args:
        factory: the environment.
        format: a key of `FORMATS`.
        limit: the maximum number of rows; an endless source needs one.
        leave_out: options that are not written; whoever reads the rows has them.
    """
    chosen = row_format(format)
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    factory = EnvFactory(factory.id, **{**chosen.defaults, **factory.options})
    env: ToolEnv = factory()
    check_one_conversation(env)
    size = env.tasks.size
    if size is None and limit is None:
        raise ValueError(
            f"the tasks of {factory.id} are generated without end: give the number of rows (limit, --limit)"
        )
    written = {name: value for name, value in factory.options.items() if name not in leave_out}
    common = _reference(EnvFactory(factory.id, **written), env)
    count = min(number for number in (size, limit) if number is not None)
    return (_row(chosen, env, index, common) for index in range(count))


def _row(chosen: RowFormat, env: ToolEnv, index: int, common: Row) -> Row:
    task = env.tasks.task(index)
    return chosen.row(env, task, {**common, "index": index, "id": task.id, "digest": _digest(task)})


def _reference(factory: EnvFactory, env: ToolEnv) -> Row:
    """Return what the references of all tasks have in common."""
    for name in unwritable(factory.options):
        raise ValueError(
            f"the option {name}= cannot be written into a row ({type(factory.options[name]).__name__}): give text, "
            "numbers, lists or mappings, or register an environment of your own that has this option"
        )
    split = factory.options.get("split") or next(iter(env.env_spec.splits), "")
    return {"env_id": factory.id, "options": json.dumps(factory.options, ensure_ascii=False), "split": split}


def unwritable(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that JSON cannot hold."""

    def is_json(value: Any) -> bool:
        try:
            return bool(json.loads(json.dumps(value)) == (list(value) if isinstance(value, tuple) else value))
        except (TypeError, ValueError):
            return False

    return [name for name, value in options.items() if not is_json(value)]


def find_task(reference: Mapping[str, Any] | str, **options: Any) -> tuple[EnvFactory, Task]:
    """Return the environment and the task of a row: its `extra_info`, its label, or a row of the format "trl" itself.

    `options` are those that were not written into the row.
    """
    found = json.loads(reference) if isinstance(reference, str) else reference
    lacking = [key for key in ("env_id", "options", "index", "id") if found.get(key) is None]
    if lacking:
        raise ValueError(
            f"the row does not name its task ({', '.join(lacking)} missing): write it by `arpo data export`"
        )
    factory = EnvFactory(found["env_id"], **{**options, **json.loads(found["options"])})
    env: ToolEnv = factory()
    check_one_conversation(env)
    task: Task = env.tasks.task(int(found["index"]))
    # Many data sets have no ids of their own: there the id is the position, and only the question tells tasks apart.
    if task.id != found["id"] or found.get("digest") not in (None, _digest(task)):
        raise ValueError(
            f"task {found['index']} of {factory} is {task.id!r} ({task.question:.60}), but was {found['id']!r} with "
            "another id or question when the row was written: its data has changed; export the rows again"
        )
    return factory, task


def _digest(task: Task) -> str:
    return hashlib.sha256(task.question.encode(errors="surrogatepass")).hexdigest()[:16]


def write_rows(path: str | Path, rows: Iterable[Row], overwrite: bool = False) -> int:
    """Write rows with the same columns to a .jsonl or .parquet, which appears when complete; return their number.

    Raises:
        FileExistsError: the file is there and may not be overwritten.
        ValueError: the suffix is unknown.
        ModuleNotFoundError: Parquet needs pyarrow, which the package `datasets` brings.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a file of rows ends in {' or '.join(SUFFIXES)}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already; overwriting has to be asked for")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = (_write_parquet if path.suffix == ".parquet" else _write_jsonl)(partial, rows)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    with path.open("w", encoding="utf-8") as file:
        return sum(1 for row in rows if file.write(json.dumps(row, ensure_ascii=False) + "\n"))


def _write_parquet(path: Path, rows: Iterable[Row]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Parquet needs pyarrow: {install_line('data')}", name=error.name) from error
    table = pyarrow.Table.from_pylist(list(rows))
    pyarrow.parquet.write_table(table, path)
    return int(table.num_rows)
