"""The table of worlds: every row makes its environment and its policy, and a real model runs as a tiny one does."""

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.sft.plain_trace import ToolResults
from benchmarks.laboratory.cold_policy import TASKS, ColdPolicySettings, demonstration
from benchmarks.laboratory.lab_worlds import WORLDS
from benchmarks.laboratory.training_run import RunSpec, start_success, training_run
from tests.conftest import tiny_llama

STORED = Path(__file__).resolve().parents[2] / "benchmarks" / "laboratory" / "results"


@pytest.mark.parametrize("name", list(WORLDS))
def test_an_episode_may_make_the_calls_that_a_task_needs(name: str) -> None:
    world = WORLDS[name]
    env, other = world.env({}), world.env({}, split="test")
    tasks: Any = env.tasks
    needed = world.calls({})
    assert len(tasks.solution(0)) <= needed <= env.budget.calls - 2
    assert needed == world.expected({})["tool_calls"]
    assert tasks.task(0) != other.tasks.task(0)


@pytest.mark.parametrize("path", sorted(STORED.rglob("runs.jsonl")), ids=lambda path: path.parent.name)
def test_stored_runs_still_say_what_they_were(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert json.loads(json.dumps(asdict(RunSpec(**record["settings"])))) == record["settings"]


@pytest.mark.parametrize(("share", "calls"), [(0.0, {1}), (0.5, {1, 2, 3}), (1.0, {3})])
def test_demonstrations_give_up_only_after_their_routine_calls(share: float, calls: set[int]) -> None:
    env, rng = TASKS["multihop"].make({}), random.Random(0)
    traces = [demonstration(env, number, share, rng, routine=1) for number in range(20)]
    assert {sum(isinstance(turn, ToolResults) for turn in trace.turns) for trace in traces} == calls


def test_a_real_model_is_started_cold_and_trained(
    tokenizer: Any, isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = tmp_path / "model", tmp_path / "cache"
    tiny_llama(len(tokenizer)).save_pretrained(model)
    tokenizer.save_pretrained(model)
    monkeypatch.setenv("ARPO_CACHE", str(cache))
    policy = {"model": str(model), "demonstrations": 16, "batch_size": 8, "bf16": False}
    settings = {"num_generations": 2, "initial_rollouts": 1, "max_turn_length": 8, "bf16": False}
    spec = RunSpec(
        "tree-grpo", "trees", "arithmetic", 0, {"trajectories": 4}, {"notes": 1}, 1, settings, policy, test_tasks=1
    )
    record = training_run(spec, tmp_path / "run")
    assert (record["env"], record["status"]) == ("arithmetic", "finished")
    assert [point["trajectories"] for point in record["curve"]] == [2, 4]
    assert isinstance(spec.policy_settings, ColdPolicySettings)
    assert {path.name for path in (cache / "lab-policies").iterdir() if path.is_dir()} == {
        spec.policy_settings.folder.name
    }
    assert start_success(spec.policy_settings, tasks=1, samples=1)["episodes"] == 1
