"""`python -m benchmarks.laboratory compare` from its command line, with made-up runs and with real training."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory import compare_command as lab_compare
from benchmarks.laboratory.__main__ import main
from benchmarks.laboratory.run_store import GRID, RUNS, read_records
from tests.laboratory import synthetic_runs

FORM = ["compare", "--output"]


@pytest.fixture(autouse=True)
def not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.laboratory.comparison_files._drawn", lambda *_: [])  # has tests of its own


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_compare, "training_functions", lambda: (synthetic_runs.made_up_run, lambda spec: None))


def test_a_quick_comparison_prints_tables_and_goes_on(made_up: None, tmp_path: Path, capsys: Any) -> None:
    folder = str(tmp_path / "quick")
    assert main([*FORM, folder, "--quick", "--seeds", "1", "--algorithms", "grpo"]) == 0
    assert main([*FORM, folder, "--seeds", "1", "--algorithms", "low=arpo:branch_alpha=0.6"]) == 0
    assert "AGAINST GRPO" in capsys.readouterr().out
    data = json.loads((tmp_path / "quick" / "comparison.json").read_text())
    assert [one["settings"] for one in data["plan"]["algorithms"]] == [{}, {"branch_alpha": 0.6}]
    assert data["missing"] == 0
    assert main([*FORM, folder, "--draw", "--budget", "trajectories=400"]) == 0
    assert "short (400)" in capsys.readouterr().out
    before = (tmp_path / "quick" / "comparison.json").read_bytes()
    assert main([*FORM, folder, "--draw", "--budget", "trajectories=5"]) == 1
    assert "budget trajectories=5 is less than" in capsys.readouterr().err
    assert (tmp_path / "quick" / "comparison.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--envs", "short", "--seeds", "1"], "a new comparison needs --algorithms"),
        (["--draw", "--seeds", "3"], "--draw trains nothing: leave out --seeds"),
        (["--draw"], "no comparison in"),
        (["--quick", "--baseline", "arrpo"], "did you mean 'arpo'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    made_up: None, tmp_path: Path, capsys: Any, words: list[str], error: str
) -> None:
    assert main([*FORM, str(tmp_path / "new"), *words]) == 1
    assert error in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


TINY = ["groups=1", "num_generations=4", "initial_rollouts=2", "test_tasks=2"]
POLICY = ["policy.demonstrations=32", "policy.batch_size=8"]


def test_a_comparison_trains_stores_and_makes_no_run_twice(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "lab"
    plan = ["--algorithms", "grpo", "arpo", "--envs", "short", "--seeds", "1", "--budget", "trajectories=8"]
    command = ["compare", "--output", str(folder), *plan, "--processes", "1", "--set", *TINY, *POLICY]
    assert main(command) == 0
    assert "at equal trajectories" in (printed := capsys.readouterr().out)
    records = read_records(folder / RUNS)
    found = [(record["label"], record["seed"], record["status"]) for record in records]
    assert found == [("grpo", 0, "finished"), ("arpo", 0, "finished")]
    for record in records:
        assert [point["trajectories"] for point in record["curve"]] == [4, 8]
        assert record["curve"][0]["sampled_tokens"] >= 4
        assert record["curve"][0]["update_tokens"] > record["curve"][0]["sampled_tokens"]  # with prompts and results
        assert record["final"]["episodes"] == 2 * 4
        assert record["settings"]["policy"] == {"demonstrations": 32, "batch_size": 8}
    data = json.loads((folder / "comparison.json").read_text())
    assert (data["missing"], data["axes"]["trajectories"]["budgets"]) == (0, {"short": 8})
    before = {path.name: path.read_bytes() for path in (folder / GRID, folder / RUNS, folder / "comparison.json")}
    assert main(command) == 0
    assert capsys.readouterr().out == printed
    assert {name: (folder / name).read_bytes() for name in before} == before
