"""`TraceTrainer`: TRL's `SFTTrainer` on tokenised traces, with exact resume and shared beginnings.

TRL saves weights, optimizer, schedule and random states. What it loses at a kill, the loss and the metrics since the
last log, is kept in `sft_RANK.json` here, so that a resumed run logs and saves what an unbroken one does.

In one process on a CPU the rows of a micro-batch can be packed as a prefix tree: demonstrations of one environment
begin with the same system prompt, and it is computed once.

Of TRL's and transformers' internals this module uses `_total_train_tokens`, `_metrics`, `_tr_loss`,
`_globalstep_last_logged`, `_save_checkpoint`, `_load_rng_state` and `_load_from_checkpoint`. Those of the GRPO trainer
are in `training.trl_hooks` alone.

    trainer = make_trainer(model, tokenizer, examples, SFTConfig("out", gradient_checkpointing=False))
    trainer.train()
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerState
from transformers.trainer_utils import TrainOutput
from trl import SFTConfig, SFTTrainer

from arpo_trainer.packing import packed_logps
from arpo_trainer.packing.support import why_not_packable, why_not_proven
from arpo_trainer.rollout.distributed import rank_count
from arpo_trainer.sft.tokenised_traces import IGNORED, Example
from arpo_trainer.training.checkpoints import checkpoint_step, find_checkpoint, unmark
from arpo_trainer.training.trl_hooks import HAS_FUSED_HEAD

logger = logging.getLogger(__name__)


_PLAIN_LOSSES = ("nll", "chunked_nll")


class TraceTrainer(SFTTrainer):  # type: ignore[misc]  # TRL is untyped
    """`SFTTrainer` on rows of ids and labels.

    Args:
        args: as in `SFTTrainer`.
        share_beginnings: "auto" computes what the rows of a micro-batch share once, where that is known to be right
            and pays: in one process on a CPU. False computes each row in full.
        kwargs: as in `SFTTrainer`.

    Attributes:
        rows_digest: of the rows, kept in each checkpoint: one that was trained on other rows is not resumed. "" is not
            checked.
    """

    rows_digest = ""

    def __init__(self, *args: Any, share_beginnings: bool | str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        whole_rows = not (self.args.packing or self.args.padding_free)
        # `compute_loss` below is the plain likelihood only
        plain = getattr(self.args, "loss_type", "nll") in _PLAIN_LOSSES and not self.args.label_smoothing_factor
        self.shares = share_beginnings is not False and whole_rows and plain and can_share(self.model)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the mean negative log-likelihood of the labelled tokens."""
        if not self.shares or return_outputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # the first token, which nothing predicts, is the prompt; all others are the completion
        labels = inputs["labels"][:, 1:]
        scored = packed_logps(model, inputs["input_ids"], inputs["attention_mask"], labels.shape[1])
        learnt = scored.logps[labels != IGNORED]
        return -learnt.mean() if num_items_in_batch is None else -learnt.sum() / num_items_in_batch

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint.

        Args:
            resume_from_checkpoint: folder of a checkpoint, or True or "last" for the newest complete one.
            args: as in `SFTTrainer.train`.
            kwargs: as in `SFTTrainer.train`.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is incomplete.
            ValueError: the checkpoint was trained on other rows.
        """
        checkpoint = find_checkpoint(resume_from_checkpoint, self.args.output_dir)
        if checkpoint is not None:
            self._check_rows(checkpoint)
        if checkpoint is not None and 0 < self.args.max_steps <= checkpoint_step(checkpoint):
            return self._stay(checkpoint)
        return super().train(str(checkpoint) if checkpoint else None, *args, **kwargs)

    def _check_rows(self, checkpoint: Path) -> None:
        file = self._state_file(str(checkpoint))
        before = json.loads(file.read_text(encoding="utf-8")).get("rows") if file.is_file() else None
        if self.rows_digest and before and before != self.rows_digest:
            raise ValueError(
                f"{checkpoint} was trained on other rows: data, prompt, protocol or tokenizer have changed. Resume "
                "with the same ones, or start a new run with --set output_dir=FOLDER"
            )

    def _stay(self, checkpoint: Path) -> TrainOutput:
        """Load a run that has done all its steps; transformers would take one more."""
        logger.warning("%s has done all of max_steps = %d: nothing to train", checkpoint, self.args.max_steps)
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        return TrainOutput(checkpoint_step(checkpoint), math.nan, {})

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:  # an older checkpoint of this name is not complete while it is overwritten
            unmark(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        loss = getattr(self, "_tr_loss", None)
        kept = {
            "rows": self.rows_digest,
            "tokens": self._total_train_tokens,
            "metrics": dict(self._metrics["train"]),
            "loss": None if loss is None else (loss.item(), self._globalstep_last_logged),
        }
        path = self._state_file(output_dir)
        path.with_suffix(".unfinished").write_text(json.dumps(kept), encoding="utf-8")
        os.replace(path.with_suffix(".unfinished"), path)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is None or not self._state_file(checkpoint).is_file():
            return
        kept = json.loads(self._state_file(checkpoint).read_text(encoding="utf-8"))
        self._total_train_tokens = kept["tokens"]
        self._metrics["train"].update(kept["metrics"])
        if kept["loss"] is not None and hasattr(self, "_tr_loss"):
            self._tr_loss.fill_(kept["loss"][0])
            self._globalstep_last_logged = kept["loss"][1]

    def _state_file(self, folder: str) -> Path:
        return Path(folder) / f"sft_{self.accelerator.process_index}.json"


def can_share(model: Any) -> bool:
    """Return whether packed rows of a model are known to give the numbers of flat ones here."""
    alone_on_cpu = rank_count() == 1 and not torch.cuda.is_available()
    return alone_on_cpu and HAS_FUSED_HEAD and not (why_not_packable(model) or why_not_proven(model))


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
        share_beginnings: see `TraceTrainer`.
        callbacks: transformers callbacks.

    Raises:
        ValueError: an example is longer than `args.max_length`, which would cut its answer off.
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
    trainer.rows_digest = digest(examples)
    return trainer


def digest(examples: Sequence[Example]) -> str:
    """Return a hash of ids and labels, in their order."""
    found = hashlib.sha256()
    for example in examples:
        for name in ("input_ids", "labels"):
            found.update(array("q", [len(example[name]), *example[name]]).tobytes())
    return found.hexdigest()[:16]


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
    """Check that a batch has the labels of its row: results of tools must never be learnt silently.

    Raises:
        RuntimeError: this TRL makes labels of its own.
    """
    row = trainer.train_dataset[0]
    batch = trainer.data_collator([row])
    learnt = batch["labels"][batch["labels"] != IGNORED].tolist()
    if learnt != [label for label in row["labels"] if label != IGNORED]:
        raise RuntimeError("this release of TRL does not keep the labels of packed rows: pip install 'trl>=1.16'")
