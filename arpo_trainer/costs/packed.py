"""What packed rows change in the estimate: whether a run packs, and how many prompts a micro-batch computes then.

Only the prompt is sure to be shared by the rows of a group. What branches share depends on the run, so a bound does not
count it.
"""

from __future__ import annotations

from arpo_trainer.costs.model_shape import ModelShape
from arpo_trainer.costs.sharding import ProcessLayout
from arpo_trainer.packing.support import ATTENTION
from arpo_trainer.training.config import ARPOConfig


def will_pack(args: ARPOConfig, shape: ModelShape | None, layout: ProcessLayout) -> bool:
    """Return whether a run trains on packed rows, as `PackedGRPOTrainer.choose_packing` decides when it starts.

    Args:
        args: settings of the run.
        shape: shape of the model; None if its configuration is not available, which counts as not packed.
        layout: how the processes share the model.
    """
    packing: bool | str = args.packing
    attention = (args.model_init_kwargs or {}).get("attn_implementation") or "sdpa"
    if packing is False or shape is None or not shape.packable or attention not in ATTENTION:
        return False
    plain = not (layout.deepspeed or args.torch_compile or args.use_liger_kernel)
    return packing is True or (plain and shape.proven)


def prompts_computed(args: ARPOConfig, packs: bool) -> int:
    """Return how many prompts one micro-batch computes at most: one for each row, or one for each group in it."""
    rows, group = int(args.per_device_train_batch_size), int(args.num_generations or 1)
    if not packs:
        return rows
    whole_groups = rows * (args.steps_per_generation or 1) % group == 0  # in what a process rolls out
    if whole_groups and rows % group == 0:
        return rows // group
    if whole_groups and group % rows == 0:
        return 1
    # groups may begin anywhere, so a micro-batch can hold a part of one at each end
    return min(rows, (rows + group - 2) // group + 1)
