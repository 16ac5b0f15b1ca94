"""The entropy-aware factor: the same however the batch is split, and never an advantage turned around."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from arpo_trainer.training.entropy_advantage import (
    Moments,
    entropy_factor,
    entropy_moments,
    over_ranks,
    published_factor,
    tree_moments,
)
from tests.arpo_trainer.test_tree import small_tree

MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 1, 1]])


def entropies() -> torch.Tensor:
    return torch.empty(MASK.shape).exponential_(generator=torch.Generator().manual_seed(1))


def test_moments_of_parts_add_up_to_those_of_the_whole() -> None:
    values = entropies()
    whole = entropy_moments(values, MASK)
    parts = sum((entropy_moments(values[i : i + 1], MASK[i : i + 1]) for i in range(3)), Moments())
    assert (parts.count, parts.mean, parts.deviation) == pytest.approx((whole.count, whole.mean, whole.deviation))
    counted = values[MASK.bool()].double()
    assert (whole.mean, whole.deviation) == pytest.approx((counted.mean().item(), counted.std().item()))


def test_the_factor_does_not_depend_on_how_the_batch_was_split_and_the_published_does() -> None:
    values = entropies()
    moments = entropy_moments(values, MASK)
    rows = torch.cat([entropy_factor(values[i : i + 1], moments) for i in range(3)])
    assert torch.equal(rows, entropy_factor(values, moments))
    published = torch.cat([published_factor(values[i : i + 1], MASK[i : i + 1]) for i in range(3)])
    assert not torch.allclose(published, published_factor(values, MASK), atol=0.05)


def test_the_factor_is_bounded_and_carries_no_gradient() -> None:
    values = torch.tensor([[0.0, 1e6, -1e6]], requires_grad=True)
    factor = entropy_factor(values, Moments(100, 0.0, 99.0))
    assert factor[0].tolist() == pytest.approx([1.0, 1.6, 0.4])
    assert not factor.requires_grad


@pytest.mark.parametrize("values", [[[0.7]], [[0.1] * 1000], [[0.0, 0.0]], [[5.0, 5.0000005]]])
def test_a_single_token_and_no_variance_leave_the_advantage_as_it_is(values: list[list[float]]) -> None:
    """Nor does a variance that is rounding only."""
    given = torch.tensor(values)
    factor = entropy_factor(given, entropy_moments(given, torch.ones_like(given)))
    assert torch.allclose(factor, torch.ones_like(factor), atol=1e-6)


def test_no_token_at_all_is_no_trouble() -> None:
    values = entropies()
    assert entropy_factor(values, entropy_moments(values, torch.zeros_like(MASK))).isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    values = entropies().bfloat16()
    factor = entropy_factor(values, entropy_moments(values, MASK))
    assert factor.dtype == torch.float32


def test_the_published_factor_of_a_single_token_is_not_a_number() -> None:
    assert published_factor(torch.tensor([[0.5, 0.1]]), torch.tensor([[1, 0]])).isnan().all()


def test_entropies_of_sampling_are_counted_once_a_copy_and_invalid_ones_not_at_all() -> None:
    tree = small_tree()
    rows = [tree.row(number) for number in (0, 1)]
    values = torch.tensor([row.entropies + [0.0] * (9 - len(row.ids)) for row in rows])
    mask = torch.tensor([row.mask + [0] * (9 - len(row.ids)) for row in rows])
    assert tree_moments([tree]) == entropy_moments(values, mask)
    assert tree_moments([tree]).count == 8


def test_a_factor_that_could_turn_an_advantage_around_is_refused() -> None:
    for weight, limit in ((0.2, 5.0), (1.0, 3.0), (-0.1, 1.0), (0.2, -1.0)):
        with pytest.raises(ValueError, match=r"use weight=0\.2, limit=3"):
            entropy_factor(entropies(), Moments(), weight, limit)
    with pytest.raises(ValueError, match=r"shape \(3, 5\) with a mask of shape \(3, 4\)"):
        entropy_moments(entropies(), MASK[:, :4])


def rank(number: int, meeting: str, results: multiprocessing.Queue[tuple[int, Moments]]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=2)
    results.put((number, over_ranks(Moments(number + 1, 0.5, 2.0 * number))))
    dist.barrier()
    dist.destroy_process_group()


def test_moments_are_added_up_over_processes(tmp_path: Path) -> None:
    assert over_ranks(Moments(1, 2.0, 3.0)) == Moments(1, 2.0, 3.0)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=rank, args=(i, str(tmp_path / "meet"), results)) for i in range(2)]
    for worker in workers:
        worker.start()
    got = dict(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert got == {0: Moments(3, 1.0, 2.0), 1: Moments(3, 1.0, 2.0)}
