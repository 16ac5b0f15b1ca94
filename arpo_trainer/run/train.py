"""One training run from a settings file: load, perhaps a cold start, evaluate, train, evaluate, report.

arpo train --recipe arithmetic-cpu            # one that comes with the package: `arpo recipes`
arpo train --recipe arithmetic-cpu --dry-run  # what it will cost; see `costs`
arpo train --config my.yaml --set max_steps=3
arpo train --config my.yaml --accelerate_config ddp --num_processes 2      # two processes; see docs/how-to/gpus.md
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib.util
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.run.batch_sizes import batch_settings
from arpo_trainer.run.demo_model import check_model_folder, ensure_model
from arpo_trainer.training.process_count import process_count
from arpo_trainer.type_check import check_types
from sandbox.cache_directory import cache_directory

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.training.config import ARPOConfig

logger = logging.getLogger(__name__)

DEMO_MODEL = "smollm2-135m-instruct"
OVERLAP = ("refuse", "drop", "allow")
DTYPES = ("float32", "bfloat16", "auto")


@dataclass
class RunArguments:
    """What a run needs beside `ARPOConfig`.

    Attributes:
        model: a hub id, a folder, or "smollm2-135m-instruct" for the model that needs no hub.
        env: environment id; one of your own with its module, as in "my_envs:mine/Task-v0".
        env_kwargs: its options, for training.
        eval_env: environment of the evaluation, if it is another one; None is `env`.
        eval_env_kwargs: its options: on top of `env_kwargs` for `env`, these alone for another one.
        eval_tasks: tasks answered before and after training; 0 leaves evaluation out.
        overlap: what becomes of training tasks that are evaluation tasks too: "refuse" to train, "drop" them and those
            that are similar, or "allow" them.
        cold_start_examples: scripted demonstrations shown before training; 0 leaves the cold start out.
        cold_start_env_kwargs: the environment's options for them, on top of `env_kwargs`.
        cold_start_epochs: passes over them.
        cold_start_learning_rate: of the cold start.
        cold_start_tool_share: share of them that calls the tool.
        cold_start_seed: of the cold start; None takes `seed`. Runs that are compared start from the same model with it.
        search_price: US dollars for 1,000 searches, for the report on costs; None is the provider's list price, where
            one is known.
        prompts_per_rollout: prompts played with the same policy. None leaves the batch to TRL's settings, which count
            rows and micro-batches.
        prompts_per_update: prompts whose rows an update sees, a mini-batch; None is `prompts_per_rollout`. The batch is
            then the same however many processes there are.
        processes: that the settings are written for, one a GPU; 0 is any number. Fewer are warned about.
        dtype: the weights are loaded in: "float32", which is what small updates of all weights need (computing is
            `bf16`'s business), "bfloat16" for a frozen base under adapters, or "auto", the checkpoint's own.
            What else the model is loaded with stands in `model_init_kwargs`.
        lora_rank: of adapters that are trained instead of the weights; 0 trains the weights.
        lora_alpha: their scale is alpha over rank; None is the rank.
        lora_dropout: in them.
        lora_target_modules: names of the layers that have them, or "all-linear".
        save_final_model: write the trained model into the output folder; with adapters, them too.
        threads: CPU threads for PyTorch; 0 takes as many as there are idle cores.
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
    processes: int = 0
    dtype: str = "float32"
    lora_rank: int = 0
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    lora_target_modules: str | list[str] = "all-linear"
    save_final_model: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        check_types(self, RunArguments.__annotations__)
        lowest = dict.fromkeys(("eval_tasks", "cold_start_examples", "cold_start_epochs", "cold_start_learning_rate",
                                "search_price", "threads", "processes", "lora_rank"), 0)  # fmt: skip
        lowest |= dict.fromkeys(("prompts_per_rollout", "prompts_per_update", "lora_alpha"), 1)
        for name, low in lowest.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise ValueError(f"{name} must be at least {low}, got {value}")
        for name in ("cold_start_tool_share", "lora_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, from 0 to 1; got {getattr(self, name)}")
        for name in ("env_kwargs", "eval_env_kwargs", "cold_start_env_kwargs"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} must be options by name, as in {{level: 2}}; got {getattr(self, name)!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be {', '.join(map(repr, DTYPES))}; not {self.dtype!r}")
        if self.lora_rank and importlib.util.find_spec("peft") is None:
            raise ValueError(f"lora_rank={self.lora_rank} needs PEFT: pip install 'arpo-gym[lora]', or leave it out")
        if self.overlap not in OVERLAP:
            raise ValueError(f"overlap must be {', '.join(map(repr, OVERLAP))}; not {self.overlap!r}")


def split_settings(settings: dict[str, Any]) -> tuple[RunArguments, dict[str, Any]]:
    """Divide settings into run arguments and those of `ARPOConfig`, a batch in prompts worked out for the latter.

    Raises:
        ValueError: a name that is neither, with the nearest ones; or a batch that cannot be divided.
    """
    from arpo_trainer.training.config import ARPOConfig

    ours = {entry.name for entry in dataclasses.fields(RunArguments)}
    theirs = {entry.name for entry in dataclasses.fields(ARPOConfig) if entry.init}
    for name in settings:
        if name not in ours | theirs:
            near = difflib.get_close_matches(name, ours | theirs, n=3)
            hint = f"Did you mean: {', '.join(near)}?" if near else "They are those of ARPOConfig and RunArguments"
            raise ValueError(f"no setting {name!r}. {hint}")
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    run = RunArguments(**{name: value for name, value in settings.items() if name in ours})
    values = {name: value for name, value in settings.items() if name in theirs}
    return run, values | _batch(run, values)


def _batch(run: RunArguments, values: dict[str, Any]) -> dict[str, int]:
    """Return TRL's settings for a batch in prompts; nothing where it is given in TRL's own."""
    from arpo_trainer.training.config import ARPOConfig

    per_rollout = run.prompts_per_rollout or run.prompts_per_update
    if per_rollout is None:
        return {}
    both = {"gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"} & values.keys()
    if both:
        raise ValueError(
            f"{', '.join(sorted(both))} and prompts_per_rollout say the same: leave one out. From prompts_per_rollout "
            "and prompts_per_update they are worked out for any number of processes"
        )
    trl = {name: getattr(ARPOConfig, name) for name in ("num_generations", "per_device_train_batch_size")} | values
    return batch_settings(
        per_rollout,
        run.prompts_per_update or per_rollout,
        trl["num_generations"],
        trl["per_device_train_batch_size"],
        process_count(),
    )


def idle_threads() -> int:
    """Return this process's share of the cores that are idle now, at least 1: threads on one core wait in turn."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # set by the launcher, if there is one
    return max(1, round(cores * (1 - psutil.cpu_percent(interval=1.0) / 100) / processes))


def train(settings: dict[str, Any], reward_funcs: Any = None) -> Path:
    """Run the whole thing and return the folder with the model and the report.

    Args:
        settings: of `RunArguments` and `ARPOConfig`, by name. Folders and files are str or Path.
        reward_funcs: TRL reward functions instead of the environment's reward.

    Raises:
        ValueError: settings that cannot work; nothing has been loaded then.
        FileNotFoundError: the model's folder is missing.
    """
    import torch

    run, args = configure(settings)
    torch.set_num_threads(run.threads or idle_threads())
    from arpo_trainer.run.training_run import Session

    return Session(run, args, settings, reward_funcs).play()


def configure(settings: dict[str, Any]) -> tuple[RunArguments, ARPOConfig]:
    """Return run arguments and config; nothing is loaded.

    Raises:
        ValueError: settings that cannot work.
        UnknownEnvError: no such environment; names the nearest.
        ModuleNotFoundError: an environment's module is not there.
        FileNotFoundError: the model's folder is missing.
    """
    import torch

    from arpo_trainer.training.config import ARPOConfig

    run, values = split_settings(settings)
    for name in (run.env, run.eval_env):
        if name is not None:
            known_id(name)
    if process_count() < run.processes and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "written for %d processes, one a GPU, and started with %d: memory may not suffice. To start them all: "
            "arpo train --accelerate_config fsdp2 --num_processes %d ...; see docs/how-to/gpus.md",
            run.processes, process_count(), run.processes,
        )  # fmt: skip
    gpus = 1 if values.get("use_cpu") else torch.cuda.device_count()
    if gpus > 1 and process_count() == 1 and "device_map" not in (values.get("model_init_kwargs") or {}):
        logger.warning(
            "%d GPUs here and one process: TRL would spread the model over all of them, one at work at a time. Start "
            "with CUDA_VISIBLE_DEVICES=0 to train on one, or with --accelerate_config ddp on all; "
            "see docs/how-to/gpus.md",
            gpus,
        )
    if not torch.cuda.is_available():
        values.setdefault("use_cpu", True)
    values.setdefault("report_to", [])
    args = ARPOConfig(**values)
    if run.model != DEMO_MODEL:
        check_model_folder(run.model)
    return run, args


def known_id(env_id: str) -> str:
    """Return an id as Gymnasium knows it; the module that it names is imported.

    Raises:
        UnknownEnvError: no such environment; names the nearest.
        ModuleNotFoundError: the id names a module that is not there.
    """
    import gymnasium

    import arpo_env  # noqa: F401  (registers the environments)
    from envs_registry import get_spec, resolve_id

    known = resolve_id(env_id)
    return known if known in gymnasium.registry else get_spec(env_id).id


def make_env(env_id: str, options: dict[str, Any]) -> ToolEnv:
    """Return an environment that can be played and trained on.

    Raises:
        UnknownEnvError: no such environment; names the nearest.
        ModuleNotFoundError: the id names a module that is not there.
        ValueError: it is none of tools and text; lists ours with a command.
    """
    import gymnasium

    import arpo_env

    made = gymnasium.make(known_id(env_id), **options).unwrapped
    if not isinstance(made, arpo_env.ToolEnv):
        raise ValueError(f"{env_id} is a {type(made).__name__}, not a ToolEnv, whose turns are text; see: arpo envs")
    return made


def cold_start_folder(run: RunArguments, model: str, prompt: str, seed: int, protocol: str = "arpo-tags") -> Path:
    """Return where the cold-started model for exactly these settings is kept."""
    cold = [entry.name for entry in dataclasses.fields(run) if entry.name[:4] == "cold"]
    names = ("env", "env_kwargs", *(name for name in cold if name != "cold_start_seed"))
    facts = {name: getattr(run, name) for name in names} | {"model": model, "prompt": prompt, "seed": seed}
    if protocol != "arpo-tags":  # a reference algorithm shows other results after the same prompt
        facts["protocol"] = protocol
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return cache_directory() / "cold-starts" / digest


def resolve_model(model: str) -> str:
    """Return what transformers can load: the demo model's folder, or the name as it is."""
    return str(ensure_model()) if model == DEMO_MODEL else model
