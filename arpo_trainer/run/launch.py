"""Several processes: `arpo train --accelerate-config zero2 ...` starts itself again under `accelerate launch`.

    arpo train --config my.yaml --accelerate-config fsdp2                     one process per GPU
    arpo train --config my.yaml --accelerate-config ddp --num-processes 2     two processes, also on the CPU
    accelerate launch --config_file ddp.yaml -m arpo_trainer.cli train --config my.yaml    the same by hand

The names are files in `arpo_trainer/accelerate_configs/`; a path takes any accelerate configuration. The launcher
replaces this process, so that signals reach it; it passes Ctrl-C on to all processes, and ends all when one fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.validation import check_name

CONFIGS = Path(__file__).parents[1] / "accelerate_configs"
_FLAGS = ("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port")
_ALONE = {"num_machines": 1, "machine_rank": 0}  # what these flags are if they are not given


def add_launch_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that start several processes; accelerate's own spelling, with underscores, works too."""
    names = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.yaml")))

    def add(flag: str, metavar: str, purpose: str, **form: Any) -> None:
        parser.add_argument(flag, metavar=metavar, help=purpose, **form)
        underscored = "--" + flag[2:].replace("-", "_")
        # both spellings store one value, so only the first may have a default
        parser.add_argument(underscored, help=argparse.SUPPRESS, **{**form, "default": argparse.SUPPRESS})

    add("--accelerate-config", "NAME", f"start several processes: {names}, or a file")
    add("--num-processes", "N", "processes on all machines together (default: one per GPU)", type=int)
    add("--num-machines", "N", "machines that train together (default 1)", type=int, default=1)
    add("--machine-rank", "N", "the number of this machine (default 0)", type=int, default=0)
    add("--main-process-ip", "ADDRESS", "the address of machine 0, if there are several")
    add("--main-process-port", "N", "a free port of machine 0 (default: any on one machine, else 29500)", type=int)


def check_launch_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags of the launcher that would have no effect: one process would train silently.

    Raises:
        ValueError: --accelerate-config is missing, or a number is below 1.
    """
    for name in ("num_processes", "num_machines"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ValueError(f"{_flag(name)} must be at least 1, got {value}")
    # a dry run takes the number of processes without starting any
    given = [_flag(name) for name in _FLAGS if getattr(arguments, name) != _ALONE.get(name)]
    if given and not arguments.accelerate_config and not (arguments.dry_run and given == ["--num-processes"]):
        raise ValueError(f"{', '.join(given)} without --accelerate-config starts nothing: add it, such as ddp")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def launch(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Replace this process by the launcher of the command; returns only if that fails.

    Args:
        arguments: the parsed values of `add_launch_flags`.
        argv: the arguments of the command, with the launch flags.

    Raises:
        ValueError: the combination cannot work here.
    """
    if "LOCAL_RANK" in os.environ:
        raise ValueError("--accelerate-config starts the processes itself: leave it out under a launcher")
    command = launch_command(arguments, argv)
    # execv discards what is still in Python's buffers
    sys.stdout.flush()
    os.execv(sys.executable, command)


def launch_command(arguments: argparse.Namespace, argv: Sequence[str], module: str = "arpo_trainer.cli") -> list[str]:
    """Return the command line that trains under `accelerate launch`.

    Args:
        arguments: the parsed values of `add_launch_flags`.
        argv: the arguments of the command, with the launch flags.
        module: the module that the processes run.

    Raises:
        ValueError: the configuration is unknown, the number of processes or the address of machine 0 is missing, or
            the configuration does nothing (FSDP without a GPU) or cannot run (DeepSpeed not installed) here.
    """
    config = config_file(arguments.accelerate_config)
    given = {name: getattr(arguments, name) for name in _FLAGS}
    given["num_processes"] = given["num_processes"] or _one_per_gpu(given["num_machines"])
    if refused := refused_machines(given["num_processes"], given["num_machines"], given["main_process_ip"]):
        raise ValueError(refused[0])
    if given["num_machines"] == 1 and given["main_process_port"] is None:
        given["main_process_port"] = 0  # any free port: two trainings may run side by side
    _check_possible(config)
    flags = [text for name, value in given.items() if value is not None for text in (f"--{name}", str(value))]
    script = ["-m", module, *without_launch_flags(argv)]
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), *flags, *script]


def refused_machines(processes: int, machines: int, address: str | None) -> list[str]:
    """Return why processes cannot be started on several machines.

    Args:
        processes: processes on all machines together.
        machines: the number of machines.
        address: that of machine 0.
    """
    refused = []
    if machines > 1 and not address:
        refused.append("--num-machines above 1 needs --main-process-ip: the address of machine 0")
    if processes % machines:
        refused.append(
            f"--num-processes ({processes}) counts all machines together, and must be a multiple of --num-machines "
            f"({machines})"
        )
    return refused


def config_file(name: str) -> Path:
    """Return an accelerate configuration: a file, or one of the package by its name.

    Raises:
        ValueError: it is neither; the error lists the names.
    """
    if Path(name).is_file():
        return Path(name)
    check_name("--accelerate-config", name, sorted(path.stem for path in CONFIGS.glob("*.yaml")))
    return CONFIGS / f"{name}.yaml"


def shards(args: object) -> bool:
    """Return whether FSDP or DeepSpeed is used, set by the launcher or in training arguments."""
    asked = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    by_launcher = any(os.environ.get(name, "false").lower() == "true" for name in asked)
    return by_launcher or bool(getattr(args, "fsdp", None) or getattr(args, "deepspeed", None))


def without_launch_flags(argv: Sequence[str]) -> list[str]:
    """Return the arguments of a command without the flags of `add_launch_flags`."""
    # parsed like the command line itself: flags may be shortened, or written as --flag=value
    parser = argparse.ArgumentParser(add_help=False)
    add_launch_flags(parser)
    return parser.parse_known_args(list(argv))[1]


def _one_per_gpu(machines: int) -> int:
    import torch

    if not (count := torch.cuda.device_count()):
        raise ValueError("no GPU here to count: give --num-processes")
    return count * machines


def _check_possible(config: Path) -> None:
    import torch
    import yaml

    kind = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("distributed_type")
    if kind == "FSDP" and not torch.cuda.is_available():
        raise ValueError("FSDP needs GPUs: on the CPU accelerate would silently train with DDP; take ddp")
    if kind == "DEEPSPEED" and importlib.util.find_spec("deepspeed") is None:
        raise ValueError("DeepSpeed is not installed: pip install deepspeed, or take fsdp2")
