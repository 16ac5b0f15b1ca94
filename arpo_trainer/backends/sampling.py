"""Drawing tokens: from logits to ids, log-probabilities and entropies."""

from __future__ import annotations

from typing import Any

import torch


def sample(logits: torch.Tensor, rows: list[Any]) -> tuple[list[int], list[float], list[float]]:
    """Draw a token for each row by inverting its distribution function at the row's own random number.

    Args:
        logits: shape (rows, vocabulary).
        rows: objects with `.request.temperature` and `.rng`.

    Returns:
        Tokens, their log-probabilities, and the entropies of their distributions in nats, each of length `rows`.
    """
    temperature = torch.tensor([row.request.temperature or 1.0 for row in rows], device=logits.device)
    logprobs = torch.log_softmax(logits.float() / temperature[:, None], dim=-1)
    probabilities = logprobs.exp()
    entropies = -(probabilities * logprobs).sum(-1)
    cumulative = probabilities.cumsum(-1)
    draws = torch.tensor([row.rng.random() for row in rows], device=logits.device)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, draws, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    greedy = torch.tensor([row.request.temperature == 0 for row in rows], device=logits.device)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    chosen = logprobs.gather(-1, tokens[:, None]).squeeze(-1)
    return tokens.tolist(), chosen.tolist(), entropies.tolist()
