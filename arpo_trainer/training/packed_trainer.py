"""`PackedGRPOTrainer`: TRL's `GRPOTrainer`, whose micro-batches go through the model as prefix trees.

Rows are dealt to micro-batches so that siblings meet, packed or not, and where rows are packed their log-probabilities
are computed here, those of the old and the reference policy too. Losses, accumulation and everything else stay TRL's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from arpo_trainer.packing.forward import packed_logps
from arpo_trainer.packing.splitting import regroup
from arpo_trainer.packing.support import PROVEN_ON, why_not_packable, why_not_padding_free, why_not_proven
from arpo_trainer.training.forward_request import Forward
from arpo_trainer.training.trl_hooks import HAS_FUSED_HEAD, HookedGRPOTrainer

logger = logging.getLogger(__name__)


class PackedGRPOTrainer(HookedGRPOTrainer):
    """Adds `args.packing` (True, False or "auto") and `args.packing_tokens` to `GRPOTrainer`.

    Attributes:
        packs: whether rows are packed as trees.
        padding_free: whether rows that are not are computed one behind the other, without their padding.
    """

    packs = padding_free = False

    def choose_packing(self) -> None:
        """Decide how rows are computed from now on, and log why if they are not packed, or packed unproven.

        Raises:
            ValueError: `packing=True`, and this model or this TRL does not allow it.
        """
        if self.args.packing is False:
            return
        reason, unproven = self._why_not(why_not_packable), self._why_not_proven()
        if self.args.packing is True:
            if reason:
                raise ValueError(f"packing=True: {reason}. Set packing='auto' or False to train on flat rows")
            if unproven:
                logger.warning("packing=True: %s. Compare a step with one of packing=False first", unproven)
        self.packs = not reason and (self.args.packing is True or not unproven)
        if not self.packs:
            padded = self._why_not(why_not_padding_free)
            self.padding_free = padded is None
            rows = "padded rows" if padded else "flat rows without padding"
            reasons = dict.fromkeys(filter(None, (reason or unproven, padded)))
            logger.info("packing='auto' trains on %s: %s", rows, "; ".join(reasons))

    def _why_not(self, of: Callable[[Any], str | None]) -> str | None:
        """Return the first reason against a form of rows, of this TRL or of a model, or None."""
        if not HAS_FUSED_HEAD:
            return "this TRL puts no fused head on the model, which packed rows need; pip install 'trl>=1.16'"
        return next(filter(None, map(of, self._models())), None)

    def _why_not_proven(self) -> str | None:
        """Return what of this run is in no test that compares packed rows with flat ones, or None."""
        device, fsdp = self.accelerator.device.type, getattr(self.accelerator.state, "fsdp_plugin", None)
        where = ""
        if device not in PROVEN_ON:
            where = f"on {device}"
        elif fsdp is not None and fsdp.fsdp_version == 1:
            where = "under FSDP1"
        elif self.args.torch_compile or self.args.use_liger_kernel:
            where = "under torch_compile or with Liger kernels"
        if where:
            return f"packed rows have not been compared with flat ones {where}"
        return self._why_not(why_not_proven)

    def _models(self) -> list[Any]:
        models = [self.model] if self.ref_model is None else [self.model, self.ref_model]
        return [self.accelerator.unwrap_model(model) for model in models]

    def deal(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let siblings meet. Flat rows are dealt alike, so that packing does not change which rows share an update."""
        # another deal at each step and on each process, and the same one again when a run is resumed
        seed = (self.args.seed * 1_000_003 + self.state.global_step) * 4_096 + self.accelerator.process_index
        return regroup(micro_batches, torch.Generator().manual_seed(seed % 2**63))

    def own_logps(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Compute what rows share once, or at least no padding."""
        if not (self.packs or self.padding_free) or forward.aux_loss:
            return None
        budget = forward.batch_size * forward.input_ids.shape[1]  # what the flat rows would have taken
        budget = min(budget, self.args.packing_tokens or budget)
        with self.accelerator.autocast():
            packed = packed_logps(
                forward.model,
                forward.input_ids,
                forward.attention_mask,
                forward.logits_to_keep,
                budget=budget,
                compute_entropy=forward.entropy,
                share=self.packs,
                forwards=self._forwards(),
            )
        if self._loss_inputs is not None:  # what is learned from, and not other passes over the same rows
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
