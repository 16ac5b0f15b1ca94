"""Log-probabilities under the output matrix of a model on a CPU that has bfloat16.

TRL's fused head has no kernel for a CPU. It scores all positions there, also those without a label, and multiplies in
float32, which is most of a training step: 16 ms for each position with the vocabulary of Qwen2.5
(benchmarks/cpu_step.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from trl.trainer import utils as trl_utils

_TOKENS, _WORDS = 512, 2048  # of a tile
_NAMES = ("_ChunkedLogProbFunction", "_use_triton")  # what TRL's head looks up when it runs


def speed_up_head() -> None:
    """Let TRL's fused head skip positions without a label on a CPU, and multiply in bfloat16 under autocast."""
    function, triton = (getattr(trl_utils, name, None) for name in _NAMES)
    if function and triton and not isinstance(function, _Chosen):  # releases of TRL that have both
        trl_utils._ChunkedLogProbFunction = _Chosen(function)
        trl_utils._use_triton = lambda device: device.type == "cpu" or triton(device)


class _Chosen:
    """TRL's function, or `_Head` where that gives the same values faster."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def apply(
        self, hidden: torch.Tensor, weight: torch.Tensor, bias: Any, labels: torch.Tensor, temperature: float,
        chunk: int, softcap: float | None, factor: float, outputs: tuple[str, ...],
    ) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
        """Take what TRL's function takes, and return as much: log-probabilities, entropies, and three more."""
        known = softcap is None and bias is None and {*outputs} <= {"log_probs", "entropy", "is_top1"}
        reduced = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
        if known and reduced and hidden.device.type == "cpu":
            given = (hidden, weight, labels, factor / temperature, "entropy" in outputs)
            logprobs, entropies, best = _Head.apply(*given)  # type: ignore[no-untyped-call]
            return logprobs, entropies, None, None, best == labels if "is_top1" in outputs else None
        made: tuple[Any, ...] = self.function.apply(
            hidden, weight, bias, labels, temperature, chunk, softcap, factor, outputs
        )
        return made


class _Head(torch.autograd.Function):
    """Log-probabilities of labels, (N,), entropies where asked for, in float32, and the most likely tokens.

    As the plain computation under autocast, it rounds the logits, their gradients, and what comes of these to bfloat16;
    sums are in float32. A product over the whole vocabulary is rounded once: rounding for each of its tiles would bias
    the training.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, factor: float, entropies: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Take hidden states (N, H), the matrix (V, H), labels (N,), and the factor of the logits."""
        ctx.set_materialize_grads(False)
        states, matrix = hidden.bfloat16(), weight.bfloat16()
        log_z = torch.full((len(states),), -torch.inf)
        chosen, mean, highest, best = (torch.zeros_like(log_z), torch.zeros_like(log_z), log_z.clone(), labels.clone())
        for rows in _slices(len(states), _TOKENS):
            for words in _slices(len(matrix), _WORDS):
                logits = torch.mm(states[rows], matrix[words].t()).float().mul_(factor)
                here, column = _labels_in(labels[rows], words)
                chosen[rows][here] = logits[here, column]
                top = logits.max(-1)
                best[rows] = torch.where(top.values > highest[rows], top.indices + words.start, best[rows])
                highest[rows] = torch.maximum(highest[rows], top.values)
                before, total = log_z[rows], torch.logaddexp(log_z[rows], logits.logsumexp(-1))
                if entropies:
                    new = (logits - total[:, None]).exp_().mul_(logits).sum(-1)
                    mean[rows] = mean[rows] * (before - total).exp() + new
                log_z[rows] = total
        ctx.save_for_backward(hidden, weight, labels, log_z, log_z - mean)
        ctx.factor = factor
        ctx.mark_non_differentiable(best)
        return chosen - log_z, log_z - mean if entropies else None, best

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Compute the logits again, a few rows at a time."""
        hidden, weight, labels, log_z, entropy = ctx.saved_tensors
        states, matrix = hidden.bfloat16(), weight.bfloat16()
        of_logprobs, of_entropy = (torch.zeros_like(log_z) if one is None else one.float() for one in gradients[:2])
        of_states = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_matrix = torch.zeros(weight.shape) if ctx.needs_input_grad[1] else None  # sums in float32
        for rows in _slices(len(states), _TOKENS):
            of_logits = torch.empty(len(states[rows]), len(matrix), dtype=torch.bfloat16)
            for words in _slices(len(matrix), _WORDS):
                logprobs = torch.mm(states[rows], matrix[words].t()).float().mul_(ctx.factor).sub_(log_z[rows, None])
                tile = logprobs.exp()
                if gradients[1] is None:
                    tile.mul_(-of_logprobs[rows, None])
                else:  # d entropy / d logit = -p (log p + entropy)
                    tile.mul_(
                        logprobs.add_(entropy[rows, None]).mul_(-of_entropy[rows, None]) - of_logprobs[rows, None]
                    )
                here, column = _labels_in(labels[rows], words)
                tile[here, column] += of_logprobs[rows][here]
                of_logits[:, words] = tile.mul_(ctx.factor)
            if of_states is not None:
                of_states[rows] = torch.mm(of_logits, matrix).to(hidden.dtype)
            if of_matrix is not None:
                of_matrix += torch.mm(of_logits.t(), states[rows])
        return of_states, None if of_matrix is None else of_matrix.to(weight.dtype), None, None, None


def _slices(size: int, each: int) -> Iterator[slice]:
    return (slice(start, min(start + each, size)) for start in range(0, size, each))


def _labels_in(labels: torch.Tensor, words: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows whose label is one of these words, and its place among them."""
    here = ((labels >= words.start) & (labels < words.stop)).nonzero().squeeze(-1)
    return here, labels[here] - words.start
