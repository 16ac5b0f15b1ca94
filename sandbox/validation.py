"""Checks arguments before anything is sent; each error says what is allowed."""

from __future__ import annotations

import math
import secrets
from pathlib import PurePath, PurePosixPath
from typing import Any

from sandbox.config.limits import Limits

_LONGEST_CODE = 8 << 20
_MOST_FORKS = 64
_SEEDS = 1 << 63
_OUTSIDE = "not in the session's directory; write a relative path, such as 'data/in.csv'"


def checked_cell(code: str, timeout: float | None, limits: Limits) -> dict[str, Any]:
    """Return the fields of a request to run a cell.

    Raises:
        TypeError: the code is not a str, or the timeout is not a number.
        ValueError: there is too much code, or the timeout is not positive and finite.
    """
    if not isinstance(code, str):
        raise TypeError(f"code has to be a str, not {type(code).__name__}")
    # ASCII, the usual case, is measured without encoding it
    size = len(code) if code.isascii() else len(code.encode("utf-8", "surrogatepass"))
    if size > _LONGEST_CODE:
        raise ValueError(f"{size} bytes of code; at most {_LONGEST_CODE} can be sent; use `put` for data")
    if timeout is None:
        timeout = limits.timeout
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):  # bool is an int
        raise TypeError(f"timeout={timeout!r}; it has to be a number of seconds, or None for `Limits.timeout`")
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout={timeout}; it has to be a positive number of seconds")
    return {"code": code, "timeout": timeout}


def checked_forks(n: int) -> int:
    """Return a number of copies.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is below 1, or too large.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"fork({n!r}): n has to be a whole number")
    if not 1 <= n <= _MOST_FORKS:
        raise ValueError(f"fork({n}): n has to be from 1 to {_MOST_FORKS}; fork again for more")
    return n


def checked_seed(reseed: bool | int) -> int | None:
    """Return the base seed for copies, None if they keep the random state.

    Raises:
        TypeError: it is neither a bool nor a whole number.
        ValueError: it is negative, or too large.
    """
    if reseed is False:
        return None
    if reseed is True:
        return secrets.randbelow(_SEEDS)
    if not isinstance(reseed, int):
        raise TypeError(f"reseed={reseed!r}; it has to be True, False or a whole number")
    if not 0 <= reseed < _SEEDS:
        raise ValueError(f"reseed={reseed}; it has to be from 0 to {_SEEDS - 1}")
    return reseed


def checked_name(name: str | PurePath) -> str:
    """Return the path of a file in the session's directory.

    Raises:
        TypeError: it is neither a str nor a path.
        ValueError: it is not in the directory.
    """
    name = _checked_path(name)
    if not PurePosixPath(name).name:
        raise ValueError(f"{name!r} is {_OUTSIDE}")
    return name


def checked_directory(path: str | PurePath) -> str:
    """Return the path of the session's directory ("."), or of a directory in it; see `checked_name`."""
    path = _checked_path(path)
    if not path:
        raise ValueError("'' is not a directory; write '.' for the session's own")
    return path


def _checked_path(name: str | PurePath) -> str:
    if isinstance(name, PurePath):
        name = name.as_posix()
    if not isinstance(name, str):
        raise TypeError(f"the name of a file has to be a str or a path, not {type(name).__name__}")
    try:
        # a str with lone surrogates has no UTF-8
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} is not a file name: {error.reason}") from error
    # the session opens the file with its own rights; this only keeps mistakes from reaching it
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is {_OUTSIDE}")
    return name
