"""The `arpo` command, described from its argument parser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from arpo_trainer.cli.arpo_command import _parser as command_parser
from scripts.site.markdown import block, code, table


def commands() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield (name, help, parser) of each command and each of its own commands, as in "cache show"."""
    yield from _below(command_parser(), "")


def command_reference(_: str) -> str:
    """Return a section for each command: its usage and a table of its arguments."""
    os.environ["COLUMNS"] = "88"  # argparse wraps the usage at the terminal's width
    parts = [_section("arpo", "", command_parser(), 2)]
    for name, said, parser in commands():
        parts.append(_section(f"arpo {name}", said, parser, 2 + name.count(" ")))
    return "\n".join(parts)


def _below(parser: argparse.ArgumentParser, prefix: str) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                yield f"{prefix}{name}", said.get(name, ""), child
                yield from _below(child, f"{prefix}{name} ")


def _section(title: str, said: str, parser: argparse.ArgumentParser, level: int) -> str:
    text = f"{'#' * level} {title}\n\n"
    text += f"{said[:1].upper()}{said[1:]}.\n\n" if said else ""
    text += block(parser.format_usage())
    rows = [_row(action, parser) for action in parser._actions if _shown(action)]
    return f"{text}\n{table(('argument', 'meaning'), rows)}" if rows else text


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return action.help != argparse.SUPPRESS and not hidden


def _row(action: argparse.Action, parser: argparse.ArgumentParser) -> tuple[str, str]:
    takes = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = "" if action.nargs == 0 else f" {takes}"
    names = ", ".join(code(f"{flag}{value}") for flag in action.option_strings)
    said = (action.help or "") % {**vars(action), "prog": parser.prog}
    return names or code(str(action.metavar or action.dest)), said
