"""Several processes: `arpo train --accelerate-config zero2 ...` starts itself again under `accelerate launch`.

    arpo train --config my.yaml --accelerate-config fsdp2                     one process per GPU
    arpo train --config my.yaml --accelerate-config ddp --num-processes 2     two processes, also on the CPU
    accelerate launch --config_file ddp.yaml -m arpo_trainer.cli train --config my.yaml    the same by hand

The names are files in `arpo_trainer/accelerate_configs/`; a path takes any accelerate configuration. The launcher
replaces this process, so that signals reach it; it passes Ctrl-C on to all processes, and ends all when one fails.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arpo_trainer.validation import check_name

CONFIGS = Path(__file__).parents[1] / "accelerate_configs"
command_line: list[str] = []  # the words after `arpo`, which the launcher's processes run again


@dataclass
class LaunchFlags:
    """The flags that start several processes.

    Attributes:
        accelerate_config: start several processes: ddp, fsdp2, zero2, zero3, ... or a file
        num_processes: processes on all machines together (default: one per GPU)
        num_machines: number of machines that train together
        machine_rank: the number of this machine
        main_process_ip: the address of machine 0, if there are several
        main_process_port: a free port of machine 0 (default: any on one machine, else 29500)
    """

    accelerate_config: str | None = None
    num_processes: int | None = None
    num_machines: int = 1
    machine_rank: int = 0
    main_process_ip: str | None = None
    main_process_port: int | None = None

    def check(self, dry_run: bool = False) -> None:
        """Refuse flags that would have no effect: one process would train silently."""
        for name in ("num_processes", "num_machines"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{_flag(name)} must be at least 1, got {value}")
        given = [_flag(entry.name) for entry in _FIELDS if getattr(self, entry.name) != entry.default]
        # a dry run takes the number of processes without starting any
        if given and not self.accelerate_config and not (dry_run and given == ["--num-processes"]):
            raise ValueError(f"{', '.join(given)} without --accelerate-config starts nothing: add it, such as ddp")


_FIELDS = dataclasses.fields(LaunchFlags)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def launch(flags: LaunchFlags) -> int:
    """Replace this process by the launcher of `command_line`; returns only if that fails."""
    if "LOCAL_RANK" in os.environ:
        raise ValueError("--accelerate-config starts the processes itself: leave it out under a launcher")
    command = launch_command(flags, command_line)
    # execv discards what is still in Python's buffers
    sys.stdout.flush()
    os.execv(sys.executable, command)


def launch_command(flags: LaunchFlags, argv: Sequence[str], module: str = "arpo_trainer.cli") -> list[str]:
    """Return the command line that runs a module with `argv`, less the launch flags, under `accelerate launch`."""
    config = config_file(flags.accelerate_config or "")
    given = dataclasses.asdict(flags)
    del given["accelerate_config"]
    given["num_processes"] = flags.num_processes or _one_per_gpu(flags.num_machines)
    if refused := refused_machines(given["num_processes"], flags.num_machines, flags.main_process_ip):
        raise ValueError(refused[0])
    if flags.num_machines == 1 and flags.main_process_port is None:
        given["main_process_port"] = 0  # any free port: two trainings may run side by side
    _check_possible(config)
    words = [text for name, value in given.items() if value is not None for text in (f"--{name}", str(value))]
    script = ["-m", module, *without_launch_flags(argv)]
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config), *words, *script]


def refused_machines(processes: int, machines: int, address: str | None) -> list[str]:
    """Return why so many processes, on all machines together, cannot be started; `address` is that of machine 0."""
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
    """Return an accelerate configuration: a file, or one of the package by its name."""
    if Path(name).is_file():
        return Path(name)
    check_name("--accelerate-config", name, sorted(path.stem for path in CONFIGS.glob("*.yaml")))
    return CONFIGS / f"{name}.yaml"


def without_launch_flags(argv: Sequence[str]) -> list[str]:
    """Return the arguments of a command without those of `LaunchFlags`, in either spelling, also as --flag=value."""
    names = [_flag(entry.name) for entry in _FIELDS]
    kept, of_flag = [], False
    for word in argv:
        flag, sign, _ = word.partition("=")
        if of_flag:
            of_flag = False
        elif flag.replace("_", "-") in names:
            of_flag = not sign
        else:
            kept.append(word)
    return kept


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
