"""Packed tree training: the rows of a micro-batch as a prefix tree, each shared span through the model once.

    if (reason := why_not_packable(model)) is None:
        result = packed_logps(model, input_ids, attention_mask, logits_to_keep, compute_entropy=True)

The numbers are those of the flat batch up to rounding, with fewer tokens. See `forward` for how it works and
which rows go together.
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.packing.forward import PackedLogps, deal_rows, packed_logps, regroup, split_leaves
    from arpo_trainer.packing.support import why_not_packable

__all__ = ["PackedLogps", "deal_rows", "packed_logps", "regroup", "split_leaves", "why_not_packable"]

_HOMES = {
    "PackedLogps": "forward",
    "deal_rows": "forward",
    "packed_logps": "forward",
    "regroup": "forward",
    "split_leaves": "forward",
    "why_not_packable": "support",
}

__getattr__ = lazy_names("arpo_trainer.packing", _HOMES, naming_extras)
