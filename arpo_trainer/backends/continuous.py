"""`TransformersBackend`: decodes with the training model itself, many requests at once.

Whoever asks joins the running batch at the next token, and leaves it at its own end; nobody waits for the slowest. A
request is sampled with its own seed, so its tokens do not depend on who shares the batch (up to rounding in the model's
matrix products). Log-probabilities and entropies are exact, over the whole vocabulary.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from arpo_trainer.backends.kv import LayerStates, PrefixStore, SlotCache
from arpo_trainer.backends.sampling import sample
from arpo_trainer.generation import Generation, GenerationError, OnWindow, Request, check_request
from arpo_trainer.stopwatch import Stopwatch


@dataclass
class _Row:
    request: Request
    future: asyncio.Future[Generation]
    rng: random.Random
    store: PrefixStore
    on_window: OnWindow | None = None
    asked: float = field(default_factory=time.perf_counter)
    out: Generation = field(default_factory=Generation)

    def tell(self, last: bool) -> None:
        """Say what the first tokens' entropies are, once, when they are there."""
        if self.on_window and (last or len(self.out.ids) >= self.request.window):
            told, self.on_window = self.on_window, None
            told(self.out.entropies[: self.request.window])


class TransformersBackend:
    """Generates with a transformers causal language model, many requests at once.

    Args:
        model: the model, in the state it is in; `generate` never changes it.
        tokenizer: only to decode the end of what was generated, to find stop strings.
        max_rows: requests decoded together.
        prefix_tokens: tokens whose keys and values are kept for later turns and branches.
        eos_token_ids: what ends a turn; by default the model's generation config and the tokenizer.

    Raises:
        ValueError: the model does not use full attention in every layer.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_rows: int = 64,
        prefix_tokens: int = 32_768,
        eos_token_ids: set[int] | None = None,
    ) -> None:
        kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
        if getattr(model.config, "layer_types", None) is None and getattr(model.config, "sliding_window", None):
            kinds = {"sliding_attention"}
        attention = model.config._attn_implementation
        if attention != "sdpa":
            raise ValueError(
                f"the transformers backend needs attn_implementation='sdpa', this model was loaded with {attention!r}"
            )
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        if kinds != {"full_attention"}:
            raise ValueError(f"the transformers backend serves full attention only; this model has {sorted(kinds)}")
        self.model, self.tokenizer, self.max_rows = model, tokenizer, max_rows
        self.eos = eos_token_ids or _eos_ids(model, tokenizer)
        self.prefixes = PrefixStore(prefix_tokens)
        self.time = Stopwatch()
        self.trains, self.wants_messages = True, False
        self._waiting: list[_Row] = []
        self._worker: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Drop all kept keys and values, also those still being made: the weights may have changed."""
        self.prefixes = PrefixStore(self.prefixes.capacity)

    async def end(self) -> None:
        """Give back the memory of kept prefixes."""
        self.prefixes = PrefixStore(self.prefixes.capacity)

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`."""
        check_request(request)
        future = asyncio.get_running_loop().create_future()
        row = _Row(request, future, random.Random(request.seed), self.prefixes, on_window if request.window else None)
        self._waiting.append(row)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await row.future

    async def _work(self) -> None:
        rows: list[_Row] = []
        joining: list[_Row] = []
        cache: SlotCache | None = None
        try:
            while self._waiting or rows:
                await asyncio.sleep(0)  # let everybody who is ready ask first
                joining = self._waiting[: self.max_rows - len(rows)]
                self._waiting = self._waiting[len(joining) :]
                with self.time.running():
                    cache, ended = await asyncio.to_thread(self._advance, rows, joining, cache)
                for row in rows:
                    row.tell(last=False)
                for row in ended:
                    if not row.future.done():
                        row.tell(last=True)
                        row.future.set_result(row.out)
        except BaseException as error:
            for row in [*rows, *joining, *self._waiting]:
                if not row.future.done():
                    row.future.set_exception(GenerationError(f"generation failed: {error!r}"))
            self._waiting.clear()
            if not isinstance(error, Exception):
                raise

    def _advance(
        self, rows: list[_Row], joining: list[_Row], cache: SlotCache | None
    ) -> tuple[SlotCache | None, list[_Row]]:
        """Let `joining` in, decode one token for every row, take out who is done."""
        with torch.no_grad(), _evaluating(self.model):
            for row in joining:
                row.out.queued = time.perf_counter() - row.asked
                states = self._prefill(row)
                cache = cache or SlotCache(states)
                cache.join(states, row.request.max_tokens + 1)
                rows.append(row)
            if cache is None:
                return None, []
            self._decode(rows, cache)
        ended = []
        for number in reversed(range(len(rows))):
            if self._finished(rows[number]):
                row = rows[number]
                row.store.put([*row.request.ids, *row.out.ids], cache.leave(number))
                rows[number] = rows[-1]
                rows.pop()
                ended.append(row)
        return cache, ended

    def _prefill(self, row: _Row) -> LayerStates:
        ids, store = row.request.ids[:-1], row.store
        known = store.longest(ids)
        done = row.out.cached = known[0][0].shape[1] if known else 0
        if known and done == len(ids):
            return known
        cache = _dynamic(known)
        new = torch.tensor([ids[done:]], device=self.model.device)
        output = self.model(input_ids=new, past_key_values=cache, use_cache=True, logits_to_keep=1)
        states = [(layer.keys[0], layer.values[0]) for layer in output.past_key_values.layers]
        store.put(ids, states)
        return states

    def _decode(self, rows: list[_Row], cache: SlotCache) -> None:
        device = self.model.device
        last = [row.out.ids[-1] if row.out.ids else row.request.ids[-1] for row in rows]
        position, mask = cache.before_step(device)
        logits = self.model(
            input_ids=torch.tensor(last, device=device)[:, None],
            position_ids=position,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        cache.after_step()
        tokens, logprobs, entropies = sample(logits, rows)
        for row, token, logprob, entropy in zip(rows, tokens, logprobs, entropies, strict=True):
            row.out.ids.append(token)
            row.out.logprobs.append(logprob)
            row.out.entropies.append(entropy)

    def _finished(self, row: _Row) -> bool:
        out, request = row.out, row.request
        if row.future.cancelled():  # nobody waits for it any more
            return True
        if out.ids[-1] in self.eos:
            out.finish = "eos"
            return True
        if request.stop:
            window = max(map(len, request.stop)) + 1  # a token is at least one byte
            tail = self.tokenizer.decode(out.ids[-window:])
            if any(stop in tail for stop in request.stop):
                out.finish = "stop"
                return True
        return len(out.ids) >= request.max_tokens


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _dynamic(states: LayerStates | None) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for number, (keys, values) in enumerate(states or []):
        cache.update(keys[None], values[None], number)
    return cache


def _eos_ids(model: Any, tokenizer: Any) -> set[int]:
    ids = getattr(model.generation_config, "eos_token_id", None)
    listed = ids if isinstance(ids, list) else [ids]
    return {number for number in (*listed, tokenizer.eos_token_id) if number is not None}
