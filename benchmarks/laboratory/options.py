"""What the laboratory's actions share on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_action(
    actions: Any, name: str, run: Callable[[argparse.Namespace], int], purpose: str
) -> argparse.ArgumentParser:
    """Add an action to a parser; `run` does the work, and returns the exit status."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=purpose, description=purpose)
    parser.set_defaults(run=run)
    return parser


def add_set_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add `--set`."""
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)
