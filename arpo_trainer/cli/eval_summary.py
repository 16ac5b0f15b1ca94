"""The table that `arpo eval` prints: the score of each model on each environment, beside the published numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.text_table import write_table

if TYPE_CHECKING:
    from arpo_trainer.evaluation.episode_store import EvalRun

_COLUMNS = ("MODEL", "ENVIRONMENT", "MEASURE", "SCORE [95 %]", "TASKS", "SAMPLES", "BROKEN", "CALLS", "TOKENS")
_SHOWN = 4  # published numbers below a score


def write_summary(found: EvalRun, most: float) -> int:
    """Write the table of a run and what broke, and return the exit status of the command.

    Args:
        found: the run.
        most: largest share of episodes that may have broken for status 0.
    """
    from arpo_trainer.evaluation.eval_metrics import results
    from arpo_trainer.evaluation.eval_session import broken_share
    from arpo_trainer.evaluation.unit_row import broken_causes

    rows, notes = eval_table(results(found.rows, found.facts))
    write_table(rows, notes)
    sys.stdout.write(f"\narpo view {found.folder}\n")
    share = broken_share(found)
    if not share:
        return 0
    causes = ", ".join(f"{cause} {count}" for cause, count in broken_causes(found.rows).most_common())
    sys.stderr.write(
        f"{100 * share:.1f} % of the episodes broke ({causes}) and are not scored; after mending the cause: "
        f"arpo eval retry {found.folder}\n"
    )
    return 1 if share > most else 0


def eval_table(results: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return results.json as rows of a table, and a note below each row."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    notes = [""]
    for entry in results["scores"]:
        score = entry["score"] or {}
        calls = sum(entry["calls"].values())
        rows.append(
            (
                entry["model"],
                entry["env"],
                entry["metric"],
                _interval(score),
                str(score.get("tasks", 0)),
                str(score.get("samples", 0)),
                ", ".join(f"{cause} {count}" for cause, count in entry["broken"].items()) or "-",
                f"{calls:.1f}",
                f"{entry['tokens']:,.0f}" if entry["tokens"] is not None else "-",
            )
        )
        helped = _inference_tools(entry.get("inference_tools", {}), entry["scored"]) + _helper(entry.get("helper", {}))
        notes.append("; ".join([*_passes(entry["pass"]), *helped, *_published(entry["published"])]))
    return rows, notes


def _interval(score: Mapping[str, Any]) -> str:
    if not score:
        return "nothing scored"
    if score["low"] is None:
        return f"{100 * score['mean']:.1f}"
    return f"{100 * score['mean']:.1f} [{100 * score['low']:.1f}, {100 * score['high']:.1f}]"


def _passes(passes: Mapping[str, float]) -> list[str]:
    """Return pass@k and pass^k; for k = 1 both are the accuracy."""
    return [f"{name} {100 * value:.1f}" for name, value in passes.items() if not name.endswith(("@1", "^1"))]


def _inference_tools(tools: Mapping[str, Mapping[str, int]], scored: int) -> list[str]:
    """Return how often each tool at inference time was used."""
    return [
        f"{name} in {each['episodes']} of {scored} episodes" + (f", failed {each['failed']}x" if each["failed"] else "")
        for name, each in tools.items()
    ]


def _helper(helper: Mapping[str, float | None]) -> list[str]:
    """Return what the model that helps these tools has used; it is not in the columns, which are of the policy."""
    if not helper:
        return []
    cost = "" if helper["cost"] is None else f", {helper['cost']:.4g} USD"
    return [f"helper: {helper['requests']} requests, {helper['context']:,} tokens in, {helper['tokens']:,} out{cost}"]


def _published(published: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = [row for row in published.get("rows", ()) if not row["part"]]
    if not rows:
        return []
    named = ", ".join(f"{row['model']} {row['method']} {row['value']:g}" for row in _best(rows))
    reasons = "; ".join(published["differs"])
    return [f"published ({published['metric']}): {named}" + (f" (not comparable: {reasons})" if reasons else "")]


def _best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results of the papers' own methods; without any, the first rows."""
    own = [row for row in rows if row["method"] in ("ARPO", "AEPO", "Tool-Star") and "pass" not in row["metric"]]
    return (own or list(rows))[:_SHOWN]
