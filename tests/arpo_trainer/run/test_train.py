"""Runs from settings files: what is refused before they start, their environments, and one from start to end."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.models import check_model_folder
from arpo_trainer.run.arguments import RunArguments, split_settings
from arpo_trainer.run.dry_run import plan_run
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.run.sft_run import cold_start_folder
from arpo_trainer.run.train import TrainingRun, train
from envs_registry.datasets.hub import offline


def test_settings_files_are_found_read_and_overridden(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("seed: 1\nenv_kwargs: {level: 2}\n")
    read = read_settings(str(path), ["seed=7", "env=arpo/GSM8K-v0", "learning_rate=1e-5"])
    assert read == {"learning_rate": 1e-5, "seed": 7, "env": "arpo/GSM8K-v0", "env_kwargs": {"level": 2}}
    run, values = split_settings({**read_settings(path), "env": "x", "model": tmp_path, "output_dir": tmp_path})
    assert (run.model, values["output_dir"]) == (str(tmp_path), str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"Recipes: .*arithmetic-cpu"):
        read_settings("nothing", [])
    path.write_text("seed: 1\nlevel: [1, 2\n")
    with pytest.raises(ValueError, match=r"my\.yaml, line 3, column 1"):
        read_settings(str(path), [])


def test_a_wrong_model_folder_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"does not exist; did you mean 'smollm2-135m'\? Give a folder"):
        check_model_folder("smollm-135m")
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json \(it holds: weights\.bin\)"):
        check_model_folder(str(tmp_path))
    check_model_folder("Qwen/Qwen2.5-3B-Instruct")  # a hub id is not looked at
    settings = {"model": str(tmp_path / "none"), "output_dir": str(tmp_path / "out"), "bf16": False}
    with pytest.raises(FileNotFoundError, match="does not exist"):
        train(settings)
    with pytest.raises(FileNotFoundError, match="'nobody/no-such-model' is not in the cache"):
        train({**settings, "model": "nobody/no-such-model"})
    assert not (tmp_path / "out").exists()


def test_an_occupied_folder_is_refused_before_tasks_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text("{}\n")
    with pytest.raises(FileExistsError, match="holds a run"):
        train({"output_dir": str(tmp_path), "bf16": False, "env_kwargs": {"level": "none"}})


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
        said = [*costs.notes, *missing]
        with pytest.raises(FileNotFoundError) as refused:
            ARPOTrainer("owner/model", ToolEnv("arpo/Arithmetic-v0"), args=ARPOConfig(str(tmp_path), use_cpu=True))
    finally:
        offline.cache_clear()
    assert not costs.notes
    for text in (*said, str(refused.value)):
        assert "127.0.0.1:9: check the network" in text
        assert {"HF_ENDPOINT", "HF_HUB_OFFLINE"} <= set(re.findall(r"\w+", text))
    assert len(missing) == 3  # the tasks of both environments, and the model
    assert not pauses


def test_a_run_that_would_be_evaluated_on_its_training_tasks_is_refused(tmp_path: Path, isolation: str) -> None:
    data = tmp_path / "gsm.jsonl"
    data.write_text("".join(f'{{"question": "q{n}?", "answer": "#### {n}"}}\n' for n in range(3)))
    settings = {"output_dir": str(tmp_path / "out"), "bf16": False, "env": "arpo/GSM8K-v0"}
    with pytest.raises(ValueError, match="3 of 3 evaluation tasks are trained on"):
        train({**settings, "env_kwargs": {"data": str(data)}})
    with pytest.raises(ValueError, match="a cold start needs tasks with known solutions"):
        train({**settings, "env_kwargs": {"data": str(data)}, "cold_start_examples": 5})
    assert not (tmp_path / "out").exists()


def overlapping(folder: Path, overlap: str) -> TrainingRun:
    """A run that trains on questions 0 to 4 and evaluates on 3 to 7."""
    for name, numbers in (("train", range(5)), ("test", range(3, 8))):
        lines = (f'{{"question": "Question {n}?", "answer": "#### {n}"}}\n' for n in numbers)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    run = RunArguments(env="arpo/GSM8K-v0", env_kwargs={"data": str(folder)}, eval_tasks=4, overlap=overlap)
    return TrainingRun(run, ARPOConfig(output_dir=str(folder / "out"), use_cpu=True, bf16=False), {})


@pytest.mark.parametrize(("overlap", "left"), [("refuse", 5), ("drop", 3), ("allow", 5)])
def test_overlapping_tasks_are_refused_dropped_or_kept_on_demand(
    tmp_path: Path, overlap: str, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    run = overlapping(tmp_path, overlap)
    cure = r"2 of 4 .* \(Question 3\?; Question 4\?\).*overlap to 'drop'.*'allow'"
    with pytest.raises(ValueError, match=cure) if overlap == "refuse" else contextlib.nullcontext():
        run.environments.check(run.args)
    assert run.environments.train.tasks.size == left
    assert ("2 of 4 evaluation tasks are trained on" in caplog.text) == (overlap != "refuse")


def test_cold_starts_are_kept_apart_by_their_settings() -> None:
    one = cold_start_folder(RunArguments(), "m", "p", 0)
    assert one == cold_start_folder(RunArguments(eval_tasks=3), "m", "p", 0)
    for other in (
        cold_start_folder(RunArguments(cold_start_examples=9), "m", "p", 0),
        cold_start_folder(RunArguments(env_kwargs={"level": 1}), "m", "p", 0),
        cold_start_folder(RunArguments(), "m", "another prompt", 0),
        cold_start_folder(RunArguments(), "m", "p", 1),
        cold_start_folder(RunArguments(), "m", "p", 0, bf16=False),
        cold_start_folder(RunArguments(), "m", "p", 0, packing=False),
    ):
        assert other != one


@pytest.mark.usefixtures("isolation")
def test_a_whole_run_from_a_file(tiny_policy: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    config = tmp_path / "run.yaml"
    config.write_text(
        f"output_dir: {out}\nmodel: {tiny_policy}\nenv_kwargs: {{level: 3}}\neval_tasks: 3\nmax_steps: 1\n"
        "cold_start_examples: 4\ncold_start_epochs: 1\nbf16: false\nnum_generations: 4\n"
        "per_device_train_batch_size: 4\ngradient_accumulation_steps: 1\nmax_completion_length: 120\n"
        "max_turn_length: 32\ngradient_checkpointing: false\nlogging_steps: 1\nsave_strategy: 'no'\nthreads: 1\n"
    )
    assert main(["--traceback", "train", "--config", str(config)]) == 0
    page = (out / "report.html").read_text()
    assert "arpo/Arithmetic-v0" in page
    evaluations = [json.loads(line) for line in (out / "eval.jsonl").read_text().splitlines()]
    assert [evaluation["name"] for evaluation in evaluations] == ["before", "after"]
    assert json.loads((out / "run.json").read_text())["status"] == "finished"
    assert (out / "model" / "config.json").exists()
    shown = capsys.readouterr()
    assert "step   1  reward" in shown.out + shown.err
