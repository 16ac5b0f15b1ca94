"""Requests under way in a backend of this process, and the worker task that computes them.

The worker serves one event loop at a time. A worker whose loop was closed is gone, and its requests with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arpo_trainer.backends.base import EntropyWindow, Generation, GenerationError, Request

if TYPE_CHECKING:
    from arpo_trainer.backends.kv_cache import PrefixStore
    from arpo_trainer.backends.sampling import TokenFilters


# Finds where the first stop string is complete in a stream of tokens; it may span several tokens.
#
# It is for backends that decode themselves; engines find stop strings on their own.

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
            start = max(0, end - self._reach)
            # not in the midst of a character: some decoders (bytes of SentencePiece) break all bytes beside it, too
            while start and _BROKEN in self._tokenizer.decode([ids[start]]):
                start -= 1
            tail = self._tokenizer.decode(ids[start:end])
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


Worker = asyncio.Task[None] | None


@dataclass(eq=False)
class DecodingRow:
    """A request, the caller that waits for it, and what has been generated so far.

    Attributes:
        request: what to generate.
        future: resolved with the generation; cancelled when the caller does not wait any more.
        window: told the first entropies.
        stops: finds the stop strings of the request.
        store: the prefixes of the rollout that the request belongs to.
        out: what has been generated so far.
        filters: of the request's sampling; None if it has none.
    """

    request: Request
    future: asyncio.Future[Generation]
    window: EntropyWindow
    stops: StopFinder
    store: PrefixStore
    out: Generation = field(default_factory=Generation)
    filters: TokenFilters | None = None
    asked: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        """Note that the model begins with the request: it has waited until now."""
        self.out.queued = time.perf_counter() - self.asked

    def tell(self) -> None:
        """Tell the entropies of the first tokens once they are there; call it on the event loop."""
        self.window.tell(self.out.entropies)

    def answer(self) -> None:
        """Give the generation to the caller; call it on the event loop."""
        if not self.future.done():
            # a turn may be over before it has filled the window
            self.window.tell(self.out.entropies, last=True)
            self.future.set_result(self.out)

    def fail(self, error: Exception) -> None:
        """Give an error to the caller; call it on the event loop."""
        if not self.future.done():
            self.future.set_exception(error)


def at_work(worker: Worker) -> bool:
    """Return whether a worker is running on this event loop.

    Raises:
        GenerationError: it is running on another loop, which cannot answer callers on this one.
    """
    # a task whose loop was closed in its midst never becomes done
    if worker is None or worker.done() or worker.get_loop().is_closed():
        return False
    if worker.get_loop() is not asyncio.get_running_loop():
        raise GenerationError(
            "this backend is generating on another event loop: await its requests there, and end that rollout first"
        )
    return True


async def finished(worker: Worker) -> None:
    """Wait until a worker has nothing left to do; cancelling this wait does not stop the worker."""
    if worker is not None and at_work(worker):
        # awaiting the worker itself would pass a cancellation on to it, and raise its error here, too
        await asyncio.wait([worker])
