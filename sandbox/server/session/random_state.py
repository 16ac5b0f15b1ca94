"""Random state of sessions: fresh ones differ, forks go on as the original would, or differ on request. Runs inside."""

from __future__ import annotations

import hashlib
import sys
from typing import Any


def state() -> Any:
    """Return the state of `random`, which Python seeds anew in every forked child; numpy's is memory like any other."""
    random = sys.modules.get("random")
    return random.getstate() if random is not None else None


def restore(kept: Any) -> None:
    """Put the state of `random` back."""
    if kept is not None:
        sys.modules["random"].setstate(kept)


def reseed(seed: str | None) -> None:
    """Seed the generators of `random` and of numpy's old interface, where they have been imported.

    Args:
        seed: any text; None takes the system's randomness. Generators that the code has made are not touched.
    """
    random = sys.modules.get("random")
    if random is not None and seed is not None:
        random.seed(seed)
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed(None if seed is None else int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big"))
