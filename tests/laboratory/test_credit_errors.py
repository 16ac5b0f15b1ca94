"""Errors of credit, on made-up samples whose bias and variance are known."""

import math

import numpy
import pytest

from benchmarks.laboratory.credit_errors import CreditSample, credit_errors, jackknife
from benchmarks.laboratory.logit_table import batch_cosines, squared_mean

GROUPS, CELLS = 400, 10


def made_up(bias: float, noise: float, slope: float = 1.0) -> CreditSample:
    """Each group samples each cell once; the true advantages are those of the cells."""
    rng = numpy.random.default_rng(0)
    group, cell = numpy.divmod(numpy.arange(GROUPS * CELLS), CELLS)
    true = numpy.linspace(-0.5, 0.4, CELLS)[cell]
    given = slope * true + bias + noise * rng.standard_normal(len(true))
    return CreditSample(group, cell, 1.0 + (cell % 2), given, true, cell == 5)


def test_bias_and_variance_are_told_apart() -> None:
    found = credit_errors(made_up(bias=0.2, noise=0.5))
    assert found["bias"] == pytest.approx(0.2, abs=0.03)
    assert found["squared_bias"] == pytest.approx(0.04, abs=0.01)
    assert found["variance"] == pytest.approx(0.25, abs=0.02)
    assert found["mse"] == pytest.approx(found["squared_bias"] + found["variance"])
    assert found["slope"] == pytest.approx(1, abs=0.1)
    assert found["worthless_bias"] == pytest.approx(0.2, abs=0.1)


def test_signs_and_ranks() -> None:
    right, turned = credit_errors(made_up(0.0, 0.0, 2.0)), credit_errors(made_up(0.0, 0.0, -1.0))
    assert (right["wrong_sign"], right["rank"], right["slope"]) == pytest.approx((0, 1, 2))
    assert (turned["wrong_sign"], turned["rank"], turned["slope"]) == pytest.approx((1, -1, -1))
    assert credit_errors(made_up(0.0, 0.0, 0.0))["silent"] == 1


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = numpy.random.default_rng(1).standard_normal(64)
    value, error = jackknife(lambda groups: {"mean": float(values[groups].mean())}, 64, 4)["mean"]
    assert value == pytest.approx(values.mean())
    # 16 rounds of four groups
    assert error == pytest.approx(values.reshape(16, 4).mean(axis=1).std(ddof=1) / 4)
    assert math.isnan(jackknife(lambda groups: {"mean": 1.0}, 4, 4)["mean"][1])


def test_directions_of_batches() -> None:
    rng = numpy.random.default_rng(2)
    exact = numpy.array([1.0, 0.0, 0.0])
    rows = exact + rng.standard_normal((900, 3))
    small, large = batch_cosines(rows, exact, 2.5)[0], batch_cosines(rows, exact, 50)[0]
    assert small < large < 1
    assert squared_mean(rows) == pytest.approx(1, abs=0.2)
    assert squared_mean(rows - exact) == pytest.approx(0, abs=0.02)
