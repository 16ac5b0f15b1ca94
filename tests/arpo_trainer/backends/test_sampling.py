"""Drawing tokens: the distribution is the model's, also at its edges, and rounding hardly matters."""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from arpo_trainer.algorithms.branching import ESTIMATORS, estimated_entropy
from arpo_trainer.backends.sampling import Chances, Drawn, Sampler


def draw(logits: torch.Tensor, temperature: float, count: int, by: str = "seed") -> list[Drawn]:
    """Draw from the same logits with as many seeds, or at as many positions of one turn."""
    numbers = [range(count), [5] * count]
    chances = Chances.of([temperature] * count, *(numbers if by == "seed" else reversed(numbers)))
    return Sampler().draw(logits.expand(count, -1), chances)


@pytest.mark.parametrize("by", ["seed", "position"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float, by: str) -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    counts = torch.bincount(torch.tensor([one.token for one in draw(logits, temperature, 4000, by)]), minlength=4)
    for count, share in zip(counts.tolist(), torch.softmax(logits / temperature, -1).tolist(), strict=True):
        assert count == pytest.approx(4000 * share, abs=4 * (4000 * share * (1 - share)) ** 0.5)


def test_random_numbers_are_exponential_and_independent() -> None:
    """Of neighbouring seeds, positions and tokens; also the smallest ones, which decide."""
    grid = [(seed, position) for seed in range(30) for position in range(30)]
    keys = Chances.of([1.0] * 900, *zip(*grid, strict=True)).keys
    assert keys is not None
    numbers = Sampler()._exponential(torch.empty(900, 3000), keys).double()
    for low in (1e-4, 1e-2, 0.1, 1.0, 3.0, 8.0):
        wanted = numbers.numel() * -torch.expm1(torch.tensor(-low, dtype=torch.double)).item()
        assert (numbers < low).sum().item() == pytest.approx(wanted, abs=4.5 * wanted**0.5)
    uniform = (12**0.5) * (torch.exp(-numbers) - 0.5)
    for table in (uniform, uniform[:, :900].T):  # correlations between rows, and between tokens
        found = table @ table.T / table.shape[1]
        assert found.fill_diagonal_(0).abs().max().item() < 6.5 / table.shape[1] ** 0.5


def test_a_row_draws_the_same_in_every_batch() -> None:
    logits = torch.randn(40, 3000, generator=torch.Generator().manual_seed(3))
    heat = [0.0, 0.7, 1.0, 1.3] * 10
    seeds, positions = [2**63 + 11 * (row % 7) for row in range(40)], [row // 7 for row in range(40)]

    def some(rows: list[int]) -> list[Drawn]:
        chances = Chances.of(*([every[row] for row in rows] for every in (heat, seeds, positions)))
        return Sampler().draw(logits[rows], chances)

    together = some(list(range(40)))
    for rows in ([5], [4, 0, 8], list(range(39, 0, -3))):
        assert some(rows) == [together[row] for row in rows]
    assert [together[row].token for row in range(0, 40, 4)] == logits[::4].argmax(-1).tolist()


class Meter(TorchDispatchMode):
    """Counts operations, and the most bytes of tensors that they made and that were there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.now, self.most = 0, 0, 0
        self.there: collections.Counter[int] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not self.there[made.untyped_storage()._cdata]:
            storage = made.untyped_storage()
            self._add(storage._cdata, storage.nbytes())
            weakref.finalize(storage, self._add, storage._cdata, -storage.nbytes())
        return made

    def _add(self, storage: int, size: int) -> None:
        self.there[storage] += size
        self.now += size
        self.most = max(self.most, self.now)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_rows_take_as_many_operations_as_one_and_12_bytes_a_logit(dtype: torch.dtype) -> None:
    counted = []
    for rows in (300, 1):
        logits, chances = torch.randn(rows, 4000).to(dtype), Chances.of([1.0] * rows, range(rows), [0] * rows)
        sampler = Sampler()
        sampler.draw(logits, chances)
        with Meter() as meter:
            sampler.draw(logits, chances)
        counted.append((meter.operations, meter.most / logits.numel()))
    (many, size), (one, _) = counted
    assert many == one < 45
    assert size < 12.1


def test_temperature_zero_takes_the_most_likely() -> None:
    assert {one.token for one in draw(torch.tensor([0.1, 0.3, 0.2]), 0.0, 20)} == {1}


def test_a_token_that_cannot_be_is_never_drawn() -> None:
    drawn = draw(torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf]), 1.0, 200)
    assert {one.token for one in drawn} == {1, 2}
    assert {round(one.entropy, 4) for one in drawn} == {0.6931}


def test_rounding_in_the_model_changes_hardly_any_token() -> None:
    logits = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    rounded = logits + 1e-3 * torch.randn(20_000, generator=torch.Generator().manual_seed(2))
    changed = [one.token != other.token for one, other in zip(draw(logits, 1, 400), draw(rounded, 1, 400), strict=True)]
    assert sum(changed) <= 3  # inverting the distribution function changes 20


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
def test_tokens_that_cannot_be_add_nothing_to_an_estimate(estimator: str) -> None:
    half = math.log(0.5)
    assert estimated_entropy([half, half, -math.inf], half, estimator) == pytest.approx(math.log(2))
