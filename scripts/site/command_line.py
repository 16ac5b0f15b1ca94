"""The `arpo` command, described from its commands' parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cyclopts import App

from arpo_trainer.cli.arpo_command import app
from scripts.site.markdown import block, code, table


def commands() -> Iterator[tuple[str, App]]:
    """Yield (name, command) of each command and each of its own commands, as in "cache show"."""
    yield from _below(app, "")


def command_reference(_: str) -> str:
    """Return a section for each command: its usage and a table of its arguments."""
    sections = (_section(f"arpo {name}", one, 2 + name.count(" ")) for name, one in commands())
    return "\n".join([_section("arpo", app, 2), *sections])


def arguments(command: App) -> list[Any]:
    """Return what a command takes, as cyclopts describes it."""
    if command.default_command is None:
        return []
    return [one for one in command.assemble_argument_collection(parse_docstring=True) if one.show]


def spellings(one: Any) -> list[str]:
    """Return how an argument is written, without the forms that deny it."""
    return [name for name in one.names if not name.startswith(("--no-", "--empty-"))]


def _below(above: App, prefix: str) -> Iterator[tuple[str, App]]:
    for name in above:
        if not name.startswith("-"):
            yield f"{prefix}{name}", above[name]
            yield from _below(above[name], f"{prefix}{name} ")


def _section(title: str, command: App, level: int) -> str:
    said = (command.help or "").strip().partition("\n\n")[0].rstrip(".")
    rows = [_row(one) for one in arguments(command)]
    usage = " ".join([title, *(_needed(command) if rows or command.default_command else ["COMMAND"])])
    text = f"{'#' * level} {title}\n\n" + (f"{said[:1].upper()}{said[1:]}.\n\n" if said else "") + block(usage)
    return f"{text}\n{table(('argument', 'meaning'), rows)}" if rows else text


def _needed(command: App) -> Iterator[str]:
    for one in arguments(command):
        if one.required or not one.name.startswith("-"):
            yield f"{one.name} VALUE" if one.name.startswith("-") else one.name
    if arguments(command):
        yield "[options]"


def _row(one: Any) -> tuple[str, str]:
    return ", ".join(code(name) for name in spellings(one)), " ".join((one.parameter.help or "").split())
