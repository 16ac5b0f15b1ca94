"""Generation backends: token ids in; ids, log-probabilities, entropies and the reason of the end out.

`TransformersBackend` decodes with the training model itself. It is asynchronous: whoever asks joins the running
batch at the next step, and leaves it when its own stop string, end token or limit is reached; nobody waits for the
slowest. A request is sampled with its own seed, so its tokens do not depend on who shares the batch (up to rounding
in the model's matrix products). Log-probabilities and entropies are exact, over the whole vocabulary.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from arpo_trainer.kv import LayerStates, PrefixStore, SlotCache
from arpo_trainer.stopwatch import Stopwatch

Finish = Literal["stop", "eos", "length"]


class GenerationError(RuntimeError):
    """Raised when the model itself fails; that ends the rollout, unlike an environment's failure."""


@dataclass(frozen=True)
class Request:
    """One turn to generate.

    Attributes:
        ids: the whole context, shape (n,), n >= 2.
        max_tokens: at most so many new ones.
        stop: the turn is over when one of these strings appears in the new text; they may span tokens.
        seed: of the sampling.
        temperature: the distribution is softmax(logits / temperature); 0 takes the most likely token.
    """

    ids: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 1.0


@dataclass
class Generation:
    """What was generated.

    Attributes:
        ids: the new ids, shape (m,), stop string or end token included.
        logprobs: log-probability of each at the request's temperature, shape (m,).
        entropies: entropy of each one's distribution in nats, shape (m,).
        finish: "stop", "eos" or "length".
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "length"


class Backend(Protocol):
    """Anything that can generate."""

    async def generate(self, request: Request) -> Generation:
        """Generate one turn."""

    def forget(self) -> None:
        """Drop what was kept of earlier requests: the weights may have changed."""


@dataclass
class _Row:
    request: Request
    future: asyncio.Future[Generation]
    rng: random.Random
    store: PrefixStore
    out: Generation = field(default_factory=Generation)


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
        self._waiting: list[_Row] = []
        self._worker: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Generation:
        """Generate one turn.

        Raises:
            ValueError: fewer than two ids of context, or no room for a token.
        """
        if len(request.ids) < 2 or request.max_tokens < 1:
            raise ValueError(f"need 2 or more context ids and max_tokens >= 1, got {len(request.ids)} and "
                             f"{request.max_tokens}")  # fmt: skip
        row = _Row(request, asyncio.get_running_loop().create_future(), random.Random(request.seed), self.prefixes)
        self._waiting.append(row)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await row.future

    def forget(self) -> None:
        """Drop all kept keys and values, also those still being made; call it when the weights have changed."""
        self.prefixes = PrefixStore(self.prefixes.capacity)

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
                for row in ended:
                    if not row.future.done():
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
                states = self._prefill(row.request.ids[:-1], row.store)
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

    def _prefill(self, ids: tuple[int, ...], store: PrefixStore) -> LayerStates:
        known = store.longest(ids)
        done = known[0][0].shape[1] if known else 0
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


def sample(logits: torch.Tensor, rows: list[Any]) -> tuple[list[int], list[float], list[float]]:
    """Draw a token for each row by inverting its distribution function at the row's own random number.

    Args:
        logits: shape (rows, vocabulary).
        rows: objects with `.request.temperature` and `.rng`.

    Returns:
        Tokens, their log-probabilities, and the entropies of their distributions in nats, each of length `rows`.
    """
    temperature = torch.tensor([row.request.temperature or 1.0 for row in rows], device=logits.device)
    logprobs = torch.log_softmax(logits.float() / temperature[:, None], dim=-1)
    probabilities = logprobs.exp()
    entropies = -(probabilities * logprobs).sum(-1)
    cumulative = probabilities.cumsum(-1)
    draws = torch.tensor([row.rng.random() for row in rows], device=logits.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, draws, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    greedy = torch.tensor([row.request.temperature == 0 for row in rows], device=logits.device)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    chosen = logprobs.gather(-1, tokens[:, None]).squeeze(-1)
    return tokens.tolist(), chosen.tolist(), entropies.tolist()


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
