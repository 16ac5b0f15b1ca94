"""Starting several processes: the configurations and the command line. `test_sharded` starts two this way."""

from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.run.launch import CONFIGS, LaunchFlags, launch_command


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
        (LaunchFlags("ddp", 9, 2, main_process_ip="h"), "multiple of --num-machines"),
    ],
)
def test_what_cannot_start_says_why(flags: LaunchFlags, cure: str) -> None:
    with pytest.raises(ValueError, match=cure):
        launch_command(flags, [])


def test_what_would_do_nothing_without_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ValueError, match="give --num-processes"):
        launch_command(LaunchFlags("ddp"), [])
    with pytest.raises(ValueError, match=r"FSDP needs GPUs.*take ddp"):
        launch_command(LaunchFlags("fsdp2", 2), [])


def test_a_launcher_in_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["train", "--recipe", "arithmetic-cpu", "--accelerate_config", "ddp"]) == 1
    assert "leave it out under a launcher" in capsys.readouterr().err
