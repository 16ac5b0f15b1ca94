"""The run report: one self-contained HTML file that opens without a network.

`write_report` reads a run directory (see `run_data`) and writes `report.html` into it: results, learning curves,
rollout trees, evaluation samples and settings. `html_page` builds the page, `rollout.metrics` and `training.evaluation`
have measured, and `timeline_page` shows what trajectories waited for.

    arpo report runs/arithmetic-cpu
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from arpo_trainer.report.html_page import make_page, write_page
from arpo_trainer.report.run_data import TREES, RunData, load_run
from arpo_trainer.report.tree_data import tree_data

__all__ = ["RunData", "load_run", "write_report"]

_SCRIPTS = ("tools", "header", "results", "curves", "layout", "trees", "panel", "tables")


def write_report(run_dir: str | Path, *, trees: int = TREES) -> Path:
    """Write `run_dir/report.html`, also for a run that is still running or lacks files, and return its path.

    Args:
        run_dir: the output directory of the run.
        trees: most rollout trees to include, spread evenly over the steps; the page says if some are left out.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: a line of a file cannot be read (names file and line), or `trees` is below 1.
    """
    run_dir = Path(run_dir)
    return write_page(run_dir / "report.html", render(load_run(run_dir, trees=trees)))


def render(data: RunData) -> str:
    """Return the page."""
    title = str(data.facts.get("name") or data.folder.resolve().name)
    return make_page("index.html", title, ["style.css"], [f"{name}.js" for name in _SCRIPTS], payload(data))


def payload(data: RunData) -> dict[str, Any]:
    """Return the data that the page draws.

    It has the samples of the first and the last evaluation only.
    """
    last = len(data.evaluations) - 1
    evaluations = [row if index in (0, last) else {**row, "samples": []} for index, row in enumerate(data.evaluations)]
    offset = _step_offset(data)
    return {
        "facts": {"name": data.folder.resolve().name, **data.facts},
        "metrics": data.metrics,
        "evaluations": evaluations,
        "trees": [tree_data(tree, offset) for tree in data.trees],
        "tree_total": data.tree_total,
        "tree_steps": data.tree_steps,
        "trace_bytes": data.trace_bytes,
        "notes": data.notes,
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _step_offset(data: RunData) -> int:
    """Return what to add to the steps of trees so that they match those of the metrics.

    A rollout may count the updates before it (from 0), while the log counts the updates made (from 1).
    """
    logged = [row["step"] for row in data.metrics if isinstance(row.get("step"), int)]
    rolled = [tree.meta["step"] for tree in data.trees if isinstance(tree.meta.get("step"), int)]
    return int(bool(logged and rolled) and min(logged) == 1 and min(rolled) == 0)
