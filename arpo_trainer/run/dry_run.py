"""`arpo train --dry-run`: checks the settings of a run and estimates its costs without loading weights.

A dry run reads the settings, the tasks (from the hub if they are there), the model's configuration and its tokenizer.
It starts no sandbox, no GPU work and no search. Settings that a run would refuse are refused; what only this machine
lacks, such as a key, is listed as missing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from dataclasses import dataclass
from typing import Any

import torch

import arpo_env  # noqa: F401  (registers the environments)
from arpo_env import ToolEnv
from arpo_trainer.costs.cost_table import cost_summary
from arpo_trainer.costs.estimate import Costs, estimate
from arpo_trainer.costs.memory import MemoryNeeds, ModelShape, ProcessLayout, format_bytes, model_shape
from arpo_trainer.demo_model import DEMO_MODEL, has_demo_model, resolve_model
from arpo_trainer.make_env import make_env
from arpo_trainer.run.arguments import RunArguments, configure
from arpo_trainer.run.launch import config_file
from arpo_trainer.run.lora import lora_config
from arpo_trainer.run.run_environments import RunEnvironments
from arpo_trainer.training.checkpoints import find_checkpoint
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.devices import planning, process_count
from arpo_trainer.training.task_data import training_tasks
from envs_registry import get_spec
from envs_registry.datasets.hub import HubError
from envs_registry.install_line import install_line
from envs_registry.sources import ListSource

logger = logging.getLogger(__name__)
_SHARD = "more processes that share them (--accelerate-config fsdp2 or zero3), or adapters (lora_rank)"
# settings that make parts of the memory smaller, by how the names of the parts begin
_SMALLER = {
    **dict.fromkeys(("weights", "16-bit copies", "gradient", "optimizer"), _SHARD),
    "activations of a": "gradient_checkpointing: true, or less per_device_train_batch_size or max_completion_length",
    **dict.fromkeys(("keys and values of packed", "logits of a tile"), "less per_device_train_batch_size"),
    "keys and values of kept": "less prefix_tokens",
    **dict.fromkeys(("keys and values of running", "keys and values for", "logits of running"), "less max_rows"),
    "activations of new": "less max_rows",
}


@dataclass(frozen=True)
class PlannedRun:
    """What a dry run has found out.

    Attributes:
        run: the settings that are not of `ARPOConfig`.
        args: the others.
        costs: the estimate.
        missing: what the run would miss on this machine.
    """

    run: RunArguments
    args: ARPOConfig
    costs: Costs
    missing: list[str]


def dry_run(
    settings: dict[str, Any], processes: int | None = None, launch_config: str | None = None
) -> tuple[Costs, list[str]]:
    """Return the estimated costs of a run, and what the run would miss on this machine; see `plan_run`."""
    planned = plan_run(settings, processes, launch_config)
    return planned.costs, planned.missing


def plan_run(settings: dict[str, Any], processes: int | None = None, launch_config: str | None = None) -> PlannedRun:
    """Check the settings of a run and estimate its costs, without loading weights.

    Args:
        settings: fields of `RunArguments` and `ARPOConfig`, by name.
        processes: the number of processes to plan for; None is the launcher's number, else the number that the settings
            are written for, else one.
        launch_config: an accelerate configuration: a name of ours or a file; None is what the environment variables of
            `accelerate launch` say.

    Raises:
        ValueError: no machine could run these settings.
        FileNotFoundError: the model's folder is missing.
    """
    count = processes or (process_count() if process_count() > 1 else int(settings.get("processes") or 1))
    layout = ProcessLayout.of_file(count, config_file(launch_config)) if launch_config else ProcessLayout.of(count)
    with planning(count):  # configurations are checked as if there were that many processes
        run, args = configure(settings)
        missing: list[str] = []
        environments = _environments(run, missing)
        missing += _missing(args, environments)
        # this machine's lack of a GPU decides for one process only; several, and vLLM, may be planned for another one
        on_cpu = bool(settings.get("use_cpu")) or (count == 1 and not args.use_vllm and not torch.cuda.is_available())
        costs = _estimate(run, args, environments, layout, on_cpu)
        # training and evaluation may lack the same
        return PlannedRun(run, args, costs, list(dict.fromkeys(missing)))


def log_estimate(run: RunArguments, args: ARPOConfig, environments: RunEnvironments) -> dict[str, Any]:
    """Log a summary of what a starting run will cost, and return the whole estimate for run.json.

    Raises:
        ValueError: the run would train nothing, or the GPU is too small for the model.
    """
    layout = ProcessLayout.of(args.world_size)
    costs = _estimate(run, args, environments, layout, not torch.cuda.is_available())
    logger.info("%s", cost_summary(costs))
    if costs.memory and torch.cuda.is_available() and not args.use_cpu:
        quantised = costs.shape is not None and costs.shape.quantised
        check_memory(costs.memory, args, torch.cuda.get_device_properties(args.device).total_memory, quantised)
    return costs.as_dict()


def check_memory(needs: MemoryNeeds, args: ARPOConfig, has: int, quantised: bool = False) -> None:
    """Compare the estimate with the memory of the GPU, before weights are loaded.

    Args:
        needs: the estimate.
        args: the settings of the run.
        has: the bytes of the GPU.
        quantised: whether the checkpoint is.

    Raises:
        ValueError: weights and optimizer states alone do not fit. What a micro-batch takes is an estimate, and only
            warned about, with the settings that lower the largest parts.
    """
    vllm = args.vllm_gpu_memory_utilization if args.use_vllm and args.vllm_mode == "colocate" else 0.0
    beside = round(has * (1 - vllm))  # what is left while an engine generates
    share = f", of which vLLM takes {vllm:.0%}" if vllm else ""
    fixed = sum(size for name, size in needs.kept.items() if name in ("weights", "optimizer"))
    # the estimate knows nothing of a DeepSpeed file and of quantised weights
    known = not (args.deepspeed or args.fsdp or os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE"))
    quantised = quantised or bool((args.model_init_kwargs or {}).get("quantization_config"))
    if fixed > beside and known and not quantised:
        raise ValueError(
            f"weights and optimizer states take {format_bytes(fixed)} in each process, and its GPU has "
            f"{format_bytes(has)}{share}. Take {_SHARD}" + ", or less vllm_gpu_memory_utilization" * bool(vllm)
        )
    parts = needs.kept | max(needs.training, needs.rollout, key=lambda parts: sum(parts.values()))
    # an engine that sleeps gives its share back for the update
    if (peak := sum(parts.values())) > (has if args.vllm_enable_sleep_mode else beside):
        largest = sorted(parts, key=lambda name: -parts[name])[:3]
        cures = dict.fromkeys(_SMALLER[start] for name in largest for start in _SMALLER if name.startswith(start))
        logger.warning(
            "an estimated %s of memory in each process, and its GPU has %s%s: it may run out of memory. Most is for "
            "%s. To lower it take %s",
            *(format_bytes(peak), format_bytes(has), share),
            ", ".join(f"{name} ({format_bytes(parts[name])})" for name in largest),
            "; ".join(cures),
        )


class UnloadedEnv(ToolEnv):
    """An environment whose tasks are not available: it has the tools and limits, but no task."""

    def _load(self, **options: Any) -> Any:
        return ListSource(())


def _environments(run: RunArguments, missing: list[str]) -> RunEnvironments:
    """Return the environments; one whose tasks are not available has none, and `missing` says so."""

    def make(env_id: str, options: dict[str, Any]) -> ToolEnv:
        try:
            return make_env(env_id, options)
        except (HubError, OSError) as error:
            missing.append(f"tasks: {error}")
            return UnloadedEnv(env_id, **options)

    return RunEnvironments(run, make)


def _missing(args: ARPOConfig, environments: RunEnvironments) -> list[str]:
    """Return what this machine lacks for the run, such as a key; wrong settings are raised."""
    missing = []
    if args.use_vllm and importlib.util.find_spec("vllm") is None:
        missing.append(f"vLLM: {install_line('vllm')}")
    if args.uses_workers and importlib.util.find_spec("ray") is None:
        missing.append(f"Ray: {install_line('ray')}")
    for env in environments.played():
        try:
            env.check()
        except (RuntimeError, ValueError, OSError) as error:  # no search, no key, no judge
            missing.append(str(error))
    # a checkpoint that does not exist is an error here as in the run
    find_checkpoint(args.resume_from_checkpoint, args.output_dir)
    environments.check_settings(args)
    # an environment without its tasks would fail these checks for the wrong reason
    if not missing and not any(isinstance(env, UnloadedEnv) for env in environments.played()):
        environments.check_tasks(args)
    return missing


def _estimate(
    run: RunArguments, args: ARPOConfig, environments: RunEnvironments, layout: ProcessLayout, on_cpu: bool
) -> Costs:
    env = environments.train
    tasks = published_size(run.env, run.env_kwargs) if isinstance(env, UnloadedEnv) else training_tasks(env, args).size
    tokenizer, shape, notes = _tokenizer_and_shape(run, args)
    return estimate(
        run,
        args,
        env,
        environments.held_out,
        tasks,
        tokenizer=tokenizer,
        shape=shape,
        layout=layout,
        on_cpu=on_cpu,
        notes=notes,
    )


def published_size(env_id: str, options: dict[str, Any]) -> int | None:
    """Return the number of tasks that a data set's description states; None if it states none.

    Args:
        env_id: the environment's id.
        options: its options, of which `split` and `limit` count.

    Raises:
        UnknownEnvError: there is no such environment.
    """
    spec = get_spec(env_id)
    split = options.get("split") or next(iter(spec.splits), "train")
    # sizes read like "test 680 / train 14,000", or are one number
    found = re.search(rf"\b{re.escape(split)} ([\d,]+)", spec.size) or re.fullmatch(r"([\d,]+)", spec.size)
    if found is None:
        return None
    size, limit = int(found[1].replace(",", "")), options.get("limit")
    return min(size, limit) if limit else size


def _tokenizer_and_shape(run: RunArguments, args: ARPOConfig) -> tuple[Any, ModelShape | None, tuple[str, ...]]:
    """Return the model's tokenizer and shape, and notes on what was not available."""
    from transformers import AutoTokenizer

    if run.model == DEMO_MODEL and not has_demo_model():
        return None, None, ("memory and exact prompts: the demo model is downloaded at its first use",)
    revision = (args.model_init_kwargs or {}).get("revision", "main")
    try:
        path = resolve_model(run.model, revision)
    except FileNotFoundError as error:
        return None, None, (f"memory, disk and exact prompts: {error}",)
    options = {"trust_remote_code": args.trust_remote_code, "revision": revision}
    tokenizer, shape, notes = None, None, []
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
    except (OSError, ValueError) as error:
        notes.append(f"exact prompts: no tokenizer of {run.model} ({_first_line(error)})")
    try:
        shape = model_shape(path, lora_config(run), **options)
    except (OSError, ValueError) as error:
        notes.append(f"memory and disk: no configuration of {run.model} ({_first_line(error)})")
    if (args.model_init_kwargs or {}).get("quantization_config") or (shape and shape.quantised):
        notes.append("quantisation: weights are counted without it")
    return tokenizer, shape, tuple(notes)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
