"""The `arpo data` command: shows or exports the tasks of an environment, and counts the tasks that two of them share.

arpo data show arpo/GAIA-v0 --env-set level=1
arpo data show my_envs:mine/Task-v0
arpo data export arpo/GSM8K-v0 --format verl --output train.parquet --env-set split=train
arpo data overlap arpo/Reasoning10K-v0=train_10k.parquet arpo/HotpotQA-v0 arpo/SimpleQA-v0:test=simpleqa.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arpo_env.adapters.task_rows import FORMATS, row_format, task_rows, write_rows
from arpo_env.registration import EnvFactory
from arpo_trainer.cli.command_options import (
    ENV_HELP,
    add_command,
    add_command_group,
    add_env_options,
    read_env_options,
    write_table,
)
from envs_registry import DataSetSource, EnvSpec, Task, TaskSource, get_spec, load_source
from envs_registry.sources import OF_ENDLESS, named_source

EXAMPLES = 3
_WHERE = (
    "ENV, ENV:SPLIT or ENV:SPLIT=PATH of a local file or folder; ENV may name its module, as in my_envs:mine/Task-v0"
)


def add_data_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    actions = add_command_group(commands, "data", "show or export the tasks of environments, or count what two share")

    purpose = "show the tasks of an environment: counts by kind, language and level, repairs and three examples"
    show = add_command(actions, "show", _show, purpose, usage="arpo data show ENV [options]")
    show.add_argument("env", metavar="ENV", help=ENV_HELP)
    add_env_options(show)

    _add_export(actions)

    both = add_command(actions, "overlap", _overlap, "count the evaluation questions that are in a training set")
    both.add_argument("train", metavar="TRAIN", help=_WHERE)
    held_out = f"{_WHERE}; the default split is the first that is not train"
    both.add_argument("eval", nargs="+", metavar="EVAL", help=held_out)


def _show(arguments: argparse.Namespace) -> int:
    options = read_env_options(arguments)
    spec = get_spec(arguments.env)
    source = load_source(spec.source, **options)
    tasks = [source.task(number) for number in range(source.size or OF_ENDLESS)]
    facts = [
        ("ENV", spec.id),
        ("SPLIT", _split(spec, getattr(source, "split", options.get("split")))),
        *_origin(source),
    ]
    facts.append(("TASKS", str(source.size) if source.size else f"endless; the first {OF_ENDLESS}:"))
    for title, value in (("KINDS", "kind"), ("LANGUAGES", "language"), ("LEVELS", "level")):
        facts.append((title, _counts(getattr(task, value) for task in tasks)))
    write_table(facts)
    for task in tasks[:EXAMPLES]:
        sys.stdout.write(f"\n{task.id}\n{_short(task)}\n  answers: {'; '.join(task.answers)}\n")
    return 0


def _split(spec: EnvSpec, split: str | None) -> str:
    return f"{split or spec.splits[0]} (of {', '.join(spec.splits)})" if spec.splits else "none"


def _origin(source: TaskSource) -> list[tuple[str, str]]:
    if not isinstance(source, DataSetSource):
        return []
    repairs = [(f"  {name}", str(count)) for name, count in source.repairs.items()]
    origin = f"{source.origin} at {source.revision}" if source.revision else source.origin
    return [("FROM", origin), ("ROWS READ", str(source.rows)), ("REPAIRS", "" if repairs else "none"), *repairs]


def _counts(values: Iterable[str]) -> str:
    return ", ".join(f"{value or 'none'} {count:,}" for value, count in sorted(Counter(values).items()))


def _short(task: Task, limit: int = 400) -> str:
    return task.question if len(task.question) <= limit else task.question[:limit] + " ..."


def _add_export(actions: Any) -> None:
    purpose = "write the tasks of an environment to a file of rows that another framework reads"
    usage = "arpo data export ENV --format NAME --output PATH [options]"
    export = add_command(actions, "export", _export, purpose, usage=usage)
    export.add_argument("env", metavar="ENV", help=ENV_HELP)
    export.add_argument("--format", required=True, metavar="NAME", help=f"one of {', '.join(FORMATS)}")
    export.add_argument("--output", required=True, type=Path, metavar="PATH", help="a .jsonl or .parquet file")
    export.add_argument("--limit", type=int, help="the most rows; required if tasks are generated without end")
    export.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    add_env_options(export)


def _export(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    suffixes = row_format(arguments.format).suffixes
    if output.suffix not in suffixes:
        raise ValueError(f"--output {output}: the format {arguments.format} is a file {' or '.join(suffixes)}")
    if output.exists() and not arguments.overwrite:
        raise FileExistsError(f"{output} is there already; add --overwrite to replace it")
    options = read_env_options(arguments)
    # Workers that read the rows have working directories of their own.
    if isinstance(options.get("data"), str) and (path := Path(options["data"]).expanduser()).exists():
        options["data"] = str(path.resolve())
    rows = task_rows(EnvFactory(arguments.env, **options), arguments.format, arguments.limit)
    count = write_rows(output, rows, overwrite=True)
    sys.stdout.write(f"wrote {count} rows to {output}\n")
    return 0


def _overlap(arguments: argparse.Namespace) -> int:
    from envs_registry.contamination import overlap

    _, train = named_source(arguments.train, "train")
    rows = [("EVALUATION", "TASKS", "SAME", "SIMILAR")]
    examples = []
    for text in arguments.eval:
        name, source = named_source(text, "held out")
        found = overlap(train, source)
        rows.append((name, str(found.evaluated), str(found.count), str(found.near_count)))
        examples += [f"{name} {other.id} = {task.id}\n{_short(other)}\n" for task, other in found.exact[:EXAMPLES]]
    write_table(rows)
    sys.stdout.writelines(f"\n{example}" for example in examples)
    return 0
