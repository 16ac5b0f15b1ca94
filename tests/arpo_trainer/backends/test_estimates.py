"""Entropies estimated from an engine's best tokens, at the edges."""

from __future__ import annotations

import math

import pytest

from arpo_trainer.algorithms.branching import ESTIMATORS, estimated_entropy


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
def test_tokens_that_cannot_be_add_nothing(estimator: str) -> None:
    half = math.log(0.5)
    assert estimated_entropy([half, half, -math.inf], half, estimator) == pytest.approx(math.log(2))
