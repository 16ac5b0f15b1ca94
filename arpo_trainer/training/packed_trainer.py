"""`PackedGRPOTrainer`: TRL's `GRPOTrainer`, whose micro-batches go through the model as prefix trees.

Rows are dealt to micro-batches so that siblings meet, and where rows are packed their log-probabilities are computed
here, those of the old and the reference policy too. Losses, accumulation and everything else stay TRL's.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from arpo_trainer.packing.forward import packed_logps
from arpo_trainer.packing.splitting import regroup
from arpo_trainer.packing.support import why_not_packable
from arpo_trainer.training.trl_hooks import HAS_FUSED_HEAD, Forward, HookedGRPOTrainer

logger = logging.getLogger(__name__)


class PackedGRPOTrainer(HookedGRPOTrainer):
    """Adds `args.packing` ("tree" or "flat") and `args.packing_tokens` to `GRPOTrainer`."""

    _packs = False

    def pack_if_possible(self) -> None:
        """Pack from now on, if that is asked for; where a model cannot be packed, say why and stay flat."""
        if self.args.packing != "tree":
            return
        models = [self.model] if self.ref_model is None else [self.model, self.ref_model]
        reasons = [why_not_packable(self.accelerator.unwrap_model(model)) for model in models]
        if not HAS_FUSED_HEAD:
            reasons = ["this TRL puts no fused head on the model, which packed rows need; pip install 'trl>=1.16'"]
        reason = next((reason for reason in reasons if reason), None)
        if reason:
            logger.warning("training on flat rows: %s", reason)
        self._packs = reason is None

    def deal(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let siblings meet, where rows are packed."""
        if not self._packs:
            return micro_batches
        seed = (self.args.seed * 1_000_003 + self.state.global_step) * 4_096 + self.accelerator.process_index
        return regroup(micro_batches, torch.Generator().manual_seed(seed % 2**63))

    def own_logps(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Compute what rows share once."""
        if not self._packs or forward.aux_loss:
            return None
        budget = forward.batch_size * forward.input_ids.shape[1]  # what the flat rows would have taken
        budget = min(budget, self.args.packing_tokens or budget)
        with self.accelerator.autocast():
            packed = packed_logps(
                forward.model, forward.input_ids, forward.attention_mask, forward.logits_to_keep, budget=budget,
                compute_entropy=forward.entropy, forwards=self._forwards(),
            )  # fmt: skip
        self.add_metric("arpo/packing", packed.flat / max(1, packed.computed))
        return packed.logps, packed.entropies

    def _forwards(self) -> Any:
        """Return what makes the count of forwards the same on all processes: each is a joint act, or may be.

        Where weights are sharded they are gathered; DDP hands the main process's buffers to the others.
        """
        if self.accelerator.num_processes == 1:
            return None
        device = self.accelerator.device
        return lambda own: int(self.accelerator.gather(torch.tensor([own], device=device)).max())
