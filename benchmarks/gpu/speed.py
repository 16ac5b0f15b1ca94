"""Time and memory of a training step on packed trees beside the same rows flat, measured by `benchmarks/packing.py`."""

from __future__ import annotations

import tempfile
from typing import Any

import torch

from benchmarks.gpu.policy import make_model
from benchmarks.packing import case, synthetic

ROWS = {2048: 8, 8192: 4}


def measure(length: int, tiny: bool) -> dict[str, Any]:
    """Return flat and packed seconds, bytes and tokens, with 20, 50 and 80 % of each row shared.

    Args:
        length: tokens of a row.
        tiny: 96 tokens a row, a tiny model, one share.
    """
    cuda = torch.cuda.is_available()
    settings = {
        "rounds": 1 if tiny else 5,
        "threads": 1,
        "device": "cuda" if cuda else "cpu",
        "dtype": "bfloat16" if cuda else "float32",
        "checkpointing": length > 4096,
    }
    rows, length = ROWS[length], 96 if tiny else length
    with tempfile.TemporaryDirectory() as folder:
        make_model("tiny" if tiny else "0.5b", "cpu").save_pretrained(folder)
        shares = [0.5] if tiny else [0.2, 0.5, 0.8]
        return {
            f"{share:.0%} shared": case(f"{rows} rows", synthetic(rows, share, length), {**settings, "model": folder})
            for share in shares
        }
