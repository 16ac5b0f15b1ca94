"""Names in settings: a wrong one is refused with the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_name(what: str, given: str, known: Iterable[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ValueError: lists the names, and says which one is nearest.
    """
    names = list(known)
    if given not in names:
        near = difflib.get_close_matches(str(given), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} must be one of {', '.join(map(repr, names))}; not {given!r}{hint}")
