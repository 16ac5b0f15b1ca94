"""The settings of a run: `RunArguments`, and how settings by name become `RunArguments` and an `ARPOConfig`.

The module also converts batches counted in prompts, as papers count them, to TRL's terms. A paper's "batch 128,
mini-batch 16, n = 16" means: 128 prompts are played 16 times each, and an update sees the rows of 16 prompts, so there
are 8 updates per rollout (verl multiplies its mini-batch by n itself). TRL counts rows per process and micro-batches;
its numbers therefore depend on the number of processes.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.demo_model import DEMO_MODEL, check_model_folder
from arpo_trainer.make_env import known_id
from arpo_trainer.run.weight_arguments import WeightArguments
from arpo_trainer.training.devices import process_count
from arpo_trainer.validation import check_name, check_types, nearest_names
from envs_registry.contamination import OVERLAP

if TYPE_CHECKING:
    from arpo_trainer.training.config import ARPOConfig

logger = logging.getLogger(__name__)

_OPTIONS = ("env_kwargs", "eval_env_kwargs", "cold_start_env_kwargs")
_LOWEST = {
    **dict.fromkeys(("eval_tasks", "cold_start_examples", "cold_start_epochs", "cold_start_learning_rate"), 0),
    "search_price": 0,
    **dict.fromkeys(("prompts_per_rollout", "prompts_per_update"), 1),
}


@dataclass
class RunArguments(WeightArguments):
    """The settings of a run that are not fields of `ARPOConfig`, with those of `WeightArguments`.

    Attributes:
        model: a hub id, a folder, or "smollm2-135m-instruct" for the demo model, which needs no hub.
        env: the environment's id; your own environment is named with its module, as in "my_envs:mine/Task-v0".
        env_kwargs: the environment's options for training.
        eval_env: the environment for evaluation; None is `env`.
        eval_env_kwargs: its options. For `env` they are added to `env_kwargs`; another environment has these alone.
        eval_tasks: how many tasks are answered before and after training; 0 turns evaluation off.
        overlap: what happens to training tasks that are evaluation tasks too: "refuse" stops the run, "drop" removes
            them and similar ones from training, "allow" keeps them.
        cold_start_examples: scripted demonstrations for supervised training before RL; 0 turns the cold start off.
        cold_start_env_kwargs: the environment's options for the demonstrations, added to `env_kwargs`.
        cold_start_epochs: passes over the demonstrations.
        cold_start_learning_rate: the learning rate of the cold start.
        cold_start_tool_share: the share of demonstrations that call the tool.
        cold_start_seed: the seed of the cold start; None is `seed`. With it, runs with different seeds can start from
            the same model.
        search_price: US dollars for 1,000 searches, for the cost estimate; None is the provider's list price, if it is
            known.
        prompts_per_rollout: prompts that are played with the same policy. With None the batch is set by TRL's settings,
            which count rows and micro-batches.
        prompts_per_update: prompts whose rows an update sees, a mini-batch; None is `prompts_per_rollout`. The batch
            does not depend on the number of processes then.
    """

    model: str = DEMO_MODEL
    env: str = "arpo/Arithmetic-v0"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    eval_env: str | None = None
    eval_env_kwargs: dict[str, Any] = field(default_factory=lambda: {"split": "test"})
    eval_tasks: int = 100
    overlap: str = "refuse"
    cold_start_examples: int = 0
    cold_start_env_kwargs: dict[str, Any] = field(default_factory=dict)
    cold_start_epochs: int = 2
    cold_start_learning_rate: float = 5e-5
    cold_start_tool_share: float = 0.5
    cold_start_seed: int | None = None
    search_price: float | None = None
    prompts_per_rollout: int | None = None
    prompts_per_update: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, RunArguments.__annotations__)  # first: the comparisons below need numbers
        for name, low in _LOWEST.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise ValueError(f"{name} must be at least {low}, got {value}")
        if not 0 <= self.cold_start_tool_share <= 1:
            raise ValueError(f"cold_start_tool_share is a share, from 0 to 1; got {self.cold_start_tool_share}")
        for name in _OPTIONS:
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} must be options by name, as in {{level: 2}}; got {getattr(self, name)!r}")
        check_name("overlap", self.overlap, OVERLAP)


def split_settings(settings: dict[str, Any]) -> tuple[RunArguments, dict[str, Any]]:
    """Divide settings into `RunArguments` and fields of `ARPOConfig`; a batch in prompts becomes TRL's settings.

    Raises:
        ValueError: a name is neither; the error lists the nearest ones. Or a batch cannot be divided.
    """
    from arpo_trainer.training.config import ARPOConfig

    ours = {entry.name for entry in dataclasses.fields(RunArguments)}
    theirs = {entry.name for entry in dataclasses.fields(ARPOConfig) if entry.init}
    _check_setting_names(settings, ours | theirs)
    # TRL and run.json take plain text
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    run = RunArguments(**{name: value for name, value in settings.items() if name in ours})
    values = {name: value for name, value in settings.items() if name in theirs}
    return run, values | _batch_in_prompts(run, values)


def _check_setting_names(names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            near = nearest_names(name, known, 3)
            hint = f"Did you mean: {near}?" if near else "Settings are the fields of ARPOConfig and RunArguments"
            raise ValueError(f"no setting {name!r}. {hint}")


def _batch_in_prompts(run: RunArguments, values: dict[str, Any]) -> dict[str, int]:
    """Return TRL's settings for a batch that is given in prompts; {} if it is not."""
    from arpo_trainer.training.config import ARPOConfig

    per_rollout = run.prompts_per_rollout or run.prompts_per_update
    if per_rollout is None:
        return {}
    both = {"gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"} & values.keys()
    if both:
        raise ValueError(
            f"{', '.join(sorted(both))} and prompts_per_rollout set the same thing: give only one of them. "
            "prompts_per_rollout and prompts_per_update fit any number of processes"
        )
    # an ARPOConfig cannot be made yet: it checks the batch; its defaults are on the class
    trl = {name: getattr(ARPOConfig, name) for name in ("num_generations", "per_device_train_batch_size")} | values
    return batch_settings(
        per_rollout,
        run.prompts_per_update or per_rollout,
        trl["num_generations"],
        trl["per_device_train_batch_size"],
        process_count(),
    )


def batch_settings(
    prompts_per_rollout: int, prompts_per_update: int, num_generations: int, micro_batch: int, processes: int
) -> dict[str, int]:
    """Return `gradient_accumulation_steps` and `steps_per_generation` for a batch in prompts.

    Args:
        prompts_per_rollout: prompts that are played with the same policy.
        prompts_per_update: prompts whose rows an update sees.
        num_generations: rows per prompt.
        micro_batch: rows in one forward pass of a process (`per_device_train_batch_size`).
        processes: processes on all machines.

    Raises:
        ValueError: a number is below 1, or an update is not a whole number of micro-batches, or a rollout is not a
            whole number of updates; the error lists numbers that fit.
    """
    for name, size in (("num_generations", num_generations), ("per_device_train_batch_size", micro_batch)):
        # these are settings of ARPOConfig, which has not checked them yet
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} must be a whole number, at least 1; got {size!r}")
    if prompts_per_update < 1 or prompts_per_rollout % prompts_per_update:
        raise ValueError(
            f"prompts_per_rollout ({prompts_per_rollout}) must be a multiple of prompts_per_update "
            f"({prompts_per_update}): a rollout is a whole number of updates"
        )
    rows = prompts_per_update * num_generations
    if rows % (micro_batch * processes):
        raise ValueError(
            f"prompts_per_update ({prompts_per_update}) x num_generations ({num_generations}) = {rows} rows per update "
            f"are not a multiple of per_device_train_batch_size ({micro_batch}) x processes ({processes}). "
            + _sizes_that_fit(rows, micro_batch, processes)
        )
    accumulation = rows // (micro_batch * processes)
    updates = prompts_per_rollout // prompts_per_update
    # TRL counts both in micro-batches of one process
    return {"gradient_accumulation_steps": accumulation, "steps_per_generation": accumulation * updates}


def _sizes_that_fit(rows: int, micro_batch: int, processes: int) -> str:
    if rows % processes:
        # the largest number that divides the rows leaves the fewest GPUs idle
        fitting = [number for number in range(processes, 0, -1) if rows % number == 0]
        return f"{processes} processes cannot share the rows evenly: start {fitting[0]}, or change prompts_per_update"
    share = rows // processes
    fitting = [size for size in range(1, max(micro_batch, 8) + 1) if share % size == 0]
    return f"With {processes} processes take per_device_train_batch_size {', '.join(map(str, fitting))}"


def configure(settings: dict[str, Any]) -> tuple[RunArguments, ARPOConfig]:
    """Return the checked `RunArguments` and `ARPOConfig` for settings by name; no model and no task is loaded.

    Raises:
        ValueError: a setting is unknown or cannot work.
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        ModuleNotFoundError: the environment's module does not exist.
        FileNotFoundError: the model's folder is missing.
    """
    import torch

    from arpo_trainer.training.config import ARPOConfig
    from arpo_trainer.training.devices import check_devices

    run, values = split_settings(settings)
    for env_id in (run.env, run.eval_env):
        if env_id is not None:
            known_id(env_id)
    _warn_about_processes(run)
    if not torch.cuda.is_available():
        # without it transformers refuses the bf16 of settings that are written for a GPU
        values.setdefault("use_cpu", True)
    values.setdefault("report_to", [])
    args = ARPOConfig(**values)
    check_devices(args)
    check_model_folder(run.model)
    return run, args


def _warn_about_processes(run: RunArguments) -> None:
    if process_count() < run.processes and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "these settings are written for %d processes, one per GPU, and the run has %d: memory may not suffice. "
            "Start all of them with arpo train --accelerate-config fsdp2 --num-processes %d ...; "
            "see docs/how-to/gpus.md",
            run.processes,
            process_count(),
            run.processes,
        )
