"""Drawing tokens: the distribution is the model's, also at its edges, and rounding hardly matters."""

from __future__ import annotations

import pytest
import torch

from arpo_trainer.backends.sampling import Drawn, Sampler


def draw(logits: torch.Tensor, temperature: float, seeds: int) -> list[Drawn]:
    """Draw from the same logits with as many seeds."""
    rngs = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    return Sampler().draw(logits.expand(seeds, -1), torch.full((seeds,), temperature), rngs)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    counts = torch.bincount(torch.tensor([one.token for one in draw(logits, temperature, 4000)]), minlength=4)
    for count, share in zip(counts.tolist(), torch.softmax(logits / temperature, -1).tolist(), strict=True):
        assert count == pytest.approx(4000 * share, abs=4 * (4000 * share * (1 - share)) ** 0.5)


def test_temperature_zero_takes_the_most_likely() -> None:
    assert {one.token for one in draw(torch.tensor([0.1, 0.3, 0.2]), 0.0, 20)} == {1}


@pytest.mark.parametrize("temperatures", [[0.0, 0.0], [0.0, 1.0], [0.7, 0.0]])
def test_rows_at_temperature_zero_need_no_random_numbers(temperatures: list[float]) -> None:
    logits = torch.randn(2, 1000, generator=torch.Generator().manual_seed(3))
    given = torch.tensor(temperatures)
    rngs = [torch.Generator().manual_seed(seed) for seed in range(2)]
    all_given = Sampler().draw(logits, given, rngs)
    rngs = [torch.Generator().manual_seed(seed) for seed in range(2)]
    wanted = [rng if heat else None for rng, heat in zip(rngs, temperatures, strict=True)]
    assert Sampler().draw(logits, given, wanted) == all_given


def test_a_token_that_cannot_be_is_never_drawn() -> None:
    drawn = draw(torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf]), 1.0, 200)
    assert {one.token for one in drawn} == {1, 2}
    assert {round(one.entropy, 4) for one in drawn} == {0.6931}


def test_rounding_in_the_model_changes_hardly_any_token() -> None:
    logits = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    rounded = logits + 1e-3 * torch.randn(20_000, generator=torch.Generator().manual_seed(2))
    changed = [one.token != other.token for one, other in zip(draw(logits, 1, 400), draw(rounded, 1, 400), strict=True)]
    assert sum(changed) <= 3  # inverting the distribution function changes 20
