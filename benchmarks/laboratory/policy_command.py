"""The `policy` action of the laboratory: makes a policy to start from, and says how often it succeeds.

python -m benchmarks.laboratory policy --level short
python -m benchmarks.laboratory policy --level arithmetic --set notes=3      # SmolLM2 after a cold start
python -m benchmarks.laboratory policy --level long-critical --set choices=4 size=2M demonstrations=4000
python -m benchmarks.laboratory policy --level short --output FOLDER         # a copy outside the cache
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import write_table
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import check_name
from benchmarks.laboratory.options import add_action, add_set_option

if TYPE_CHECKING:
    from benchmarks.laboratory.lab_policy import StartSettings


def add_policy_action(actions: Any) -> None:
    """Add the action to a parser."""
    policy = add_action(actions, "policy", _policy, "make a policy to start from, and store it in the cache")
    policy.add_argument(
        "--level", default="short", metavar="NAME", help="a world, as of `compare --envs` (default: short)"
    )
    add_set_option(policy, "knobs of the world and settings of the policy, with values in YAML: choices=4 size=2M")
    policy.add_argument("--again", action="store_true", help="make it again even if it is in the cache")
    policy.add_argument("--output", type=Path, metavar="FOLDER", help="a new folder that gets a copy")


def _policy(arguments: argparse.Namespace) -> int:
    require("train")
    from transformers.utils.logging import disable_progress_bar

    from benchmarks.laboratory.lab_policy import lab_policy
    from benchmarks.laboratory.training_run import start_success

    disable_progress_bar()  # of loading weights, which takes no time
    if arguments.output and arguments.output.exists():
        raise FileExistsError(f"--output {str(arguments.output)!r} exists; name a new folder")
    settings = policy_settings(arguments.level, parse_assignments(arguments.set, "--set"))
    folder = lab_policy(settings, again=arguments.again)
    if arguments.output:
        folder = Path(shutil.copytree(folder, arguments.output))
    found = start_success(settings)
    rows = [
        ("folder", str(folder)),
        ("parameters", f"{found['parameters']:,}"),
        ("success at the start", f"{found['success']:.3f} ({found['episodes']} episodes of held-out tasks)"),
    ]
    write_table(rows)
    return 0


def policy_settings(level: str, given: dict[str, Any]) -> StartSettings:
    """Return the settings of a policy.

    Args:
        level: name of the world.
        given: knobs of the world, and settings of its policies.

    Raises:
        ValueError: a name is unknown, with the nearest one; or a value is out of range.
    """
    from benchmarks.laboratory.lab_worlds import lab_world

    world = lab_world(level)
    own = world.policy_names()
    for name in given:
        check_name("a name of --set", name, [*world.knobs, *own])
    knobs = {name: value for name, value in given.items() if name not in own}
    return world.start(level, knobs, {name: value for name, value in given.items() if name in own})
