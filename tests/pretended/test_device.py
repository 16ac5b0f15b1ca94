"""The pretended GPU itself: it refuses what CUDA refuses, and counts what CUDA waits for."""

import re
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


def _half(x: torch.Tensor, before: bool, after: bool, keep: bool = False) -> torch.Tensor:
    """Halve on a stream of its own; say whether it waits, is waited for, and keeps the memory of what it reads."""
    stream = torch.cuda.Stream()
    if before:
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        half = x / 2
    if keep:
        x.record_stream(stream)
    if after:
        torch.cuda.current_stream().wait_event(stream.record_event())
    return half


@pytest.mark.parametrize(
    ("use", "race"),
    [
        (lambda x: ((half := _half(x + 1, before=True, after=True)), half + 1), None),
        (
            lambda x: ((y := x + 1), _half(y, before=False, after=True)),
            "div on stream .* does not wait for .* on stream",
        ),
        (lambda x: _half(x, before=True, after=False) + 1, "add on stream .* does not wait for aten::div"),
        (lambda x: (_half(x, before=True, after=False), x.add_(1)), "add_ on stream .* does not wait for aten::div"),
        (lambda x: (_half(x, before=True, after=False), torch.cuda.synchronize(), x.add_(1)), None),
        (lambda x: _half(x + 1, before=True, after=False), "div on stream .* may still run when"),
        (lambda x: _half(x + 1, before=True, after=False, keep=True), None),
    ],
)
def test_streams_that_do_not_wait_for_each_other_are_noticed(
    x: torch.Tensor, use: Maker, race: str | None, ordered: list[str]
) -> None:
    kept = use(x)
    assert (race is None) == (not ordered), ordered
    assert race is None or any(re.search(race, one) for one in ordered)
    ordered.clear()
    del kept
    ordered.clear()
