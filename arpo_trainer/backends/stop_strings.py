"""Finds where the first stop string is complete in a stream of tokens; it may span several tokens.

It is for backends that decode themselves; engines find stop strings on their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BROKEN = "\ufffd"  # what a part of a character is decoded as


class StopFinder:
    """Finds the end of the first stop string in new ids.

    Only the end of the text is decoded: a token has at least one byte, so a stop string of n bytes that has just become
    complete lies within the last n tokens. And only after tokens that can complete one: those whose own text has the
    last character of a stop string, or a part of some character. Which ones can is found out once for each token.

    Args:
        tokenizer: decodes ids.
        stop: the stop strings; may be empty.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        # one more, since some tokenizers drop the space of the first token
        self._reach = max((len(text.encode()) for text in stop), default=0) + 1
        self._last = {text[-1] for text in stop} | {_BROKEN}
        # spaces are the one thing that a token can add to or take from the text before it
        spaces = " " in self._last or getattr(tokenizer, "clean_up_tokenization_spaces", False)
        self._ends: dict[int, bool] | None = None if spaces else {}

    def end(self, ids: Sequence[int], checked: int = 0) -> int | None:
        """Return how many of `ids` it takes until a stop string is complete, or None if none is.

        Args:
            ids: the new tokens so far, shape (n,).
            checked: number of first tokens that are known to hold no stop string.
        """
        if not self._stop:
            return None
        for end in range(checked + 1, len(ids) + 1):
            if not self._can_end(ids[end - 1]):
                continue
            tail = self._tokenizer.decode(ids[max(0, end - self._reach) : end])
            if any(text in tail for text in self._stop):
                return end
        return None

    def _can_end(self, token: int) -> bool:
        if self._ends is None:
            return True
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = not self._last.isdisjoint(self._tokenizer.decode([token]))
        return known
