"""Packed tree training: the rows of a micro-batch as a prefix tree, each shared span through the model once.

`packed_logps` takes the arguments of TRL's `_get_per_token_logps_and_entropies` and returns the same values up to
rounding, with fewer tokens. The model is called as TRL calls it: through whatever wraps it (DDP, PEFT, gradient
checkpointing), with TRL's fused head (`fused_lm_head=True`), which scales by the temperature and never holds all logits
at once. Three arguments are new: the attention mask of the tree, the position ids, and `shift_labels`, one label per
position. The gradient of a shared span is the sum over its rows; autograd adds it up where the rows are gathered.

`why_not_packable` decides whether a model can be packed, `why_not_proven` whether tests have compared it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

__all__ = ["PackedLogps", "deal_rows", "packed_logps", "regroup", "split_leaves", "why_not_packable"]

# The attention of a packed tree: every token sees its ancestors and itself. Both forms of the mask are made from one
# number per token (see `Layout`): token j is visible to i exactly when j <= i < ends[j]. `branch_mask` passes these
# numbers on, and attention is computed branch by branch: the queries of a branch attend to the keys of its ancestors
# and its own. `block_mask` is for FlexAttention: blocks of 128 x 128 that are hidden completely are never computed.
# Layers that get one are counted, since a model that makes its own masks would silently ignore ours.
#
# `accept_tree_masks` lets a model that was loaded with `attn_implementation="sdpa"` take both. It would not be enough
# to switch the implementation of the model for the forward pass, because gradient checkpointing runs the layers again
# during backward.

BLOCK = 128
_met = 0
ATTENTION = ("sdpa", "flex_attention")
DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
# not as the ways of others: their masks are made in their layers, or their positions do not begin at 0
OWN_WAYS = ("doge", "falcon", "bert", "camembert", "data2vec-text", "electra", "ernie", "roberta",
            "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl")  # fmt: skip
# tests/arpo_trainer/packing/test_forward.py compares each of these with flat rows: branch by branch as on a CPU, and
# with FlexAttention as on CUDA, without its compiler
PROVEN = ("gemma", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
          "smollm3")  # fmt: skip
PROVEN_ON = ("cpu", "cuda")
_WORDS: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}
Attention = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


class Branch(NamedTuple):
    """Consecutive positions, each the child of the one before, and what they attend to.

    Attributes:
        own: the n positions.
        path: its ancestors, (c,); None if it has none.
        mask: added to the scores of its queries, (n, c + n); None if it has no ancestors (plain causal attention).
    """

    own: slice
    path: torch.Tensor | None
    mask: torch.Tensor | None


def branch_mask(ends: torch.Tensor) -> torch.Tensor:
    """Return the mask for SDPA, (N,) to (1, 1, 1, N): integers, which no other attention takes for a mask.

    The object itself is recognised, not its numbers: SDPA refuses a copy like any mask of integers.
    """
    mask: Any = ends[None, None, None]
    mask.plans = {}  # dtype -> branches; all layers share them, so that the masks exist once
    return mask  # type: ignore[no-any-return]


def layers_met() -> int:
    """Return how often a layer of any model in this process has asked for attention under a tree mask."""
    return _met


def branches(ends: torch.Tensor, dtype: torch.dtype) -> list[Branch]:
    """Return the branches of a layout in order, with masks of this type."""
    # a token without descendants ends a branch, and the next token starts one
    place = torch.arange(1, len(ends), device=ends.device)
    starts = (torch.nonzero(ends[:-1] <= place)[:, 0] + 1).tolist()
    found = []
    for start, stop in itertools.pairwise([0, *starts, len(ends)]):
        path = torch.nonzero(ends[:start] > start)[:, 0]  # earlier tokens whose descendants reach this branch
        # nothing is hidden among the ancestors; behind them the mask is that of causal attention
        hidden = torch.full((stop - start, len(path) + stop - start), -torch.inf, dtype=dtype, device=ends.device)
        within = (path, hidden.triu_(len(path) + 1)) if len(path) else (None, None)
        found.append(Branch(slice(start, stop), *within))
    return found


def block_mask(ends: torch.Tensor) -> BlockMask:
    """Return the mask for FlexAttention; (N,), N a multiple of `BLOCK`, on the device where the attention runs."""
    count = len(ends) // BLOCK
    blocks = ends.view(count, BLOCK)
    starts = torch.arange(count, device=ends.device) * BLOCK
    query, key = starts[:, None], starts[None, :]
    before = key < query
    # a key block is visible to a whole query block if the descendants of all its tokens reach the end of that block,
    # and to a part of it if those of any token reach its start
    full = before & (blocks.amin(dim=1)[None, :] >= query + BLOCK)
    some = (before & (blocks.amax(dim=1)[None, :] > query) & ~full) | (key == query)

    def visible(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return (kv <= q) & (q < ends[kv])

    return BlockMask.from_kv_blocks(*_listed(some), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible)


def _listed(wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of blocks of each row, and their columns first in each row: (1, 1, n) and (1, 1, n, n)."""
    order = torch.argsort(wanted.int(), dim=1, descending=True, stable=True)
    return wanted.sum(dim=1).int()[None, None], order.int()[None, None]


def accept_tree_masks() -> None:
    """Let transformers' "sdpa" attention take tree masks in this process, once, and count the layers that get them."""
    for name in ("sdpa", "flex_attention"):
        current: Attention = ALL_ATTENTION_FUNCTIONS[name]
        if not getattr(current, "takes_tree_masks", False):
            ALL_ATTENTION_FUNCTIONS[name] = _taking_trees(current)


def _taking_trees(current: Attention) -> Attention:
    """Return an attention function that handles tree masks and leaves others to `current`."""

    @functools.wraps(current)  # keeps what others have noted on it, or two of them would wrap each other at each call
    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if isinstance(attention_mask, BlockMask):
            _count()
            kwargs.pop("is_causal", None)
            # Rotary angles and norms are in float32, so under autocast queries and keys are, too, and values are not.
            # PyTorch makes them equal from 2.13 on; the kernel of older ones does not.
            query, key = query.to(value.dtype), key.to(value.dtype)
            return flex_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
        if hasattr(attention_mask, "plans"):
            return _by_branch(current, module, query, key, value, attention_mask, kwargs)  # type: ignore[no-any-return]
        return current(module, query, key, value, attention_mask, **kwargs)

    attention.takes_tree_masks = True  # type: ignore[attr-defined]
    return attention


def _count() -> None:
    global _met
    _met += 1


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _by_branch(
    one: Attention,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    kwargs: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    """Attend branch by branch: query (1, heads, N, d), key and value (1, key heads, N, d) to (1, N, heads, d)."""
    _count()
    if query.dtype not in mask.plans:
        mask.plans[query.dtype] = branches(mask[0, 0, 0], query.dtype)
    outputs = []
    for own, path, hidden in mask.plans[query.dtype]:
        keys, values = key[:, :, own], value[:, :, own]
        if path is not None:
            keys = torch.cat([key[:, :, path], keys], dim=2)
            values = torch.cat([value[:, :, path], values], dim=2)
        added = None if hidden is None else hidden[None, None]
        outputs.append(one(module, query[:, :, own], keys, values, added, **kwargs)[0])
    return torch.cat(outputs, dim=1), None


# The prefix tree is derived from the token ids alone: two rows share their common prefix, whether it is the trunk of a
# branch, the prompt of a group, or the system prompt of two groups. A row of n tokens makes n - 1 predictions, and
# predictions are what is shared: prediction t reads token t and predicts token t + 1, and two rows share it if they
# agree up to and including token t + 1. Where rows diverge, the last common token is thus read once per continuation,
# and the last token of a row is never read. Each position has exactly one label.


@dataclass(frozen=True)
class Leaves:
    """Rows in depth-first order: rows with a common prefix are neighbours.

    Attributes:
        tokens: token ids of each leaf without padding, shape (n,).
        prompts: how many of them belong to the prompt, for each leaf.
        rows: the row of the batch, for each leaf. Rows without completion tokens are left out.
        columns: the columns of (B, T) that hold the completion tokens, for each leaf.
        shared: number of predictions that each leaf shares with the one before it; 0 for the first.
    """

    tokens: list[np.ndarray]
    prompts: list[int]
    rows: list[int]
    columns: list[np.ndarray]
    shared: list[int]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> list[int]:
        """Number of predictions of each leaf, shared ones included."""
        return [len(tokens) - 1 for tokens in self.tokens]


def read_leaves(input_ids: torch.Tensor, attention_mask: torch.Tensor, completion_width: int) -> Leaves:
    """Find the prefix tree in a batch as TRL pads it.

    Args:
        input_ids: prompts and completions side by side, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        completion_width: T.

    Raises:
        ValueError: a row has completion tokens but no prompt that predicts the first of them.
    """
    ids, mask = input_ids.cpu().numpy(), attention_mask.cpu().numpy().astype(bool)
    width = ids.shape[1] - completion_width
    completions = mask[:, width:].sum(axis=1)
    prompts = mask[:, :width].sum(axis=1)
    empty = np.flatnonzero((prompts == 0) & (completions > 0))
    if len(empty):
        raise ValueError(
            f"row {empty[0]} has completion tokens but no prompt token to predict the first of them from; "
            "give every prompt at least one token, a BOS for instance"
        )
    rows = np.flatnonzero(completions).tolist()
    tokens = {row: ids[row, mask[row]] for row in rows}
    rows = depth_first([tokens[row] for row in rows], rows)
    ordered = [tokens[row] for row in rows]
    return Leaves(
        ordered,
        [int(prompts[row]) for row in rows],
        rows,
        [np.flatnonzero(mask[row, width:]) for row in rows],
        shared_predictions(ordered),
    )


def depth_first(tokens: Sequence[np.ndarray], names: Sequence[int]) -> list[int]:
    """Return names in the lexicographic order of their rows: a depth-first walk over the leaves of the tree."""
    keys = [row.astype(">u4").tobytes() for row in tokens]  # big-endian bytes sort like the numbers
    return [names[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]


def shared_predictions(ordered: Sequence[np.ndarray]) -> list[int]:
    """Return the number of predictions that each row shares with the one before it."""
    pairs = itertools.pairwise(ordered)
    # n common tokens are n - 1 common predictions: the last common token has different next tokens
    return [0, *(max(0, common_prefix(a, b) - 1) for a, b in pairs)][: len(ordered)]


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """Return the length of the common prefix of two arrays."""
    n = min(len(a), len(b))
    return int(np.append(a[:n] != b[:n], True).argmax())  # the first difference, or the end of the shorter one


def split_leaves(lengths: Sequence[int], shared: Sequence[int], budget: int) -> list[range]:
    """Return intervals of leaves with at most `budget` positions each that compute as few positions as possible.

    It is exact among intervals of the given order (dynamic programming: a cut before a leaf costs what that leaf shares
    with the one before it), and prefers few intervals. A leaf longer than the budget is alone.

    Args:
        lengths: number of positions of each leaf, in depth-first order.
        shared: how many of them each leaf shares with the one before it.
        budget: maximum number of positions in an interval.

    Raises:
        ValueError: the budget is not positive.
    """
    if budget < 1:
        raise ValueError(f"the token budget must be at least 1, got {budget}")
    # best[n] is for the first n leaves: positions computed again, number of intervals, start of the last interval
    best = [(0, 0, 0)]
    for last in range(len(lengths)):
        size, options = lengths[last], []
        for first in range(last, -1, -1):  # the last interval is first..last; grow it until the budget is full
            if first < last:
                size += lengths[first] - shared[first + 1]
                if size > budget:
                    break
            recomputed, intervals, _ = best[first]
            options.append((recomputed + shared[first], intervals + 1, first))
        best.append(min(options))
    cuts, end = [], len(lengths)
    while end:
        cuts.append(range(best[end][2], end))
        end = best[end][2]
    return cuts[::-1]


def deal_rows(batch: dict[str, Any], generator: torch.Generator) -> torch.Tensor:
    """Return the order in which rows are cut into micro-batches: groups shuffled whole, siblings side by side.

    Larger families come first, so that cuts of equal numbers of rows fall between families.

    Args:
        batch: TRL's generation batch: prompt_ids, prompt_mask (B, P), completion_ids, completion_mask (B, T).
        generator: source of the shuffle; equal seeds give equal orders.

    Returns:
        A permutation of the rows, (B,), on the CPU.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1).cpu().numpy()
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1).cpu().numpy().astype(bool)
    width = batch["prompt_ids"].shape[1]
    # rows do not say which group they are of; those of one group have the same prompt
    groups: dict[bytes, list[int]] = {}
    for row in range(len(ids)):
        groups.setdefault(ids[row, :width][mask[row, :width]].tobytes(), []).append(row)
    members = [groups[prompt] for prompt in sorted(groups)]  # TRL's own shuffle before this decides nothing
    shuffled = [members[i] for i in torch.randperm(len(members), generator=generator).tolist()]
    return torch.tensor([row for group in shuffled for row in _family_order(group, ids, mask)])


def regroup(micro_batches: Sequence[dict[str, Any]], generator: torch.Generator) -> list[dict[str, Any]]:
    """Deal the rows of one rollout to as many micro-batches of equal size, as TRL splits them; see `deal_rows`."""
    joined = {name: _join([part[name] for part in micro_batches]) for name in micro_batches[0]}
    order = deal_rows(joined, generator)
    there = order.to(joined["prompt_ids"].device)  # once: on a GPU the host waits for each copy
    chunks = zip(order.chunk(len(micro_batches)), there.chunk(len(micro_batches)), strict=True)
    return [{name: _pick(value, *rows) for name, value in joined.items()} for rows in chunks]


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], torch.Tensor) and parts[0].dim():
        return torch.cat(parts)
    return [entry for part in parts for entry in part] if isinstance(parts[0], list) else parts[0]


def _pick(value: Any, rows: torch.Tensor, there: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor) and value.dim():
        return value[there]
    return [value[i] for i in rows.tolist()] if isinstance(value, list) else value


def _family_order(rows: list[int], ids: np.ndarray, mask: np.ndarray) -> list[int]:
    """Return rows in a depth-first order that visits the child with the most leaves first."""
    tokens = {row: ids[row, mask[row]] for row in rows}
    ordered = depth_first([tokens[row] for row in rows], rows)
    return [ordered[i] for i in _larger_first(shared_predictions([tokens[row] for row in ordered]), 0, len(ordered))]


def _larger_first(shared: Sequence[int], first: int, last: int) -> list[int]:
    if last - first < 2:
        return list(range(first, last))
    # leaves that share more than the least are of one child; cut where only the trunk is shared
    least = min(shared[first + 1 : last])
    cuts = [first, *(leaf for leaf in range(first + 1, last) if shared[leaf] == least), last]
    families = sorted(itertools.pairwise(cuts), key=lambda family: (family[0] - family[1], family[0]))
    return [leaf for start, end in families for leaf in _larger_first(shared, start, end)]


@dataclass(frozen=True)
class Layout:
    """Some leaves of a tree (or of several trees) in one row of N positions: a depth-first walk, each shared span once.

    So the descendants of a token follow it without a gap, and one number per token determines the attention mask.

    Attributes:
        ids: the token read at each position, (N,).
        depths: its position in its own row, from 0, (N,): the position id.
        labels: the token to predict there, (N,); -100 where no completion needs it.
        ends: one past the last of its descendants, (N,).
        nodes: for each leaf, in order, the positions that predict its completion.
    """

    ids: np.ndarray
    depths: np.ndarray
    labels: np.ndarray
    ends: np.ndarray
    nodes: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.ids)

    def padded(self, multiple: int) -> Layout:
        """Return the layout, padded to a multiple with tokens that see only themselves and predict nothing."""
        n = -len(self) % multiple
        zeros, place = np.zeros(n, dtype=np.int64), np.arange(len(self), len(self) + n)
        ids, depths, labels, ends = (
            np.concatenate(pair)
            for pair in ((self.ids, zeros), (self.depths, zeros), (self.labels, zeros - 100), (self.ends, place + 1))
        )
        return Layout(ids, depths, labels, ends, self.nodes)


def idle_layout() -> Layout:
    """Return one token that predicts nothing: it keeps a process in step with the others."""
    return Layout(np.array([0]), np.array([0]), np.array([-100]), np.array([1]), [])


def lay_out(leaves: Leaves, first: int, last: int) -> Layout:
    """Lay out the leaves `first` to `last` - 1; time and memory are linear in the number of their tokens."""
    shared = [0, *leaves.shared[first + 1 : last]]
    lengths = leaves.lengths[first:last]
    size = sum(lengths) - sum(shared)
    ids, depths, labels, ends = (np.full(size, fill, dtype=np.int64) for fill in (0, 0, -100, size))
    path, nodes, start = np.empty(0, dtype=np.int64), [], 0
    for leaf, common, length in zip(range(first, last), shared, lengths, strict=True):
        tokens, own = leaves.tokens[leaf], np.arange(start, start + length - common)
        ends[path[common:]] = start  # spans of the last leaf that this one does not share end here
        path = np.concatenate([path[:common], own])
        # the last token of a row is only predicted, never read
        ids[own], depths[own] = tokens[common:-1], np.arange(common, length)
        asked = path[leaves.prompts[leaf] - 1 :]  # from the last prompt token on, which predicts the first one
        labels[asked] = tokens[leaves.prompts[leaf] :]
        nodes.append(asked)
        start += len(own)
    return Layout(ids, depths, labels, ends, nodes)


def gather_index(leaves: Leaves, layouts: list[Layout], shape: tuple[int, int]) -> np.ndarray:
    """Return for each completion token (B, T) its position in the layouts put end to end; padding is one past them."""
    index = np.full(shape, sum(len(layout) for layout in layouts), dtype=np.int64)
    leaf = offset = 0
    for layout in layouts:
        for nodes in layout.nodes:
            index[leaves.rows[leaf], leaves.columns[leaf]] = nodes + offset
            leaf += 1
        offset += len(layout)
    return index


@dataclass
class PackedLogps:
    """The result of a packed forward pass.

    Attributes:
        logps: log-probability of each completion token, (B, T); 0 at padding.
        entropies: entropy of the distribution it is drawn from, in nats, (B, T), or None.
        computed: number of positions that went through the model.
        flat: number of tokens in the rows that have completions, without padding: the least of a flat forward pass.
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
        budget: maximum number of positions in one forward pass; by default all in one. A longer row is alone.
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
    return PackedLogps(logps, entropies, needed, sum(map(len, leaves.tokens)))


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
    """Gather (B, T) rows from the positions of all packed rows; padding reads a zero."""
    # joined before they are gathered: so a forward pass whose positions nobody reads takes part in backward, too
    positions = torch.cat([value[0] for value in values])
    return torch.cat([positions, positions.new_zeros(1)])[index]


# which models can be packed, and why the others cannot


def why_not_packable(model: Any) -> str | None:
    """Return why a model (not wrapped by accelerate) cannot be trained on packed trees, and what helps; or None.

    It needs attention that takes any mask, positions that can be set for each token, and no other way for tokens to
    influence each other.
    """
    if any(
        getattr(entry, "is_prompt_learning", False) for entry in (getattr(model, "peft_config", None) or {}).values()
    ):
        return "its PEFT adapter puts virtual tokens before each row; use LoRA instead"
    base = _base(model)
    config = base.config.get_text_config()
    if reason := _no_plain_decoder(base, config):
        return reason
    attention = config._attn_implementation
    windows = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    if windows or getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None):
        return "its attention is cut to a window; set sliding_window=None if all rows are shorter than it"
    if attention not in ATTENTION:
        return f"its attention ({attention!r}) takes no mask of its own; load it with attn_implementation='sdpa'"
    if attention == "flex_attention" and base.device.type == "cpu":
        return "FlexAttention does not train on a CPU; load the model with attn_implementation='sdpa'"
    if config.model_type in OWN_WAYS:
        return f"{config.model_type} has masks or positions of its own making"
    for name in DROPOUTS:
        if getattr(config, name, 0.0):
            return f"it drops attention weights at random; set {name}=0.0 in its config"
    if getattr(config, "output_router_logits", False):
        return "its routers' balancing loss counts tokens, and shared ones would count once"
    return None


def why_not_proven(model: Any) -> str | None:
    """Return why nobody has shown that a model has the same numbers on packed rows as on flat ones, or None.

    `packing="auto"` asks this, too, of what `why_not_packable` has let pass.
    """
    base = _base(model)
    kind = base.config.get_text_config().model_type
    if kind not in PROVEN:
        return f"packed rows of {kind} have not been compared with flat ones in tests"
    if getattr(base, "is_quantized", False):
        return "packed rows of quantised weights have not been compared with flat ones in tests"
    if any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        return "it drops activations at random, and rows would share what is dropped"
    return None


def why_not_padding_free(model: Any) -> str | None:
    """Return why the rows of a batch cannot be one row without padding, each with attention to itself, or None.

    FlashAttention keeps rows apart by their lengths. Layers with a state cannot: without their own kernels transformers
    carries the state from one row into the next and does not say so.
    """
    base = _base(model)
    config = base.config.get_text_config()
    if reason := _no_plain_decoder(base, config):
        return reason
    if config.model_type not in PROVEN:
        return f"rows of {config.model_type} without padding have not been compared with padded ones in tests"
    if "flash" not in str(config._attn_implementation):
        return "rows without padding need attn_implementation='flash_attention_2' or 'flash_attention_3'"
    return None


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def _no_plain_decoder(model: Any, config: Any) -> str | None:
    """Return what of a model is in the way of every form of packing, or None."""
    kinds = getattr(config, "layer_types", None) or []
    parameters = inspect.signature(type(model).forward).parameters
    # a text configuration inside another one belongs to a model that also reads images or sound
    if config is not model.config or config.is_encoder_decoder:
        return f"it is no decoder of text alone ({model.config.model_type})"
    if getattr(model, "_is_stateful", False) or any(_mixes(kind) for kind in kinds):
        others = sorted(set(kinds) - {"full_attention"})
        return f"its layers carry a state from token to token ({', '.join(others) or config.model_type})"
    if "position_ids" not in parameters or getattr(config, "alibi", False):
        return "positions cannot be set for each token (ALiBi, or counted by the model itself)"
    return None


def _mixes(kind: str) -> bool:
    return any(word in kind for word in ("linear", "mamba", "conv", "recurrent", "delta", "ssm"))


def packing_setting(value: object) -> bool | str:
    """Return a value of the setting `packing` as True, False or "auto"; a command line gives them as text.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise ValueError(f"packing must be True, False or 'auto', got {value!r}")
