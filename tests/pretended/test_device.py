"""The pretended GPU itself: it refuses what CUDA refuses, and counts what CUDA waits for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.pretended.device import waiting

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


@pytest.mark.parametrize(
    ("asks", "kinds"),
    [
        (lambda x: bool(x.any()), ["value"]),
        (lambda x: x.cpu(), ["download"]),
        (lambda x: x[x > 1], ["value"]),
        (lambda x: x.repeat_interleave(x.long()), ["value"]),
        (lambda x: torch.tensor([1.0], device="cuda"), ["upload"]),
        (lambda x: x[torch.tensor([0])], ["upload"]),
        (lambda x: torch.cuda.synchronize(), ["value"]),
        (lambda x: torch.empty(3).pin_memory().copy_(x, non_blocking=True), []),
        (lambda x: torch.arange(3, device="cuda") + x.sum() + 1.5, []),
        (lambda x: torch.where(x > 1, 0.0, x).masked_fill(x > 2, 0.0)[:2], []),
    ],
)
def test_a_wait_is_noted_with_its_line(x: torch.Tensor, asks: Maker, kinds: list[str]) -> None:
    with waiting() as seen:
        asks(x)
    assert [wait.kind for wait in seen] == kinds
    assert all(wait.lines[0].startswith("tests/pretended/test_device.py:") for wait in seen)
