"""Drawing tokens: the distribution is the model's, also at its edges."""

from __future__ import annotations

import pytest
import torch

from arpo_trainer.backends.sampling import Sampler


def draw(logits: torch.Tensor, temperature: float, numbers: torch.Tensor) -> list[int]:
    rows = logits.expand(len(numbers), -1)
    controls = torch.stack([torch.full_like(numbers, temperature), numbers])
    return [drawn.token for drawn in Sampler().draw(rows, controls)]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0, -30.0]])
    evenly = (torch.arange(1000) + 0.5) / 1000  # the random numbers' distribution function itself
    counts = torch.bincount(torch.tensor(draw(logits, temperature, evenly)), minlength=4)
    wanted = 1000 * torch.softmax(logits[0] / temperature, -1)
    assert counts.tolist() == pytest.approx(wanted.tolist(), abs=1.01)


def test_temperature_zero_takes_the_most_likely() -> None:
    assert draw(torch.tensor([[0.1, 0.3, 0.2]]), 0.0, torch.tensor([0.0, 0.99])) == [1, 1]


def test_a_token_that_cannot_be_is_never_drawn() -> None:
    impossible = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    drawn = Sampler().draw(impossible.expand(3, -1), torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.5, 1.0]]))
    assert {one.token for one in drawn} == {1, 2}
    assert [one.entropy for one in drawn] == pytest.approx([0.6931] * 3, abs=1e-4)
