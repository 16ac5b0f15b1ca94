"""Options that several commands share.

Every command takes settings as `--set name=value` and options of an environment as `--env-set name=value`, with values
in YAML.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arpo_trainer.run.recipes import parse_assignments

ENV_HELP = "environment id, such as arpo/Arithmetic-v0, or MODULE:ID of your own"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], purpose: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Add a command, or an action of one, to a parser.

    Args:
        commands: the parsers of the commands.
        name: what the user types.
        run: does the work, and returns the exit status.
        purpose: one line for the list of commands and for the command's own help.
        usage: replaces argparse's usage, which puts ENV last, where `--set a=1 ENV` would take it for a setting.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose, usage=usage)
    parser.set_defaults(run=run)
    return parser


def add_command_group(commands: Any, name: str, purpose: str) -> Any:
    """Add a command that has actions, and return what its actions are added to."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose)
    return parser.add_subparsers(required=True, metavar="ACTION")


def add_set_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add `--set`."""
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)


def add_env_options(parser: argparse.ArgumentParser) -> None:
    """Add `--env-set`."""
    purpose = "options of the environment, with values in YAML: level=2, tools=[python]"
    parser.add_argument("--env-set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)


def read_env_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the environment that were given.

    Raises:
        ValueError: an option is not `name=value`.
    """
    return parse_assignments(arguments.env_set, "--env-set")


def read_counts(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Return whole numbers that were given as NAME=NUMBER.

    Raises:
        ValueError: a text is not `name=value`, or its value is not a whole number.
    """
    found = parse_assignments(texts, flag)
    for name, value in found.items():
        # not isinstance: True is an int in Python, and `python=true` is a mistake
        if type(value) is not int:
            raise ValueError(f"{flag} {name}={value}: write a whole number, such as {name}=8")
    return found


# Tables on the terminal.

_WIDTH = 100  # characters per line


def write_table(rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print rows of equal length with aligned columns.

    Args:
        rows: the cells of each row.
        notes: a note below each row, indented and wrapped; an empty one is left out.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, note in itertools.zip_longest(rows, notes[: len(rows)], fillvalue=""):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        sys.stdout.writelines(
            f"{line}\n" for line in textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        )
