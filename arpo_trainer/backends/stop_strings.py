"""Finds where the first stop string is complete in a stream of tokens; it may span several tokens.

It is for backends that decode themselves; engines find stop strings on their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StopFinder:
    """Finds the end of the first stop string in new ids.

    Only the end of the text is decoded: a token has at least one byte, so a stop string of n bytes that has just become
    complete lies within the last n tokens.

    Args:
        tokenizer: decodes ids.
        stop: the stop strings; may be empty.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        # one more, since some tokenizers drop the space of the first token
        self._reach = max((len(text.encode()) for text in stop), default=0) + 1

    def end(self, ids: Sequence[int], checked: int = 0) -> int | None:
        """Return how many of `ids` it takes until a stop string is complete, or None if none is.

        Args:
            ids: the new tokens so far, shape (n,).
            checked: number of first tokens that are known to hold no stop string.
        """
        if not self._stop:
            return None
        for end in range(checked + 1, len(ids) + 1):
            tail = self._tokenizer.decode(ids[max(0, end - self._reach) : end])
            if any(text in tail for text in self._stop):
                return end
        return None
