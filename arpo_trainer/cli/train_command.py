"""The commands `arpo train`, a training run from a recipe or a settings file, and `arpo recipes`, the list of recipes.

arpo train --recipe arithmetic-cpu --set max_steps=3 --env-set level=2
arpo train --config my.yaml --dry-run
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_env_options, add_set_option, write_table
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.launch import add_launch_flags, check_launch_flags, launch
from arpo_trainer.run.recipes import FOLDERS, check_recipe, read_settings, recipe_names, recipe_summary


def add_train_command(commands: Any) -> None:
    """Add the command `arpo train` to a parser."""
    train = add_command(commands, "train", _train, "train a model, and write a report")
    source = train.add_mutually_exclusive_group(required=True)
    source.add_argument("--recipe", metavar="NAME", help="a recipe of the package; `arpo recipes` lists them")
    source.add_argument("--config", metavar="FILE", help="a YAML file with settings")
    train.add_argument(
        "--ray", metavar="ADDRESS", help="play rollouts on this Ray cluster (HOST:PORT, or auto): sets ray_address"
    )
    add_set_option(train, "settings, with values in YAML: max_steps=3, limits.python=4")
    add_env_options(train)
    train.add_argument(
        "--dry-run",
        action="store_true",
        help="check the settings, estimate the costs, and print the placement; nothing is loaded",
    )
    add_launch_flags(train)


def add_recipes_command(commands: Any) -> None:
    """Add the command `arpo recipes` to a parser."""
    add_command(commands, "recipes", _recipes, "list the recipes, which `arpo COMMAND --recipe NAME` runs")


def _recipes(arguments: argparse.Namespace) -> int:
    named = [(command, name) for command in FOLDERS for name in recipe_names(command)]
    rows = [(name, command, recipe_summary(name, command)) for command, name in named]
    write_table([("RECIPE", "COMMAND", "WHAT IT IS"), *rows])
    return 0


def _train(arguments: argparse.Namespace) -> int:
    _check_source(arguments)
    check_launch_flags(arguments)
    require("train")
    # each process that is launched reads the settings itself; a dry run plans for them in this one
    if arguments.accelerate_config and not arguments.dry_run:
        return launch(arguments, arguments.argv)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # about `rollout_func`, which our tests of TRL watch
    settings = read_settings(arguments.recipe or arguments.config, arguments.set, arguments.env_set)
    if arguments.ray:
        settings["ray_address"] = arguments.ray
    if arguments.dry_run:
        return _dry_run(settings, arguments)
    from arpo_trainer.run.train import train  # after the dry run: it imports the whole training stack

    train(settings)
    return 0


def _check_source(arguments: argparse.Namespace) -> None:
    if arguments.recipe:
        check_recipe(arguments.recipe)


def _dry_run(settings: dict[str, Any], arguments: argparse.Namespace) -> int:
    from arpo_trainer.costs.estimate import cost_rows
    from arpo_trainer.run.dry_run import Placement, plan_run

    planned = plan_run(settings, arguments.num_processes, arguments.accelerate_config)
    placement = Placement(planned, arguments.num_machines, arguments.main_process_ip)
    refused = placement.refused()
    # under a launcher each process makes the estimate, and one prints it
    if os.environ.get("RANK", "0") == "0":
        write_table([*cost_rows(planned.costs), *placement.rows()])
        sys.stdout.writelines(f"left out: {note}\n" for note in planned.costs.notes)
        sys.stderr.writelines(f"missing here: {lack}\n" for lack in planned.missing)
        sys.stderr.writelines(f"refused: {reason}\n" for reason in refused)
    return 1 if planned.missing or refused else 0
