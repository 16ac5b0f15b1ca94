"""`PaddedBackend`: decodes with the model's own `generate`, for models that `TransformersBackend` cannot serve.

Sliding windows, recurrent layers, other attention kernels: whatever is ready is padded on the left and decoded as one
batch, and who comes later waits for the next. Sampling, seeds, stop strings, limits and numbers are those of the
continuous backend; a turn is answered when it is over, not when its batch is. No keys and values are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

from arpo_trainer.backends.decoding_request import Row
from arpo_trainer.backends.in_process import InProcessBackend
from arpo_trainer.backends.sampling import Drawn


class PaddedBackend(InProcessBackend):
    """Generates with any transformers causal language model, a padded batch at a time.

    Args:
        model: the model; its weights and its mode are left as they are.
        tokenizer: only to decode what was generated, to find stop strings.
        max_rows: requests decoded together.
        eos_token_ids: what ends a turn; by default the model's generation config and the tokenizer.
        estimator: of the entropies; "exact" costs no more than the others here.
        topk: how many of the most likely tokens an estimator looks at.

    Raises:
        ValueError: `max_rows` below 1, or an estimator that does not exist.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_rows: int = 64,
        eos_token_ids: set[int] | None = None,
        estimator: str = "exact",
        topk: int = 20,
    ) -> None:
        super().__init__(
            model, tokenizer, max_rows=max_rows, eos_token_ids=eos_token_ids, estimator=estimator, topk=topk
        )

    def _advance(self, rows: list[Row], new: int) -> list[Row]:
        """Decode all rows, which are all new, to their ends."""
        longest = max(len(row.request.ids) for row in rows) + max(row.request.max_tokens for row in rows)
        # `generate` goes on with every row until the last is over, even beyond a table of positions
        for batch in [rows] if longest <= self.positions else [[row] for row in rows]:
            self._decode(batch)
        ended, rows[:] = rows[:], []
        return ended

    def _decode(self, rows: list[Row]) -> None:
        ids, mask = _left_padded(rows, self.model.device)
        config = GenerationConfig(
            max_new_tokens=max(row.request.max_tokens for row in rows), do_sample=False, pad_token_id=0
        )
        temperatures = self._temperatures(rows)
        player = _Player(rows, lambda logits: self._draw(logits, temperatures, rows), self._take)
        with _own_settings_only(self.model):
            self.model.generate(
                ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=[player],
                stopping_criteria=[_AllOver(player)],
            )


class _Player(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped
    """Draws the tokens itself and leaves `generate` no choice but to take them."""

    def __init__(
        self, rows: list[Row], draw: Callable[[torch.Tensor], list[Drawn]], take: Callable[[Row, Drawn], bool]
    ) -> None:
        self.rows, self.draw, self.take = rows, draw, take
        self.over = [False] * len(rows)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Draw from logits `scores`, shape (rows, vocabulary); return scores that allow nothing else."""
        drawn = self.draw(scores)
        for number, row in enumerate(self.rows):
            if not self.over[number]:
                self.over[number] = self.take(row, drawn[number])
                row.future.get_loop().call_soon_threadsafe(row.answer if self.over[number] else row.tell)
        tokens = torch.tensor([one.token for one in drawn], device=scores.device)
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class _AllOver(StoppingCriteria):  # type: ignore[misc]
    """Ends each row when the player says that it is over."""

    def __init__(self, player: _Player) -> None:
        self.player = player

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows are over, shape (rows,)."""
        return torch.tensor(self.player.over, device=input_ids.device)


def _left_padded(rows: list[Row], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
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
