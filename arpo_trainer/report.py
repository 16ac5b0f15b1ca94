"""The run report: one self-contained HTML file that opens without a network.

`write_report` reads a run directory (see `report_data`) and writes `report.html` into it: results, learning curves,
rollout trees, evaluation samples, settings. The page is put together from the parts in `report_page/`, with the data
put in as JSON; it loads nothing, and a content security policy lets only that one script run, so text a model wrote
stays text. What this module does not do: measure (see `rollout_metrics` and `evaluation`).

    arpo report runs/arithmetic-cpu
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from arpo_trainer.report_data import TREES, RunData, load_run
from arpo_trainer.tree import RolloutTree, Span

__all__ = ["RunData", "load_run", "write_report"]

_SCRIPTS = ("tools", "results", "curves", "layout", "trees", "panel", "tables")
_DIGITS = 6
_PER_NAT = 1000


def write_report(run_dir: Path, *, trees: int = TREES) -> Path:
    """Write `run_dir/report.html`, also for a run that still goes on or lacks files, and return it.

    Args:
        run_dir: the run's output directory.
        trees: at most this many rollout trees are put in, even over the steps; the page says if some are left out.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: a line of a file is broken (names file and line), or `trees` is below 1.
    """
    run_dir = Path(run_dir)
    page = render(load_run(run_dir, trees=trees))
    path = run_dir / "report.html"
    unfinished = run_dir / "report.html.unfinished"
    unfinished.write_text(page, encoding="utf-8", errors="replace")
    unfinished.replace(path)
    return path


def render(data: RunData) -> str:
    """Return the page."""
    style, script = _part("style.css"), _script()
    parts = {
        "title": html.escape(str(data.facts.get("name") or data.folder.resolve().name)),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "data": _embed(payload(data)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _part("index.html"))


def payload(data: RunData) -> dict[str, Any]:
    """Return what the page is drawn from, as plain data.

    Samples of the first and the last evaluation are kept, those between are left out.
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
    """Return what to add to the trees' steps so that they match the metrics'.

    A rollout may count the updates made before it (from 0), where the log counts the updates made (from 1).
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


def _embed(value: Any) -> str:
    """Return JSON that may stand inside a script element: no `<` in it, no NaN."""
    text = json.dumps(_clean(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c")


def _clean(value: Any) -> Any:
    """Return plain data with short floats, and None where a number is not finite: JSON has no word for those."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(entry) for entry in value]
    return value


def _policy(style: str, script: str) -> str:
    """Return a content security policy: nothing is loaded, and only this style and this script count."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script() -> str:
    """Return the page's script: its parts share one scope; later ones use what earlier ones define."""
    return '"use strict";\n(() => {\n' + "\n".join(_part(f"{name}.js") for name in _SCRIPTS) + "})();\n"


def _part(name: str) -> str:
    return resources.files("arpo_trainer").joinpath("report_page", name).read_text(encoding="utf-8")
