"""Rows with folds, cut where their history was folded: each segment becomes a row with a prompt of its own.

A trajectory stays one row of the batch, so that rewards, advantages, masks and every normalisation of the loss are
those of one trajectory. Only its log-probabilities are computed in pieces: nothing that follows a fold attends to what
came before it, and its positions begin anew. `docs/concepts/folding.md` says why.

    segments = cut_at_folds(input_ids, attention_mask, fold_mask)       # (B, P + T) to (S, P' + T')
    logps = segments.join(log_probabilities_of(segments))               # (S, T') to (B, T)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch


class Segment(NamedTuple):
    """A prompt and what follows it, as places in a row.

    Attributes:
        row: of the batch.
        prompt: columns of the prompt's tokens in (B, P + T).
        completion: columns of the tokens that follow, at least one.
    """

    row: int
    prompt: list[int]
    completion: list[int]


@dataclass(frozen=True)
class FoldSegments:
    """Segments as TRL pads rows: prompts on the left, completions on the right.

    Attributes:
        input_ids: (S, P' + T').
        attention_mask: 1 for tokens, 0 for padding, (S, P' + T').
        width: T'.
        shape: (B, T) of the batch they were cut from.
        source: for each completion token of the segments, in order, its place in (S, T') counted row by row.
        target: the same in (B, T).
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    width: int
    shape: tuple[int, int]
    source: torch.Tensor
    target: torch.Tensor

    def __len__(self) -> int:
        return len(self.input_ids)

    def extended(self, rows: int) -> FoldSegments:
        """Return the segments with copies of the first one behind them, `rows` in all; nobody reads the copies."""
        extra = [0] * (rows - len(self))
        places = torch.tensor([*range(len(self)), *extra], device=self.input_ids.device)
        return replace(self, input_ids=self.input_ids[places], attention_mask=self.attention_mask[places])

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the segments, (S, T'), in the places of the batch, (B, T); 0 at new prompts and padding."""
        # the zero depends on every value, so that a forward pass nobody reads takes part in backward, too; each value
        # is made 0 before they are added, since a sum of log-probabilities is beyond the range of float16
        joined = values.new_zeros(self.shape).flatten() + (0 * values).sum()
        return joined.index_put((self.target,), values.flatten()[self.source]).view(self.shape)


def cut_at_folds(input_ids: torch.Tensor, attention_mask: torch.Tensor, fold_mask: torch.Tensor) -> FoldSegments:
    """Cut the rows of a batch at their folds.

    Args:
        input_ids: prompts and completions as TRL pads them, (B, P + T).
        attention_mask: 1 for tokens, 0 for padding, (B, P + T).
        fold_mask: 1 for tokens of a new prompt, (B, T).
    """
    rows, width = fold_mask.shape
    left = input_ids.shape[1] - width
    segments = [each for row in range(rows) for each in _segments(row, left, attention_mask[row], fold_mask[row])]
    # a batch without completion tokens still needs a row for the model
    segments = segments or [Segment(0, [0], [])]
    before = max(len(segment.prompt) for segment in segments)
    after = max(1, *(len(segment.completion) for segment in segments))
    columns = torch.zeros(len(segments), before + after, dtype=torch.long)
    mask, source, target = torch.zeros_like(columns), [], []
    for number, segment in enumerate(segments):
        place = slice(before - len(segment.prompt), before + len(segment.completion))
        columns[number, place] = torch.tensor(segment.prompt + segment.completion)
        mask[number, place] = 1
        source += [number * after + position for position in range(len(segment.completion))]
        target += [segment.row * width + column - left for column in segment.completion]
    device = input_ids.device
    own = torch.tensor([segment.row for segment in segments], device=device)[:, None]
    mask = mask.to(device)
    ids = input_ids[own, columns.to(device)] * mask
    places = (torch.tensor(listed, dtype=torch.long, device=device) for listed in (source, target))
    return FoldSegments(ids, mask.to(attention_mask.dtype), after, (rows, width), *places)


def _segments(row: int, left: int, attention_mask: torch.Tensor, fold_mask: torch.Tensor) -> Iterator[Segment]:
    """Yield the segments of a row that have completion tokens."""
    columns, folds = attention_mask.nonzero().flatten().tolist(), fold_mask.tolist()
    prompt, completion = [column for column in columns if column < left], list[int]()
    for column in columns[len(prompt) :]:
        if not folds[column - left]:
            completion.append(column)
        elif completion:  # the first token of a new prompt
            yield Segment(row, prompt, completion)
            prompt, completion = [column], []
        else:
            prompt.append(column)
    if completion:
        yield Segment(row, prompt, completion)
