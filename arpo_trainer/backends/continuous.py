"""`TransformersBackend`: decodes with the training model itself, many requests at once.

A request joins the running batch at the next token and leaves it at its own end; it never waits for slower ones. It is
sampled with its own seed, so its tokens do not depend on the other rows of the batch (up to rounding in the matrix
products). Log-probabilities are exact, over the whole vocabulary; so are entropies, unless an estimator is
named. Models with full attention only; `PaddedBackend` serves the others.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import torch

from arpo_trainer.backends.grouped_queries import accept_single_queries
from arpo_trainer.backends.in_process import DecodingOptions, InProcessBackend
from arpo_trainer.backends.kv_cache import SlotCache, agreement
from arpo_trainer.backends.request_queue import DecodingRow
from arpo_trainer.backends.sampling import Drawn

PREFILL_TOKENS = 16_384  # most context tokens in one pass, padding included: bounds the memory of activations
SHARED_TOKENS = 64  # fewer shared context tokens are not worth a pass of their own


class TransformersBackend(InProcessBackend):
    """Generates with a transformers causal language model, many requests at once.

    Args:
        model: the model; its weights and its mode are left as they are.
        tokenizer: decodes what was generated, to find stop strings.
        prefix_tokens: most tokens whose keys and values are kept for later turns and branches.
        options: as in `InProcessBackend`.

    Raises:
        ValueError: the model does not use full attention in every layer (`why_not_continuous`), `max_rows` is below 1,
            or the estimator does not exist.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        prefix_tokens: int = 32_768,
        **options: Unpack[DecodingOptions],
    ) -> None:
        if reason := why_not_continuous(model):
            raise ValueError(f"TransformersBackend cannot serve this model: {reason}; PaddedBackend can")
        super().__init__(model, tokenizer, prefix_tokens=prefix_tokens, **options)
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
    takes = inspect.signature(_inside(model).forward).parameters
    if "input_ids" in takes and not {"position_ids", "logits_to_keep"} <= set(takes):
        return "it takes no position_ids or no logits_to_keep"
    if kinds != {"full_attention"}:
        return f"it has layers other than full attention ({', '.join(sorted(kinds))})"
    if config._attn_implementation != "sdpa":
        return f"it was loaded with attn_implementation={config._attn_implementation!r} instead of 'sdpa'"
    return ""


def _inside(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _first_wave(rows: list[DecodingRow]) -> tuple[list[DecodingRow], list[DecodingRow]]:
    """Split off the rows that gain nothing by waiting for what another row of this wave computes.

    Args:
        rows: sorted by context, so that rows that share most are neighbours.
    """
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
