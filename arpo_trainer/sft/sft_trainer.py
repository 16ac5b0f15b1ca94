"""`TraceTrainer`: TRL's `SFTTrainer` on tokenised traces, with exact resume (`training.resume`) and shared beginnings.

In one process the rows of a micro-batch can be packed as a prefix tree: demonstrations of one environment begin with
the same system prompt, and it is computed once.

    trainer = make_trainer(model, tokenizer, examples, SFTConfig("out", gradient_checkpointing=False))
    trainer.train()
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from arpo_trainer.packing import PROVEN_ON, packed_logps, why_not_packable, why_not_proven
from arpo_trainer.rollout.engine import rank_count
from arpo_trainer.sft.trace_data import IGNORED, Example
from arpo_trainer.training.devices import OneDevice
from arpo_trainer.training.resume import ResumesOnRows
from arpo_trainer.training.trl_hooks import HAS_FUSED_HEAD

_PLAIN_LOSSES = ("nll", "chunked_nll")


class TraceTrainer(ResumesOnRows, OneDevice, SFTTrainer):  # type: ignore[misc]  # TRL is untyped
    """`SFTTrainer` on rows of ids and labels."""

    state_name = "sft"

    def __init__(self, *args: Any, share_beginnings: bool | str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        whole_rows = not (self.args.packing or self.args.padding_free)
        # `compute_loss` below is the plain likelihood only
        plain = getattr(self.args, "loss_type", "nll") in _PLAIN_LOSSES and not self.args.label_smoothing_factor
        # where packed rows are known to give the numbers of flat ones
        alone = HAS_FUSED_HEAD and rank_count() == 1 and self.model.device.type in PROVEN_ON
        self.shares = (
            share_beginnings is not False and whole_rows and plain and alone
            and not (why_not_packable(self.model) or why_not_proven(self.model))
        )  # fmt: skip

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the mean negative log-likelihood of the labelled tokens."""
        if not self.shares or return_outputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # each row is moved so that its labels begin in the same column; what comes before is the prompt
        ids, mask, labels = inputs["input_ids"], inputs["attention_mask"], inputs["labels"]
        width, first = ids.shape[1], (labels != IGNORED).int().argmax(1).clamp(min=1)
        prompt = int(first.max())
        columns = torch.arange(prompt + width - int(first.min()), device=ids.device) - (prompt - first)[:, None]
        there = (columns >= 0) & (columns < width)
        ids, mask, labels = (one.gather(1, columns.clamp(0, width - 1)) for one in (ids, mask, labels))
        labels = labels.masked_fill(~there, IGNORED)[:, prompt:]
        scored = packed_logps(model, ids, mask * there, labels.shape[1])
        learnt = scored.logps[labels != IGNORED]
        return -learnt.mean() if num_items_in_batch is None else -learnt.sum() / num_items_in_batch


def make_trainer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    args: SFTConfig,
    *,
    peft_config: Any = None,
    share_beginnings: bool | str = "auto",
    callbacks: Sequence[Callable[..., Any]] = (),
) -> TraceTrainer:
    """Return a trainer for tokenised traces.

    Args:
        model: a causal language model, or its folder or hub id.
        tokenizer: its tokenizer.
        examples: the output of `tokenised`, each no longer than `args.max_length`.
        args: the settings.
        peft_config: the configuration of the adapters, if only those are trained.
        share_beginnings: False computes each row of a micro-batch in full.
        callbacks: transformers callbacks.
    """
    longest = max(len(example["input_ids"]) for example in examples)
    if args.max_length is not None and longest > args.max_length:
        raise ValueError(f"an example has {longest:,} tokens, and max_length is {args.max_length:,}: set more, or null")
    # earlier releases of TRL do not read the labels of a data set; a collator of our own hands them over in any
    own = not (args.packing or args.padding_free or getattr(args, "pad_to_multiple_of", None))
    trainer = TraceTrainer(
        model,
        args=args,
        data_collator=padded if own else None,
        train_dataset=Dataset.from_list([dict(example) for example in examples]),
        processing_class=tokenizer,
        peft_config=peft_config,
        callbacks=list(callbacks),
        share_beginnings=share_beginnings,
    )
    _check_labels(trainer)
    digest = hashlib.sha256()
    for example in examples:
        for name in ("input_ids", "labels"):
            digest.update(array("q", [len(example[name]), *example[name]]).tobytes())
    trainer.rows_digest = digest.hexdigest()[:16]
    return trainer


def padded(rows: Sequence[Example]) -> dict[str, Any]:
    """Return a batch, padded on the right: the first column holds a token of every row."""
    # the mask hides the filled positions, so any token id would do for them
    fill = {"input_ids": 0, "labels": IGNORED, "attention_mask": 0}
    masked = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    return {
        name: torch.nn.utils.rnn.pad_sequence([torch.tensor(row[name]) for row in masked], True, value)
        for name, value in fill.items()
    }


def _check_labels(trainer: TraceTrainer) -> None:
    """Check that a batch has the labels of its row: results of tools must never be learnt silently."""
    row = trainer.train_dataset[0]
    batch = trainer.data_collator([row])
    learnt = batch["labels"][batch["labels"] != IGNORED].tolist()
    if learnt != [label for label in row["labels"] if label != IGNORED]:
        raise RuntimeError("this release of TRL does not keep the labels of packed rows: pip install 'trl>=1.16'")
