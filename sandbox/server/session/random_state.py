"""Random state: new sessions differ; forks continue as the original would, or differ on request. Runs inside."""

from __future__ import annotations

import hashlib
import sys
from typing import Any


def state() -> Any:
    """Return the state of `random`, which Python reseeds in every forked child; that of numpy is copied as memory."""
    random = sys.modules.get("random")
    return random.getstate() if random is not None else None


def restore(kept: Any) -> None:
    """Restore the state of `random`."""
    if kept is not None:
        sys.modules["random"].setstate(kept)


def reseed(seed: str | None) -> None:
    """Seed the generators of `random` and of numpy's old interface, where they have been imported.

    Args:
        seed: any text; None uses the system's randomness. Generators that the code has created are not changed.
    """
    random = sys.modules.get("random")
    # without a seed nothing is left to do for `random`: Python has seeded it anew in the forked child
    if random is not None and seed is not None:
        random.seed(seed)
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        # numpy's old interface takes 32 bits
        numbers.seed(None if seed is None else int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big"))
