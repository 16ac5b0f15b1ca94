"""A small comparison from the command to its files, with real training in a process of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.__main__ import main
from benchmarks.laboratory.run_store import GRID, RUNS, read_records

pytest.importorskip("torch")
TINY = ["groups=1", "num_generations=4", "initial_rollouts=2", "test_tasks=2"]
POLICY = ["policy.demonstrations=32", "policy.batch_size=8"]


def test_a_comparison_trains_stores_and_makes_no_run_twice(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("benchmarks.laboratory.comparison_files._drawn", lambda *_: [])  # has tests of its own
    folder = tmp_path / "lab"
    plan = ["--algorithms", "grpo", "arpo", "--envs", "short", "--seeds", "1", "--budget", "trajectories=8"]
    command = ["compare", "--output", str(folder), *plan, "--processes", "1", "--set", *TINY, *POLICY]
    assert main(command) == 0
    assert "at equal trajectories" in (printed := capsys.readouterr().out)
    records = read_records(folder / RUNS)
    assert [(record["label"], record["seed"], record["status"]) for record in records] == [
        ("grpo", 0, "finished"),
        ("arpo", 0, "finished"),
    ]
    for record in records:
        assert [point["trajectories"] for point in record["curve"]] == [4, 8]
        assert record["curve"][0]["sampled_tokens"] >= 4
        assert record["curve"][0]["update_tokens"] > record["curve"][0]["sampled_tokens"]  # with prompts and results
        assert record["final"]["episodes"] == 2 * 4
        assert record["settings"]["policy"] == {"demonstrations": 32, "batch_size": 8}
    data = json.loads((folder / "comparison.json").read_text())
    assert (data["missing"], data["axes"]["trajectories"]["budgets"]) == (0, {"short": 8})
    assert [run["totals"]["trajectories"] for run in data["runs"]] == [8, 8]
    before = {path.name: path.read_bytes() for path in (folder / GRID, folder / RUNS, folder / "comparison.json")}
    assert main(command) == 0
    assert capsys.readouterr().out == printed
    assert {name: (folder / name).read_bytes() for name in before} == before
