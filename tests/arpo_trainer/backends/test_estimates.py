"""Entropies estimated from an engine's best tokens, at the edges."""

from __future__ import annotations

import math

import pytest
import torch

from arpo_trainer.algorithms.entropy import ESTIMATORS, estimated_entropy, token_entropy


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
def test_tokens_that_cannot_be_add_nothing(estimator: str) -> None:
    half = math.log(0.5)
    assert estimated_entropy([half, half, -math.inf], half, estimator) == pytest.approx(math.log(2))


def test_a_token_that_a_model_rules_out_adds_nothing_to_the_exact_entropy() -> None:
    assert token_entropy(torch.tensor([2.0, 2.0, -math.inf])).item() == pytest.approx(math.log(2))
