"""`nearest_hint`: "did you mean ...?" for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_hint(
    given: object, known: Iterable[str], form: str = "; did you mean {!r}?", otherwise: str = "", likeness: float = 0.6
) -> str:
    """Return a hint to the known name that is most like a given one, in a form with a place for the name.

    `otherwise` is returned where no name is like it, by at least `likeness` of 0 to 1.
    """
    nearest = difflib.get_close_matches(str(given), list(known), n=1, cutoff=likeness)
    return form.format(nearest[0]) if nearest else otherwise
