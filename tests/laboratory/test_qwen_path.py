"""The control of benchmarks/qwen_path.py, with a tiny policy: GRPO ends where another run's budgets are spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from arpo_trainer.export.export_model import export_model
from benchmarks import qwen_path
from benchmarks.qwen_path import BUDGETS, at_budgets, collect, grpo, spent_at, stored


def test_grpo_has_a_model_at_each_budget_and_ends_at_the_later_one(
    tiny_policy: Path, isolation: str, tmp_path: Path
) -> None:
    settings = {
        "model": str(tiny_policy),
        "env": "arpo/Arithmetic-v0",
        "env_kwargs": {"level": 1, "max_turns": 2},
        "algorithm": "arpo",
        "branch_alpha": 0.5,
        "num_generations": 8,
        "initial_rollouts": 4,
        "prompts_per_rollout": 1,
        "max_turn_length": 32,
        "max_completion_length": 96,
        "eval_tasks": 0,
        "max_steps": 3,
        "use_cpu": True,
        "lora_rank": 4,
    }
    most = {"sampled": 1, "calls": 2, "unrelated": 5}
    grpo(tmp_path, settings, most)
    points = at_budgets(tmp_path, most)
    at = {name: spent_at(points[word]) for name, word in BUDGETS.items()}
    for word in BUDGETS.values():
        export_model(points[word], tmp_path / f"model-{word}")
        assert (tmp_path / f"model-{word}" / "config.json").is_file()
    assert at["sampled"]["step"] == 1
    assert at["calls"]["calls"] >= 2
    steps = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == max(one["step"] for one in at.values()) < 100


def test_what_is_stored_of_other_seeds_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"evaluations": {"sft": {}, "arpo-5": {}}, "spent": {"arpo-5": {"calls": 3}}, "steps": {}, "seconds": {}}
    (tmp_path / "results.json").write_text(json.dumps({"path": before}))
    monkeypatch.setattr(qwen_path, "RESULTS", tmp_path / "results.json")
    found = collect(tmp_path, [4], stored())
    assert {name: found[name] for name in before} == before
