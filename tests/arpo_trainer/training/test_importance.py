"""The correction of vLLM's log-probabilities: what is the default, and the simulation that it was chosen by."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import trl

from benchmarks.importance import BOUND, of_rows, of_tokens
from tests.arpo_trainer.training.test_trainer import config


@pytest.mark.parametrize(
    ("settings", "mode", "corrected"),
    [
        ({}, "token_truncate", True),
        ({"algorithm": "grpo"}, "token_truncate", True),
        ({"vllm_importance_sampling_mode": "sequence_mask"}, "sequence_mask", True),
        ({"vllm_importance_sampling_correction": False}, "token_truncate", False),
        ({"algorithm": "arpo-reference"}, "token_truncate", False),
        ({"algorithm": "aepo-reference", "vllm_importance_sampling_correction": True}, "token_truncate", True),
    ],
)
def test_tokens_are_corrected_one_by_one_unless_something_else_is_said(
    tmp_path: Path, settings: dict[str, Any], mode: str, corrected: bool
) -> None:
    args = config(tmp_path, **settings)
    assert (args.vllm_importance_sampling_mode, args.vllm_importance_sampling_correction) == (mode, corrected)


def test_trl_has_the_setting_and_the_bound() -> None:
    fields = trl.GRPOConfig.__dataclass_fields__
    assert fields["vllm_importance_sampling_mode"].default == "sequence_mask"
    assert fields["vllm_importance_sampling_clip_max"].default == BOUND


@pytest.mark.parametrize(("length", "noise"), [(500, 0.05), (4000, 0.02), (16000, 0.005)])
def test_the_simulation_gives_the_numbers_of_a_log_normal_ratio(length: int, noise: float) -> None:
    rows, rng, cdf = 200_000, np.random.default_rng(1), NormalDist().cdf
    masked, _ = of_rows(length, noise, rows, rng)
    spread, bound = noise * math.sqrt(length), math.log(BOUND)
    below, left, square = (cdf((bound - k * spread**2) / spread) for k in (-0.5, 0.5, 1.5))
    assert masked["rows_dropped"] == pytest.approx(1 - below, abs=0.003)
    assert masked["left"] == pytest.approx(left, abs=0.01)
    assert masked["effective_sample_size"] == pytest.approx(left**2 / math.exp(spread**2) / square, abs=0.01)
    truncated = list(of_tokens(length, noise, 20, rng))[1]
    assert (truncated["mode"], truncated["rows_dropped"]) == ("token_truncate", 0)
    assert truncated["effective_sample_size"] == pytest.approx(math.exp(-(noise**2)), abs=1e-3)
    assert truncated["left"] == pytest.approx(1, abs=1e-3)
