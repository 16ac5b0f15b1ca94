"""Pairs that the graders were not written for: shares of right forms that are accepted and of wrong ones that are paid.

Read held_out/README.md before you look at the pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env.event_loop import run
from arpo_env.grading import make_grader
from envs_registry import Task

# kind: least share of right forms with full value, most share of wrong ones with any value (with full value if partial)
BOUNDS = {"math": (0.97, 0.005), "qa": (0.94, 0.005), "mcq": (0.91, 0.0)}
FILES = {"math": "math", "qa": "qa", "mcq": "choice"}


def pairs(name: str) -> list[dict[str, Any]]:
    lines = (Path(__file__).parent / "held_out" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", BOUNDS)
def test_held_out_pairs(kind: Any) -> None:
    grader, rows = make_grader(kind), pairs(FILES[kind])

    async def values() -> list[float]:
        found = []
        for number, row in enumerate(rows):
            golds = tuple(row.get("golds") or [row["gold"]])
            task = Task(str(number), row.get("question") or "What is it?", golds, kind)
            found.append((await grader.grade(row["answer"], task)).value)
        await grader.close()
        return found

    scored = list(zip(rows, run(values()), strict=True))
    right = [value == 1.0 for row, value in scored if row["right"]]
    paid = [value == 1.0 if row.get("partial") else value > 0.0 for row, value in scored if not row["right"]]
    least, most = BOUNDS[kind]
    assert sum(right) / len(right) >= least
    assert sum(paid) / len(paid) <= most
