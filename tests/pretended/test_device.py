"""The pretended GPU refuses what CUDA refuses. That it counts waits and finds races is seen where others plant some."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

Maker = Callable[[torch.Tensor], Any]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], device="cuda")


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: x + x.to("cuda:1"),
        lambda x: torch.tensor(0.0).add_(x.sum()),
        lambda x: torch.ones(3)[x.long() - 1],
        lambda x: x.index_put_((torch.tensor([0, 1]),), torch.ones(2)),
        lambda x: x.uniform_(generator=torch.Generator()),
    ],
)
def test_what_lies_on_two_devices_does_not_meet(x: torch.Tensor, mix: Maker) -> None:
    with pytest.raises(RuntimeError, match=r"same device|Expected a 'cuda' device type for gen"):
        mix(x)
