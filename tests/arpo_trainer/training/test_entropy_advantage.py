"""The entropy-aware factor: the same however the batch is split, and never an advantage turned around."""

import pytest
import torch

from arpo_trainer.training.rollout_batch import Moments, entropy_factor, tree_moments
from tests.arpo_trainer.test_tree import small_tree

MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 1, 1]])


def entropies() -> torch.Tensor:
    return torch.empty(MASK.shape).exponential_(generator=torch.Generator().manual_seed(1))


def moments_of(values: torch.Tensor, mask: torch.Tensor) -> Moments:
    counted = values[mask.bool()].double()
    return Moments(counted.numel(), counted.sum().item(), counted.square().sum().item())


def test_moments_are_mean_and_deviation() -> None:
    counted = entropies()[MASK.bool()].double()
    found = moments_of(entropies(), MASK)
    assert (found.mean, found.deviation) == pytest.approx((counted.mean().item(), counted.std().item()))


def test_the_factor_is_bounded_and_carries_no_gradient() -> None:
    values = torch.tensor([[0.0, 1e6, -1e6]], requires_grad=True)
    factor = entropy_factor(values, Moments(100, 0.0, 99.0))
    assert factor[0].tolist() == pytest.approx([1.0, 1.6, 0.4])
    assert not factor.requires_grad


@pytest.mark.parametrize("values", [[[0.7]], [[0.1] * 1000], [[0.0, 0.0]], [[5.0, 5.0000005]]])
def test_a_single_token_and_no_variance_leave_the_advantage_as_it_is(values: list[list[float]]) -> None:
    """Nor does a variance that is rounding only."""
    given = torch.tensor(values)
    factor = entropy_factor(given, moments_of(given, torch.ones_like(given)))
    assert torch.allclose(factor, torch.ones_like(factor), atol=1e-6)


def test_no_token_at_all_is_no_trouble() -> None:
    values = entropies()
    assert entropy_factor(values, moments_of(values, torch.zeros_like(MASK))).isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    values = entropies().bfloat16()
    factor = entropy_factor(values, moments_of(values, MASK))
    assert factor.dtype == torch.float32


def test_entropies_of_sampling_are_counted_once_a_copy_and_invalid_ones_not_at_all() -> None:
    tree = small_tree()
    rows = [tree.row(number) for number in (0, 1)]
    values = torch.tensor([row.entropies + [0.0] * (9 - len(row.ids)) for row in rows])
    mask = torch.tensor([row.mask + [0] * (9 - len(row.ids)) for row in rows])
    assert tree_moments([tree]) == moments_of(values, mask)
    assert tree_moments([tree]).count == 8


def test_a_factor_that_could_turn_an_advantage_around_is_refused() -> None:
    for weight, limit in ((0.2, 5.0), (1.0, 3.0), (-0.1, 1.0), (0.2, -1.0)):
        with pytest.raises(ValueError, match=r"use weight=0\.2, limit=3"):
            entropy_factor(entropies(), Moments(), weight, limit)
