"""A tiny Llama whose every number is float64: transformers and TRL compute norms, rotations and the head in float32."""

from types import SimpleNamespace
from typing import Any

import torch


def exact_norm(norm: Any) -> torch.nn.RMSNorm:
    """Return an RMSNorm without float32."""
    made = torch.nn.RMSNorm(norm.weight.shape, norm.variance_epsilon)
    made.weight = norm.weight
    return made


class Rotary(torch.nn.Module):
    """Rotary positions without float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.frequencies = 10_000.0 ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)

    def forward(self, hidden: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.cat(2 * [position_ids[..., None] * self.frequencies], dim=-1)
        return angles.cos(), angles.sin()


def make_exact(model: Any, temperature: float) -> None:
    """Let a Llama compute in float64, the fused head of TRL too."""
    model.double()
    model.model.rotary_emb = Rotary(model.config.head_dim)
    model.model.norm = exact_norm(model.model.norm)
    for layer in model.model.layers:
        layer.input_layernorm = exact_norm(layer.input_layernorm)
        layer.post_attention_layernorm = exact_norm(layer.post_attention_layernorm)
    plain = type(model).forward.__get__(model)

    def forward(
        *args: Any,
        fused_lm_head: bool = False,
        labels: torch.Tensor | None = None,
        shift_labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        output = plain(*args, **kwargs)
        if not fused_lm_head:
            return output
        logits, wanted = output.logits / temperature, shift_labels
        if wanted is None:
            logits, wanted = logits[:, :-1], labels[:, 1:]
        told = logits.log_softmax(-1)
        own = told.gather(-1, wanted.clamp(min=0)[..., None])[..., 0].masked_fill(wanted < 0, 0)
        return SimpleNamespace(log_probs=own, entropy=-(told.exp() * told).sum(-1), aux_loss=None)

    model.forward = forward
