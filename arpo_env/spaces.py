"""The space of texts. Gymnasium's `Text` knows only the characters it was given; ours holds any string."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

SAMPLE_LENGTH = 40


class UnicodeText(spaces.Text):
    """All strings of at most `max_length` characters, the empty one included.

    `sample` draws short alphanumeric strings: enough to exercise an environment, useless as a policy.
    """

    def __init__(self, max_length: int = 1_000_000, *, seed: int | None = None) -> None:
        super().__init__(max_length=max_length, min_length=0, seed=seed)

    def contains(self, x: Any) -> bool:
        """Say whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short random string; masks are not supported."""
        length = int(self.np_random.integers(0, SAMPLE_LENGTH + 1))
        return "".join(self.np_random.choice(self.character_list, size=length)) if length else ""

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    __hash__ = None  # type: ignore[assignment]
