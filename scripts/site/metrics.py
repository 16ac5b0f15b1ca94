"""The tables of metrics in the docstring of `rollout_metrics`."""

from __future__ import annotations

import inspect
import itertools

from arpo_trainer.rollout.metrics import rollout_metrics

TITLES = ("What was rolled out", "Time, where the trees have a timeline")


def metric_tables(_: str) -> str:
    """Return the tables of the docstring, each under a heading.

    Raises:
        ValueError: the docstring has another number of tables.
    """
    lines = (inspect.getdoc(rollout_metrics) or "").splitlines()
    grouped = itertools.groupby(lines, key=lambda line: line.strip().startswith("|"))
    tables = ["\n".join(line.strip() for line in rows) for in_table, rows in grouped if in_table]
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in zip(TITLES, tables, strict=True)) + "\n"
