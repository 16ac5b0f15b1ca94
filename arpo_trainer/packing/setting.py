"""The setting `packing`: True, False or "auto", also as text."""

from __future__ import annotations

_WORDS: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}


def packing_setting(value: object) -> bool | str:
    """Return a value of the setting as True, False or "auto".

    Args:
        value: one of these, or text: "true" and "false" as a command line gives them.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise ValueError(f"packing must be True, False or 'auto', got {value!r}")
