"""`arpo recipes`: what can be trained by name, one line each."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

from arpo_trainer.cli.text_table import write_table

RECIPES = Path(__file__).parents[1] / "recipes"


def add_recipes_command(commands: Any) -> None:
    """Add the command to the parser of `arpo`."""
    recipes = commands.add_parser("recipes", help="list the recipes, which `arpo train --recipe NAME` runs")
    recipes.set_defaults(run=_recipes)


def recipe_names() -> list[str]:
    """Return the names of the recipes in the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def check_recipe(name: str) -> None:
    """Refuse a name that no recipe has.

    Raises:
        FileNotFoundError: names the nearest recipes, or where there is none near all of them.
    """
    names = recipe_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean: {', '.join(near)}?" if near else f"there are: {', '.join(names)}"
        file = f" (a file is given with --config {name})" if Path(name).is_file() else ""
        raise FileNotFoundError(f"no recipe {name!r}{file}; {hint} `arpo recipes` lists them")


def describe(name: str) -> str:
    """Return the first sentence of a recipe's opening comment, up to a parenthesis."""
    lines = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    opening = []
    for line in lines:
        if not line.startswith("#"):
            break
        opening.append(line.lstrip("# ").strip())
    return " ".join(opening).partition(". ")[0].partition(" (")[0].rstrip(".")


def _recipes(arguments: argparse.Namespace) -> int:
    write_table([("RECIPE", "WHAT IT IS"), *((name, describe(name)) for name in recipe_names())])
    return 0
