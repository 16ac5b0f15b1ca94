"""Settings of the wrong kind are refused by name, before they are compared with anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

_WORDS = {"int": "a whole number", "float": "a finite number", "str": "text", "bool": "true or false"}


def check_types(settings: object, kinds: Mapping[str, str]) -> None:
    """Refuse values that are not of the kind that is annotated.

    Args:
        settings: with the attributes.
        kinds: of each attribute, as it is annotated: "int", "float", "str", "bool", or with " | None"; others are
            let through.

    Raises:
        ValueError: names the setting, what is expected and what was given.
    """
    for name, kind in kinds.items():
        wanted, value = kind.removesuffix(" | None"), getattr(settings, name)
        if wanted not in _WORDS or (value is None and kind != wanted):
            continue
        if not _fits(value, wanted):
            raise ValueError(f"{name} must be {_WORDS[wanted]}, got {value!r}")


def _fits(value: Any, kind: str) -> bool:
    if kind in ("str", "bool"):
        return isinstance(value, str if kind == "str" else bool)
    number = isinstance(value, Integral if kind == "int" else Real) and not isinstance(value, bool)
    return number and math.isfinite(value)
