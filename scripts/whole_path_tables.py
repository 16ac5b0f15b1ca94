"""Writes the tables of docs/results/whole-path.md from docs/results/whole-path.json.

python -m scripts.whole_path_tables
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.statistics import clustered_interval

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "whole-path.md"
RESULTS = ROOT / "docs" / "results" / "whole-path.json"
END = "<!-- end of table -->\n"
STAGES = {"start": "before", "sft": "synthesis and sft", "train": "ARPO", "dpo": "self-critic DPO"}
Run = dict[str, Any]


def table(runs: list[Run]) -> str:
    """Return success after each stage as Markdown: a column for each seed, and with several the mean of all."""
    several = len(runs) > 1
    heads = ["after", *(f"seed {run['seed']}" for run in runs), *(["mean", "change"] if several else ["calls"])]
    rows = []
    for stage, words in STAGES.items():
        found = [run["stages"][stage] for run in runs]
        cells = [_cell(one) for one in found]
        rows.append([words, *cells, *(_over_seeds(stage, runs) if several else [f"{found[0]['calls']:.1f}"])])
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n\n" + _facts(runs)


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables written anew."""
    data: dict[str, list[Run]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, runs in data.items():
        begin = f"<!-- {name}: written by scripts/whole_path_tables.py -->\n"
        before, mark, rest = page.partition(begin)
        if not mark:
            raise ValueError(f"{PAGE.name} has no place for the results of {name}: write {begin.strip()!r}")
        page = before + begin + table(runs) + END + rest.partition(END)[2]
    return page


def _cell(one: Run) -> str:
    return f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def _over_seeds(stage: str, runs: list[Run]) -> list[str]:
    """Return the mean over seeds, and the mean change since the stage before, each with its interval over seeds."""
    order = list(STAGES)
    mean = clustered_interval([[run["stages"][stage]["mean"]] for run in runs])
    cells = [f"{mean.mean:.3f} [{max(mean.low, 0.0):.3f}, {min(mean.high, 1.0):.3f}]"]
    if stage == order[0]:
        return [*cells, ""]
    earlier = order[order.index(stage) - 1]
    change = clustered_interval([[run["stages"][stage]["mean"] - run["stages"][earlier]["mean"]] for run in runs])
    return [*cells, f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"]


def _facts(runs: list[Run]) -> str:
    def each(part: str, name: str) -> str:
        found = [str(run[part][name]) for run in runs]
        return found[0] if len(set(found)) == 1 else ", ".join(found)

    minutes = [run["minutes"]["cpu"] for run in runs if run["minutes"]]
    took = f" CPU minutes a seed, evaluations included: {statistics.fmean(minutes):.1f}." if minutes else ""
    tasks = runs[0]["stages"]["start"]["tasks"]
    return (
        f"{tasks} held-out tasks, one sample each. Rows for sft: {each('synth', 'rows')}, of {each('synth', 'played')} "
        f"samples. Pairs for DPO: {each('dpo', 'pairs')}, of {each('dpo', 'trajectories')} trajectories.{took}\n"
    )


def main() -> int:
    """Write the tables."""
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
