"""A rollout tree as plain data for the pages that draw it (`page/trees.js`): without token ids, with short numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from arpo_trainer.rollout.metrics import fork_contrasts
from arpo_trainer.tree import RolloutTree, Span

_PER_NAT = 1000  # whole numbers keep the page small: each token of the model has two of them


def tree_data(tree: RolloutTree, offset: int = 0) -> dict[str, Any]:
    """Return what the page draws of a tree.

    Args:
        tree: the tree.
        offset: added to its step.
    """
    step = tree.meta.get("step")
    return {
        "step": step + offset if isinstance(step, int) else step,
        "group": tree.meta.get("group"),
        "seed": tree.meta.get("seed"),
        "task": tree.task,
        "prompt": tree.prompt,
        "prompt_tokens": len(tree.prompt_ids),
        "unique": tree.unique_tokens(),
        "copied": tree.copied_tokens(),
        "entropy_unit": tree.meta.get("entropy_unit"),
        "contrasts": [contrast for contrast in fork_contrasts(tree) if contrast is not None],
        "spans": [span_data(span) for span in tree.spans],
        "trajectories": [asdict(trajectory) for trajectory in tree.trajectories],
    }


def span_data(span: Span) -> dict[str, Any]:
    """Return a span without its ids; entropies and log-probabilities, where measured, as whole thousandths of a nat."""
    entry: dict[str, Any] = {"parent": span.parent, "kind": span.kind, "n": len(span.ids), "text": span.text}
    if span.kind == "model":
        entry["finish"] = span.finish
        if span.measured:
            entry |= {"entropies": _thousandths(span.entropies), "logprobs": _thousandths(span.logprobs)}
    if span.tool:
        entry["tool"] = span.tool
    if span.decision:
        entry["decision"] = asdict(span.decision)
    if span.interventions:
        entry["interventions"] = span.interventions
    return entry


def _thousandths(values: Sequence[float]) -> list[int | None]:
    return [round(value * _PER_NAT) if math.isfinite(value) else None for value in values]
