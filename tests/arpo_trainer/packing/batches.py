"""Batches of random trees as TRL pads them, tiny models, and the flat forward that packing is measured against."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

VOCABULARY = 61
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512}
SIZES |= {"initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
EXPERTS |= {"shared_expert_intermediate_size": 32}


def tiny_model(kind: str = "llama", temperature: float = 1.0, seed: int = 0, **settings: Any) -> Any:
    """A causal language model of two layers with TRL's fused head, in training mode."""
    torch.manual_seed(seed)
    sizes = SIZES | (EXPERTS if "moe" in kind else {})  # of these each kind has 60 or more
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes | settings))
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    return model.train()


def random_tree(rng: np.random.Generator, depth: int = 5, width: int = 4, leaves: int = 8) -> list[list[int]]:
    """The leaves of a random tree, tokens from its root on: up to `width` children a node, `depth` levels."""
    span = rng.integers(3, VOCABULARY, rng.integers(1, 9)).tolist()
    if depth <= 1 or leaves == 1:
        return [span]
    rows: list[list[int]] = []
    for _ in range(rng.integers(1, width + 1)):
        rows += random_tree(rng, depth - 1, width, max(1, leaves - len(rows)))
        if len(rows) >= leaves:
            break
    return [span + row for row in rows[:leaves]]


def pad(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Rows of (prompt, completion) as input ids and attention mask (B, P + T), and T."""
    left, right = max(len(prompt) for prompt, _ in rows) + 2, max(len(completion) for _, completion in rows) + 3
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(rows):
        place = slice(left - len(prompt), left + len(completion))
        ids[row, place], mask[row, place] = torch.tensor(prompt + completion), 1
    return ids, mask, right


def columns(ids: torch.Tensor, mask: torch.Tensor, keep: int) -> dict[str, torch.Tensor]:
    """Such rows as the columns that TRL has of them."""
    left = ids.shape[1] - keep
    parts = {"prompt_ids": ids[:, :left], "prompt_mask": mask[:, :left]}
    return parts | {"completion_ids": ids[:, left:], "completion_mask": mask[:, left:]}


def random_batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Rows of one to three prompts in random order: trees, plain copies of a prompt, a row twice, a short one."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(rng.integers(1, 4)):
        prompt = [1, *rng.integers(3, VOCABULARY, rng.integers(1, 12)).tolist()]
        rows += [(prompt, row) for row in random_tree(rng, depth=int(rng.integers(1, 6)))]
    rows.append(rows[0])
    rows.append((rows[0][0], rows[0][1][:1]))
    return pad([rows[i] for i in rng.permutation(len(rows))])


def flat(model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies (B, T) as TRL computes them, row by row."""
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -keep:], output.entropy[:, -keep:]


def weights(shape: torch.Size, seed: int = 0) -> torch.Tensor:
    """Random numbers that stand for what a loss makes of each token."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """The gradients of all parameters that have one, which are then cleared."""
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def assert_equal_gradients(
    wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor], tolerance: float = 1e-5
) -> None:
    """Each parameter's gradients differ by no more than a part of their size (near zero: of a thousandth of all)."""
    assert wanted.keys() == found.keys()
    floor = 1e-3 * torch.stack([gradient.norm() for gradient in wanted.values()]).norm()
    for name, gradient in wanted.items():
        off = (found[name] - gradient).norm() / torch.maximum(gradient.norm(), floor)
        assert off < tolerance, f"{name}: {off:.1e}"


def inputs(seed: int) -> dict[str, Any]:
    """A micro-batch with advantages by token, masked tokens, and old and reference log-probabilities."""
    ids, mask, keep = random_batch(seed)
    shape = torch.Size((len(ids), keep))
    return {
        **columns(ids, mask, keep),
        "tool_mask": (weights(shape, 1) < 1).long(),
        "advantages": weights(shape, 2),
        "old_per_token_logps": weights(shape, 3) * 0.3 - 4,
        "ref_per_token_logps": weights(shape, 4) * 0.3 - 4,
        "num_items_in_batch": mask[:, -keep:].sum(),
    }
