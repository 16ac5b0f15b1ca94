"""Writes the tables of docs/results/laboratory.md from the comparison.json of docs/results/laboratory/main.

python -m scripts.laboratory_tables
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "laboratory.md"
RESULT = ROOT / "docs" / "results" / "laboratory" / "main" / "comparison.json"
BEGIN, END = "<!-- tables: written by scripts/laboratory_tables.py -->\n", "<!-- end of tables -->\n"
AXES = {"tokens": "sampled tokens", "calls": "executed tool calls", "trajectories": "trajectories"}
ALL = "all"


def tables() -> str:
    """Return a table for each axis of cost as Markdown."""
    data: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    return "\n".join(_table(data, axis, words) for axis, words in AXES.items()) + "\n" + _collapses(data)


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables written anew."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


def _table(data: dict[str, Any], axis: str, words: str) -> str:
    found = data["axes"][axis]
    columns = {**found["environments"], ALL: found["overall"]}
    heads = [f"{name} ({found['budgets'][name]:,.0f})" if name in found["budgets"] else name for name in columns]
    rows = [_row(one["label"], columns) for one in data["plan"]["algorithms"]]
    head = f"Success on the way to equal {words}, and its difference to `{data['baseline']}` with 95 % intervals:\n\n"
    return head + "\n".join([f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|", *rows]) + "\n"


def _row(label: str, columns: dict[str, dict[str, Any]]) -> str:
    return f"| `{label}` | {' | '.join(_cell(column[label]) for column in columns.values())} |"


def _cell(one: dict[str, Any]) -> str:
    text = f"{one['average']['value']:.3f}"
    difference = one.get("average_difference")
    if difference is None:
        return text
    text += f"<br>{difference['value']:+.3f}"
    return text if difference["low"] is None else f"{text} [{difference['low']:+.3f}, {difference['high']:+.3f}]"


def _collapses(data: dict[str, Any]) -> str:
    runs, seeds = data["runs"], len(data["plan"]["seeds"])
    fallen = [f"`{run['label']}`, {run['env']}, seed {run['seed']}" for run in runs if run["collapse"]]
    return f"{seeds} seeds, {len(runs)} runs; collapsed: {'; '.join(fallen) or 'none'}.\n"


def main() -> int:
    """Write the tables."""
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
