"""`FoldingGRPOTrainer`: rows whose history was folded go through the model segment by segment (see `fold_segments`).

The column "fold_mask" travels with the rows of a rollout, and only where something was folded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from arpo_trainer.training.fold_segments import cut_at_folds
from arpo_trainer.training.packed_trainer import PackedGRPOTrainer

FOLD_MASK = "fold_mask"


class FoldingGRPOTrainer(PackedGRPOTrainer):
    """Cuts rows at their folds where TRL asks for log-probabilities: in the loss, and of the old and reference policy.

    Attributes:
        rolled_out: set from the end of `play` until the rollout is scored; its rows are what TRL computes with then.
    """

    rolled_out = False

    def fold_mask(self, width: int) -> torch.Tensor | None:
        """Return 1 for the tokens of new prompts in the rows that were just rolled out, (B, width); None without folds.

        Every process must return a mask, or none.
        """
        return None

    def more_columns(self, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Send the mask along with the rows."""
        mask, self.rolled_out = self.fold_mask(completion_ids.shape[1]), False
        return {} if mask is None else {FOLD_MASK: mask.to(completion_ids.device)}

    def in_segments(
        self, compute: Callable[..., tuple[Any, ...]], ids: Any, mask: Any, width: int, batch_size: int | None
    ) -> tuple[Any, ...]:
        """Compute the segments of folded rows and put their numbers back in place."""
        folds = self._folds_now(width)
        if folds is None:
            return compute(ids, mask, width, batch_size)
        size, segments = batch_size or len(ids), cut_at_folds(ids, mask, folds.to(ids.device))
        segments = segments.extended(self._joint_rows(len(segments), size))
        logps, entropies, *rest = compute(segments.input_ids, segments.attention_mask, segments.width, size)
        return (segments.join(logps), None if entropies is None else segments.join(entropies), *rest)

    def _folds_now(self, width: int) -> torch.Tensor | None:
        """Return the folds in the rows that TRL computes with now."""
        if self._loss_inputs is not None:
            return self._loss_inputs.get(FOLD_MASK)
        return self.fold_mask(width) if self.rolled_out else None

    def _joint_rows(self, rows: int, batch_size: int) -> int:
        """Return how many rows to put through the model, so that all processes make as many forward passes."""
        joint = self._forwards()
        if joint is None:
            return rows
        passes = -(-rows // batch_size)
        most: int = joint(passes)
        return rows if most == passes else (most - 1) * batch_size + 1
