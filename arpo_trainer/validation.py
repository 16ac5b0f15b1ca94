"""Checks of names, types and numbers in settings; errors name the setting and the nearest valid name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from envs_registry.nearest_name import nearest_hint

T = TypeVar("T")
_TYPE_WORDS = {"int": "a whole number", "float": "a finite number", "str": "text", "bool": "true or false"}
_TYPE_WORDS["dict[str, Any]"] = "options by name, as in {level: 2}"


def nearest_names(given: str, known: Iterable[str], count: int = 1) -> str:
    """Return the known names that are nearest to a wrong one, separated by commas; "" if none is near."""
    return ", ".join(difflib.get_close_matches(str(given), list(known), n=count))


def check_name(what: str, given: str, known: Iterable[str]) -> None:
    """Check that a name is one of the known names."""
    names = list(known)
    if given not in names:
        hint = nearest_hint(given, names)
        raise ValueError(f"{what} must be one of {', '.join(map(repr, names))}; not {given!r}{hint}")


def look_up(what: str, given: str, table: Mapping[str, T]) -> T:
    """Return the row of a table; the error of an unknown name lists the names and the nearest one."""
    if given not in table:
        check_name(what, given, table)
    return table[given]


def check_types(settings: object, annotations: Mapping[str, str]) -> None:
    """Check that attributes have their annotated types.

    Args:
        settings: the object with the attributes.
        annotations: attribute name -> annotation. "int", "float", "str", "bool" and "dict[str, Any]" are checked, also
            with " | None"; other annotations are ignored.
    """
    # modules import annotations from __future__, so annotations are text and are compared as text
    for name, annotation in annotations.items():
        wanted, value = annotation.removesuffix(" | None"), getattr(settings, name)
        if wanted not in _TYPE_WORDS or (value is None and annotation != wanted):
            continue
        if not _has_type(value, wanted):
            raise ValueError(f"{name} must be {_TYPE_WORDS[wanted]}, got {value!r}")


def check_lowest(settings: object, lowest: Mapping[str, float]) -> None:
    """Check that attributes, by name, are not below a number; None is not checked."""
    for name, low in lowest.items():
        if (value := getattr(settings, name)) is not None and value < low:
            raise ValueError(f"{name} must be at least {low}, got {value!r}")


def _has_type(value: Any, wanted: str) -> bool:
    if kind := {"str": str, "bool": bool, "dict[str, Any]": dict}.get(wanted):
        return isinstance(value, kind)
    # bool is an int in Python, but `true` for a number in a YAML file is a mistake
    number = isinstance(value, Integral if wanted == "int" else Real) and not isinstance(value, bool)
    return number and math.isfinite(value)
