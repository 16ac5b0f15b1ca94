"""Compares definitions by content: a reload, a notebook cell or `__main__` defines the same thing as a new object."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence, Set
from typing import Any


def content_of(value: Any, _above: tuple[int, ...] = (), _deep: bool = True) -> Any:
    """Return comparable content for `same_content`: name and code of functions and classes.

    The attributes of an object are compared as well; of objects that these or a function refer to, only the type is
    compared, since they may be anything, such as a client with open connections.
    """
    # A cycle, such as an object whose attribute refers back to it.
    if id(value) in _above:
        return "..."
    inner = functools.partial(content_of, _above=(*_above, id(value)), _deep=_deep)
    held = functools.partial(inner, _deep=False)
    if inspect.ismethod(value):
        return (inner(value.__func__), inner(value.__self__))
    if inspect.isfunction(value):
        # Two functions of the same code differ by their defaults, and closures by the values that they enclose.
        defaults = (value.__defaults__, value.__kwdefaults__)
        return (
            value.__qualname__,
            _code(value.__code__),
            held(defaults),
            held(inspect.getclosurevars(value).nonlocals),
        )
    if inspect.isclass(value):
        members = {name: held(item) for name, item in vars(value).items() if _says_something(name, item)}
        return (value.__qualname__, members)
    if isinstance(value, functools.partial):
        return (inner(value.func), inner(value.args), inner(value.keywords))
    if isinstance(value, Mapping):
        return {key: inner(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        return [inner(item) for item in value]
    if dataclasses.is_dataclass(value):
        return (type(value).__qualname__, [inner(getattr(value, field.name)) for field in dataclasses.fields(value)])
    if inspect.ismodule(value):
        return value.__name__
    # Without an equality of its own, an object would differ from its twin after every reload.
    if getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None):
        return (type(value).__qualname__, held(getattr(value, "__dict__", None)) if _deep else None)
    return value


def same_content(one: Any, other: Any) -> bool:
    """Compare two results of `content_of`; values that cannot be compared count as different."""
    try:
        return bool(one == other)
    except Exception:  # __eq__ of user objects may raise anything
        return False


def _code(code: Any) -> Any:
    # With types, since 1 == 1.0 == True; without lines and file names, which every notebook cell changes.
    constants = [_code(one) if inspect.iscode(one) else (type(one), one) for one in code.co_consts]
    return (code.co_code, constants, code.co_names, code.co_varnames)


def _says_something(name: str, item: Any) -> bool:
    return inspect.isfunction(item) or not (name.startswith("__") or name == "_abc_impl")
