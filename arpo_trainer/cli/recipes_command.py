"""`arpo recipes`: lists the recipes, one line each."""

from __future__ import annotations

import argparse
from typing import Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.run.recipes import recipe_names, recipe_summary


def add_recipes_command(commands: Any) -> None:
    """Add the command to the parser of `arpo`."""
    add_command(commands, "recipes", _recipes, "list the recipes, which `arpo train --recipe NAME` runs")


def _recipes(arguments: argparse.Namespace) -> int:
    write_table([("RECIPE", "WHAT IT IS"), *((name, recipe_summary(name)) for name in recipe_names())])
    return 0
