"""`arpo dpo --dry-run`: the most that a round can sample and learn, without loading weights or tasks.

rows, missing = dpo_dry_run(settings, processes=8)
"""

from __future__ import annotations

import math
from typing import Any

import torch

from arpo_trainer.costs.compute_hours import PASS, PASS_AND_BACK, ComputeSpeed
from arpo_trainer.costs.model_shape import model_shape
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.preference.dpo_arguments import DPOArguments, configure_dpo
from arpo_trainer.preference.pair_file import read_pairs
from arpo_trainer.run.lora import lora_config
from arpo_trainer.run.sft_dry_run import Line
from arpo_trainer.training.process_count import planning, process_count

_LENGTH = 4096  # tokens of a trajectory if the settings do not say


def dpo_dry_run(
    settings: dict[str, Any], processes: int | None = None, speed: ComputeSpeed | None = None
) -> tuple[list[Line], list[str]]:
    """Return a table of what a round would do at most, and what this machine lacks for it.

    Args:
        settings: fields of `DPOArguments` and TRL's `DPOConfig`, by name.
        processes: the number of processes to plan for; None is the launcher's, else what the settings are written for.
        speed: the speed and price of a device.

    Raises:
        ValueError: the settings cannot work.
        FileNotFoundError: a file of pairs is missing.
    """
    count = processes or (process_count() if process_count() > 1 else int(settings.get("processes") or 1))
    with planning(count):
        run, args = configure_dpo(settings)
    length = run.max_completion_length or _LENGTH
    sampled = 0 if run.pair_files() else run.tasks * run.samples
    # a trajectory is in one pair, so that half of them bound the pairs of a task
    pairs = run.tasks * min(run.pairs_per_task, run.samples // 2)
    if run.pair_files():
        pairs = sum(len(read_pairs(file)) for file in run.pair_files())
    rows = _amounts(run, args, sampled, pairs, length, count)
    try:
        shape = model_shape(resolve_model(run.model), lora_config(run))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        return rows, [f"configuration of {run.model}, so hours are left out ({reason})"]
    seen = 2 * pairs * (min(length, args.max_length or length))
    learning = (PASS_AND_BACK * args.num_train_epochs + PASS * _reference_passes(args)) * seen
    operations = shape.parameters * (PASS * sampled * length + learning)
    on_cpu = args.use_cpu or (not torch.cuda.is_available() and count == 1)
    return [*rows, *(speed or ComputeSpeed()).rows(operations, count, on_cpu)], []


def _amounts(run: DPOArguments, args: Any, sampled: int, pairs: int, length: int, processes: int) -> list[Line]:
    per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * processes
    steps = args.max_steps if args.max_steps > 0 else math.ceil(pairs / per_step) * math.ceil(args.num_train_epochs)
    how = "independent samples" if run.algorithm == "grpo" else f"trees by {run.algorithm}"
    rows = [
        ("TRAJECTORIES", f"{sampled:,}", f"{run.tasks:,} tasks of {run.env}, {run.samples} each; {how}"),
        ("tokens sampled, at most", f"{sampled * length:,}", f"{length:,} per trajectory"),
    ]
    most = f"{run.pairs_per_task} of a task; tasks that are always or never solved have none"
    return [
        *(rows if sampled else []),
        ("pairs" if not sampled else "pairs, at most", f"{pairs:,}", most if sampled else "of the given files"),
        ("optimizer steps" + ", at most" * bool(sampled), f"{steps:,}", f"{per_step} pairs each"),
    ]


def _reference_passes(args: Any) -> float:
    return 1 if args.precompute_ref_log_probs else float(args.num_train_epochs)
