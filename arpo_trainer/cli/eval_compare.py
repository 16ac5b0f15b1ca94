"""The `compare` action of `arpo eval`: two runs, or two models of a run, task by task.

arpo eval compare evals/base evals/arpo
arpo eval compare evals/both --models base arpo --metric f1 --all
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.cli.text_table import write_table

if TYPE_CHECKING:
    from arpo_trainer.evaluation.compare_runs import ChangedTask, RunComparison
    from arpo_trainer.statistics.comparison import PairedComparison

_SHOWN = 10  # of the tasks gained, and of those lost
_QUESTION = 90  # characters


def add_compare_action(actions: Any) -> None:
    """Add the action to a parser."""
    purpose = "compare two runs task by task: difference, interval, test, tasks gained and lost"
    compare = add_command(actions, "compare", _compare, purpose)
    compare.add_argument("first", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    compare.add_argument("second", type=Path, nargs="?", metavar="RUN2", help="another one; without it two --models")
    compare.add_argument("--models", nargs=2, metavar=("A", "B"), help="labels of a model in each of the runs")
    compare.add_argument("--metric", default="accuracy", help="accuracy (default), reward, f1, em, correct, ...")
    compare.add_argument("--common", action="store_true", help="compare the common tasks of runs on different tasks")
    compare.add_argument("--all", action="store_true", help=f"list every task gained or lost, not the first {_SHOWN}")
    compare.add_argument("--json", action="store_true", help="write JSON")


def _compare(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.compare_runs import compare_runs
    from arpo_trainer.evaluation.episode_store import load_eval_run

    first = load_eval_run(arguments.first)
    second = first if arguments.second is None else load_eval_run(arguments.second)
    models = None if arguments.models is None else (arguments.models[0], arguments.models[1])
    found = compare_runs(first, second, arguments.metric, models, arguments.common)
    if arguments.json:
        data = [_finite(each.as_dict()) for each in found]
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return 0
    for each in found:
        _write(each, None if arguments.all else _SHOWN)
    return 0


def _write(found: RunComparison, shown: int | None) -> None:
    rows = [_row(env, each) for env, each in found.environments.items()]
    rows += [_row("all", found.overall)] if len(rows) > 1 else []
    sys.stdout.write(f"{found.metric}: {found.first} -> {found.second}\n")
    write_table([("ENVIRONMENT", "TASKS", "FIRST", "SECOND", "DIFFERENCE, 95 %", "P"), *rows])
    if found.unscored:
        sys.stdout.write(f"left out, since all samples of one of the models broke: {found.unscored}\n")
    if found.apart:
        sys.stdout.write(f"left out, since they are in one of the runs only: {found.apart}\n")
    _write_tasks("gained", found.gained, shown)
    _write_tasks("lost", found.lost, shown)


def _row(env: str, each: PairedComparison) -> tuple[str, ...]:
    interval = f"{each.difference:+.3f} [{each.low:+.3f}, {each.high:+.3f}]"
    return env, f"{each.tasks:,}", f"{each.first:.3f}", f"{each.second:.3f}", interval, f"{each.p_value:.4f}"


def _write_tasks(what: str, tasks: Sequence[ChangedTask], shown: int | None) -> None:
    from arpo_trainer.views.terminal_view import one_line, visible

    sys.stdout.write(f"\ntasks {what}: {len(tasks)}\n")
    kept = tasks[:shown]
    if kept:
        rows = [(f"  {each.env}", visible(each.task), f"{each.first:.2f} -> {each.second:.2f}") for each in kept]
        write_table([(*row, one_line(each.question, _QUESTION)) for row, each in zip(rows, kept, strict=True)])
    if len(kept) < len(tasks):
        sys.stdout.write(f"  and {len(tasks) - len(kept)} more: --all lists them\n")


def _finite(data: Any) -> Any:
    """Return plain data with None for a bound that is not known, which JSON has no number for."""
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
