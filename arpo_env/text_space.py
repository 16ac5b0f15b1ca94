"""`UnicodeText`: a Gymnasium space of arbitrary strings. Gymnasium's `Text` is limited to a given set of characters."""

from __future__ import annotations

import string
from typing import Any

import gymnasium

_SAMPLED = string.ascii_letters + string.digits
_SAMPLE_LENGTH = 40


class UnicodeText(gymnasium.Space[str]):
    """All strings of at most `max_length` characters, including the empty string.

    `sample` draws short alphanumeric strings, which exercise an environment but are useless as a policy. Gymnasium's
    `AsyncVectorEnv` supports this space with `shared_memory=False`.
    """

    def __init__(self, max_length: int = 1_000_000, *, seed: int | None = None) -> None:
        self.max_length = max_length
        super().__init__(shape=(), dtype=str, seed=seed)  # as Gymnasium's Text does

    @property
    def is_np_flattenable(self) -> bool:
        """False: a text cannot be flattened into a fixed number of values."""
        return False

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short random string.

        Raises:
            ValueError: a mask or a probability was given.
        """
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText.sample takes neither mask nor probability")
        length = min(self.max_length, int(self.np_random.integers(0, _SAMPLE_LENGTH + 1)))
        return "".join(self.np_random.choice(list(_SAMPLED), size=length)) if length else ""

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    __hash__ = None  # type: ignore[assignment]
