"""Options that several commands share: `--set`, `--env-set`, and options under their old names.

Every command takes settings as `--set name=value` and options of an environment as `--env-set name=value`, with values
in YAML. Options under an old name work for one more version with a `DeprecationWarning`.
"""

from __future__ import annotations

import argparse
import ast
import warnings
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


def add_env_options(parser: argparse.ArgumentParser, old: str = "", **old_form: Any) -> None:
    """Add `--env-set`, and an old name of it.

    Args:
        parser: the command's parser.
        old: the old flag, whose values were Python literals or text; "" if there was none.
        old_form: how argparse reads the old flag.
    """
    purpose = "options of the environment, with values in YAML: level=2, tools=[python]"
    parser.add_argument("--env-set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)
    parser.set_defaults(old_env_flag=old)
    if old:
        parser.add_argument(old, dest="old_env_set", default=[], help=argparse.SUPPRESS, **old_form)


def read_env_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the environment that were given.

    Raises:
        ValueError: an option is not `name=value`, or both the old and the new flag were given.
    """
    old = getattr(arguments, "old_env_set", [])  # commands without an old flag have no such value
    if not old:
        options = parse_assignments(arguments.env_set, "--env-set")
        for name in [name for name, value in options.items() if value == "None"]:  # null in YAML
            warnings.warn(f"--env-set {name}=None: write YAML, {name}=null", DeprecationWarning, 2)
            options[name] = None
        return options
    flag = arguments.old_env_flag
    warn_old_name(flag, "--env-set", "its values are YAML")
    if arguments.env_set:
        raise ValueError(f"{flag} is the old name of --env-set: give only --env-set")
    return dict(_python_option(text, flag) for text in old)


def read_settings_options(texts: Iterable[str]) -> dict[str, Any]:
    """Return the settings that were given with `--set`; Python literals that are not YAML work with a warning.

    Raises:
        ValueError: a setting is not `name=value`.
    """
    texts = list(texts)  # it is read twice
    found = parse_assignments(texts, "--set")
    for name, value in (_python_option(text, "--set") for text in texts):
        name = name.strip()
        if isinstance(found[name], str) and not isinstance(value, str):  # such as None, which YAML calls null
            warnings.warn(f"--set {name}={value}: write YAML, not Python, such as null for None", DeprecationWarning, 2)
            found[name] = value
    return found


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


class OldName(argparse.Action):
    """An option under its old name; `settle_old_names` moves its value to the new option, whose default is None.

    Args:
        new: the new option, as a user writes it.
        dest: where the new option stores its value.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, new: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, help=argparse.SUPPRESS, **kwargs)
        self.new = new

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Note the value; whether the new option is given too is known only at the end."""
        # argparse copies everything in a subcommand's namespace into the main one
        vars(namespace).setdefault("old_names", []).append((option, self.new, self.dest, values))


def settle_old_names(arguments: argparse.Namespace) -> None:
    """Store the values of options that were given under their old names.

    Raises:
        ValueError: an option was given under both names.
    """
    for old, new, dest, value in vars(arguments).pop("old_names", []):
        warn_old_name(old, new)
        if getattr(arguments, dest) is not None:
            raise ValueError(f"{old} is the old name of {new}: give only {new}")
        setattr(arguments, dest, value)


def warn_old_name(old: str, new: str, more: str = "") -> None:
    """Warn that an option has a new name."""
    text = f"{old} is deprecated and will be removed in the next version: use {new}" + (f" ({more})" if more else "")
    # the warning belongs to the caller, a module of ours: the filter of the `arpo` command shows only those
    warnings.warn(text, DeprecationWarning, stacklevel=2)


def _python_option(text: str, flag: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{flag} {text!r}: write name=value, such as level=2")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
