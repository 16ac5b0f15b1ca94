"""The backends that run a model of transformers in this process: `TransformersBackend` and `PaddedBackend`.

The model runs in a thread, one piece at a time. Between the pieces the event loop admits new requests and answers those
that are over. `InProcessBackend` is what both have in common; they compute the pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import GenerationConfig

from arpo_trainer.backends.base import (
    Backend,
    EntropyWindow,
    Generation,
    OnWindow,
    Request,
    StopFinder,
    Worker,
    at_work,
    check_request,
    finished,
    same_device,
    telling,
)
from arpo_trainer.backends.kv_cache import PrefixStore, SlotCache, accept_single_queries, agreement
from arpo_trainer.backends.sampling import Chances, Drawn, Sampler, TokenFilters
from arpo_trainer.tree import Stopwatch

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class DecodingRow:
    """A request, the caller that waits for it, and what has been generated; its methods run on the event loop."""

    request: Request
    future: asyncio.Future[Generation]  # cancelled when the caller does not wait any more
    window: EntropyWindow
    stops: StopFinder
    store: PrefixStore  # of the rollout that the request belongs to
    out: Generation = field(default_factory=Generation)
    filters: TokenFilters | None = None
    asked: float = field(default_factory=time.perf_counter)

    def answer(self) -> None:
        """Give the generation to the caller."""
        if not self.future.done():
            # a turn may be over before it has filled the window
            self.window.tell(self.out.entropies, last=True)
            self.future.set_result(self.out)


class InProcessBackend(ABC):
    """Computes queued requests with a transformers model, in a worker task.

    Args:
        model: the model; its weights and its mode are left as they are.
        tokenizer: decodes what was generated, to find stop strings.
        max_rows: maximum number of requests decoded together.
        eos_token_ids: ids that end a turn; by default those of the generation config and the tokenizer.
        estimator: of the entropies; "exact" costs no more than the others here.
        topk: number of most likely tokens that an estimator uses.
        prefix_tokens: maximum number of tokens whose keys and values are kept for later turns and branches; padded
            batches keep none.
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
        max_rows: int = 128,
        eos_token_ids: set[int] | None = None,
        estimator: str = "exact",
        topk: int = 20,
        prefix_tokens: int = 32_768,
        own_stream: bool = False,
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self.model, self.tokenizer, self.max_rows = model, tokenizer, max_rows
        self.eos = eos_token_ids or _eos_ids(model, tokenizer)
        self.max_context = _positions(model)
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
        await self._in_thread(self._speed_up)

    async def end(self) -> None:
        """Wait until the model is at rest, as it was before, and give back the memory of kept prefixes and casts."""
        await finished(self._worker)
        self.prefixes = PrefixStore(self.prefixes.capacity)
        if self._stream:  # nobody may write to the memory of the weights before their last use
            torch.cuda.current_stream(self.model.device).wait_stream(self._stream)
        await self._in_thread(self._casts.close)

    def _speed_up(self) -> None:
        """Let autocast keep the 16-bit casts of the trained weights until the rollout ends; see also `few_rows`.

        Under mixed precision each forward pass enters autocast anew. Autocast drops its casts when the outermost
        region ends, so that every token would cast all weights again. The region around is switched off: it changes no
        operation, only when the casts are dropped. It belongs to the thread that opens it.
        """
        self._casts.close()
        kind = self.model.device.type
        if torch.amp.is_autocast_available(kind):
            self._casts.enter_context(torch.autocast(kind, enabled=False))
        if kind == "cpu":
            self._casts.enter_context(few_rows(self.model))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`. It ends where the model's positions do."""
        check_request(request)
        room = self.max_context - len(request.ids)
        if room < 1:
            raise ValueError(
                f"a context of {len(request.ids)} ids leaves no room for a token: the model has {self.max_context} "
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

        The last `new` rows are new; rows may be reordered.
        """

    async def _work(self) -> None:
        rows: list[DecodingRow] = []

        def given_up() -> list[asyncio.Future[Generation]]:
            waiting, self._waiting = self._waiting, []
            return [row.future for row in [*rows, *waiting]]

        with telling(given_up), _evaluating(self.model):
            while self._waiting or rows:
                await asyncio.sleep(0)  # let all callers that are ready add their requests first
                await self._piece(rows)

    async def _piece(self, rows: list[DecodingRow]) -> None:
        # requests whose callers were cancelled meanwhile need no place
        ready = [row for row in self._waiting if not row.future.done()]
        joining = ready[: self.max_rows - len(rows)]
        self._waiting = ready[len(joining) :]
        rows += joining
        if not rows:
            return
        for row in joining:
            row.out.queued = time.perf_counter() - row.asked
        with self.time.running():
            loop = asyncio.get_running_loop()
            ended = await loop.run_in_executor(self._thread, self._compute, rows, len(joining))
        for row in rows:
            row.window.tell(row.out.entropies)
        for row in ended:
            row.answer()

    def _compute(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        stream = torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()
        # here, in the thread of the model: gradient mode and current stream belong to a thread
        with torch.no_grad(), stream:
            return self._advance(rows, new)

    def _chances(self, rows: list[DecodingRow]) -> Chances:
        temperatures, seeds = [row.request.temperature for row in rows], [row.request.seed for row in rows]
        return Chances.of(temperatures, seeds, [len(row.out.ids) for row in rows], self.model.device)

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


_FEW = 256  # rows; measured with weights of 128 x 896 to 151,936 x 896


@contextlib.contextmanager
def few_rows(model: Any) -> Iterator[None]:
    """Compute the linear layers of a model on a CPU as W x^T where that is faster: in bfloat16, for up to 256 rows.

    oneDNN reorders the second matrix of a product at each call. For a token of some rows that is the weights, which
    takes as long as the product; in the transposed product it is the rows.
    """
    layers = [part for part in model.modules() if type(part) is torch.nn.Linear and "forward" not in vars(part)]
    for layer in layers:
        layer.forward = functools.partial(_linear, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _linear(layer: torch.nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else rows.dtype
    if kind != torch.bfloat16 or rows.numel() > _FEW * layer.in_features:
        return torch.nn.Linear.forward(layer, rows)
    across = rows.reshape(-1, layer.in_features).t()
    if layer.bias is None:
        made = torch.mm(layer.weight, across)
    else:
        made = torch.addmm(layer.bias[:, None], layer.weight, across)
    return made.t().contiguous().view(*rows.shape[:-1], -1)


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


PREFILL_TOKENS = 16_384  # maximum of context tokens in one pass, padding included: bounds the memory of activations
SHARED_TOKENS = 64  # fewer shared context tokens are not worth a pass of their own


class TransformersBackend(InProcessBackend):
    """Generates with a transformers causal language model, many requests at once; options as in `InProcessBackend`.

    A request joins the running batch at the next token and leaves it at its own end; it never waits for slower ones. It
    is sampled with its own seed, so its tokens do not depend on the other rows of the batch (up to rounding in the
    matrix products). Log-probabilities are exact, over the whole vocabulary; so are entropies, unless an estimator is
    named.

    Raises:
        ValueError: the model does not use full attention in every layer (`why_not_continuous`).
    """

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        if reason := why_not_continuous(model):
            raise ValueError(f"TransformersBackend cannot serve this model: {reason}; PaddedBackend can")
        super().__init__(model, tokenizer, **options)
        self._cache = SlotCache()
        accept_single_queries()

    def _advance(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        """Prefill the new rows, decode one token for every row, and remove the rows that are over."""
        # no older row is under way, so this drops what a rollout that failed may have left in the cache
        if new == len(rows):
            self._cache = SlotCache()
        rows[len(rows) - new :] = self._prefill(rows[len(rows) - new :])
        drawn = self._decode(rows)
        ended = []
        # from the end: the last row takes the place of one that leaves, and must have had its turn
        for number in reversed(range(len(rows))):
            row = rows[number]
            if self._take(row, drawn[number]):
                # the last token has not been through the model, so the states cover all ids but that one
                row.store.put([*row.request.ids, *row.out.ids], self._cache.copy(number))
                self._cache.leave(number)
                rows[number] = rows[-1]
                rows.pop()
                ended.append(row)
        if not rows:
            self._cache = SlotCache()  # its memory
        return ended

    def _prefill(self, rows: list[DecodingRow]) -> list[DecodingRow]:
        """Put all but the last token of each context into the cache; return the rows in the cache's order."""
        rest = sorted(rows, key=lambda row: row.request.ids)
        order: list[DecodingRow] = []
        while rest:
            # looked up again before each wave: the last one has computed what these rows waited for
            for row in rest:
                known = row.store.longest(row.request.ids[:-1])
                row.out.cached = known[0][0].shape[1] if known else 0
            wave, rest = _first_wave(rest)
            for batch in _batches(wave):
                self._prefill_batch(batch)
                order += batch
        return order

    def _prefill_batch(self, rows: list[DecodingRow]) -> None:
        first, contexts, new = self._cache.rows, [], []
        for row in rows:
            known = row.store.longest(row.request.ids[:-1])
            done = row.out.cached = known[0][0].shape[1] if known else 0
            self._cache.join(known, len(row.request.ids) + row.request.max_tokens)
            contexts.append(row.request.ids[done:-1])
            new.append(len(contexts[-1]))
        if not any(new):
            return
        self._forward(first, contexts)
        for number, row in enumerate(rows, start=first):
            row.store.put(row.request.ids[:-1], self._cache.copy(number))

    def _decode(self, rows: list[DecodingRow]) -> list[Drawn]:
        chances = self._chances(rows)  # before the model runs, or the copy to the GPU would wait for it
        logits = self._forward(0, [[row.out.ids[-1] if row.out.ids else row.request.ids[-1]] for row in rows])
        return self._draw(logits, chances, rows)

    def _forward(self, first: int, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Run the model over new tokens of the rows from `first` on; return the last column's logits."""
        new = [len(row) for row in tokens]
        device, width = self.model.device, max(new)
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in tokens], device=device)
        position, mask = self._cache.prepare(first, new, device)
        output = self.model(
            input_ids=ids,
            position_ids=position,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache.advance(first, new)
        logits: torch.Tensor = output.logits[:, -1]
        return logits


def why_not_continuous(model: Any) -> str:
    """Return why `TransformersBackend` cannot serve a model, or "" if it can."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if getattr(config, "layer_types", None) is None and getattr(config, "sliding_window", None):
        kinds = {"sliding_attention"}
    if getattr(model, "_is_stateful", False):
        return "it is recurrent"
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        return "it has a learned prompt (PEFT), which is in no cache of ours"
    inside = model.get_base_model() if hasattr(model, "get_base_model") else model
    takes = inspect.signature(inside.forward).parameters
    if "input_ids" in takes and not {"position_ids", "logits_to_keep"} <= set(takes):
        return "it takes no position_ids or no logits_to_keep"
    if kinds != {"full_attention"}:
        return f"it has layers other than full attention ({', '.join(sorted(kinds))})"
    if config._attn_implementation != "sdpa":
        return f"it was loaded with attn_implementation={config._attn_implementation!r} instead of 'sdpa'"
    return ""


def _first_wave(rows: list[DecodingRow]) -> tuple[list[DecodingRow], list[DecodingRow]]:
    """Split off the rows, sorted by context, that gain nothing by waiting for what others of this wave compute."""
    wave, rest = rows[:1], list[DecodingRow]()
    for before, row in itertools.pairwise(rows):
        shared = agreement(before.request.ids[:-1], row.request.ids[:-1])
        new = len(row.request.ids) - 1 - row.out.cached
        saves = shared - row.out.cached
        # waiting costs a pass: it is worth it for a long shared part, or if nothing would be left to compute
        (rest if saves > 0 and (saves == new or saves > SHARED_TOKENS) else wave).append(row)
    return wave, rest


def _batches(rows: list[DecodingRow]) -> Iterator[list[DecodingRow]]:
    """Yield batches of rows with similar numbers of new tokens, the longest first."""
    batch: list[DecodingRow] = []
    width = 0
    for row in sorted(rows, key=lambda row: row.out.cached - len(row.request.ids)):
        new = len(row.request.ids) - 1 - row.out.cached
        # a row with less than half of the longest one would be mostly padding
        if batch and (new < width / 2 or (len(batch) + 1) * width > PREFILL_TOKENS):
            yield batch
            batch = []
        width = width if batch else new
        batch.append(row)
    if batch:
        yield batch


class PaddedBackend(InProcessBackend):
    """Generates with any transformers causal language model by its own `generate`, one padded batch at a time.

    For models that `TransformersBackend` cannot serve: with sliding windows, recurrent layers or other attention
    kernels. All requests that are ready are padded on the left and decoded as one batch, and later ones wait for the
    next batch. Sampling, seeds, stop strings, limits and numbers are those of the continuous backend. A turn is
    answered when it is over, not when its batch is. No keys and values are kept.
    """

    def _advance(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        """Decode all rows, which are all new, to their ends."""
        longest = max(len(row.request.ids) for row in rows) + max(row.request.max_tokens for row in rows)
        # `generate` continues every row until the last one is over, even beyond a table of positions: one by one then
        for batch in [rows] if longest <= self.max_context else [[row] for row in rows]:
            self._decode(batch)
        ended, rows[:] = rows[:], []
        return ended

    def _decode(self, rows: list[DecodingRow]) -> None:
        ids, mask = _left_padded(rows, self.model.device)
        over = [False] * len(rows)

        def forced(_: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            """Draw a token for each row, shape (rows, vocabulary); return scores that allow `generate` nothing else."""
            drawn = self._draw(logits, self._chances(rows), rows)
            for number, row in enumerate(rows):
                if not over[number]:
                    over[number] = self._take(row, drawn[number])
                    tell = row.answer if over[number] else functools.partial(row.window.tell, row.out.entropies)
                    # this runs in the thread of the model, and futures belong to the event loop
                    row.future.get_loop().call_soon_threadsafe(tell)
            tokens = torch.tensor([one.token for one in drawn], device=logits.device)
            return torch.full_like(logits, -torch.inf).scatter_(1, tokens[:, None], 0.0)

        # no sampling by `generate`: the scores leave one token to take
        config = GenerationConfig(
            max_new_tokens=max(row.request.max_tokens for row in rows), do_sample=False, pad_token_id=0
        )
        with _own_settings_only(self.model):
            self.model.generate(
                ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=[forced],
                stopping_criteria=[lambda ids, *_, **__: torch.tensor(over, device=ids.device)],
            )


def _left_padded(rows: list[DecodingRow], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(row.request.ids) for row in rows)
    gaps = [width - len(row.request.ids) for row in rows]
    ids = [[0] * gap + list(row.request.ids) for gap, row in zip(gaps, rows, strict=True)]
    mask = [[0] * gap + [1] * (width - gap) for gap in gaps]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


@contextlib.contextmanager
def _own_settings_only(model: Any) -> Iterator[None]:
    """Hide the generation configs, from which `generate` fills in whatever is not given (penalties, top-p).

    PEFT has one of its own and overwrites the one of the model inside.
    """
    kept = [(part, part.generation_config) for part in model.modules() if "generation_config" in vars(part)]
    for part, _ in kept:
        part.generation_config = GenerationConfig()
    try:
        yield
    finally:
        for part, config in kept:
            part.generation_config = config


def transformers_backend(model: Any, tokenizer: Any, **options: Any) -> Backend:
    """Return a `TransformersBackend`, or a `PaddedBackend` and a logged warning with the reason.

    The arguments are those of `InProcessBackend`.
    """
    if reason := why_not_continuous(model):
        logger.warning(
            "rollouts are generated in padded batches, without prefix reuse, because of the model: %s", reason
        )
        return PaddedBackend(model, tokenizer, **options)
    return TransformersBackend(model, tokenizer, **options)
