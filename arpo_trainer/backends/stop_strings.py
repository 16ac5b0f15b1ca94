"""Stop strings in a stream of tokens: where the first one is complete, though it may span tokens.

For backends that decode by themselves; an engine that knows stop strings finds them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StopFinder:
    """Finds the end of the first stop string in new ids.

    Only the end of the text is decoded: a token is at least one byte, so a stop string of n bytes that is complete
    just now is within the last n tokens.

    Args:
        tokenizer: decodes ids.
        stop: the strings; with none nothing is ever found.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._reach = max((len(text.encode()) for text in stop), default=0) + 1  # some drop the first token's space

    def end(self, ids: Sequence[int], checked: int = 0) -> int | None:
        """Return how many of `ids` it takes until a stop string is complete, or None if none is.

        Args:
            ids: the new tokens so far, shape (n,).
            checked: so many of the first are known to hold no stop string.
        """
        if not self._stop:
            return None
        for end in range(checked + 1, len(ids) + 1):
            tail = self._tokenizer.decode(ids[max(0, end - self._reach) : end])
            if any(text in tail for text in self._stop):
                return end
        return None
