"""The common part of the two backends that run the model in this process: queue, worker, and the end of a turn.

The model runs in a thread, one piece at a time. Between the pieces the event loop admits new requests and answers those
that are over. Subclasses compute the pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypedDict

import torch

from arpo_trainer.backends.base import EntropyWindow, Generation, GenerationError, OnWindow, Request, check_request
from arpo_trainer.backends.kv_cache import PrefixStore
from arpo_trainer.backends.request_queue import DecodingRow, Worker, at_work, finished
from arpo_trainer.backends.sampling import Chances, Drawn, Sampler
from arpo_trainer.backends.stop_strings import StopFinder
from arpo_trainer.backends.thread_device import same_device
from arpo_trainer.backends.token_filters import TokenFilters
from arpo_trainer.timeline import Stopwatch


class DecodingOptions(TypedDict, total=False):
    """Options of all backends that decode in this process; `InProcessBackend` has their meanings and defaults."""

    max_rows: int
    eos_token_ids: set[int] | None
    estimator: str
    topk: int
    own_stream: bool


class InProcessBackend(ABC):
    """Computes queued requests with a transformers model, in a worker task.

    Args:
        model: the model; its weights and its mode are left as they are.
        tokenizer: decodes what was generated, to find stop strings.
        max_rows: most requests decoded together.
        eos_token_ids: ids that end a turn; by default those of the generation config and the tokenizer.
        estimator: of the entropies; "exact" costs no more than the others here.
        topk: number of most likely tokens that an estimator uses.
        prefix_tokens: most tokens whose keys and values are kept for later turns and branches.
        own_stream: on CUDA, compute on a stream of its own, for rollouts beside an update: on the common one every
            token would wait for all that the trainer has queued. Memory that one stream has freed is not reused by
            the other, so it is off where rollouts and updates take turns.

    Raises:
        ValueError: `max_rows` below 1, or an estimator that does not exist.
    """

    trains = True
    wants_messages = False

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_rows: int = 64,
        eos_token_ids: set[int] | None = None,
        estimator: str = "exact",
        topk: int = 20,
        prefix_tokens: int = 0,
        own_stream: bool = False,
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self.model, self.tokenizer, self.max_rows = model, tokenizer, max_rows
        self.eos = eos_token_ids or _eos_ids(model, tokenizer)
        self.positions = _positions(model)
        self.sampler = Sampler(estimator, topk)
        self.prefixes = PrefixStore(prefix_tokens)
        self.time = Stopwatch()
        self._waiting: list[DecodingRow] = []
        self._worker: Worker = None
        self._stops: dict[tuple[str, ...], StopFinder] = {}
        # one: a closed loop's last piece comes before the next
        self._thread = ThreadPoolExecutor(1, "arpo-model", *same_device())
        on_cuda = own_stream and model.device.type == "cuda"
        self._stream = torch.cuda.Stream(model.device, priority=-1) if on_cuda else None  # type: ignore[no-untyped-call]
        self._casts = contextlib.ExitStack()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{type(self).__name__} has a model of this process, which cannot be sent to another one")

    async def begin(self) -> None:
        """Drop all kept keys and values, and all casts of the weights: the weights may have changed."""
        # a new store: rows of an abandoned rollout may still put stale states into the one they were given
        self.prefixes = PrefixStore(self.prefixes.capacity)
        if self._stream:  # the weights may still be on their way
            self._stream.wait_stream(torch.cuda.current_stream(self.model.device))
        await self._in_thread(self._keep_casts)

    async def end(self) -> None:
        """Wait until the model is at rest, as it was before, and give back the memory of kept prefixes and casts."""
        await finished(self._worker)
        self.prefixes = PrefixStore(self.prefixes.capacity)
        if self._stream:  # nobody may write to the memory of the weights before their last use
            torch.cuda.current_stream(self.model.device).wait_stream(self._stream)
        await self._in_thread(self._casts.close)

    def _keep_casts(self) -> None:
        """Let autocast keep the 16-bit casts of the trained weights until the rollout ends.

        Under mixed precision each forward pass enters autocast anew. Autocast drops its casts when the outermost
        region ends, so that every token would cast all weights again. The region around is switched off: it changes no
        operation, only when the casts are dropped. It belongs to the thread that opens it.
        """
        self._casts.close()
        kind = self.model.device.type
        if torch.amp.is_autocast_available(kind):
            self._casts.enter_context(torch.autocast(kind, enabled=False))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`. It ends where the model's positions do.

        Raises:
            ValueError: also if the context leaves no position for a token.
        """
        check_request(request)
        room = self.positions - len(request.ids)
        if room < 1:
            raise ValueError(
                f"a context of {len(request.ids)} ids leaves no room for a token: the model has {self.positions} "
                "positions. Lower max_completion_length, or take a model with a longer context"
            )
        request = replace(request, max_tokens=min(request.max_tokens, room))
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        if request.stop not in self._stops:  # shared by requests: it learns about tokens
            self._stops[request.stop] = StopFinder(self.tokenizer, request.stop)
        window = EntropyWindow(request.window, on_window)
        row = DecodingRow(request, future, window, self._stops[request.stop], self.prefixes)
        row.filters = TokenFilters.of(request, row.out.ids)
        if at_work(self._worker):
            self._waiting.append(row)
        else:
            self._waiting = [row]  # requests that are left belong to a loop that was closed
            self._worker = asyncio.create_task(self._work())
        return await future

    @abstractmethod
    def _advance(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        """Compute a piece, in a thread; remove the rows that are over from `rows` and return them.

        Args:
            rows: all rows under way; they may be reordered.
            new: number of rows at the end that are new.
        """

    async def _work(self) -> None:
        rows: list[DecodingRow] = []
        try:
            with _evaluating(self.model):
                while self._waiting or rows:
                    await asyncio.sleep(0)  # let all callers that are ready add their requests first
                    await self._piece(rows)
        # also when it is cancelled: without a worker the callers would wait for ever
        except BaseException as error:
            known = isinstance(error, GenerationError)
            for row in [*rows, *self._waiting]:
                failed = GenerationError(str(error) if known else f"generation failed: {error!r}")
                failed.__cause__ = error
                row.fail(failed)
            self._waiting.clear()
            if not isinstance(error, Exception):
                raise

    async def _piece(self, rows: list[DecodingRow]) -> None:
        # requests whose callers were cancelled meanwhile need no place
        ready = [row for row in self._waiting if not row.future.done()]
        joining = ready[: self.max_rows - len(rows)]
        self._waiting = ready[len(joining) :]
        rows += joining
        if not rows:
            return
        for row in joining:
            row.begin()
        with self.time.running():
            loop = asyncio.get_running_loop()
            ended = await loop.run_in_executor(self._thread, self._compute, rows, len(joining))
        for row in rows:
            row.tell()
        for row in ended:
            row.answer()

    def _compute(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        stream = torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()
        # here, in the thread of the model: gradient mode and current stream belong to a thread
        with torch.no_grad(), stream:
            return self._advance(rows, new)

    def _chances(self, rows: list[DecodingRow]) -> Chances:
        requests = [row.request for row in rows]
        return Chances.of(
            [one.temperature for one in requests],
            [one.seed for one in requests],
            [len(row.out.ids) for row in rows],
            self.model.device,
        )

    def _draw(self, logits: torch.Tensor, chances: Chances, rows: list[DecodingRow]) -> list[Drawn]:
        return self.sampler.draw(logits, chances, [row.filters for row in rows])

    def _take(self, row: DecodingRow, drawn: Drawn) -> bool:
        """Add a token to a row; return whether it was the last one."""
        out, request = row.out, row.request
        out.add(*drawn)
        if drawn.token in self.eos:
            out.finish = "eos"
        elif row.stops.end(out.ids, len(out.ids) - 1):
            out.finish = "stop"
        # a request is over, too, when its caller does not wait any more
        return out.finish != "length" or len(out.ids) >= request.max_tokens or row.future.done()


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def _eos_ids(model: Any, tokenizer: Any) -> set[int]:
    ids = getattr(model.generation_config, "eos_token_id", None)
    listed = ids if isinstance(ids, list) else [ids]
    return {number for number in (*listed, tokenizer.eos_token_id) if number is not None}


def _positions(model: Any) -> int:
    """Return the longest possible sequence: rotary positions have no end, a learned table has one."""
    config = model.config.get_text_config()
    rotary = getattr(config, "rope_parameters", None)
    return sys.maxsize if rotary else getattr(config, "max_position_embeddings", None) or sys.maxsize
