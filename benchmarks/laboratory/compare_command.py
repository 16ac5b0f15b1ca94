"""The `compare` action of the laboratory: a grid of training runs, and what it says about the algorithms at equal cost.

python -m benchmarks.laboratory compare --quick --output lab/quick
python -m benchmarks.laboratory compare --algorithms grpo arpo "low=arpo:branch_alpha=0.6" \
    --envs short long-critical --seeds 10 --budget tokens=20000 --output lab/first
python -m benchmarks.laboratory compare --output lab/first                # goes on after a kill
python -m benchmarks.laboratory compare --output lab/first --draw         # only tables and figures, of what is there
python -m benchmarks.laboratory compare --output lab/first/comparison.json --draw
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import write_table
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import check_name
from benchmarks.laboratory.options import add_action, add_set_option

if TYPE_CHECKING:
    from benchmarks.laboratory.run_store import GridPlan

_QUICK = {"algorithms": ["grpo", "arpo"], "envs": ["short"], "seeds": ["3"], "budget": ["trajectories=1536"]}


def add_compare_action(actions: Any) -> None:
    """Add the action to a parser."""
    purpose = "train algorithms x environments x seeds, and compare them at equal cost"
    compare = add_action(actions, "compare", _compare, purpose)
    form = "algorithms, also with settings and a label of their own: grpo low=arpo:branch_alpha=0.6"
    compare.add_argument("--algorithms", nargs="+", metavar="NAME", help=form)
    compare.add_argument("--envs", nargs="+", metavar="NAME", help="worlds, such as short and arithmetic")
    compare.add_argument("--seeds", nargs="+", metavar="N", help="how many (10), the seeds (0 1 2), or ranges (5-9)")
    budget = "what each run may spend: tokens=N, calls=N, trajectories=N or update_tokens=N; with --draw of any axes"
    compare.add_argument("--budget", nargs="+", metavar="AXIS=N", help=budget)
    add_set_option(compare, "settings of all runs, with values in YAML: learning_rate=3e-4")
    compare.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="of the runs and results; with --draw also a comparison.json",
    )
    compare.add_argument("--processes", type=int, default=2, metavar="N", help="most runs at once (default: 2)")
    compare.add_argument(
        "--baseline", metavar="LABEL", help="what others are compared to (default: grpo, or the first)"
    )
    compare.add_argument("--quick", action="store_true", help="two algorithms, three seeds, one environment; minutes")
    compare.add_argument("--draw", action="store_true", help="train nothing; tables and figures of what is there")


def _compare(arguments: argparse.Namespace) -> int:
    from benchmarks.laboratory.grid import run_grid
    from benchmarks.laboratory.grid_run import parse_budget

    if arguments.draw:
        if given := [name for name in ("algorithms", "envs", "seeds", "set", "quick") if getattr(arguments, name)]:
            raise ValueError(f"--draw trains nothing: leave out --{given[0]}")
        if arguments.output.suffix == ".json":
            _draw_result(arguments.output)
        else:
            _show(arguments, parse_budget(arguments.budget or []))
        return 0
    plan = _plan(arguments)
    _check_baseline(arguments, plan)
    run, check = training_functions()
    outcome = run_grid(plan, arguments.output, run, processes=arguments.processes, check=check)
    _show(arguments, {})
    return 1 if outcome.failed else 0


def _check_baseline(arguments: argparse.Namespace, plan: GridPlan) -> None:
    """Refuse an unknown baseline before any run is made."""
    from benchmarks.laboratory.run_store import stored_plan

    if arguments.baseline:
        plans = [stored_plan(arguments.output) or plan, plan]
        labels = dict.fromkeys(one.label for each in plans for one in each.algorithms)
        check_name("--baseline", arguments.baseline, labels)


def training_functions() -> tuple[Any, Any]:
    """Return what trains one run, and what refuses a run that cannot work.

    Raises:
        ModuleNotFoundError: the libraries for training are not installed.
    """
    require("train")
    from benchmarks.laboratory.grid_training import GridRunCheck, train_grid_run

    return train_grid_run, GridRunCheck()


def _plan(arguments: argparse.Namespace) -> GridPlan:
    """Return what was asked for; what was not given is that of the folder, if it has a comparison already."""
    from benchmarks.laboratory.grid_run import parse_algorithm, parse_budget, parse_seeds
    from benchmarks.laboratory.run_store import GridPlan, stored_plan

    stored = stored_plan(arguments.output)
    given: dict[str, Any] = {name: getattr(arguments, name) for name in _QUICK}
    if arguments.quick:
        given = {name: given[name] or value for name, value in _QUICK.items()}
    absent = [name for name in ("algorithms", "envs", "seeds") if not given[name]]
    if absent and stored is None:
        raise ValueError(f"a new comparison needs --{absent[0]} (or --quick); {str(arguments.output)!r} has none yet")
    old = stored or GridPlan([], [], [])
    budget = parse_budget(given["budget"]) if given["budget"] else old.budget
    if len(budget) != 1:
        raise ValueError("a run ends when one cost is spent: give one --budget, such as tokens=20000")
    return GridPlan(
        [parse_algorithm(text) for text in given["algorithms"]] if given["algorithms"] else old.algorithms,
        given["envs"] or old.envs,
        parse_seeds(given["seeds"]) if given["seeds"] else old.seeds,
        budget,
        parse_assignments(arguments.set, "--set") if arguments.set else old.settings,
    )


def _show(arguments: argparse.Namespace, budgets: dict[str, int]) -> None:
    from benchmarks.laboratory.comparison_files import write_comparison
    from benchmarks.laboratory.equal_cost import compare_records
    from benchmarks.laboratory.run_store import load_comparison

    plan, records = load_comparison(arguments.output)
    data = compare_records(plan, records, budgets, arguments.baseline)
    write_comparison_tables(data)  # first: they are there, too, where nothing can be written
    files = write_comparison(data, arguments.output)
    sys.stdout.write("\n" + "".join(f"{path}\n" for path in files))


def _draw_result(path: Path) -> None:
    from benchmarks.laboratory.comparison_files import draw_comparison, load_result

    write_comparison_tables(load_result(path))
    sys.stdout.write("\n" + "".join(f"{figure}\n" for figure in draw_comparison(path)))


def write_comparison_tables(data: dict[str, Any]) -> None:
    """Print the tables of a comparison: for each axis of cost the algorithms by environment, then what went wrong."""
    from benchmarks.laboratory.comparison_words import axis_rows, trouble_lines

    for axis in data["axes"]:
        title, rows = axis_rows(data, axis)
        sys.stdout.write(f"\n{title}\n")
        write_table(rows)
    for line in trouble_lines(data):
        sys.stdout.write(f"{line}\n")
