"""Named suites of environments: `reasoning`, `deepsearch` and `papers`, with what the papers play of each set.

for row in suite("deepsearch"):
    row.env, row.options, row.tasks, row.metric     # "arpo/GAIA-v0", {}, 103, "accuracy"

What the papers report for each set is in `published_results`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.published_results import PAPER_SETS, TABLE_1, TABLE_2
from envs_registry import all_specs
from envs_registry.nearest_name import nearest_hint

SUITES: dict[str, tuple[str, ...]] = {
    "reasoning": TABLE_1,
    "deepsearch": TABLE_2,
    "papers": tuple(dict.fromkeys((*TABLE_1, *TABLE_2))),
}
PURPOSES = {
    "reasoning": "the ten sets of ARPO's table 1: mathematics and questions over Wikipedia and the web",
    "deepsearch": "the four sets of ARPO's table 2: deep search",
    "papers": "the thirteen sets of both tables",
}


@dataclass(frozen=True)
class SuiteRow:
    """One environment of a suite.

    Attributes:
        env: its id.
        options: options of the environment.
        tasks: how many tasks are played, the first ones.
        metric: what is compared with the papers: "accuracy" or "f1".
        subset: which part of the set the papers play.
        same_tasks: whether the first `tasks` are the papers' own; otherwise their file is needed (`data=FILE`).
        samples: samples of each task in the papers' tables.
    """

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    metric: str = "accuracy"
    subset: str = ""
    same_tasks: bool = True
    samples: int = 1


def suite(name: str) -> tuple[SuiteRow, ...]:
    """Return the environments of a suite.

    Raises:
        ValueError: there is no such suite; the message names the suites, and the nearest one or a nearby environment.
    """
    if name not in SUITES:
        ids = {spec.id.split("/")[-1].rsplit("-v", 1)[0].lower(): spec.id for spec in all_specs()}
        near = ids.get(name.lower()) or nearest_hint(name, [*SUITES, *ids.values()], "{}")
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"no suite {name!r}; there is {', '.join(SUITES)}{hint} (`arpo envs` lists environments)")
    return tuple(_row(each) for each in SUITES[name])


def suite_table() -> list[tuple[str, ...]]:
    """Return the suites as rows of a table, the first one with the columns' names."""
    rows: list[tuple[str, ...]] = [("SUITE", "ENVIRONMENT", "TASKS", "METRIC", "SUBSET")]
    for name in SUITES:
        for row in suite(name):
            own = "" if row.same_tasks else "; the same ones with data=FILE of the published code"
            rows.append((name, row.env, str(row.tasks), row.metric, row.subset + own))
    return rows


def _row(name: str) -> SuiteRow:
    known = PAPER_SETS[name]
    return SuiteRow(known.env, dict(known.options), known.tasks, known.metric, known.subset, known.same_tasks)
