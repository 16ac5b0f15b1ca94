"""Writes the tables of docs/results/laboratory.md from the comparison.json of its folders in docs/results/laboratory.

python -m scripts.laboratory_tables
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "laboratory.md"
STORED = ROOT / "docs" / "results" / "laboratory"
FOLDERS = {
    "tables": "main",
    "group-size": "group-size",
    "group-size-short": "group-size-short",
    "rates": "group-size-rates",
    "ablations": "ablations",
    "smollm2": "smollm2",
}
# a grid without a finished run has no tables
RESULTS = {name: path for name, folder in FOLDERS.items() if (path := STORED / folder / "comparison.json").is_file()}
END = "<!-- end of tables -->\n"
AXES = {"tokens": "sampled tokens", "calls": "executed tool calls", "trajectories": "trajectories"}
ALL = "all"


def tables(result: Path) -> str:
    """Return a table for each axis of cost as Markdown."""
    data: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return "\n".join(_table(data, axis, words) for axis, words in AXES.items()) + "\n" + _collapses(data)


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables written anew."""
    for name, result in RESULTS.items():
        begin = f"<!-- {name}: written by scripts/laboratory_tables.py -->\n"
        before, _, rest = page.partition(begin)
        page = before + begin + tables(result) + END + rest.partition(END)[2]
    return page


def _table(data: dict[str, Any], axis: str, words: str) -> str:
    found = data["axes"][axis]
    columns = {**found["environments"], **({ALL: found["overall"]} if len(found["environments"]) > 1 else {})}
    heads = [f"{name} ({found['budgets'][name]:,.0f})" if name in found["budgets"] else name for name in columns]
    labels = [one["label"] for one in data["plan"]["algorithms"] if one["label"] in found["overall"]]
    rows = [_row(label, columns) for label in labels]
    head = f"Success on the way to equal {words}, and its difference to `{data['baseline']}` with 95 % intervals:\n\n"
    return head + "\n".join([f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|", *rows]) + "\n"


def _row(label: str, columns: dict[str, dict[str, Any]]) -> str:
    return f"| `{label}` | {' | '.join(_cell(each[label]) if label in each else '' for each in columns.values())} |"


def _cell(one: dict[str, Any]) -> str:
    text = f"{one['average']['value']:.3f}"
    difference = one.get("average_difference")
    if difference is None:
        return text
    text += f"<br>{difference['value']:+.3f}"
    return text if difference["low"] is None else f"{text} [{difference['low']:+.3f}, {difference['high']:+.3f}]"


def _collapses(data: dict[str, Any]) -> str:
    runs = data["runs"]
    fallen = [f"`{run['label']}`, {run['env']}, seed {run['seed']}" for run in runs if run["collapse"]]
    text = f"{len(data['plan']['seeds'])} seeds, {len(runs)} runs; collapsed: {'; '.join(fallen) or 'none'}."
    if not data["missing"]:
        return f"{text}\n"
    done = Counter(run["label"] for run in runs if run["status"] != "failed")
    return f"{text} Missing: {data['missing']} runs ({', '.join(f'`{one}`: {n} done' for one, n in done.items())}).\n"


def main() -> int:
    """Write the tables."""
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
