"""`PairTrainer`: TRL's `DPOTrainer` on pairs of token ids, with the results of tools masked.

TRL's trainer scores the tokens that its collator marks in `completion_mask`, and marks all after the prompt. The
collator here leaves out what the model did not write. TRL would tokenise texts first; `_prepare_dataset`, which does
that, is the one internal method that is replaced: ids of a rollout are never decoded and encoded again. Both sides of
a pair see the results of tools as context; no probability of them is in the loss.

The reference is the policy before the first step: with adapters the base without them, otherwise a second copy of the
model, or its log-probabilities alone with `precompute_ref_log_probs` (one process).

    trainer = make_pair_trainer(model, tokenizer, pairs, DPOConfig("out", remove_unused_columns=False))
    trainer.train()
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from arpo_trainer.preference.pairs import PreferencePair, check_shared_losses
from arpo_trainer.training.devices import OneDevice
from arpo_trainer.training.resume import ResumesOnRows

_COLUMNS = ("prompt_ids", "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask")


@dataclass
class MaskedPreferenceCollator(DataCollatorForPreference):  # type: ignore[misc]  # TRL is untyped
    """Makes TRL's batches of pairs, in which the tokens of the model alone count.

    Rows are chosen sides first, then rejected ones, padded on the right.
    """

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return `input_ids`, `attention_mask` and `completion_mask`, each of shape (2 B, tokens)."""
        batch: dict[str, Any] = super().torch_call(examples)
        learnt = torch.zeros_like(batch["completion_mask"])
        sides = [(example, side) for side in ("chosen", "rejected") for example in examples]
        for row, (example, side) in enumerate(sides):
            mask, start = example[f"{side}_mask"], len(example["prompt_ids"])
            learnt[row, start : start + len(mask)] = torch.tensor(mask)
        batch["completion_mask"] = learnt
        return batch


class PairTrainer(ResumesOnRows, OneDevice, DPOTrainer):  # type: ignore[misc]  # TRL is untyped
    """`DPOTrainer` on rows of ids and masks, with exact resume."""

    state_name = "dpo"

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the rows as they are: TRL's own method would tokenise texts."""
        return dataset


def make_pair_trainer(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    args: DPOConfig,
    *,
    peft_config: Any = None,
    callbacks: Sequence[Callable[..., Any]] = (),
) -> PairTrainer:
    """Return a trainer for pairs.

    Args:
        model: a causal language model, or its folder or hub id; the reference is a copy of it.
        tokenizer: its tokenizer, of which only the padding is used.
        pairs: at least one.
        args: the settings; `max_length` and `truncation_mode` are not used, since a pair that is cut has no answer.
        peft_config: the configuration of the adapters, if only those are trained.
        callbacks: transformers callbacks.

    Raises:
        ValueError: there is no pair, one has ids that the model does not know, or pairs share turns and the loss is not
            one of their difference.
        RuntimeError: this release of TRL does not use the masks.
    """
    if not pairs:
        raise ValueError("no pairs to learn from")
    if any(pair.shared for pair in pairs):
        check_shared_losses(args)
    args.remove_unused_columns = False  # the masks are columns that TRL does not know
    rows = [{name: value for name, value in asdict(pair).items() if name in _COLUMNS} for pair in pairs]
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    trainer = PairTrainer(
        model,
        args=args,
        data_collator=MaskedPreferenceCollator(padding, pad_to_multiple_of=args.pad_to_multiple_of),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config,
        callbacks=list(callbacks),
    )
    _check_ids(pairs, trainer.model.get_input_embeddings().num_embeddings)
    _check_batch(trainer, rows[0])
    trainer.rows_digest = pairs_digest(pairs)
    return trainer


def pairs_digest(pairs: Sequence[PreferencePair]) -> str:
    """Return a hash of all pairs, in their order."""
    found = hashlib.sha256()
    for pair in pairs:
        found.update(json.dumps(asdict(pair)).encode())
    return found.hexdigest()[:16]


def _check_ids(pairs: Sequence[PreferencePair], size: int) -> None:
    """Check that all ids are tokens of the model."""
    for pair in pairs:
        if (largest := max(*pair.prompt_ids, *pair.chosen_ids, *pair.rejected_ids)) >= size:
            raise ValueError(
                f"a pair of task {pair.task!r} has the token id {largest}, and the model has {size} tokens: the pairs "
                "were sampled with another tokenizer. Sample them from this model"
            )


def _check_batch(trainer: PairTrainer, row: dict[str, list[int]]) -> None:
    """Check that a batch has the ids and masks of its pair: results of tools must never be learnt silently."""
    batch = trainer.data_collator([trainer.train_dataset[0]])
    for number, side in enumerate(("chosen", "rejected")):
        ids, mask = batch["input_ids"][number], batch["completion_mask"][number]
        expected = [token for token, own in zip(row[f"{side}_ids"], row[f"{side}_mask"], strict=True) if own]
        if ids[mask.bool()].tolist() != expected:
            raise RuntimeError("this release of TRL changes pairs of token ids: pip install 'trl>=1.16'")
