"""Batches counted in prompts, as papers count them, in TRL's terms.

A paper's "batch 128, mini-batch 16, n = 16" means: 128 prompts are played, 16 times each; an update sees the rows of
16 prompts, so there are 8 updates a rollout (verl multiplies its mini-batch by n itself). TRL counts rows a process and
micro-batches; what it is to be told depends on how many processes there are, and is worked out here.
"""

from __future__ import annotations


def batch_settings(
    prompts_per_rollout: int, prompts_per_update: int, num_generations: int, micro_batch: int, processes: int
) -> dict[str, int]:
    """Return `gradient_accumulation_steps` and `steps_per_generation` for a batch in prompts.

    Args:
        prompts_per_rollout: played with the same policy.
        prompts_per_update: whose rows an update sees.
        num_generations: rows a prompt.
        micro_batch: rows in one forward pass of a process (`per_device_train_batch_size`).
        processes: over all machines.

    Raises:
        ValueError: a number below 1; no whole number of micro-batches an update, or of updates a rollout; names what
            would fit.
    """
    for name, size in (("num_generations", num_generations), ("per_device_train_batch_size", micro_batch)):
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} must be a whole number, at least 1; got {size!r}")
    if prompts_per_update < 1 or prompts_per_rollout % prompts_per_update:
        raise ValueError(
            f"prompts_per_rollout ({prompts_per_rollout}) must be a multiple of prompts_per_update "
            f"({prompts_per_update}): a whole number of updates a rollout"
        )
    rows = prompts_per_update * num_generations
    if rows % (micro_batch * processes):
        raise ValueError(
            f"prompts_per_update ({prompts_per_update}) x num_generations ({num_generations}) = {rows} rows an update "
            f"are no multiple of per_device_train_batch_size ({micro_batch}) x processes ({processes}). "
            + _cure(rows, micro_batch, processes)
        )
    accumulation = rows // (micro_batch * processes)
    updates = prompts_per_rollout // prompts_per_update
    return {"gradient_accumulation_steps": accumulation, "steps_per_generation": accumulation * updates}


def _cure(rows: int, micro_batch: int, processes: int) -> str:
    if rows % processes:
        fitting = [number for number in range(processes, 0, -1) if rows % number == 0]
        return f"{processes} processes cannot share them evenly: start {fitting[0]}, or change prompts_per_update"
    share = rows // processes
    fitting = [size for size in range(1, max(micro_batch, 8) + 1) if share % size == 0]
    return f"With {processes} processes take per_device_train_batch_size {', '.join(map(str, fitting))}"
