"""Starting several processes: the command line, which process is where, what is refused; and one writer a folder."""

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.folder_lock import LOCK, lock_folder
from arpo_trainer.preference.dpo_run import dpo
from arpo_trainer.run import pipeline
from arpo_trainer.run.dry_run import Placement, plan_run
from arpo_trainer.run.launch import CONFIGS, LaunchFlags, launch_command
from arpo_trainer.run.sft_run import sft
from arpo_trainer.run.train import train
from tests.waiting import has_ended, wait_for


def test_the_command_is_this_one_without_the_launch_flags() -> None:
    flags = ["--accelerate_config", "ddp", "--num_processes", "2"]
    argv = ["--traceback", "train", "--config", "x", *flags, "--set", "a=1"]
    command = launch_command(LaunchFlags("ddp", 2), argv)
    assert command[-8:] == ["-m", "arpo_trainer.cli", "--traceback", "train", "--config", "x", "--set", "a=1"]
    assert command[1:5] == ["-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / "ddp.yaml")]
    assert command[command.index("--num_processes") + 1] == "2"


@pytest.mark.parametrize(
    ("flags", "cure"),
    [
        (LaunchFlags("fsdp"), "did you mean 'fsdp2'"),
        (LaunchFlags("ddp", 8, 2), "needs --main-process-ip"),
        (LaunchFlags("ddp"), "give --num-processes"),
        (LaunchFlags("fsdp2", 2), "FSDP needs GPUs.*take ddp"),
    ],
)
def test_what_cannot_start_without_gpus_says_why(flags: LaunchFlags, cure: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ValueError, match=cure):
        launch_command(flags, [])


def test_a_launcher_in_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["train", "--recipe", "arithmetic-cpu", "--accelerate_config", "ddp"]) == 1
    assert "leave it out under a launcher" in capsys.readouterr().err


SERVER: dict[str, Any] = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://me:secret@n9:8000"}
COLOCATE: dict[str, Any] = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}
GIVEN: dict[str, Any] = {"env": "arpo/Arithmetic-v0", "eval_tasks": 0, "bf16": False, "num_generations": 4}
GIVEN |= {"per_device_train_batch_size": 4, "prompts_per_rollout": 32, "max_steps": 2, "max_completion_length": 120}


def placed(model: Path, processes: int = 1, machines: int = 1, config: str | None = None, **more: Any) -> Placement:
    planned = plan_run({"model": str(model), **GIVEN, **more}, processes, config)
    return Placement(planned, machines, "n0" if machines > 1 else None)


def text(*given: Any, **more: Any) -> dict[str, str]:
    return {name: f"{amount} | {remark}" for name, amount, remark in placed(*given, **more).rows()}


def test_machines_engines_servers_workers_and_sandboxes_are_named(tiny_policy: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ARPO_SANDBOX", "http://me:secret@n5:8080,http://n6:8080")
    shown = text(tiny_policy, 32, 4, "fsdp2", **SERVER, rollout_workers=32, ray_address="n0:6379")
    assert shown["machine 0 (n0)"].startswith("processes 0 .. 7 | training, a GPU each; fsdp: a share of")
    assert shown["machines 1 .. 3"] == "processes 8 .. 31 | training, 8 on each"
    assert shown["vLLM server"].startswith("http://n9:8000 | ")  # without the password
    assert shown["rollouts"].startswith("32 Ray actors, cluster n0:6379 | at most 1 of 32 groups")
    assert shown["sandboxes"].startswith("servers http://n5:8080, http://n6:8080 | ")
    monkeypatch.delenv("ARPO_SANDBOX")
    monkeypatch.setenv("DOCKER_HOST", "ssh://n5,ssh://me:secret@n6")
    shown = text(tiny_policy, 8, vllm_tensor_parallel_size=2, **COLOCATE)
    assert shown["generation"].startswith("4 vLLM engine(s) of 2 process(es) | 30% of each of their GPUs")
    assert shown["environments at once, at most"] == "16 in each | 128 in all"
    assert shown["sandboxes"].startswith("docker on ssh://n5, ssh://n6 |")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"processes": 32, "machines": 3}, "must be a multiple of --num-machines"),
        ({"processes": 2, "machines": 2, **SERVER, "vllm_server_base_url": "http://127.0.0.1:80"}, "another one on"),
        ({"processes": 2, "machines": 2, **SERVER, "vllm_server_base_url": None}, "another one on each of 2"),
        ({"processes": 2, "config": "zero3", "cold_start_examples": 8}, "a cold start with zero3"),
        ({"processes": 8, "machines": 4, **COLOCATE, "vllm_tensor_parallel_size": 4}, "would span two machines"),
    ],
)
def test_what_cannot_work_is_refused(tiny_policy: Path, asked: dict[str, Any], words: str) -> None:
    assert any(words in reason for reason in placed(tiny_policy, **asked).refused())


def test_the_command_says_what_is_refused_and_what_is_missing(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    machines = ["--accelerate-config", "fsdp2", "--num-processes", "16", "--num-machines", "2"]
    assert main(["train", "--recipe", "arpo-qwen3-14b-deepsearch", "--dry-run", *machines]) == 1
    shown = capsys.readouterr()
    assert "machine 1" in shown.out
    assert "refused: --num-machines above 1 needs --main-process-ip" in shown.err
    assert "missing here: no search is configured" in shown.err


@pytest.mark.parametrize("command", [train, sft, dpo])
def test_a_second_run_in_a_folder_is_refused(command: Callable[[dict[str, Any]], Path], tmp_path: Path) -> None:
    common = {"model": "owner/no-such-model", "output_dir": str(tmp_path), "use_cpu": True, "threads": 1}
    data = {"data": "traces.jsonl"} if command is sft else {"env": "arpo/Arithmetic-v0"}
    with lock_folder(tmp_path), pytest.raises(BlockingIOError, match="another process is writing"):
        command({**common, **data})
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_stage_ends_with_its_killed_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stage"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    parent = multiprocessing.get_context("fork").Process(target=pipeline.run_command, args=(["train"],))
    parent.start()
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().endswith("\n"))
    parent.kill()
    parent.join()
    wait_for(lambda: has_ended(int((tmp_path / "pid").read_text())))
