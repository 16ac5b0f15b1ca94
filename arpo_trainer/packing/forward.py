"""Log-probabilities of a batch, each shared span computed once: what TRL's forward gives, to rounding.

`packed_logps` takes what TRL hands to `_get_per_token_logps_and_entropies` and returns what that returns. The model is
called as TRL calls it: through whatever wraps it (DDP, PEFT, gradient checkpointing), with the head that TRL put on it
(`fused_lm_head=True`), which scales by the temperature and never holds all logits at once. Three arguments are new: the
tree's attention mask, the position ids, and `shift_labels`, one label a position. The gradient of a shared span is the
sum over its rows: autograd adds it up where the rows are gathered.

It does not decide whether a model can be packed: see `why_not_packable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from arpo_trainer.packing.layout import Layout, gather_index, lay_out
from arpo_trainer.packing.leaves import read_leaves
from arpo_trainer.packing.masks import accept_block_masks, block_mask, dense_mask, pad_to_blocks
from arpo_trainer.packing.splitting import split_leaves


@dataclass
class PackedLogps:
    """What a packed forward gives.

    Attributes:
        logps: log-probability of each completion token, (B, T); 0 at padding.
        entropies: entropy of the distribution it is drawn from, in nats, (B, T), or None.
        computed: positions that went through the model.
        flat: tokens of the rows, padding excluded: what a flat forward has to compute at least.
    """

    logps: torch.Tensor
    entropies: torch.Tensor | None
    computed: int
    flat: int


def packed_logps(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    *,
    budget: int | None = None,
    compute_entropy: bool = False,
    forwards: Callable[[int], int] | None = None,
) -> PackedLogps:
    """Compute the log-probabilities of all completion tokens.

    Args:
        model: a causal language model with TRL's fused head (`add_fused_lm_head`), wrapped or not.
        input_ids: prompts and completions, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        logits_to_keep: T.
        budget: positions in one forward at most; by default all in one. A row longer than it is computed by itself.
        compute_entropy: whether to return entropies.
        forwards: from the number of forwards that these rows need to the number to make. Where weights are sharded
            (FSDP, ZeRO-3) all processes must make equally many: give the maximum over processes.

    Raises:
        ValueError: a row has a completion but no prompt.
    """
    leaves = read_leaves(input_ids, attention_mask, logits_to_keep)
    cuts = split_leaves(leaves.lengths, leaves.shared, budget or max(1, sum(leaves.lengths)))
    layouts = [lay_out(leaves, cut.start, cut.stop) for cut in cuts]
    shape = (len(input_ids), logits_to_keep)
    index = torch.from_numpy(gather_index(leaves, layouts, shape)).to(input_ids.device)
    outputs = [_score(model, _columns(layout, input_ids.device)) for layout in layouts]
    wanted = max(1, forwards(len(layouts)) if forwards else 1)
    idle = [_score(model, _idle(input_ids.device)) for _ in range(wanted - len(layouts))]
    return PackedLogps(
        _rows([output[0] for output in outputs], [output[0] for output in idle], index),
        _rows([output[1] for output in outputs], [output[1] for output in idle], index) if compute_entropy else None,
        sum(len(layout) for layout in layouts),
        int(attention_mask.sum()),
    )


def _columns(layout: Layout, device: torch.device) -> list[torch.Tensor]:
    arrays = (layout.ids, layout.depths, layout.labels, layout.ends)
    return [torch.from_numpy(array).to(device) for array in arrays]


def _idle(device: torch.device) -> list[torch.Tensor]:
    """A row of one token that nobody asks about: it keeps a process in step with the others."""
    return [torch.full((1,), value, device=device) for value in (0, 0, -100, 1)]


def _score(model: Any, columns: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropies at each position of a packed row, (N,) each."""
    size = len(columns[0])
    blocks = columns[0].is_cuda and find_spec("triton") is not None
    if blocks:
        accept_block_masks()
        columns = pad_to_blocks(*columns)
        columns[2][size:] = -100
    ids, depths, labels, ends = columns
    output = model(
        input_ids=ids[None],
        attention_mask=block_mask(ends) if blocks else dense_mask(ends),
        position_ids=depths[None],
        shift_labels=labels[None],
        fused_lm_head=True,
    )
    return output.log_probs[0, :size], output.entropy[0, :size] if output.entropy is not None else None


def _rows(values: list[torch.Tensor], idle: list[torch.Tensor], index: torch.Tensor) -> torch.Tensor:
    """Gather (B, T) rows from positions; padding reads a zero that hangs on the idle forwards."""
    zero = sum((value.sum() for value in idle), start=index.new_zeros((), dtype=torch.float32)) * 0
    return torch.cat([*values, zero[None].to((values or idle)[0].dtype)])[index]
