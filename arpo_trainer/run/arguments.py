"""The settings of `arpo train` and `arpo sft`, and how settings by name become ours and TRL's.

    run, args = configure(read_settings("arithmetic-cpu"))
    run, args = configure_sft(read_settings("sft-qwen2.5-3b", ["data=[my.jsonl]"], command="sft"))

Batches may be counted in prompts, as papers count them. A paper's "batch 128, mini-batch 16, n = 16" means: 128 prompts
are played 16 times each, and an update sees the rows of 16 prompts, so there are 8 updates per rollout (verl multiplies
its mini-batch by n itself). TRL counts rows per process and micro-batches; its numbers depend on the number of
processes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil
import torch
from transformers import AutoTokenizer
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import SFTConfig

from arpo_env.protocols import make_protocol
from arpo_trainer.make_env import known_id
from arpo_trainer.models import DEMO_MODEL, check_model_folder, resolve_model
from arpo_trainer.sft.trace_data import TraceSettings
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.devices import check_devices, lacks_bfloat16, process_count
from arpo_trainer.training.trackers import check_trackers
from arpo_trainer.validation import check_lowest, check_name, check_types, nearest_names
from envs_registry.contamination import OVERLAP
from envs_registry.datasets.rows import READERS
from envs_registry.install_line import install_line

logger = logging.getLogger(__name__)
DTYPES = ("float32", "bfloat16", "auto")
# what `demonstrations` of `arpo sft` may say
DEMONSTRATIONS = dict[str, Any](env="arpo/Arithmetic-v0", env_kwargs={}, count=200, tool_share=0.5, seed=0)


@dataclass
class WeightArguments:
    """Settings of the model, of the trained weights and of the processes, which all commands that train have.

    Attributes:
        model: a hub id, a folder, or a name of `arpo models`, such as "smollm2-135m", which needs no hub.
        processes: number of processes that the settings are written for, one per GPU; 0 is any number. A run of
            `arpo train` with fewer processes logs a warning.
        dtype: type of the loaded weights: "float32", which small updates of all weights need (`bf16` sets the type of
            the computation), "bfloat16" for a frozen base under adapters, or "auto" for the checkpoint's own. Other
            options of loading are in `model_init_kwargs`.
        lora_rank: rank of the adapters that are trained instead of the weights; 0 trains the weights.
        lora_alpha: the adapters' scale is alpha over rank; None is the rank.
        lora_dropout: dropout in the adapters.
        lora_target_modules: names of the layers with adapters, or "all-linear".
        save_final_model: whether the trained model is written into the output folder, with its adapters if there are.
        threads: CPU threads for PyTorch; 0 is the number of idle cores.
    """

    lowest: ClassVar[dict[str, float]] = {"processes": 0, "lora_rank": 0, "lora_alpha": 1, "threads": 0}

    model: str = DEMO_MODEL
    processes: int = 0
    dtype: str = "float32"
    lora_rank: int = 0
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    lora_target_modules: str | list[str] = "all-linear"
    save_final_model: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        kinds = [kind for kind in type(self).__mro__ if dataclasses.is_dataclass(kind)]
        for kind in kinds:  # the types first: the comparisons below need numbers
            check_types(self, {n: text for n, text in kind.__annotations__.items() if not text.startswith("ClassVar")})
        for kind in kinds:
            check_lowest(self, vars(kind).get("lowest", {}))
        check_name("dtype", self.dtype, DTYPES)
        if self.lora_rank and importlib.util.find_spec("peft") is None:
            raise ValueError(f"lora_rank={self.lora_rank} needs PEFT: {install_line('lora')}, or set lora_rank=0")


@dataclass
class RunArguments(WeightArguments):
    """The settings of `arpo train` that are not fields of `ARPOConfig`, with those of `WeightArguments`.

    Attributes:
        env: id of the environment; your own environment is named with its module, as in "my_envs:mine/Task-v0".
        env_kwargs: options of the environment for training.
        eval_env: environment for evaluation; None is `env`.
        eval_env_kwargs: its options. For `env` they are added to `env_kwargs`; another environment has these alone.
        eval_tasks: number of tasks that are answered before and after training; 0 turns evaluation off.
        overlap: what happens to training tasks that are evaluation tasks too: "refuse" stops the run, "drop" removes
            them and similar ones from training, "allow" keeps them.
        cold_start_examples: scripted demonstrations for supervised training before RL; 0 turns the cold start off.
        cold_start_env_kwargs: options of the environment for the demonstrations, added to `env_kwargs`.
        cold_start_epochs: passes over the demonstrations.
        cold_start_learning_rate: learning rate of the cold start.
        cold_start_tool_share: share of demonstrations that call the tool.
        cold_start_seed: seed of the cold start; None is `seed`. With it, runs with different seeds can start from the
            same model.
        search_price: US dollars for 1,000 searches, for the cost estimate; None is the provider's list price, if it is
            known.
        prompts_per_rollout: prompts that are played with the same policy. With None the batch is set by TRL's settings,
            which count rows and micro-batches.
        prompts_per_update: prompts whose rows an update sees, a mini-batch; None is `prompts_per_rollout`. The batch
            does not depend on the number of processes then.
    """

    lowest: ClassVar[dict[str, float]] = {
        **dict.fromkeys(("eval_tasks", "cold_start_examples", "cold_start_epochs", "cold_start_learning_rate"), 0),
        **{"search_price": 0, "prompts_per_rollout": 1, "prompts_per_update": 1},
    }

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
        check_name("overlap", self.overlap, OVERLAP)


@dataclass
class SFTArguments(WeightArguments, TraceSettings):
    """The settings of `arpo sft` that are not fields of TRL's `SFTConfig`, with those of `WeightArguments`.

    How rows are read is set by the fields of `TraceSettings`.

    Attributes:
        data: files or folders of traces, or files of a data set on the hub as OWNER/NAME/FILE.
        demonstrations: scripted demonstrations, played before training: {env, env_kwargs, count, tool_share, seed}.
            Only environments whose tasks have known solutions can be demonstrated.
        end_token: whether the answer is followed by the model's end token. Rollouts with tags stop at the answer's tag;
            other software that runs the model may need it.
        strict: whether a row that cannot be used is an error instead of being dropped and counted.
        chat_template_kwargs: arguments for the chat template, such as {"enable_thinking": False}.
        rows_per_update: rows that an update sees, on any number of processes; None leaves TRL's settings.
    """

    lowest: ClassVar[dict[str, float]] = {"max_per_task": 0, "rows_per_update": 1}

    data: str | list[str] = field(default_factory=list)
    demonstrations: dict[str, Any] = field(default_factory=dict)
    end_token: bool = True
    strict: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    rows_per_update: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        TraceSettings.__post_init__(self)
        for name in self.demonstrations:
            check_name("demonstrations", name, DEMONSTRATIONS)
        make_protocol(self.protocol)

    def files(self) -> list[Path]:
        """Return the files of `data`; those on the hub are downloaded."""
        entries = [self.data] if isinstance(self.data, str) else self.data
        if not entries and not self.demonstrations:
            raise ValueError("no data: give files of traces with --data FILE ..., or `data` in the settings")
        return [path for entry in entries for path in _files(str(entry))]


def _files(entry: str) -> list[Path]:
    path = Path(entry).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(one for one in path.rglob("*") if one.suffix in READERS and one.is_file())
        # the folder of a run: only its traces are rows
        traces = [one for one in found if one.name == "traces.jsonl"]
        if not found:
            raise FileNotFoundError(f"data folder {entry!r} holds no file of {', '.join(READERS)}")
        return traces or found
    if entry.count("/") == 2 and not entry.startswith((".", "/", "~")):
        return [_from_hub(entry)]
    raise FileNotFoundError(
        f"data {entry!r} does not exist here; give a file, a folder, or OWNER/NAME/FILE of a data set on the hub"
    )


def _from_hub(entry: str) -> Path:
    from huggingface_hub import hf_hub_download

    owner, name, file = entry.split("/")
    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, repo_type="dataset"))
    except Exception as error:  # the hub client raises many types; one explanation covers them
        raise FileNotFoundError(
            f"could not load {entry} from the hub ({type(error).__name__}: {str(error).splitlines()[0]}). Download it "
            f"elsewhere and give the file: --data {file}"
        ) from error


# Settings by name become ours and TRL's.

Arguments = TypeVar("Arguments", bound=WeightArguments)


def divided(
    settings: dict[str, Any], ours: type[Arguments], theirs: type[Any], command: str
) -> tuple[Arguments, dict[str, Any]]:
    """Divide settings into our arguments and fields of TRL's configuration."""
    own = {entry.name for entry in dataclasses.fields(ours)}
    others = {entry.name for entry in dataclasses.fields(theirs) if entry.init}
    for name in settings:
        if name not in own | others:
            near = nearest_names(name, own | others, 3)
            known = f"Settings are the fields of {theirs.__name__} and {ours.__name__}"
            raise ValueError(f"no setting {name!r} of arpo {command}. " + (f"Did you mean: {near}?" if near else known))
    # TRL and run.json take plain text
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    run = ours(**{name: value for name, value in settings.items() if name in own})
    return run, {name: value for name, value in settings.items() if name in others}


def split_settings(settings: dict[str, Any]) -> tuple[RunArguments, dict[str, Any]]:
    """Divide settings of `arpo train`; a batch in prompts becomes TRL's settings."""
    run, values = divided(settings, RunArguments, ARPOConfig, "train")
    per_rollout = run.prompts_per_rollout or run.prompts_per_update
    if per_rollout is None:
        return run, values
    both = {"gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"} & values.keys()
    if both:
        raise ValueError(
            f"{', '.join(sorted(both))} and prompts_per_rollout set the same thing: give only one of them. "
            "prompts_per_rollout and prompts_per_update fit any number of processes"
        )
    # an ARPOConfig cannot be made yet: it checks the batch; its defaults are on the class
    names = ("num_generations", "per_device_train_batch_size")
    rows, micro = (values.get(name, getattr(ARPOConfig, name)) for name in names)
    return run, values | batch_settings(
        per_rollout, run.prompts_per_update or per_rollout, rows, micro, process_count()
    )


def batch_settings(
    prompts_per_rollout: int, prompts_per_update: int, num_generations: int, micro_batch: int, processes: int
) -> dict[str, int]:
    """Return `gradient_accumulation_steps` and `steps_per_generation` for a batch in prompts.

    `micro_batch` is `per_device_train_batch_size`, and `processes` counts those on all machines.
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
        if rows % processes:
            # the largest number that divides the rows leaves the fewest GPUs idle
            most = next(number for number in range(processes, 0, -1) if rows % number == 0)
            cure = f"{processes} processes cannot share the rows evenly: start {most}, or change prompts_per_update"
        else:
            sizes = [size for size in range(1, max(micro_batch, 8) + 1) if rows // processes % size == 0]
            fitting = ", ".join(map(str, sizes))
            cure = f"With {processes} processes take per_device_train_batch_size {fitting}"
        raise ValueError(
            f"prompts_per_update ({prompts_per_update}) x num_generations ({num_generations}) = {rows} rows per update "
            f"are not a multiple of per_device_train_batch_size ({micro_batch}) x processes ({processes}). {cure}"
        )
    accumulation = rows // (micro_batch * processes)
    updates = prompts_per_rollout // prompts_per_update
    # TRL counts both in micro-batches of one process
    return {"gradient_accumulation_steps": accumulation, "steps_per_generation": accumulation * updates}


def configure(settings: dict[str, Any]) -> tuple[RunArguments, ARPOConfig]:
    """Return the checked `RunArguments` and `ARPOConfig` for settings by name; no model and no task is loaded.

    Raises:
        ValueError: a setting is unknown or cannot work.
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        ModuleNotFoundError: the environment's module does not exist.
        FileNotFoundError: the model's folder is missing.
    """
    run, values = split_settings(settings)
    for env_id in (run.env, run.eval_env):
        if env_id is not None:
            known_id(env_id)
    if process_count() < run.processes and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "these settings are written for %d processes, one per GPU, and the run has %d: memory may not suffice. "
            "Start all of them with arpo train --accelerate-config fsdp2 --num-processes %d ...; "
            "see docs/how-to/gpus.md",
            *(run.processes, process_count(), run.processes),
        )
    if not torch.cuda.is_available():
        # without it transformers refuses the bf16 of settings that are written for a GPU
        values.setdefault("use_cpu", True)
    values.setdefault("report_to", [])
    args = ARPOConfig(**values)
    check_devices(args)
    check_model_folder(run.model)
    return run, args


def configure_sft(settings: dict[str, Any]) -> tuple[SFTArguments, SFTConfig]:
    """Return the checked `SFTArguments` and `SFTConfig` for settings by name; no model and no data is loaded."""
    run, values = split_rows_settings(settings, SFTArguments, SFTConfig, "sft")
    args = SFTConfig(**values)
    check_devices(args)
    check_trackers(args.report_to)
    if args.packing and args.max_length is None:
        raise ValueError("packing=true needs max_length: the length of the packed rows")
    if args.packing and args.packing_strategy == "wrapped":
        raise ValueError("packing_strategy=wrapped cuts rows in the middle; take bfd, which packs whole rows")
    check_model_folder(run.model)
    return run, args


def split_rows_settings(
    settings: dict[str, Any], ours: type[Arguments], theirs: type[Any], command: str
) -> tuple[Arguments, dict[str, Any]]:
    """Divide settings of a command that learns from rows; `rows_per_update` becomes TRL's settings.

    Of TRL's defaults those are replaced that do not fit the command or this machine.
    """
    run, values = divided(settings, ours, theirs, command)
    values = {"report_to": [], "output_dir": f"runs/{command}", "max_length": None, "logging_steps": 1} | values
    if not torch.cuda.is_available():
        values = {"use_cpu": True} | values
    if lacks_bfloat16(values.get("use_cpu", False)):
        values = {"bf16": False} | values  # bf16 is several times slower there
    if (rows := getattr(run, "rows_per_update", None)) is None:
        return run, values
    if "gradient_accumulation_steps" in values:
        raise ValueError(
            "rows_per_update and gradient_accumulation_steps set the same thing: give only one of them. "
            "rows_per_update fits any number of processes"
        )
    micro = values.get("per_device_train_batch_size", 8)
    if rows % (micro * process_count()):
        raise ValueError(
            f"rows_per_update ({rows}) is not a multiple of per_device_train_batch_size ({micro}) x "
            f"processes ({process_count()}): change one of them"
        )
    return run, {**values, "gradient_accumulation_steps": rows // (micro * process_count())}


def model_source(run: WeightArguments, args: Any, download: bool = True) -> tuple[str, dict[str, Any]]:
    """Return the name or folder of a run's model, as `resolve_model`, and the options of loading anything from it."""
    options = {"trust_remote_code": args.trust_remote_code}
    options["revision"] = (args.model_init_kwargs or {}).get("revision", "main")
    return resolve_model(run.model, options["revision"], download), options


def run_tokenizer(run: WeightArguments, args: Any, download: bool = True) -> Any:
    """Return the tokenizer of a run's model; one of ours is downloaded."""
    path, options = model_source(run, args, download)
    return AutoTokenizer.from_pretrained(path, padding_side="left", **options)


def idle_threads() -> int:
    """Return this process's share of the cores that are idle now, at least 1: threads beyond that only wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # set by the launcher
    return max(1, round(cores * (1 - psutil.cpu_percent(interval=1.0) / 100) / processes))


# Low-rank adapters: TRL and PEFT train them. The base stays frozen; rollouts use both together, on vLLM too.


def lora_config(run: WeightArguments) -> Any:
    """Return PEFT's `LoraConfig`; None if all weights are trained."""
    if not run.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=run.lora_rank,
        lora_alpha=run.lora_alpha or run.lora_rank,
        lora_dropout=run.lora_dropout,
        target_modules=run.lora_target_modules,
        task_type="CAUSAL_LM",
    )


def save_final(trainer: Any, run: WeightArguments, folder: Path) -> None:
    """Save the trained model in `folder`/model, and adapters also in `folder`/adapter. Every process takes part."""
    if not run.save_final_model:
        return
    if run.lora_rank:
        save_adapters(trainer, folder)
    else:
        trainer.save_model(str(folder / "model"))
        logger.info("model: %s", folder / "model")


def save_adapters(trainer: Any, folder: Path) -> None:
    """Save the adapters in `folder`/adapter, and the merged model, which loads like any model, in `folder`/model.

    Merging changes the trainer's own model: it cannot be trained further. Sharded weights (FSDP, ZeRO-3) are not
    merged.
    """
    trainer.save_model(str(folder / "adapter"))
    if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
        logger.info("adapter: %s (sharded weights are not merged; see docs/how-to/recipes.md)", folder / "adapter")
        return
    if trainer.accelerator.is_main_process:
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        merged.save_pretrained(folder / "model")
        trainer.processing_class.save_pretrained(folder / "model")
    # no process goes on before the model is complete on disk
    trainer.accelerator.wait_for_everyone()
    logger.info("model: %s, its adapter alone: %s", folder / "model", folder / "adapter")
