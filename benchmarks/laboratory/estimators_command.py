"""The `estimators` action of the laboratory: the credit that algorithms give, against the true advantages of a policy.

python -m benchmarks.laboratory estimators --level short --algorithms grpo "fork=random:attribution=fork" \
    --output estimators.json
python -m benchmarks.laboratory estimators --level stochastic --set knobs.slip=0.3 num_generations=8 --groups 32
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import write_table
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import parse_assignments
from benchmarks.laboratory.options import add_action, add_set_option

_USUAL = ["grpo", "arpo", "aepo", "tree-grpo", "random"]
_ERRORS = {  # of turns, in units of reward
    "BIAS": "bias",
    "MSE": "mse",
    "BIAS^2": "squared_bias",
    "VARIANCE": "variance",
    "WRONG SIGN": "wrong_sign",
    "RANK": "rank",
    "SLOPE": "slope",
}


def add_estimators_action(actions: Any) -> None:
    """Add the action to a parser."""
    purpose = "judge credit without training: against the true advantages of a fixed policy in a small world"
    parser = add_action(actions, "estimators", _estimators, purpose)
    parser.add_argument("--level", default="short", metavar="NAME", help="of arpo/Bifurcation-v0 (default: short)")
    form = "algorithms, also with settings and a label of their own: grpo fork=arpo:attribution=fork"
    parser.add_argument("--algorithms", nargs="+", default=_USUAL, metavar="NAME", help=form)
    add_set_option(parser, "settings of all algorithms, and knobs of the world: num_generations=8 knobs.slip=0.3")
    parser.add_argument("--groups", type=int, default=16, metavar="N", help="groups of each task (default: 16)")
    parser.add_argument("--tasks", type=int, default=4, metavar="N", help="number of tasks (default: 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn (default: 0)")
    parser.add_argument("--policy", type=Path, metavar="FOLDER", help="of the policy (default: that of the level)")
    left_out = "leave histories out that are less likely (default: 1e-5)"
    parser.add_argument("--smallest", type=float, default=1e-5, metavar="P", help=left_out)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write everything measured as JSON")


def _estimators(arguments: argparse.Namespace) -> int:
    require("train")
    from benchmarks.laboratory.estimators import EstimatorStudy, judge_estimators
    from benchmarks.laboratory.grid_run import parse_algorithm

    given = parse_assignments(arguments.set, "--set")
    knobs = {name.removeprefix("knobs."): value for name, value in given.items() if name.startswith("knobs.")}
    study = EstimatorStudy(
        arguments.level,
        [parse_algorithm(text) for text in arguments.algorithms],
        knobs,
        groups=arguments.groups,
        tasks=arguments.tasks,
        seed=arguments.seed,
        settings={name: value for name, value in given.items() if not name.startswith("knobs.")},
        policy=arguments.policy,
        smallest=arguments.smallest,
    )
    result = judge_estimators(study)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(_as_json(result), encoding="utf-8")
    write_estimator_tables(result)
    return 0


def write_estimator_tables(result: Mapping[str, Any]) -> None:
    """Print what was judged: errors per turn in units of reward, then trees and directions."""
    world, study = result["world"], result["study"]
    values = ", ".join(f"{value:.3f}" for value in world["values"])
    sys.stdout.write(f"{study['level']}: true values {values}; not enumerated at most {max(world['lost']):.3f}\n")
    sys.stdout.write("\nErrors per turn, in units of reward (+- standard error)\n")
    methods = result["methods"].items()
    errors = [[_cell(one["reward"]["turn"][name]) for name in _ERRORS.values()] for _, one in methods]
    write_table(_rows(result, ["METHOD", *_ERRORS], errors))
    sys.stdout.write("\nCosine with the exact gradient at equal cost; trees\n")
    heads = ["METHOD", "TOKENS", "CALLS", "PUBLISHED", "WORTHLESS PUSH", "CONTRAST", "LEAVES WORTH"]
    write_table(_rows(result, heads, [_direction(one) for _, one in methods]))


def _as_json(result: Mapping[str, Any]) -> str:
    """Return JSON with a value and its standard error on one line."""
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", _on_one_line, json.dumps(result, indent=1)) + "\n"


def _on_one_line(numbers: re.Match[str]) -> str:
    return f"[{', '.join(part.strip() for part in numbers[1].split(','))}]"


def _direction(one: Mapping[str, Any]) -> list[str]:
    cosines, trees = one["reward"]["cosine"], one["trees"]
    return [
        _cell(cosines.get("equal_sampled_tokens")),
        _cell(cosines.get("equal_tool_calls")),
        _cell(one["published"]["cosine"].get("equal_sampled_tokens")),
        _cell(one["reward"]["worthless_push"]),
        _cell(trees["fork_contrast"]),
        _cell(trees["effective_leaves"], 1),
    ]


def _rows(result: Mapping[str, Any], heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(heads), *([label, *row] for label, row in zip(result["methods"], cells, strict=True))]


def _cell(pair: Sequence[float | None] | None, digits: int = 3) -> str:
    """Return a value with its standard error; a dash where nothing was measured."""
    if pair is None or pair[0] is None:
        return "-"
    error = "" if pair[1] is None else f" +-{pair[1]:.{digits}f}"
    return f"{pair[0]:.{digits}f}{error}"
