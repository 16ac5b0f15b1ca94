"""`PackedGRPOTrainer`: TRL's `GRPOTrainer`, whose micro-batches go through the model as prefix trees.

Of TRL's inside it uses

    _prepare_inputs                      wrapped: rows are dealt to micro-batches so that siblings meet
    _get_per_token_logps_and_entropies   replaced where rows are packed; the old and reference policies go the same way

Losses, accumulation and everything else stay TRL's.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from trl import GRPOTrainer

from arpo_trainer.packing.forward import packed_logps
from arpo_trainer.packing.splitting import regroup
from arpo_trainer.packing.support import why_not_packable

logger = logging.getLogger(__name__)


class PackedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is untyped
    """Adds `args.packing` ("tree" or "flat") and `args.packing_tokens` to `GRPOTrainer`."""

    _packs = False
    _buffered_inputs: Any

    def pack_if_possible(self) -> None:
        """Pack from now on, if that is asked for; where a model cannot be packed, say why and stay flat."""
        if self.args.packing != "tree":
            return
        models = [self.model] if self.ref_model is None else [self.model, self.ref_model]
        reasons = [why_not_packable(self.accelerator.unwrap_model(model)) for model in models]
        reason = next((reason for reason in reasons if reason), None)
        if reason:
            logger.warning("training on flat rows: %s", reason)
        self._packs = reason is None

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._packs and self.model.training and self._buffered_inputs is not before:
            seed = (self.args.seed * 1_000_003 + self.state.global_step) * 4_096 + self.accelerator.process_index
            generator = torch.Generator().manual_seed(seed % 2**63)
            self._buffered_inputs = regroup(self._buffered_inputs, generator)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, batch_size: int | None = None,
        *args: Any, **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        if not self._packs or kwargs.get("compute_aux_loss"):
            found: tuple[Any, ...] = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, *args, **kwargs
            )
            return found
        budget = (batch_size or len(input_ids)) * input_ids.shape[1]  # what the flat rows would have taken
        budget = min(budget, self.args.packing_tokens or budget)
        with self.accelerator.autocast():
            packed = packed_logps(
                model, input_ids, attention_mask, logits_to_keep, budget=budget,
                compute_entropy=kwargs.get("compute_entropy", False), forwards=self._forwards(),
            )  # fmt: skip
        self._metrics["train" if self.model.training else "eval"]["arpo/packing"].append(
            packed.flat / max(1, packed.computed)
        )
        return packed.logps, packed.entropies, None

    def _forwards(self) -> Any:
        """Return what makes the count of forwards the same on all processes, where each of them is a joint act."""
        if not (self.is_fsdp_enabled or getattr(self.accelerator.state, "deepspeed_plugin", None)):
            return None
        device = self.accelerator.device
        return lambda own: int(self.accelerator.gather(torch.tensor([own], device=device)).max())
