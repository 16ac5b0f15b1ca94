"""The setting `packing`: True, False or "auto", also as text and under the names of earlier versions."""

from __future__ import annotations

import warnings

_WORDS: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}
_EARLIER = {"tree": True, "flat": False}


def packing_setting(value: object) -> bool | str:
    """Return a value of the setting as True, False or "auto".

    Args:
        value: one of these, or text: "true" and "false" as a command line gives them, "tree" and "flat" with a
            `DeprecationWarning`.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _EARLIER:
        new = _EARLIER[value]
        # the caller of `ARPOConfig(...)`, behind its __init__ and __post_init__
        warnings.warn(f"packing={value!r} is now packing={new}", DeprecationWarning, stacklevel=4)
        return new
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise ValueError(f"packing must be True, False or 'auto', got {value!r}")


def was_packed(recorded: object) -> object:
    """Return whether rows were packed, from what a checkpoint of this or an earlier version recorded."""
    return _EARLIER.get(recorded, recorded) if isinstance(recorded, str) else recorded
