"""Writes the tables of docs/results/laboratory.md and benchmarks/laboratory/RESULTS.md from the runs that are stored.

Most tables are those of a folder's comparison.json. Some compare the runs of several folders with another baseline.

python -m scripts.laboratory_tables
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.laboratory.equal_cost import compare_records
from benchmarks.laboratory.grid_run import AXES as COSTS
from benchmarks.laboratory.run_curves import run_curve
from benchmarks.laboratory.run_store import key_of, load_comparison

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks" / "laboratory" / "results"
PAGES = (ROOT / "docs" / "results" / "laboratory.md", STORED.parent / "RESULTS.md")
FOLDERS = {
    "tables": "main",
    "group-size": "group-size",
    "group-size-short": "group-size-short",
    "rates": "group-size-rates",
    "ablations": "ablations",
    "smollm2": "smollm2",
    "smollm2-routine": "smollm2-routine",
    "smollm2-multihop": "smollm2-multihop",
}
# a grid without a finished run has no tables
RESULTS = {name: path for name, folder in FOLDERS.items() if (path := STORED / folder / "comparison.json").is_file()}
AGAINST_ARPO = ("main", "group-size", "group-size-short", "arpo-size")
OF_INTEREST = ("grpo", "arpo", "aepo", "tree-grpo", "grpo-10", "grpo-5", "arpo-8", "aepo-8", "tree-grpo-8")
END = "<!-- end of tables -->\n"
AXES = {"tokens": "sampled tokens", "calls": "executed tool calls", "trajectories": "trajectories"}
ALL = "all"


def tables(result: Path) -> str:
    """Return a table for each axis of cost as Markdown."""
    data: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return "\n".join(_table(data, axis, words) for axis, words in AXES.items()) + "\n" + _collapses(data)


def table_against(baseline: str, folders: Sequence[str] = AGAINST_ARPO, labels: Sequence[str] = OF_INTEREST) -> str:
    """Return a table of differences to a baseline over all environments, a column for each axis of cost."""
    (plan, records), *others = [load_comparison(STORED / folder) for folder in folders]
    for more, found in others:
        plan, records = plan.joined(more), [*records, *found]
    runs = {key_of(record): record for record in records if record["label"] in labels}
    plan = replace(plan, algorithms=[one for one in plan.algorithms if one.label in labels])
    data = compare_records(plan, list(runs.values()), baseline=baseline, axes=tuple(AXES))
    columns = {axis: data["axes"][axis]["overall"] for axis in AXES}
    head = f"Success on the way, over all worlds, and its difference to `{baseline}` with 95 % intervals:\n\n"
    heads = f"| | {' | '.join(f'equal {words}' for words in AXES.values())} |"
    return head + "\n".join([heads, "|---" * 4 + "|", *(_row(label, columns) for label in labels)]) + "\n"


def table_of_rates(folder: str = "learning-rates") -> str:
    """Return the success of single runs with each rate, on the way to the calls that all runs of a world made."""
    plan, records = load_comparison(STORED / folder)
    found: dict[tuple[str, str], dict[float, float]] = {}
    for env in plan.envs:
        curves = [(record, run_curve(record, "calls")) for record in records if record["env"] == env]
        least = min(record["curve"][-1][COSTS["calls"]] for record, _ in curves if record["curve"])
        for record, curve in curves:
            label = record["label"].removesuffix("-fast").removesuffix("-faster")
            rate = record["settings"]["settings"]["learning_rate"]
            found.setdefault((label, env), {})[rate] = curve.mean_up_to(least)
    rates = sorted({rate for row in found.values() for rate in row})
    labels = list(dict.fromkeys(label for label, _ in found))
    heads = [f"{env}, {rate:.1e}" for env in plan.envs for rate in rates]
    rows = [
        f"| `{label}` | {' | '.join(f'{found[label, env][rate]:.3f}' for env in plan.envs for rate in rates)} |"
        for label in labels
    ]
    return "\n".join([f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|", *rows]) + "\n"


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables written anew."""
    written = {name: tables(result) for name, result in RESULTS.items()} | {
        "learning-rates": table_of_rates(),
        "against-arpo": table_against("arpo"),
    }
    for name, text in written.items():
        begin = f"<!-- {name}: written by scripts/laboratory_tables.py -->\n"
        before, there, rest = page.partition(begin)
        if there:
            page = before + begin + text + END + rest.partition(END)[2]
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
    for page in PAGES:
        page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
