"""`ResumableTrainer`: TRL's `GRPOTrainer` with exact resume, as if the run had never stopped.

TRL saves weights, optimizer, schedule, its own state and random states. It does not save the rollout that it is in the
middle of (with `num_iterations` or `steps_per_generation` one rollout serves several steps), so it would roll out again
at once and stay out of step with the data. It also loses what was measured since the last log, and starts every later
pass over the tasks in the order of the first one. Here each process adds `rollout_RANK.pt` to a checkpoint and reads it
again.

`trl_hooks` has the parts that depend on TRL's internals. Of transformers' internals this module uses

    _save_rng_state, _load_rng_state     wrapped: `rollout_RANK.pt` is written and read with the random states, before
                                         trainer_state.json is written and before the first step is taken
    _load_from_checkpoint, _load_best_model
                                         the weights of a run that has done all its steps
    _tr_loss, _globalstep_last_logged    the loss since the last log

On other hardware or with other versions a resumed run differs, since sums round differently there.
"""

from __future__ import annotations

import json
import logging
import math
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from transformers.trainer_utils import TrainOutput

from arpo_trainer.training.checkpoints import checkpoint_step, epochs_behind, find_checkpoint, newer, unmark
from arpo_trainer.training.run_fingerprint import differences, fingerprint, moved_borders
from arpo_trainer.training.trl_hooks import HookedGRPOTrainer, forget_rollout, restore_rollout, rollout_state

logger = logging.getLogger(__name__)


class ResumableTrainer(HookedGRPOTrainer):
    """Adds exact resume to `GRPOTrainer`."""

    _passes = 0
    _played = (-1, 0)  # a step, and the number of groups played in it

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint.

        Args:
            resume_from_checkpoint: folder of a checkpoint, or True or "last" for the newest complete one; None takes
                that of the settings.
            args: as in `GRPOTrainer.train`.
            kwargs: as in `GRPOTrainer.train`.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is incomplete.
            ValueError: the checkpoint is in the middle of a rollout, and the settings change the size of rollouts; or
                its adapters have another shape; or all steps are done and the weights are sharded.
        """
        if resume_from_checkpoint is None:
            resume_from_checkpoint = self.args.resume_from_checkpoint
        checkpoint = find_checkpoint(resume_from_checkpoint, self.args.output_dir)
        forget_rollout(self)  # of an earlier call
        self._passes, self._played = 0, (-1, 0)
        if checkpoint is not None:
            self._check_settings(checkpoint)
            self._passes = epochs_behind(checkpoint)
            for path in newer(checkpoint.parent, checkpoint_step(checkpoint)):
                logger.warning("%s is newer than the checkpoint that the run resumes from; 'last' would take it", path)
        with self.recording(checkpoint):
            if checkpoint is not None and 0 < self.args.max_steps <= checkpoint_step(checkpoint):
                return self._stay(checkpoint)
            return super().train(str(checkpoint) if checkpoint else None, *args, **kwargs)

    def recording(self, checkpoint: str | Path | None) -> AbstractContextManager[None]:
        """Return what records the training within it; by default nothing does."""
        return nullcontext()

    def _stay(self, checkpoint: Path) -> TrainOutput:
        """Load a run that has done all its steps; transformers would take one more."""
        step = checkpoint_step(checkpoint)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(f"{checkpoint} has done all of max_steps = {self.args.max_steps}: set more to continue")
        logger.warning("%s has done all of max_steps = %d: nothing to train", checkpoint, self.args.max_steps)
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint:
            self._load_best_model()
        self.callback_handler.on_train_begin(self.args, self.state, self.control)
        return TrainOutput(step, math.nan, {})

    def number_groups(self, count: int) -> int:
        """Return the number of the first of `count` groups in its step, which may need several rollouts."""
        step, first = self._played
        first = first if step == self.state.global_step else 0
        self._played = (self.state.global_step, first + count)
        return first

    def before_checkpoint(self, folder: Path) -> None:
        """Unmark an older checkpoint as complete before its files are overwritten."""
        if self.args.should_save:
            unmark(folder)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        path = self._rollout_file(output_dir)
        torch.save(self._rollout_state(), path.with_suffix(".unfinished"))
        # renamed when it is whole, so that a killed run leaves no half-written file of this name
        os.replace(path.with_suffix(".unfinished"), path)
        self.accelerator.wait_for_everyone()  # trainer_state.json, written next, marks the checkpoint as complete

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if (
            checkpoint is None or self.args.ignore_data_skip
        ):  # the data start from the beginning, and so does the rollout
            return
        state = self._load_rollout(checkpoint)
        if state is not None:
            self._restore(state)

    def sampler_made(self, sampler: Any) -> Any:
        """Skip the passes that the checkpoint has finished."""
        for _ in range(self._passes):  # each pass draws its order from one generator
            next(iter(sampler), None)
        return sampler

    def _rollout_file(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / f"rollout_{self.accelerator.process_index}.pt"

    def _load_rollout(self, checkpoint: str | Path) -> dict[str, Any] | None:
        """Return the state of this process, or that of the first one if there were fewer processes."""
        for path in (self._rollout_file(checkpoint), Path(checkpoint) / "rollout_0.pt"):
            if path.is_file():
                state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
                return state
        return None

    def _rollout_state(self) -> dict[str, Any]:
        """Return what TRL does not save, as plain data and tensors."""
        loss = getattr(self, "_tr_loss", None)
        return {
            **rollout_state(self),
            "settings": json.dumps(fingerprint(self)),
            "loss": None if loss is None else (loss.item(), self._globalstep_last_logged),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        restore_rollout(self, state)
        if state["loss"] is not None and hasattr(self, "_tr_loss"):
            self._tr_loss.fill_(state["loss"][0])
            self._globalstep_last_logged = state["loss"][1]

    def _check_settings(self, checkpoint: Path) -> None:
        """Refuse settings that do not fit the rollout of the checkpoint, and warn about others that have changed."""
        if self.args.sync_ref_model:
            logger.warning(
                "sync_ref_model: checkpoints do not contain the reference model; it starts from the beginning"
            )
        state = self._load_rollout(checkpoint)
        if state is None:
            logger.warning(
                "%s has no rollout_0.pt (it was written by another trainer, or with save_only_model): the run resumes "
                "as with TRL, not exactly where it stopped",
                checkpoint,
            )
            return
        before, now = json.loads(state["settings"]), fingerprint(self)
        if state["rollout"] is not None and (moved := moved_borders(before, now)):
            raise ValueError(
                f"{checkpoint} is in the middle of a rollout, which cannot continue with other sizes: "
                f"{', '.join(moved)}. Set them back, or start a new run from the weights: model: {checkpoint}"
            )
        adapters = [each.get("adapters", {}) for each in (before, now)]
        shapes = [{name: each[name] for name in each if name.endswith((".r", ".target_modules"))} for each in adapters]
        if shapes[0] != shapes[1]:
            reshaped = ", ".join(differences(*[dict.fromkeys({**shapes[0], **shapes[1]}) | each for each in shapes]))
            raise ValueError(
                f"{checkpoint} has adapters of another shape ({reshaped}): set lora_rank and lora_target_modules, or "
                "peft_config, back, or start a new run in another output_dir"
            )
        if changed := differences(before, now):
            logger.warning(
                "resuming from step %d with other settings, so the run differs from an uninterrupted one: %s",
                checkpoint_step(checkpoint),
                ", ".join(changed),
            )
