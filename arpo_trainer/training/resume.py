"""Exact resume for TRL's trainers: a run that was killed goes on as if it had never stopped.

TRL saves weights, optimizer, schedule, its own state and random states. It loses the loss and metrics since the last
log; and for GRPO the rollout that it is in the middle of, so that it would roll out again at once and stay out of step
with the data, and the order of later passes over the tasks. Here each process adds a file to a checkpoint.
`ResumableTrainer` is for GRPO, `ResumesOnRows` for trainers that learn from rows which are all there at the start.

On other hardware or with other versions a resumed run differs, since sums round differently there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import re
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from transformers.trainer_utils import TrainOutput

from arpo_env.protocols import PROTOCOLS, make_protocol
from arpo_trainer.rollout.model_protocol import learnt_protocol
from arpo_trainer.training.devices import Mixin
from arpo_trainer.training.trl_hooks import (
    HookedGRPOTrainer,
    forget_rollout,
    restore_rollout,
    rollout_state,
    tokenizer_of,
)

logger = logging.getLogger(__name__)

# A run that is killed while it writes leaves an incomplete checkpoint. TRL writes `trainer_state.json` last, so a
# folder without this file, or with an incomplete one, is not used.

NEWEST = (True, "last", "true")
_STATE = "trainer_state.json"


def find_checkpoint(given: str | Path | bool | None, folder: str | Path) -> Path | None:
    """Return the checkpoint to resume from: the given one, or the newest complete one for True or "last"."""
    if given in (None, False, ""):
        return None
    found = _checkpoints(Path(folder))
    complete = [path for path in found if broken(path) is None]
    if given in NEWEST:
        if not complete:
            raise FileNotFoundError(
                f"resume_from_checkpoint={given!r}: no complete checkpoint in {str(folder)!r}; to start from the "
                "beginning leave resume_from_checkpoint out; for checkpoints set save_strategy: steps and save_steps"
            )
        # what comes after it is incomplete, most likely because the run was killed while it wrote it
        for path in found[found.index(complete[-1]) + 1 :]:
            logger.warning("%s is not complete (%s): resuming from %s", path, broken(path), complete[-1])
        return complete[-1]
    path = Path(str(given))
    if reason := broken(path):
        # the path may be the folder of a run, given in place of one of the checkpoints in it
        others = ", ".join(map(str, complete or [p for p in _checkpoints(path) if broken(p) is None])) or "none"
        raise FileNotFoundError(
            f"resume_from_checkpoint={str(given)!r} is not a complete checkpoint: {reason}; complete ones: {others}"
        )
    return path


def newer(folder: str | Path, step: int) -> list[Path]:
    """Return the complete checkpoints in a folder that are after a step."""
    complete = [path for path in _checkpoints(Path(folder)) if broken(path) is None]
    return [path for path in complete if checkpoint_step(path) > step]


def broken(checkpoint: Path) -> str | None:
    """Return why a run cannot resume from a folder, or None if it can."""
    if not checkpoint.is_dir():
        return "there is no such folder"
    if not (checkpoint / _STATE).is_file():
        return f"it has no {_STATE}, which is written last"
    try:
        checkpoint_step(checkpoint)
    except (ValueError, KeyError, TypeError) as error:
        return f"its {_STATE} cannot be read ({error})"
    return None


def checkpoint_step(checkpoint: str | Path) -> int:
    """Return the number of training steps at a checkpoint."""
    return int(_state(checkpoint)["global_step"])


def _state(checkpoint: str | Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))
    return state


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders in a folder, in the order of steps."""
    folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    named = ((re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in folders)
    # sorted by number: by name checkpoint-100 would come before checkpoint-20
    return [path for _, path in sorted((int(match[1]), path) for match, path in named if match)]


# sizes of a rollout, and of the steps and micro-batches that it is split into
_SIZES = ("num_generations", "num_iterations", "steps_per_generation", "per_device_train_batch_size",
          "gradient_accumulation_steps", "processes")  # fmt: skip
# settings that change speed or records, and not the result
_FREE = (
    *("output_dir", "run_name", "project", "report_to", "resume_from_checkpoint", "disable_tqdm", "use_cache", "debug"),
    *("include_num_input_tokens_seen", "torch_empty_cache_steps", "skip_memory_metrics", "local_rank", "trace_every"),
    *("num_completions_to_print", "prediction_loss_only", "per_device_eval_batch_size", "num_generations_eval"),
    *("generation_batch_size", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "limits"),
    *("ignore_data_skip", "restore_callback_states_from_checkpoint", "max_rows", "prefix_tokens", "turn_timeout"),
    *("retries", "enable_jit_checkpoint", "batch_eval_metrics"),
)
_FREE_STARTS = (
    *("logging_", "log_", "save_", "eval_", "hub_", "push_", "trackio_", "dataloader_", "do_", "include_for_"),
    *("vllm_server_", "vllm_group_", "vllm_gpu_", "ddp_", "rollout_worker", "ray_address"),
)
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


def fingerprint(trainer: Any) -> dict[str, Any]:
    """Return what determines the result of a trainer: settings, environment, tasks, rewards and adapters."""
    settings = deciding_settings(trainer)
    settings |= {
        "processes": trainer.accelerator.num_processes,
        "packing": trainer.packs,  # what "auto" came to
        "reward_funcs": trainer.reward_func_names,
        "tasks": _digest(trainer.train_dataset),
        "env": _environment(trainer.env),
    }
    return as_json(settings)


def deciding_settings(trainer: Any) -> dict[str, Any]:
    """Return settings, model and adapters of one of TRL's trainers, without what decides only speed and records."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    settings = {
        name: value
        for name, value in trainer.args.to_dict().items()
        if name not in _FREE and not name.startswith(_FREE_STARTS)
    }
    name = getattr(model, "name_or_path", "")
    return as_json({**settings, "model": os.path.normpath(name) if name else "", "adapters": _adapters(model)})


def run_facts(trainer: Any) -> dict[str, Any]:
    """Return what run.json says of a trainer's run; its settings are those that differ from the defaults."""
    args, env, model = trainer.args, trainer.env, trainer.accelerator.unwrap_model(trainer.model)
    usual = {
        each.name: each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        for each in dataclasses.fields(args)
    }
    shown = args.to_dict()  # without tokens
    settings = as_json({name: shown[name] for name in usual if name in shown and getattr(args, name) != usual[name]})
    return {
        "name": args.run_name or Path(args.output_dir).name,
        "algorithm": args.algorithm,
        "env": {"id": env.env_spec.id, "kwargs": _options(env)},
        "protocol": env.protocol.name,
        "model": getattr(model, "name_or_path", "") or type(model).__name__,
        "seed": args.seed,
        "settings": settings,
    }


def _other_protocol(checkpoint: Path, before: str, now: str) -> ValueError:
    return ValueError(
        f"{checkpoint} was trained with protocol {before}, and this run has {now}: give the environment "
        f"protocol={before!r} (arpo train: --env-set protocol={before}), or start a new run in another output_dir"
    )


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as a checkpoint holds them, so that both compare equal: tuples become lists."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _options(env: Any) -> dict[str, Any]:
    try:
        options: dict[str, Any] = env.factory.options
    except TypeError:  # a subclass, which may take other arguments
        return {}
    return options


def _environment(env: Any) -> dict[str, Any]:
    """Return tools, protocol, rewards and limits of an environment; its prompt is part of the tasks' digest."""
    limits = vars(env.budget) | {"calls_of": dict(env.budget.calls_of)}
    return {
        "id": env.env_spec.id,
        "tools": list(env.tools),
        "protocol": type(env.protocol).__name__,
        "rewards": env.rewards.weights,
        **limits,
    }


def _adapters(model: Any) -> dict[str, Any]:
    """Return the shape of the trained adapters; empty if the weights themselves are trained."""
    return {
        f"{name}.{key}": sorted(value) if isinstance(value, set) else value
        for name, adapter in getattr(model, "peft_config", {}).items()
        for key, value in adapter.to_dict().items()
        if key in ("r", "lora_alpha", "target_modules", "lora_dropout")
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the settings that have changed, such as "seed: 1 -> 2"."""
    return [f"{name}: {before.get(name)!r} -> {now[name]!r}" for name in now if before.get(name) != now[name]]


def _digest(dataset: Any) -> str | None:
    """Return a short digest of the tasks; None for a stream, which cannot be read ahead."""
    if dataset is None or not hasattr(dataset, "__len__"):
        return None
    digest = hashlib.sha256()
    for text in [json.dumps(dataset[:1]["prompt"]), *dataset["task"]]:  # prompts differ only by their tasks
        digest.update(text.encode() + b"\n")
    return f"{len(dataset)} tasks, {digest.hexdigest()[:12]}"


# Of TRL's and transformers' internals this class uses `_total_train_tokens`, `_metrics`, `_tr_loss`,
# `_globalstep_last_logged`, `_save_checkpoint`, `_load_from_checkpoint`, `_save_rng_state` and `_load_rng_state`: the
# file is written and read with the random states, before trainer_state.json is written, and before the first step.


class ResumesOnRows(Mixin):  # type: ignore[misc]
    """Comes before one of TRL's trainers among the bases; each process keeps a file in a checkpoint.

    Attributes:
        state_name: how the file of its state begins.
        rows_digest: of the rows, kept in each checkpoint: one that was trained on other rows is not resumed. "" is not
            checked. The settings are kept, too.
    """

    state_name = "rows"
    rows_digest = ""
    _checked: Path | None = None

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint.

        Args:
            resume_from_checkpoint: folder of a checkpoint, or True or "last" for the newest complete one.
            args: as in TRL's trainer.
            kwargs: as in TRL's trainer.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is incomplete.
            ValueError: the settings do not fit the checkpoint, or it was trained on other rows.
        """
        checkpoint = self.checked_checkpoint(resume_from_checkpoint)
        if checkpoint is not None and 0 < self.args.max_steps <= checkpoint_step(checkpoint):
            return self.stay(checkpoint)
        return super().train(str(checkpoint) if checkpoint else None, *args, **kwargs)

    def checked_checkpoint(self, given: str | Path | bool | None) -> Path | None:
        """Return the checkpoint to resume from, as in `train`, also for what it raises."""
        checkpoint = find_checkpoint(given, self.args.output_dir)
        if checkpoint is not None and checkpoint != self._checked:
            self.check_state(checkpoint, self._load_state(checkpoint))
            self._checked = checkpoint
        return checkpoint

    def check_state(self, checkpoint: Path, state: dict[str, Any] | None) -> None:
        """Refuse other rows, and settings that decide what is learnt; warn of other settings."""
        kept = state or {}
        if self.rows_digest and kept.get("rows") and kept["rows"] != self.rows_digest:
            raise ValueError(
                f"{checkpoint} was trained on other rows: data, prompt, protocol or tokenizer have changed. Resume "
                "with the same ones, or start a new run with --set output_dir=FOLDER"
            )
        before, now = json.loads(kept.get("settings", "{}")), deciding_settings(self)
        # another release of TRL may have other settings
        both = {name: value for name, value in now.items() if name in before}
        if refused := differences(before, {name: both[name] for name in both if name not in MAY_CHANGE}):
            raise ValueError(
                f"{checkpoint} was trained with other settings: {', '.join(refused)}. Set them back, or start a new "
                "run with --set output_dir=FOLDER"
            )
        if changed := differences(before, both):
            logger.warning("resuming %s with other settings: %s", checkpoint, ", ".join(changed))

    def resume_state(self) -> dict[str, Any]:
        """Return what TRL does not save, as plain data and tensors."""
        return {
            "rows": self.rows_digest,
            "settings": json.dumps(deciding_settings(self)),
            "tokens": self._total_train_tokens,
            "metrics": dict(self._metrics["train"]),
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go on with what `resume_state` returned."""
        self._total_train_tokens = state["tokens"]
        self._metrics["train"].update(state["metrics"])

    def stay(self, checkpoint: Path) -> TrainOutput:
        """Load a run that has done all its steps; transformers would take one more."""
        logger.warning("%s has done all of max_steps = %d: nothing to train", checkpoint, self.args.max_steps)
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / _STATE))
        return TrainOutput(checkpoint_step(checkpoint), math.nan, {})

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:  # an older checkpoint of this name is not complete while it is overwritten
            (Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}" / _STATE).unlink(missing_ok=True)
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        loss = getattr(self, "_tr_loss", None)  # since the last log
        kept = None if loss is None else (loss.item(), getattr(self, "_globalstep_last_logged", 0))
        path = self._state_file(output_dir)
        scratch = path.with_suffix(".unfinished")  # a killed run leaves no half of a file
        torch.save({**self.resume_state(), "loss": kept}, scratch)
        os.replace(scratch, path)
        self.accelerator.wait_for_everyone()  # trainer_state.json, written next, marks the checkpoint as complete

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        # with `ignore_data_skip` the data start from the beginning, and so does what is kept of them
        if checkpoint is None or self.args.ignore_data_skip or (state := self._load_state(checkpoint)) is None:
            return
        self.restore_state(state)
        loss = getattr(self, "_tr_loss", None)
        if state["loss"] is not None and loss is not None:
            loss.fill_(state["loss"][0])
            self._globalstep_last_logged = state["loss"][1]

    def _state_file(self, checkpoint: str | Path) -> Path:
        return Path(checkpoint) / f"{self.state_name}_{self.accelerator.process_index}.pt"

    def _load_state(self, checkpoint: str | Path) -> dict[str, Any] | None:
        """Return the state of this process, or that of the first one if there were fewer processes."""
        for path in (self._state_file(checkpoint), Path(checkpoint) / f"{self.state_name}_0.pt"):
            if path.is_file():
                state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
                return state
        return None


class ResumableTrainer(ResumesOnRows, HookedGRPOTrainer):
    """Adds exact resume to `GRPOTrainer`: each process keeps its rollout in `rollout_RANK.pt`."""

    state_name = "rollout"
    _passes = 0
    _played = (-1, 0)  # a step, and the number of groups played in it

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint; see `ResumesOnRows.train`.

        Raises:
            FileNotFoundError: there is no such checkpoint, or it is incomplete.
            ValueError: the checkpoint is in the middle of a rollout, and the settings change the size of rollouts; or
                its adapters have another shape; or all steps are done and the weights are sharded.
        """
        given = self.args.resume_from_checkpoint if resume_from_checkpoint is None else resume_from_checkpoint
        checkpoint = find_checkpoint(given, self.args.output_dir)
        forget_rollout(self)  # of an earlier call
        self._passes, self._played, self._checked = 0, (-1, 0), None
        if checkpoint is not None:
            self._passes = int(_state(checkpoint)["epoch"])
            for path in newer(checkpoint.parent, checkpoint_step(checkpoint)):
                logger.warning("%s is newer than the checkpoint that the run resumes from; 'last' would take it", path)
            self.checked_checkpoint(checkpoint)  # before anything is recorded
        with self.recording(checkpoint):
            return super().train(checkpoint, *args, **kwargs)

    def recording(self, checkpoint: str | Path | None) -> contextlib.AbstractContextManager[None]:
        """Return what records the training within it; by default nothing does."""
        return contextlib.nullcontext()

    def stay(self, checkpoint: Path) -> TrainOutput:
        """Load a run that has done all its steps, and its best model if that is asked for."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(f"{checkpoint} has done all of max_steps = {self.args.max_steps}: set more to continue")
        output = super().stay(checkpoint)
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint:
            self._load_best_model()
        self.callback_handler.on_train_begin(self.args, self.state, self.control)
        return output

    def number_groups(self, count: int) -> int:
        """Return the number of the first of `count` groups in its step, which may need several rollouts."""
        step, first = self._played
        first = first if step == self.state.global_step else 0
        self._played = (self.state.global_step, first + count)
        return first

    def sampler_made(self, sampler: Any) -> Any:
        """Skip the passes that the checkpoint has finished."""
        for _ in range(self._passes):  # each pass draws its order from one generator
            next(iter(sampler), None)
        return sampler

    def resume_state(self) -> dict[str, Any]:
        """Return what TRL does not save, as plain data and tensors."""
        return {**rollout_state(self), "settings": json.dumps(fingerprint(self))}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go on with what `resume_state` returned."""
        restore_rollout(self, state)

    def check_state(self, checkpoint: Path, state: dict[str, Any] | None) -> None:
        """Refuse settings that do not fit the rollout of the checkpoint, and warn about others that have changed."""
        if self.args.sync_ref_model:
            logger.warning(
                "sync_ref_model: checkpoints do not contain the reference model; it starts from the beginning"
            )
        if state is None:
            learnt = learnt_protocol(tokenizer_of(self), checkpoint)
            if learnt and learnt[0] != self.env.protocol.name:
                raise _other_protocol(checkpoint, learnt[0], self.env.protocol.name)
            logger.warning(
                "%s has no rollout_0.pt (it was written by another trainer, or with save_only_model): the run resumes "
                "as with TRL, not exactly where it stopped",
                checkpoint,
            )
            return
        before, now = json.loads(state["settings"]), fingerprint(self)
        moved = differences({name: before.get(name) for name in _SIZES}, {name: now.get(name) for name in _SIZES})
        if state["rollout"] is not None and moved:
            raise ValueError(
                f"{checkpoint} is in the middle of a rollout, which cannot continue with other sizes: "
                f"{', '.join(moved)}. Set them back, or start a new run from the weights: model: {checkpoint}"
            )
        protocols = [each.get("env", {}).get("protocol") for each in (before, now)]
        if all(protocols) and protocols[0] != protocols[1]:
            names = {type(make_protocol(name)).__name__: name for name in PROTOCOLS}
            raise _other_protocol(checkpoint, *(names.get(name, name) for name in protocols))
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
