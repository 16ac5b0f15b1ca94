"""NAME=VALUE on the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any


def read_options(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Read NAME=VALUE texts; a value that is a Python literal is taken as that, any other as text.

    Raises:
        ValueError: one without "="; names the flag it was given with.
    """
    return dict(_option(text, flag) for text in texts)


def read_counts(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Read NAME=NUMBER texts.

    Raises:
        ValueError: one without "=", or whose value is no whole number.
    """
    found = read_options(texts, flag)
    for name, value in found.items():
        if type(value) is not int:
            raise ValueError(f"{flag} {name}={value}: write a whole number, such as {name}=8")
    return found


def _option(text: str, flag: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{flag} {text!r}: write name=value, such as level=2")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
