"""Writes the tables of benchmarks/laboratory/ESTIMATORS.md from benchmarks/laboratory/results/estimators-LEVEL.json.

python -m scripts.estimator_tables
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "laboratory" / "ESTIMATORS.md"
RESULTS = ROOT / "benchmarks" / "laboratory" / "results"
LEVELS = ("short", "long-critical", "long-many", "stochastic")
BEGIN, END = "<!-- tables: written by scripts/estimator_tables.py -->\n", "<!-- end of tables -->\n"
HEADS = (
    "method",
    "squared bias",
    "variance",
    "wrong sign",
    "rank",
    "slope",
    "cosine, equal tokens",
    "equal calls",
    "as published",
    "contrast",
    "leaves worth",
)


def tables() -> str:
    """Return the tables of all levels as Markdown."""
    return "\n".join(_table(level) for level in LEVELS)


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables written anew."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


def _table(level: str) -> str:
    result: dict[str, Any] = json.loads((RESULTS / f"estimators-{level}.json").read_text(encoding="utf-8"))
    study, world = result["study"], result["world"]
    values = ", ".join(f"{value:.2f}" for value in world["values"])
    head = (
        f"**{level}**, {study['groups']} groups of each of {study['tasks']} tasks with true values {values}; "
        f"at most {100 * max(world['lost']):.0f} % was not followed:\n\n"
    )
    rows = [_row(label, one) for label, one in result["methods"].items()]
    return head + "\n".join([f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *rows]) + "\n"


def _row(label: str, one: dict[str, Any]) -> str:
    errors, cosines, trees = one["reward"]["turn"], one["reward"]["cosine"], one["trees"]
    pairs = [errors[name] for name in ("squared_bias", "variance", "wrong_sign", "rank", "slope")]
    cells = [_number(pair[0]) for pair in pairs]
    cells += [_with_error(cosines[f"equal_{cost}"]) for cost in ("sampled_tokens", "tool_calls")]
    cells += [_with_error(one["published"]["cosine"]["equal_sampled_tokens"])]
    cells += [_number(trees["fork_contrast"][0], 2), _with_error(trees["effective_leaves"], 0)]
    return f"| `{label}` | {' | '.join(cells)} |"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _with_error(pair: list[float | None], digits: int = 3) -> str:
    return f"{_number(pair[0], digits)} +- {_number(pair[1], digits)}"


def main() -> int:
    """Write the tables."""
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
