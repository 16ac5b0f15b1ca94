"""Runs from settings files: what is refused before they start, and their environments."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

import arpo_env
from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.dry_run import RunEnvironments, plan_run
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.sft_run import cold_start_folder, demonstrated_traces
from arpo_trainer.run.train import TrainingRun, train
from envs_registry import Task
from envs_registry.datasets.hub import offline


def test_a_model_that_is_not_there_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    settings = {"model": str(tmp_path / "none"), "output_dir": str(tmp_path / "out"), "bf16": False}
    with pytest.raises(FileNotFoundError, match="does not exist"):
        train(settings)
    with pytest.raises(FileNotFoundError, match="'nobody/no-such-model' is not in the cache"):
        train({**settings, "model": "nobody/no-such-model"})
    assert not (tmp_path / "out").exists()


def test_without_a_network_nothing_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run says what is missing, and a trainer refuses; both name what sets the hub."""
    import datasets
    from huggingface_hub import constants

    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # a closed port
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("ARPO_DATA", raising=False)
    offline.cache_clear()
    try:
        settings = read_settings("arpo-qwen2.5-3b-math-lora", [f"output_dir={tmp_path}", "use_vllm=false"])
        costs, missing = (plan := plan_run(settings)).costs, plan.missing
        with pytest.raises(FileNotFoundError) as refused:
            ARPOTrainer("owner/model", ToolEnv("arpo/Arithmetic-v0"), args=ARPOConfig(str(tmp_path), use_cpu=True))
    finally:
        offline.cache_clear()
    assert not costs.notes
    for text in (*missing, str(refused.value)):
        assert "127.0.0.1:9: check the network" in text
        assert {"HF_ENDPOINT", "HF_HUB_OFFLINE"} <= set(re.findall(r"\w+", text))
    assert len(missing) == 3  # the tasks of both environments, and the model
    assert not pauses


def test_a_cold_start_of_tasks_without_solutions_is_refused(tmp_path: Path, isolation: str) -> None:
    overlapping(tmp_path, "allow")
    settings = {"output_dir": str(tmp_path / "out"), "bf16": False, "env": "arpo/GSM8K-v0", "cold_start_examples": 5}
    with pytest.raises(ValueError, match="a cold start needs tasks with known solutions"):
        train({**settings, "env_kwargs": {"data": str(tmp_path)}})
    assert not (tmp_path / "out").exists()


def overlapping(folder: Path, overlap: str) -> TrainingRun:
    """A run that trains on questions 0 to 4 and evaluates on 3 to 7."""
    for name, numbers in (("train", range(5)), ("test", range(3, 8))):
        lines = (f'{{"question": "Question {n}?", "answer": "#### {n}"}}\n' for n in numbers)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    run = RunArguments(env="arpo/GSM8K-v0", env_kwargs={"data": str(folder)}, eval_tasks=4, overlap=overlap)
    return TrainingRun(run, ARPOConfig(output_dir=str(folder / "out"), use_cpu=True, bf16=False), {})


@pytest.mark.parametrize(("overlap", "left"), [("refuse", 5), ("drop", 3), ("allow", 5)])
def test_overlapping_tasks_are_refused_dropped_or_kept(tmp_path: Path, overlap: str, left: int, caplog: Any) -> None:
    run = overlapping(tmp_path, overlap)
    cure = r"2 of 4 .* \(Question 3\?; Question 4\?\).*overlap to 'drop'.*'allow'"
    with pytest.raises(ValueError, match=cure) if overlap == "refuse" else contextlib.nullcontext():
        run.environments.check(run.args)
    assert run.environments.train.tasks.size == left
    assert ("2 of 4 evaluation tasks are trained on" in caplog.text) == (overlap != "refuse")


class Sums:
    """Tasks from a number on, with their solutions."""

    size, solution_tool = 40, "python"

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def task(self, index: int) -> Task:
        number = self.first + index % self.size
        return Task(str(number), f"{number} + 1?", (str(number + 1),), kind="math")

    def solution(self, index: int) -> tuple[str, ...]:
        return (self.task(index).question[:-1],)


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize(("overlap", "shown"), [("refuse", 0), ("drop", 4), ("allow", 0)])
def test_a_cold_start_does_not_show_what_is_evaluated(tmp_path: Path, overlap: str, shown: int) -> None:
    """Of the tasks 0 to 7 the first four are evaluated; training has others."""
    arpo_env.register("mine/Sums-v0", Sums)
    other: dict[str, Any] = {"eval_env_kwargs": {"first": 0}, "cold_start_env_kwargs": {"first": 0}, "overlap": overlap}
    run = RunArguments(env="mine/Sums-v0", env_kwargs={"first": 50}, eval_tasks=4, cold_start_examples=8, **other)
    environments, args = RunEnvironments(run), ARPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(ValueError, match="4 of 4 eval") if overlap == "refuse" else contextlib.nullcontext():
        environments.check_tasks(args)
    assert environments.cold_start
    traces = list(demonstrated_traces(environments.cold_start, 8, tool_share=0.0))
    assert traces[0].question == f"{shown} + 1?"
    assert environments.train.tasks.task(0).question == "50 + 1?"


def test_cold_starts_are_kept_apart_by_their_settings() -> None:
    one = cold_start_folder(RunArguments(), "m", "p", 0)
    assert one == cold_start_folder(RunArguments(eval_tasks=3), "m", "p", 0)
    others = [
        cold_start_folder(RunArguments(cold_start_examples=9), "m", "p", 0),
        cold_start_folder(RunArguments(env_kwargs={"level": 1}), "m", "p", 0),
        cold_start_folder(RunArguments(), "m", "another prompt", 0),
        cold_start_folder(RunArguments(), "m", "p", 1),
        cold_start_folder(RunArguments(), "m", "p", 0, "hermes"),
        cold_start_folder(RunArguments(), "m", "p", 0, bf16=False),
        cold_start_folder(RunArguments(), "m", "p", 0, packing=False),
    ]
    assert one not in others
