"""The output matrix on a CPU: the values and gradients are those of TRL's head."""

from types import SimpleNamespace

import pytest
import torch
from trl.kernels.chunked_logprob import OPTIONAL_OUTPUTS, ChunkedLogProbFunction
from trl.trainer import utils as trl_utils

from arpo_trainer.training import trl_hooks  # noqa: F401  (speeds up the head)
from tests.conftest import tiny_llama

CHOSEN = trl_utils._ChunkedLogProbFunction
ASKED = ("log_probs", "entropy", "is_top1")


def results(
    function: type, rows: int, vocabulary: int, outputs: tuple[str, ...], bias: bool = False
) -> list[torch.Tensor]:
    """Return outputs and gradients for random input that is the same at each call."""
    draw = torch.Generator().manual_seed(rows + vocabulary)
    hidden, weight = (torch.randn(size, 16, generator=draw).requires_grad_() for size in (rows, vocabulary))
    labels = torch.randint(vocabulary, (rows,), generator=draw)
    shift = torch.randn(vocabulary, generator=draw) if bias else None
    found = function.apply(hidden, weight, shift, labels, 0.7, 1000, None, 0.5, outputs)
    found = [one for one in found if one is not None]
    factors = torch.randn(2, rows, generator=draw)
    sum((one * factor).sum() for one, factor in zip(found, factors, strict=False)).backward()
    return [*found, hidden.grad, weight.grad]


@pytest.mark.parametrize("outputs", [ASKED[:1], ASKED[:2], ASKED])
@pytest.mark.parametrize(("rows", "vocabulary"), [(3, 50), (513, 2049), (1100, 4096)])
def test_values_and_gradients_are_those_of_trl(rows: int, vocabulary: int, outputs: tuple[str, ...]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = (results(each, rows, vocabulary, outputs) for each in (CHOSEN, ChunkedLogProbFunction))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        if one.dtype == torch.bool:
            assert torch.equal(one, other)
        else:
            assert float(((one - other).norm() / other.norm()).detach()) < 0.01, "rounding to bfloat16 is 0.002"
    assert not torch.equal(ours[-1], theirs[-1]), "TRL's own function would be exact"


@pytest.mark.parametrize("case", [{"outputs": ASKED}, {"outputs": OPTIONAL_OUTPUTS}, {"outputs": ASKED, "bias": True}])
def test_what_it_does_not_know_is_left_to_trl(case: dict) -> None:
    reduced = "bias" in case or case["outputs"] is OPTIONAL_OUTPUTS
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=reduced):
        ours, theirs = (results(each, 9, 70, **case) for each in (CHOSEN, ChunkedLogProbFunction))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("labelled", [[], [2], [0, 1, 3]])
def test_only_positions_with_a_label_are_computed(labelled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(hidden: torch.Tensor, *rest: object) -> object:
        sizes.append(len(hidden))
        return CHOSEN.apply(hidden, *rest)

    model, sizes = tiny_llama(40), []
    trl_utils.add_fused_lm_head(model)
    monkeypatch.setattr(trl_utils, "_ChunkedLogProbFunction", SimpleNamespace(apply=apply))
    ids, labels = torch.arange(5)[None], torch.full((1, 5), -100)
    labels[0, labelled] = 7
    found = model(input_ids=ids, shift_labels=labels, fused_lm_head=True).log_probs[0]
    whole = model(input_ids=ids).logits[0].log_softmax(-1)[:, 7]
    assert sizes == [len(labelled)]
    assert torch.allclose(found, torch.where(labels[0] == 7, whole, 0.0), atol=1e-5)
    found.sum().backward()
