"""The estimate of memory beside what PyTorch's fake tensors need: real widths, real code, no data and no GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.memory import CASES, measure


@pytest.mark.parametrize(
    "name",
    [
        "3b, one GPU",
        "8b, LoRA",
        "7b, FSDP2 x 8, packed",
        "14b, FSDP2 x 16",
        "1.5b, no checkpointing, packed",
        "7b, rollout",
    ],
)
def test_the_estimate_is_near_what_tensors_need(name: str) -> None:
    """All sizes but the number of layers are real; `python -m benchmarks.memory` takes all layers and more cases."""
    found, estimate = measure(replace(CASES[name], layers=2))
    assert 0.9 < estimate / found < 1.2
