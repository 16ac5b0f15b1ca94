"""Settings that cannot be are refused by name before anything is loaded, with what they may be."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer import ARPOConfig
from arpo_trainer.run.arguments import RunArguments, batch_settings, configure
from arpo_trainer.run.launch import add_launch_flags, check_launch_flags
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.training.config_checks import check_vllm_length
from arpo_trainer.training.process_count import planning
from envs_registry.spec import UnknownEnvError


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"lora_rank": "8"}, "lora_rank must be a whole number, got '8'"),
        ({"lora_alpha": 0}, "lora_alpha must be at least 1"),
        ({"lora_dropout": 2.0}, "lora_dropout is a share"),
        ({"eval_tasks": 2.5}, "eval_tasks must be a whole number"),
        ({"model": None}, "model must be text"),
        ({"prompts_per_update": 0}, "prompts_per_update must be at least 1"),
        ({"search_price": "much"}, "search_price must be a finite number"),
        ({"cold_start_tool_share": 3.0}, "cold_start_tool_share is a share"),
        ({"env_kwargs": 5}, "env_kwargs must be options by name"),
    ],
)
def test_a_run_argument_of_the_wrong_kind_is_named(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RunArguments(**setting)


@pytest.mark.parametrize("size", [0, "two"])
def test_a_batch_of_no_rows_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="per_device_train_batch_size must be a whole number, at least 1"):
        batch_settings(128, 16, 16, size, 8)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"learning_rate": "fast"}, "learning_rate must be a finite number"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps must be at least 1"),
        ({"use_vllm": True, "vllm_mode": "colocated"}, "vllm_mode"),
        ({"use_vllm": True, "vllm_importance_sampling_mode": "token"}, "vllm_importance_sampling_mode"),
        ({"use_vllm": True, "vllm_gpu_memory_utilization": 45.0}, "is a share of the GPU"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 4}, "use a number that divides them"),
        ({"rollout_workers": 4}, "rollout workers generate on a server"),
        ({"ray_address": "auto", "use_vllm": True, "vllm_mode": "colocate"}, "rollout workers generate on a server"),
        ({"rollout_workers": 1, "use_vllm": True, "vllm_mode": "server"}, "fewer than the 2 training processes"),
        ({"rollout_workers": -1}, "rollout_workers and rollout_worker_cpus must be at least 0"),
        ({"rollout_worker_resources": {"sandbox": "many"}}, "give a number by name"),
    ],
)
def test_what_would_fail_on_a_gpu_is_refused_here(setting: dict[str, Any], words: str, tmp_path: Path) -> None:
    with planning(2), pytest.raises(ValueError, match=words):
        ARPOConfig(output_dir=str(tmp_path), use_cpu=True, num_generations=2, **setting)


def test_an_engine_has_room_for_a_prompt_before_a_full_completion() -> None:
    args = SimpleNamespace(use_vllm=True, vllm_mode="colocate", vllm_max_model_length=3072, max_completion_length=4096)
    check_vllm_length(args, 2048)
    with pytest.raises(ValueError, match="no place for a prompt and 4096 tokens"):
        check_vllm_length(args, None)


def test_an_override_that_is_no_yaml_is_named() -> None:
    with pytest.raises(ValueError, match=r"--set 'lora_target_modules=\[q_proj'"):
        read_settings("arithmetic-cpu", ["lora_target_modules=[q_proj"])


def test_a_base_is_looked_for_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "common.yaml").write_text("seed: 7\n")
    (tmp_path / "mine.yaml").write_text("base: common.yaml\nmax_steps: 2\n")
    assert read_settings(str(tmp_path / "mine.yaml"), []) == {"seed": 7, "max_steps": 2}


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        (["--num_processes", "2"], True),
        (["--num_processes", "2", "--dry-run"], False),
        (["--num_processes", "2", "--accelerate_config", "ddp"], False),
        (["--machine_rank", "1"], True),
        ([], False),
    ],
)
def test_flags_that_would_start_nothing_are_refused(flags: list[str], refused: bool) -> None:
    parser = argparse.ArgumentParser()
    add_launch_flags(parser)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args(flags)
    if not refused:
        return check_launch_flags(arguments)
    with pytest.raises(ValueError, match="without --accelerate-config starts nothing"):
        check_launch_flags(arguments)


def test_an_environment_that_is_not_there_is_named_before_anything_is_loaded() -> None:
    with pytest.raises(UnknownEnvError, match="Did you mean: arpo/Arithmetic-v0"):
        configure(read_settings("arithmetic-cpu", ["env=arpo/Arithmetik-v0"]))


@pytest.mark.parametrize(("started", "warned"), [(4, True), (8, False), (16, False)])
def test_only_fewer_processes_than_written_for_are_warned_about(
    started: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with planning(started):
        configure(read_settings("arpo-qwen2.5-7b-reasoning", []))
    assert ("written for 8 processes" in caplog.text) == warned


def test_one_process_on_several_gpus_is_warned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    configure(read_settings("arithmetic-cpu", []))
    assert "2 GPUs here and one process" in caplog.text


@pytest.mark.parametrize(("given", "expected"), [({}, (1, 10)), ({"logging_steps": 5}, (5, 5))])
def test_every_step_is_logged_and_the_interval_of_evaluations_stays(given: Any, expected: tuple[int, int]) -> None:
    _, args = configure({"eval_strategy": "steps", **given})
    assert (args.logging_steps, args.eval_steps) == expected
