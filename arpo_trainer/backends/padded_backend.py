"""`PaddedBackend`: decodes with the model's own `generate`, for models that `TransformersBackend` cannot serve.

Such models have sliding windows, recurrent layers or other attention kernels. All requests that are ready are padded on
the left and decoded as one batch, and later ones wait for the next batch. Sampling, seeds, stop strings, limits and
numbers are those of the continuous backend. A turn is answered when it is over, not when its batch is. No keys and
values are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

from arpo_trainer.backends.in_process import InProcessBackend
from arpo_trainer.backends.request_queue import DecodingRow
from arpo_trainer.backends.sampling import Drawn


class PaddedBackend(InProcessBackend):
    """Generates with any transformers causal language model, one padded batch at a time.

    The arguments are those of `InProcessBackend`; it keeps no prefixes, whatever `prefix_tokens` says.
    """

    def _advance(self, rows: list[DecodingRow], new: int) -> list[DecodingRow]:
        """Decode all rows, which are all new, to their ends."""
        longest = max(len(row.request.ids) for row in rows) + max(row.request.max_tokens for row in rows)
        # `generate` continues every row until the last one is over, even beyond a table of positions: one by one then
        for batch in [rows] if longest <= self.positions else [[row] for row in rows]:
            self._decode(batch)
        ended, rows[:] = rows[:], []
        return ended

    def _decode(self, rows: list[DecodingRow]) -> None:
        ids, mask = _left_padded(rows, self.model.device)
        # no sampling by `generate`: the scores of `_ForcedSampler` leave one token to take
        config = GenerationConfig(
            max_new_tokens=max(row.request.max_tokens for row in rows), do_sample=False, pad_token_id=0
        )
        sampler = _ForcedSampler(rows, lambda logits: self._draw(logits, self._chances(rows), rows), self._take)
        with _own_settings_only(self.model):
            self.model.generate(
                ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=[sampler],
                stopping_criteria=[_AllOver(sampler)],
            )


class _ForcedSampler(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped
    """Draws the tokens itself and allows `generate` no others."""

    def __init__(
        self,
        rows: list[DecodingRow],
        draw: Callable[[torch.Tensor], list[Drawn]],
        take: Callable[[DecodingRow, Drawn], bool],
    ) -> None:
        self.rows, self.draw, self.take = rows, draw, take
        self.over = [False] * len(rows)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Draw from logits `scores`, shape (rows, vocabulary); return scores that allow nothing else."""
        drawn = self.draw(scores)
        for number, row in enumerate(self.rows):
            if not self.over[number]:
                self.over[number] = self.take(row, drawn[number])
                # this runs in the thread of the model, and futures belong to the event loop
                row.future.get_loop().call_soon_threadsafe(row.answer if self.over[number] else row.tell)
        tokens = torch.tensor([one.token for one in drawn], device=scores.device)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _AllOver(StoppingCriteria):  # type: ignore[misc]
    """Ends each row when the sampler says that it is over."""

    def __init__(self, sampler: _ForcedSampler) -> None:
        self.sampler = sampler

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows are over, shape (rows,)."""
        return torch.tensor(self.sampler.over, device=input_ids.device)


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
