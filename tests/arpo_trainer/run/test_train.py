"""Runs from settings files: what is refused before they start, and their environments."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.dry_run import plan_run
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.sft_run import cold_start_folder
from arpo_trainer.run.train import TrainingRun, train
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
