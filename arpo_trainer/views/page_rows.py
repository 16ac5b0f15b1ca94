"""The rows and trees of an evaluation as compact data for the page: lists instead of names, in compressed pieces.

Questions are stored once for all models and samples. A piece is gzip in base64, so that 5,000 episodes stay small and
the browser unpacks only what is opened.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.report.html_page import clean_data
from arpo_trainer.report.tree_data import tree_data
from arpo_trainer.tree import RolloutTree
from arpo_trainer.views.run_summary import episode_score, is_right, metric_of
from arpo_trainer.views.token_widths import TokenWidths, utf16
from arpo_trainer.views.turn_parts import turn_parts

PIECE = 20  # units in a piece
_LEVEL = 6  # of compression: 9 takes three times as long for 1 %


class _Table:
    """Numbers texts in the order in which they appear."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        return self.places.setdefault(key, len(self.places))


def compact_rows(run: EvalRun, tree_of: Callable[[int, UnitRow], int | None]) -> dict[str, Any]:
    """Return a run's rows as the page reads them (`page/rows.js`).

    Args:
        run: the run.
        tree_of: returns what the page asks for to see the tree of a unit (its number, or its place in traces.jsonl),
            from the unit's position and row; None if it cannot.
    """
    models, envs, tools, outcomes, tasks = (_Table() for _ in range(5))
    described: list[list[Any]] = []
    metrics = {env: metric_of(run.facts, env) for env in {row.env for row in run.rows}}
    units = []
    for number, row in enumerate(run.rows):
        task = tasks((row.env, row.task))
        if task == len(described):
            described.append([envs(row.env), row.task, row.question, row.answers, row.level, row.index])
        episodes = [_episode(entry, metrics[row.env], outcomes, tools) for entry in row.episodes]
        tree = tree_of(number, row)
        units.append([models(row.model), task, row.sample, row.attempt, row.generated, tree, episodes])
    names = {"models": models, "envs": envs, "tools": tools, "outcomes": outcomes}
    return {**{name: list(table.places) for name, table in names.items()}, "tasks": described, "units": units}


def _episode(entry: EpisodeEntry, metric: str, outcomes: _Table, tools: _Table) -> list[Any]:
    right = is_right(entry)
    calls = [[tools(name), count] for name, count in entry.calls.items()]
    scores = [episode_score(entry, metric), entry.reward, None if right is None else int(right)]
    told = [outcomes(entry.outcome), entry.error, entry.cause, entry.answer, calls]
    return [*scores, *told, entry.turns, entry.tokens, entry.context, entry.cached, entry.seconds, int(entry.counted)]


def view_tree(tree: RolloutTree, widths: TokenWidths | None = None) -> dict[str, Any]:
    """Return a tree as the page draws it: as in the training report, with the parts and tokens of each turn."""
    data = tree_data(tree)
    for span, entry in zip(tree.spans, data["spans"], strict=True):
        at, parts = _positions(span.text), turn_parts(span.text)
        if span.kind == "environment" and [part.kind for part in parts] == ["result"]:
            entry["inner"] = [at(parts[0].start), at(parts[0].end)]  # without its tags
        elif span.kind == "model":
            entry["parts"] = [[part.kind, part.label, at(part.start), at(part.end)] for part in parts]
            if widths and (found := widths(span.ids, span.text)):
                entry["widths"] = found
    return data


def _positions(text: str) -> Callable[[int], int]:
    """Return a function from positions in a text to those in UTF-16 units, in which browsers count."""
    if text.isascii():
        return lambda position: position
    return lambda position: utf16(text[:position])


def tree_pieces(run: EvalRun, rows: Sequence[UnitRow], widths: dict[str, TokenWidths | None]) -> Iterator[str]:
    """Yield pieces with the trees of `rows`, `PIECE` in each and in this order; a tree that is lost is null.

    Args:
        run: the run.
        rows: the units whose trees are wanted.
        widths: how to divide texts into tokens, by model.
    """
    for first in range(0, len(rows), PIECE):
        yield packed([_tree_or_none(run, row, widths.get(row.model)) for row in rows[first : first + PIECE]])


def _tree_or_none(run: EvalRun, row: UnitRow, widths: TokenWidths | None) -> dict[str, Any] | None:
    try:
        return view_tree(run.tree(row), widths)
    except ValueError:  # the page says that this one is missing, and shows the others
        return None


def packed(value: Any) -> str:
    """Return plain data as JSON in gzip in base64, which holds nothing that could end a script element."""
    return base64.b64encode(gzip.compress(json_bytes(value), _LEVEL, mtime=0)).decode("ascii")


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON in UTF-8; half of a surrogate pair, which a model may write, becomes "?"."""
    write = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    try:
        text = write(value)
    except ValueError:  # a number that is not finite, which is rare: to look for it in all trees would take long
        text = write(clean_data(value))
    return text.encode("utf-8", "replace")
