"""Several processes: `arpo train --accelerate_config zero2 ...` starts itself again under `accelerate launch`.

    arpo train --config my --accelerate_config fsdp2                     as many processes as GPUs here
    arpo train --config my --accelerate_config ddp --num_processes 2     on the CPU, too
    accelerate launch --config_file my.yaml -m arpo_trainer.cli train --config my    the same by hand

The names are files in `arpo_trainer/accelerate_configs/`; a path takes any accelerate configuration. The
launcher takes this process's place, so that a signal reaches it; it hands Ctrl-C on to all processes, and ends
all when one fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from arpo_trainer.name_check import check_name

CONFIGS = Path(__file__).parents[1] / "accelerate_configs"
_FLAGS = ("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port")
_ALONE = {"num_machines": 1, "machine_rank": 0}


def add_launch_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that start several processes; they have accelerate's names, as in TRL's own command."""
    names = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.yaml")))
    parser.add_argument("--accelerate_config", metavar="NAME", help=f"start several processes: {names}, or a file")
    parser.add_argument("--num_processes", type=int, help="of all machines together (default: one a GPU)")
    parser.add_argument("--num_machines", type=int, default=1, help="machines that train together (default 1)")
    parser.add_argument("--machine_rank", type=int, default=0, help="which of them this is (default 0)")
    parser.add_argument("--main_process_ip", help="address of machine 0, when there are several")
    parser.add_argument("--main_process_port", type=int, help="a free port there (default: any, or 29500)")


def check_launch_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags of the launcher where nothing is launched: one process would train, and not say so.

    Raises:
        ValueError: names the flag that is missing, or the number that is none.
    """
    for name in ("num_processes", "num_machines"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    given = [f"--{name}" for name in _FLAGS if getattr(arguments, name) != _ALONE.get(name)]
    if given and not arguments.accelerate_config and not (arguments.dry_run and given == ["--num_processes"]):
        raise ValueError(f"{', '.join(given)} without --accelerate_config starts nothing: add it, such as ddp")


def launch(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Become the launcher of this command; does not return unless it fails.

    Args:
        arguments: with the values of `add_launch_flags`.
        argv: of the command, the launch flags among it.

    Raises:
        ValueError: a combination that cannot work here; names the cure.
    """
    if "LOCAL_RANK" in os.environ:
        raise ValueError("--accelerate_config starts the processes itself: leave it out under a launcher")
    command = launch_command(arguments, argv)
    sys.stdout.flush()
    os.execv(sys.executable, command)


def launch_command(arguments: argparse.Namespace, argv: Sequence[str], module: str = "arpo_trainer.cli") -> list[str]:
    """Return the command line that trains under `accelerate launch`.

    Args:
        arguments: with the values of `add_launch_flags`.
        argv: of the command, the launch flags among it.
        module: what the processes run.

    Raises:
        ValueError: no such configuration, no way to know how many processes, no address of machine 0, or a
            configuration that does nothing (FSDP without a GPU) or cannot run (DeepSpeed not installed) here.
    """
    config = config_file(arguments.accelerate_config)
    given = {name: getattr(arguments, name) for name in _FLAGS}
    given["num_processes"] = given["num_processes"] or _one_a_gpu(given["num_machines"])
    if given["num_machines"] > 1 and not given["main_process_ip"]:
        raise ValueError("--num_machines above 1 needs --main_process_ip: the address of machine 0")
    if given["num_processes"] % given["num_machines"]:
        raise ValueError(
            f"--num_processes ({given['num_processes']}) is of all machines together, and must be a multiple of "
            f"--num_machines ({given['num_machines']})"
        )
    if given["num_machines"] == 1 and given["main_process_port"] is None:
        given["main_process_port"] = 0  # any that is free: two trainings may run side by side
    _check_possible(config)
    flags = [text for name, value in given.items() if value is not None for text in (f"--{name}", str(value))]
    script = ["-m", module, *_without_launch_flags(argv)]
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), *flags, *script]


def config_file(name: str) -> Path:
    """Return an accelerate configuration: a file, or one that comes with the package by its name.

    Raises:
        ValueError: neither; lists the names.
    """
    if Path(name).is_file():
        return Path(name)
    check_name("--accelerate_config", name, sorted(path.stem for path in CONFIGS.glob("*.yaml")))
    return CONFIGS / f"{name}.yaml"


def shards(args: object) -> bool:
    """Whether FSDP or DeepSpeed is asked for, by the launcher or in training arguments."""
    asked = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    by_launcher = any(os.environ.get(name, "false").lower() == "true" for name in asked)
    return by_launcher or bool(getattr(args, "fsdp", None) or getattr(args, "deepspeed", None))


def _without_launch_flags(argv: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False)
    add_launch_flags(parser)
    return parser.parse_known_args(list(argv))[1]


def _one_a_gpu(machines: int) -> int:
    import torch

    if not (count := torch.cuda.device_count()):
        raise ValueError("no GPU here to count: say --num_processes")
    return count * machines


def _check_possible(config: Path) -> None:
    import torch
    import yaml

    kind = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("distributed_type")
    if kind == "FSDP" and not torch.cuda.is_available():
        raise ValueError("FSDP needs GPUs: on the CPU accelerate would train with DDP and not say so; take ddp")
    if kind == "DEEPSPEED" and importlib.util.find_spec("deepspeed") is None:
        raise ValueError("DeepSpeed is not here: pip install deepspeed, or take fsdp2")
