"""A trajectory whose thoughts were shortened, span by span: `refined_spans` and `go_over`.

The prompt and the results keep their token ids. A turn gets new ids only if its shorter text still reads as the same
action. The turns as they were written stay in the tree, marked as abandoned, beside the shorter ones; other
trajectories of a tree that branches may pass through them (`keep_shared`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_trainer.inference_tools.inference_settings import REFINER
from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import ABANDONED, REWRITTEN, RolloutTree, Span


@dataclass(frozen=True)
class ShorterTurn:
    """A turn with shorter thoughts: its number in the episode, its text, and its ids."""

    number: int
    text: str
    ids: list[int]


def shorter_spans(
    path: Sequence[Span], old: Sequence[str], new: Sequence[str], renderer: Renderer, schemas: Sequence[Any]
) -> dict[int, ShorterTurn]:
    """Return the turns that became shorter, by the index of their span.

    Args:
        path: the spans of a trajectory so far.
        old: the texts of its turns, as the protocol reads them.
        new: the texts with shorter thoughts.
        renderer: of the model.
        schemas: of the tools.
    """
    found: dict[int, ShorterTurn] = {}
    turns = [span for span in path if span.kind == "model"]
    for number, (span, before, after) in enumerate(zip(turns, old, new, strict=True)):
        if before == after:
            continue
        ids, first = renderer.turn_ids(after, number == 0, span.finish == "eos"), number == 0
        # tokenised again, it must be read as the same text, and as the same call
        exact = renderer.turn_text(ids, first) == after
        same = renderer.protocol.parse(after, schemas) == renderer.protocol.parse(before, schemas)
        if exact and same and len(ids) < len(span.ids):
            found[span.index] = ShorterTurn(number, after, ids)
    return found


def go_over(
    tree: RolloutTree, trajectory: LiveTrajectory, shorter: Mapping[int, ShorterTurn], renderer: Renderer
) -> None:
    """Let a trajectory go on behind its shorter turns; what follows the first of them is copied."""
    path = tree.path_to(trajectory.node)
    first = next(place for place, span in enumerate(path) if span.index in shorter)
    node: int | None = path[first].parent
    for span in path[first:]:
        turn = shorter.get(span.index)
        copied = _copy(tree, node, span, turn.ids if turn else span.ids, renderer)
        if not span.has_outcome(ABANDONED):  # a branch may have left it before
            span.mark(REFINER, ABANDONED)
        node = copied.index
    trajectory.node, tree.trajectories[trajectory.number].leaf = node, len(tree.spans) - 1
    trajectory.ids = tree.prompt_ids + [number for span in tree.path_to(node) for number in span.ids]
    for turn in shorter.values():
        trajectory.env.episode.turns[turn.number].text = turn.text
        history = trajectory.episode.history
        if turn.number < len(history):  # the last turn is recorded later
            history[turn.number] = replace(history[turn.number], text=turn.text)


def keep_shared(tree: RolloutTree) -> None:
    """Take back the mark of abandoned spans through which a trajectory passes: one left them, and others did not."""
    for span, below in zip(tree.spans, tree.leaves_below(), strict=True):
        if below and span.has_outcome(ABANDONED):
            span.interventions = [mark for mark in span.interventions or () if mark["outcome"] != ABANDONED] or None


def _copy(tree: RolloutTree, parent: int | None, span: Span, ids: list[int], renderer: Renderer) -> Span:
    if span.kind == "environment":
        return tree.add_span(parent, span.kind, ids, text=span.text, tool=span.tool and dict(span.tool))
    same = ids == span.ids
    copied = tree.add_span(
        parent,
        "model",
        ids,
        # what the policy did not sample has no log-probabilities and entropies
        logprobs=list(span.logprobs) if same else [0.0] * len(ids),
        entropies=list(span.entropies) if same else [0.0] * len(ids),
        text=span.text if same else renderer.tokenizer.decode(ids),
        finish=span.finish,
        # another trajectory may have left the span before; this one goes on in the copy
        interventions=[mark for mark in span.interventions or () if mark["outcome"] != ABANDONED],
    )
    copied.mark(REFINER, REWRITTEN)
    return copied
