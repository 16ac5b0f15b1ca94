"""Packed trees beside the same rows flat: log-probabilities, entropies and gradients, on FlexAttention where CUDA is.

In float32 both ways must agree to rounding. In bfloat16 neither is exact: each is compared with the float32 numbers,
and packing is right if it is not further from them than flat rows are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from trl.trainer.utils import add_fused_lm_head

from arpo_trainer.packing import packed_logps
from benchmarks.gpu.policy import make_model
from benchmarks.packing import padded, synthetic

Numbers = dict[str, torch.Tensor]


def measure(tiny: bool) -> dict[str, Any]:
    """Return the differences for three shapes of trees."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    model = make_model("tiny" if tiny else "0.5b", device, torch.float32)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    model.train()
    shapes = [(2, 0.5), (4, 0.2), (8, 0.8)]
    length = 96 if tiny else 1024  # 8 rows: 8,192 tokens in all
    return {f"{rows} rows, {share:.0%} shared": _compare(model, rows, share, length, device) for rows, share in shapes}


def _compare(model: Any, rows: int, share: float, length: int, device: str) -> dict[str, float]:
    batch = padded(synthetic(rows, share, length), device)
    exact, packed = _numbers(model, "flat", batch), _numbers(model, "packed", batch)
    found = {f"float32 {name}": _apart(exact[name], packed[name]) for name in exact}
    with _in_bfloat16(model):
        for way in ("flat", "packed"):
            numbers = _numbers(model, way, batch)
            found |= {f"bfloat16 {way} {name}": _apart(exact[name], numbers[name]) for name in exact}
    return found


@contextlib.contextmanager
def _in_bfloat16(model: Any) -> Iterator[None]:
    """Round the weights of a model for a while, and no buffers: rounded rotary angles would be other positions."""
    exact = [weight.data for weight in model.parameters()]
    for weight in model.parameters():
        weight.grad, weight.data = None, weight.data.bfloat16()
    try:
        yield
    finally:
        for weight, data in zip(model.parameters(), exact, strict=True):
            weight.grad, weight.data = None, data


def _numbers(model: Any, way: str, batch: tuple[torch.Tensor, torch.Tensor, int]) -> Numbers:
    ids, mask, keep = batch
    model.zero_grad(set_to_none=True)
    if way == "packed":
        output = packed_logps(model, ids, mask, keep, compute_entropy=True)
        logps, entropies = output.logps, output.entropies
    else:
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, :-keep] = -100
        flat = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        logps, entropies = flat.log_probs[:, -keep:], flat.entropy[:, -keep:]
    assert entropies is not None
    kept = mask[:, -keep:].bool()
    weights = torch.randn(logps.shape, generator=torch.Generator().manual_seed(0)).to(logps)
    (logps * weights * kept).sum().backward()
    gradient = torch.cat([p.grad.float().flatten().cpu() for p in model.parameters() if p.grad is not None])
    return {
        "logps": logps[kept].detach().float().cpu(),
        "entropies": entropies[kept].detach().float().cpu(),
        "gradient": gradient,
    }


def _apart(wanted: torch.Tensor, found: torch.Tensor) -> float:
    """Relative distance: norm of the difference over the norm."""
    return float((wanted.double() - found.double()).norm() / wanted.double().norm())
