"""`ResumesOnRows`: exact resume for TRL's trainers that learn from rows which are all there at the start.

TRL saves weights, optimizer, schedule and random states. What it loses at a kill, the loss and the metrics since the
last log, is kept in NAME_RANK.json here, so that a resumed run logs and saves what an unbroken one does.

Of TRL's and transformers' internals this module uses `_total_train_tokens`, `_metrics`, `_tr_loss`,
`_globalstep_last_logged`, `_save_checkpoint`, `_save_rng_state`, `_load_rng_state` and `_load_from_checkpoint`. Those
of the GRPO trainer are in `trl_hooks` alone.

    class TraceTrainer(ResumesOnRows, SFTTrainer):
        state_name = "sft"
"""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer_utils import TrainOutput

from arpo_trainer.training.checkpoints import checkpoint_step, find_checkpoint, unmark
from arpo_trainer.training.run_fingerprint import deciding_settings

logger = logging.getLogger(__name__)
# how long, in which batches and on what: these change with the machine, or are why a run goes on
MAY_CHANGE = (
    *("max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("auto_find_batch_size", "use_cpu", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval", "tf32"),
    *("deepspeed", "fsdp", "fsdp_config", "accelerator_config", "parallelism_config"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs", "activation_offloading"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),  # their names since transformers 5.23
    *("torch_compile", "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "liger_kernel_config"),
    *("dataset_num_proc", "precompute_ref_batch_size"),
)


class ResumesOnRows:
    """Comes before TRL's trainer among the bases of a trainer.

    Attributes:
        state_name: how the file of its state begins.
        rows_digest: of the rows, kept in each checkpoint: one that was trained on other rows is not resumed. "" is not
            checked. The settings are kept, too.
    """

    state_name = "rows"
    rows_digest = ""
    _checked: Path | None = None
    # of TRL's trainer
    args: Any
    accelerator: Any
    state: Any
    _metrics: dict[str, Any]
    _total_train_tokens: int

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint.

        Args:
            resume_from_checkpoint: folder of a checkpoint, or True or "last" for the newest complete one.
            args: as in TRL's trainer.
            kwargs: as in TRL's trainer.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is incomplete.
            ValueError: the checkpoint was trained on other rows, or with other settings.
        """
        checkpoint = self.checked_checkpoint(resume_from_checkpoint)
        if checkpoint is not None and 0 < self.args.max_steps <= checkpoint_step(checkpoint):
            return self._stay(checkpoint)
        base: Any = super()
        return base.train(str(checkpoint) if checkpoint else None, *args, **kwargs)

    def checked_checkpoint(self, given: str | Path | bool | None) -> Path | None:
        """Return the checkpoint to resume from; ask before the records of the earlier run are overwritten.

        Args:
            given: as in `train`, which takes what is returned and does not check it again.

        Raises:
            FileNotFoundError: as in `train`.
            ValueError: as in `train`.
        """
        checkpoint = find_checkpoint(given, self.args.output_dir)
        if checkpoint is not None and checkpoint != self._checked:
            self._check_state(checkpoint)
            self._checked = checkpoint
        return checkpoint

    def _check_state(self, checkpoint: Path) -> None:
        file = self._state_file(str(checkpoint))
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if self.rows_digest and kept.get("rows") and kept["rows"] != self.rows_digest:
            raise ValueError(
                f"{checkpoint} was trained on other rows: data, prompt, protocol or tokenizer have changed. Resume "
                "with the same ones, or start a new run with --set output_dir=FOLDER"
            )
        self._check_settings(checkpoint, kept.get("settings", {}))

    def _check_settings(self, checkpoint: Path, before: dict[str, Any]) -> None:
        """Refuse settings that decide what is learnt; of others warn, since the run is not the unbroken one."""
        now = deciding_settings(self)
        # another release of TRL may have other settings
        changed = {name: f"{name}: {before[name]!r} -> {now[name]!r}" for name in now
                   if name in before and before[name] != now[name]}  # fmt: skip
        if refused := [words for name, words in changed.items() if name not in MAY_CHANGE]:
            raise ValueError(
                f"{checkpoint} was trained with other settings: {', '.join(refused)}. Set them back, or start a new "
                "run with --set output_dir=FOLDER"
            )
        if changed:
            logger.warning("resuming %s with other settings: %s", checkpoint, ", ".join(changed.values()))

    def _stay(self, checkpoint: Path) -> TrainOutput:
        """Load a run that has done all its steps; transformers would take one more."""
        logger.warning("%s has done all of max_steps = %d: nothing to train", checkpoint, self.args.max_steps)
        base: Any = super()
        base._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        return TrainOutput(checkpoint_step(checkpoint), math.nan, {})

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:  # an older checkpoint of this name is not complete while it is overwritten
            unmark(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
        base: Any = super()
        base._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        base: Any = super()
        base._save_rng_state(output_dir)
        loss = getattr(self, "_tr_loss", None)
        kept = {
            "rows": self.rows_digest,
            "settings": deciding_settings(self),
            "tokens": self._total_train_tokens,
            "metrics": dict(self._metrics["train"]),
            "loss": None if loss is None else (loss.item(), getattr(self, "_globalstep_last_logged", 0)),
        }
        path = self._state_file(output_dir)
        path.with_suffix(".unfinished").write_text(json.dumps(kept), encoding="utf-8")
        os.replace(path.with_suffix(".unfinished"), path)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        base: Any = super()
        base._load_rng_state(checkpoint)
        if checkpoint is None or not self._state_file(checkpoint).is_file():
            return
        kept = json.loads(self._state_file(checkpoint).read_text(encoding="utf-8"))
        self._total_train_tokens = kept["tokens"]
        self._metrics["train"].update(kept["metrics"])
        loss = getattr(self, "_tr_loss", None)
        if kept["loss"] is not None and loss is not None:
            loss.fill_(kept["loss"][0])
            self._globalstep_last_logged = kept["loss"][1]

    def _state_file(self, folder: str) -> Path:
        return Path(folder) / f"{self.state_name}_{self.accelerator.process_index}.json"
