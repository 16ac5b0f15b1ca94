"""TRL's `GRPOTrainer`, whose micro-batches go through the model as prefix trees, and folded rows segment by segment.

Rows are dealt to micro-batches so that siblings meet, packed or not. Losses and accumulation stay TRL's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from arpo_trainer import packing
from arpo_trainer.training.trl_hooks import ANY_ROW, HAS_FUSED_HEAD, Forward, HookedGRPOTrainer

logger = logging.getLogger(__name__)


# Rows with folds. A trajectory stays one row of the batch, so that rewards, advantages, masks and normalisations of the
# loss are those of one trajectory. Only its log-probabilities are computed in pieces: nothing that follows a fold
# attends to what came before it, and its positions begin anew. `docs/concepts/folding.md` says why.

FOLD_MASK = "fold_mask"  # the column that travels with the rows of a rollout where something was folded


class Segment(NamedTuple):
    """A prompt and what follows it in a row of the batch, as columns of (B, P + T)."""

    row: int
    prompt: list[int]
    completion: list[int]


@dataclass(frozen=True)
class FoldSegments:
    """Segments as TRL pads rows: prompts on the left, completions on the right.

    Attributes:
        input_ids: (S, P' + T').
        attention_mask: 1 for tokens, 0 for padding, (S, P' + T').
        width: T'.
        shape: (B, T) of the batch they were cut from.
        source: for each completion token of the segments, in order, its place in (S, T') counted row by row.
        target: the same in (B, T).
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    width: int
    shape: tuple[int, int]
    source: torch.Tensor
    target: torch.Tensor

    def __len__(self) -> int:
        return len(self.input_ids)

    def extended(self, rows: int) -> FoldSegments:
        """Return the segments with copies of the first one behind them, `rows` in all; nobody reads the copies."""
        extra = [0] * (rows - len(self))
        places = torch.tensor([*range(len(self)), *extra], device=self.input_ids.device)
        return replace(self, input_ids=self.input_ids[places], attention_mask=self.attention_mask[places])

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the segments, (S, T'), in the places of the batch, (B, T); 0 at new prompts and padding."""
        # the zero depends on every value, so that a forward pass nobody reads takes part in backward, too; each value
        # is made 0 before they are added, since a sum of log-probabilities is beyond the range of float16
        joined = values.new_zeros(self.shape).flatten() + (0 * values).sum()
        return joined.index_put((self.target,), values.flatten()[self.source]).view(self.shape)


def cut_at_folds(input_ids: torch.Tensor, attention_mask: torch.Tensor, fold_mask: torch.Tensor) -> FoldSegments:
    """Cut the rows of a batch, (B, P + T) as TRL pads them, where `fold_mask` (B, T) has tokens of a new prompt."""
    rows, width = fold_mask.shape
    left = input_ids.shape[1] - width
    segments = [each for row in range(rows) for each in _segments(row, left, attention_mask[row], fold_mask[row])]
    # a batch without completion tokens still needs a row for the model
    segments = segments or [Segment(0, [0], [])]
    before = max(len(segment.prompt) for segment in segments)
    after = max(1, *(len(segment.completion) for segment in segments))
    columns = torch.zeros(len(segments), before + after, dtype=torch.long)
    mask, source, target = torch.zeros_like(columns), [], []
    for number, segment in enumerate(segments):
        place = slice(before - len(segment.prompt), before + len(segment.completion))
        columns[number, place] = torch.tensor(segment.prompt + segment.completion)
        mask[number, place] = 1
        source += [number * after + position for position in range(len(segment.completion))]
        target += [segment.row * width + column - left for column in segment.completion]
    device = input_ids.device
    own = torch.tensor([segment.row for segment in segments], device=device)[:, None]
    mask = mask.to(device)
    ids = input_ids[own, columns.to(device)] * mask
    places = (torch.tensor(listed, dtype=torch.long, device=device) for listed in (source, target))
    return FoldSegments(ids, mask.to(attention_mask.dtype), after, (rows, width), *places)


def _segments(row: int, left: int, attention_mask: torch.Tensor, fold_mask: torch.Tensor) -> Iterator[Segment]:
    """Yield the segments of a row that have completion tokens."""
    columns, folds = attention_mask.nonzero().flatten().tolist(), fold_mask.tolist()
    prompt, completion = [column for column in columns if column < left], list[int]()
    for column in columns[len(prompt) :]:
        if not folds[column - left]:
            completion.append(column)
        elif completion:  # the first token of a new prompt
            yield Segment(row, prompt, completion)
            prompt, completion = [column], []
        else:
            prompt.append(column)
    if completion:
        yield Segment(row, prompt, completion)


class PackedGRPOTrainer(HookedGRPOTrainer):
    """Adds `args.packing` (True, False or "auto") and rows with folds to `GRPOTrainer`.

    Attributes:
        packs: whether rows are packed as trees.
        padding_free: whether rows that are not are computed one behind the other, without their padding.
        rolled_out: set from the end of `play` until the rollout is scored; its rows are what TRL computes with then.
    """

    packs = padding_free = rolled_out = False

    def choose_packing(self) -> None:
        """Decide how rows are computed from now on, and log why if they are not packed, or packed unproven."""
        if self.args.packing is False:
            return
        reason, unproven = self._why_not(packing.why_not_packable), self._why_not_proven()
        if self.args.packing is True:
            if reason:
                raise ValueError(f"packing=True: {reason}. Set packing='auto' or False to train on flat rows")
            if unproven:
                logger.warning("packing=True: %s. Compare a step with one of packing=False first", unproven)
        self.packs = not reason and (self.args.packing is True or not unproven)
        if not self.packs:
            padded = self._why_not(packing.why_not_padding_free)
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
        if device not in packing.PROVEN_ON:
            where = f"on {device}"
        elif fsdp is not None and fsdp.fsdp_version == 1:
            where = "under FSDP1"
        elif self.args.torch_compile or self.args.use_liger_kernel:
            where = "under torch_compile or with Liger kernels"
        if where:
            return f"packed rows have not been compared with flat ones {where}"
        return self._why_not(packing.why_not_proven)

    def _models(self) -> list[Any]:
        models = [self.model] if self.ref_model is None else [self.model, self.ref_model]
        return [self.accelerator.unwrap_model(model) for model in models]

    def deal(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let siblings meet. Flat rows are dealt alike, so that packing does not change which rows share an update."""
        # another deal at each step and on each process, and the same one again when a run is resumed
        seed = (self.args.seed * 1_000_003 + self.state.global_step) * 4_096 + self.accelerator.process_index
        return packing.regroup(micro_batches, torch.Generator().manual_seed(seed % 2**63))

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Leave out the completions of rows that change no weight: groups of equal rewards, and rows left out before.

        What the loss divides by is known from the rollout, so it stays that of all rows. Entropies and shares of
        clipped tokens are logged for the rows that are learned from.
        """
        inputs = super().before_loss(inputs)
        # padded rows would take as long, and the balancing loss of experts is of all tokens
        if not (self.packs or self.padding_free) or self.aux_loss_enabled or not self.model.training:
            return inputs
        counted = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        advantages = inputs["advantages"] if inputs["advantages"].dim() == 2 else inputs["advantages"][:, None]
        used = (counted if self.needs_all_rows else counted * advantages).any(dim=1, keepdim=True)
        left = {**inputs, "completion_mask": inputs["completion_mask"] * used}
        if inputs.get("old_per_token_logps") is not None:
            # log pi is 0 for what is left out, and the loss may use its ratio to log pi_old before it is masked
            left["old_per_token_logps"] = inputs["old_per_token_logps"] * used
        left[ANY_ROW] = bool(self.accelerator.reduce(used.sum(), "sum"))
        return left

    def own_logps(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Compute what rows share once, or at least no padding."""
        if not (self.packs or self.padding_free) or forward.aux_loss:
            return None
        budget = forward.batch_size * forward.input_ids.shape[1]  # what the flat rows would have taken
        with self.accelerator.autocast():
            packed = packing.packed_logps(
                forward.model,
                forward.input_ids,
                forward.attention_mask,
                forward.logits_to_keep,
                budget=budget,
                compute_entropy=forward.entropy,
                share=self.packs,
                forwards=self._forwards(),
            )
        if self._loss_inputs is not None and packed.flat:  # what is learned from, not other passes over the same rows
            self.add_metric("arpo/packing", packed.flat / packed.computed)
        return packed.logps, packed.entropies

    def _forwards(self) -> Any:
        """Return what makes the count of forwards the same on all processes: each is a joint act, or may be.

        Where weights are sharded they are gathered; DDP hands the main process's buffers to the others.
        """
        if self.accelerator.num_processes == 1:
            return None
        device = self.accelerator.device
        return lambda own: int(self.accelerator.gather(torch.tensor([own], device=device)).max())

    # folded rows are cut where TRL asks for log-probabilities: in the loss, and of the old and reference policy

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
