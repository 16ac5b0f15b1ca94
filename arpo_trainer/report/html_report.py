"""The run report: one self-contained HTML file that opens without a network.

`write_report` reads a run directory (see `run_data`) and writes `report.html` into it: results, learning curves,
rollout trees, evaluation samples and settings. `html_page` builds the page, `rollout.metrics` and `training.evaluation`
have measured, and `timeline_page` shows what trajectories waited for.

    arpo report runs/arithmetic-cpu
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arpo_trainer.report.html_page import make_page, write_page
from arpo_trainer.report.run_data import TREES, RunData, load_run
from arpo_trainer.rollout.metrics import fork_contrasts
from arpo_trainer.tree import RolloutTree, Span

__all__ = ["RunData", "load_run", "write_report"]

_SCRIPTS = ("tools", "header", "results", "curves", "layout", "trees", "panel", "tables")
_PER_NAT = 1000  # whole numbers keep the page small: each token of the model has two of them


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
        "trees": [_tree(tree, offset) for tree in data.trees],
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


def _tree(tree: RolloutTree, offset: int) -> dict[str, Any]:
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
        "spans": [_span(span) for span in tree.spans],
        "trajectories": [asdict(trajectory) for trajectory in tree.trajectories],
    }


def _span(span: Span) -> dict[str, Any]:
    """Return a span without its ids; entropies and log-probabilities as whole thousandths of a nat."""
    entry: dict[str, Any] = {"parent": span.parent, "kind": span.kind, "n": len(span.ids), "text": span.text}
    if span.kind == "model":
        entry |= {
            "finish": span.finish,
            "entropies": _thousandths(span.entropies),
            "logprobs": _thousandths(span.logprobs),
        }
    if span.tool:
        entry["tool"] = span.tool
    if span.decision:
        entry["decision"] = asdict(span.decision)
    return entry


def _thousandths(values: Sequence[float]) -> list[int | None]:
    return [round(value * _PER_NAT) if math.isfinite(value) else None for value in values]
