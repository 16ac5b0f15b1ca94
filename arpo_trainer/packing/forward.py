"""Log-probabilities of a batch with each shared span computed once: the same as TRL's forward up to rounding.

`packed_logps` takes the arguments of TRL's `_get_per_token_logps_and_entropies` and returns the same values. The model
is called as TRL calls it: through whatever wraps it (DDP, PEFT, gradient checkpointing), with TRL's fused head
(`fused_lm_head=True`), which scales by the temperature and never holds all logits at once. Three arguments are new: the
attention mask of the tree, the position ids, and `shift_labels`, one label per position. The gradient of a shared span
is the sum over its rows; autograd adds it up where the rows are gathered.

`support` decides whether a model can be packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from arpo_trainer.packing.layout import Layout, gather_index, idle_layout, lay_out
from arpo_trainer.packing.masks import BLOCK, accept_tree_masks, block_mask, branch_mask, layers_met
from arpo_trainer.packing.prefix_tree import read_leaves
from arpo_trainer.packing.splitting import split_leaves


@dataclass
class PackedLogps:
    """The result of a packed forward pass.

    Attributes:
        logps: log-probability of each completion token, (B, T); 0 at padding.
        entropies: entropy of the distribution it is drawn from, in nats, (B, T), or None.
        computed: number of positions that went through the model.
        flat: number of tokens in the rows without padding: the least that a flat forward pass computes.
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
    share: bool = True,
    forwards: Callable[[int], int] | None = None,
) -> PackedLogps:
    """Compute the log-probabilities of all completion tokens.

    Args:
        model: a causal language model with TRL's fused head (`add_fused_lm_head`), wrapped or not.
        input_ids: prompts and completions, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        logits_to_keep: T.
        budget: most positions in one forward pass; by default all in one. A longer row is computed by itself.
        compute_entropy: whether to return entropies.
        share: False computes each row in full, one behind the other, for attention that keeps them apart by their
            lengths (FlashAttention) and takes no mask. It saves the padding.
        forwards: from the number of forward passes that these rows need to the number to make. With sharded weights
            (FSDP, ZeRO-3) and with DDP all processes must make the same number: return the maximum over processes.

    Raises:
        ValueError: a row has a completion but no prompt.
        NotImplementedError: the model makes its own attention masks.
    """
    leaves = read_leaves(input_ids, attention_mask, logits_to_keep)
    if not share:
        leaves = replace(leaves, shared=[0] * len(leaves))
    cuts = split_leaves(leaves.lengths, leaves.shared, budget or max(1, sum(leaves.lengths)))
    layouts = [lay_out(leaves, cut.start, cut.stop) for cut in cuts]
    needed = sum(len(layout) for layout in layouts)
    wanted = max(1, forwards(len(layouts)) if forwards else 1)
    layouts += [idle_layout()] * (wanted - len(layouts))  # collective forward passes: all processes make as many
    accept_tree_masks()
    mask = _lengths if not share else _blocks if _in_blocks(input_ids.device) else _branches
    if mask is _blocks:
        # the masks of FlexAttention consist of whole blocks; `needed` does not count this padding
        layouts = [layout.padded(BLOCK) for layout in layouts]
    outputs = [_score(model, layout, mask, input_ids.device) for layout in layouts]
    index = torch.from_numpy(gather_index(leaves, layouts, (len(input_ids), logits_to_keep))).to(input_ids.device)
    logps = _rows([output.log_probs for output in outputs], index)
    entropies = _rows([output.entropy for output in outputs], index) if compute_entropy else None
    return PackedLogps(logps, entropies, needed, int(attention_mask.sum()))


def _in_blocks(device: torch.device) -> bool:
    """Return whether to use FlexAttention, which has to be compiled for its device."""
    return device.type == "cuda" and find_spec("triton") is not None


def _branches(layout: Layout, device: torch.device) -> dict[str, Any]:
    return {"attention_mask": branch_mask(torch.from_numpy(layout.ends).to(device))}


def _blocks(layout: Layout, device: torch.device) -> dict[str, Any]:
    return {"attention_mask": block_mask(torch.from_numpy(layout.ends).to(device))}


def _lengths(layout: Layout, device: torch.device) -> dict[str, Any]:
    """Return what transformers' FlashAttention reads: where the rows begin and end, and the longest."""
    edges = np.append(np.flatnonzero(layout.depths == 0), len(layout)).astype(np.int32)
    ends, longest = torch.from_numpy(edges).to(device), int(np.diff(edges).max())
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}


def _score(
    model: Any, layout: Layout, mask: Callable[[Layout, torch.device], dict[str, Any]], device: torch.device
) -> Any:
    """Return the output of the fused head for a packed row: log_probs and entropy, (1, N) each.

    Raises:
        NotImplementedError: no layer of the model asked for attention under the mask of the tree.
    """
    ids, depths, labels = (
        torch.from_numpy(array).to(device)[None] for array in (layout.ids, layout.depths, layout.labels)
    )
    before, how = layers_met(), mask(layout, device)
    output = model(input_ids=ids, position_ids=depths, shift_labels=labels, fused_lm_head=True, **how)
    if "attention_mask" in how and layers_met() == before:  # it would mix the rows without an error
        raise NotImplementedError(
            f"{type(model).__name__} makes attention masks of its own, and its packed rows would see each other: "
            "set packing=False"
        )
    return output


def _rows(values: list[torch.Tensor], index: torch.Tensor) -> torch.Tensor:
    """Gather (B, T) rows from the positions of all packed rows; padding reads a zero.

    The zero depends on every position, so that a forward pass whose positions nobody reads takes part in backward, too.
    """
    positions = torch.cat([value[0] for value in values])
    return torch.cat([positions, 0 * positions.sum()[None]])[index]
