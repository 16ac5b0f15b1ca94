"""The settings that determine the result of a training run, kept in its checkpoints and compared on resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

# sizes of a rollout, and of the steps and micro-batches that it is split into
_SIZES = (
    "num_generations",
    "num_iterations",
    "steps_per_generation",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "processes",
)
# settings that change speed or records, and not the result
_FREE = (
    "output_dir",
    "run_name",
    "project",
    "report_to",
    "resume_from_checkpoint",
    "disable_tqdm",
    "use_cache",
    "include_num_input_tokens_seen",
    "torch_empty_cache_steps",
    "skip_memory_metrics",
    "debug",
    "local_rank",
    "num_completions_to_print",
    "prediction_loss_only",
    "per_device_eval_batch_size",
    "num_generations_eval",
    "generation_batch_size",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "ignore_data_skip",
    "restore_callback_states_from_checkpoint",
    "max_rows",
    "prefix_tokens",
    "limits",
    "trace_every",
    "turn_timeout",
    "retries",
    "packing_tokens",
    "enable_jit_checkpoint",
    "batch_eval_metrics",
)
_FREE_STARTS = (
    "logging_",
    "log_",
    "save_",
    "eval_",
    "hub_",
    "push_",
    "trackio_",
    "dataloader_",
    "do_",
    "include_for_",
    "vllm_server_",
    "vllm_group_",
    "vllm_gpu_",
    "ddp_",
    "rollout_worker",
    "ray_address",
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
        "model": getattr(model, "name_or_path", "") or type(model).__name__,
        "seed": args.seed,
        "settings": settings,
    }


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


def moved_borders(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the changed settings that split rollouts at other places."""
    return differences({name: before.get(name) for name in _SIZES}, {name: now.get(name) for name in _SIZES})


def _digest(dataset: Any) -> str | None:
    """Return a short digest of the tasks; None for a stream, which cannot be read ahead."""
    if dataset is None or not hasattr(dataset, "__len__"):
        return None
    digest = hashlib.sha256()
    for text in [json.dumps(dataset[:1]["prompt"]), *dataset["task"]]:  # prompts differ only by their tasks
        digest.update(text.encode() + b"\n")
    return f"{len(dataset)} tasks, {digest.hexdigest()[:12]}"
