"""The command line: its grammar, lists and tables, an episode by hand and by a model, and errors in one line."""

import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import app, main, reporting
from arpo_trainer.cli.play_commands import given_settings
from arpo_trainer.run.launch import LaunchFlags, without_launch_flags
from arpo_trainer.run.recipes import parse_assignments, read_settings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "arpo/Aritmetic-v0"], "Did you mean: arpo/Arithmetic-v0"),
        (["train", "--config", "arithmetik-cpu"], "Did you mean: arithmetic-cpu"),
        (["train", "--recipe", "arithmetic-gpu"], "Did you mean: arithmetic-cpu"),
        (["train"], "give one of --recipe, --config"),
        (["train", "--recipe", "arithmetic-cpu", "--config", "my.yaml"], "give only one of --recipe, --config"),
        (["play", "arpo/Arithmetic-v0", "--env-set", "level"], "write name=value"),
        (["train", "--recipe", "arithmetic-cpu", "--set", "env=CartPole-v1", "--set", "env_kwargs={}"], "arpo envs"),
        (["report", "{folder}"], r"holds no run \(run\.json, .*give the output_dir of a run"),
        (["train", "--config", "{folder}/binary"], r"binary is not a YAML file .*give a file of `name: value` lines"),
        (["train", "--config", "{folder}/broken"], r"broken, line 2, column 1"),
        (["train", "--config", "{folder}/list"], "expected `name: value` lines"),
        (["train", "--config", "any", "--accelerate_config", "ddp", "--num_processes", "-1"], "must be at least 1"),
        (
            ["train", "--config", "any", "--machine-rank", "1"],
            "--machine-rank without --accelerate-config starts nothing",
        ),
        (["train", "--recipe", "arithmetic-cpu", "--set", "wxyz=3"], "no setting 'wxyz' of arpo train. Settings are"),
        (["play", "arpo/Arithmetic-v0", "--env-set", "cache=None"], "--env-set 'cache=None': write null"),
        (["cache", "import", "{folder}/new.sqlite", "{folder}/binary.jsonl"], "line 1: not a cache record"),
    ],
)
def test_errors_are_one_line_with_the_cure(arguments: list[str], words: str, tmp_path: Path, capsys: Any) -> None:
    for name in ("binary", "binary.jsonl"):
        (tmp_path / name).write_bytes(b"\x00\xff\xfe")
    (tmp_path / "list").write_text("[1, 2]")
    (tmp_path / "broken").write_text("level: [1, 2\n")
    assert main([argument.replace("{folder}", str(tmp_path)) for argument in arguments]) == 1
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "report.html").exists()


def bound(*argv: str) -> Any:
    """The arguments of a command."""
    return app.parse_args(argv, exit_on_error=False, print_error=False)[1].arguments


@pytest.mark.parametrize("command", [["play", "e"], ["rollout", "e", "--model", "m"], ["data", "show", "e"]])
def test_environment_options_are_yaml_everywhere(command: list[str]) -> None:
    given = ["--env-set", "level=2", "tools=[python, search]", "--env-set", "cache=null", "data=a=b", "prompt='no'"]
    options = parse_assignments(bound(*command, *given)["env_set"], "--env-set")
    assert options == {"level": 2, "tools": ["python", "search"], "cache": None, "data": "a=b", "prompt": "no"}


def test_environment_options_of_a_training_are_merged_into_env_kwargs(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("env_kwargs: {level: 1, split: train}\n")
    settings = read_settings(path, ["env_kwargs={level: 2, limit: 9}"], ["limit=3"])
    assert settings == {"env_kwargs": {"level": 2, "limit": 3}}
    settings = read_settings(path, ["eval_env_kwargs.split=test", "limits.python=2"], ["level=1e-1"])
    assert settings["env_kwargs"] == {"level": 0.1, "split": "train"}
    assert (settings["eval_env_kwargs"], settings["limits"]) == ({"split": "test"}, {"python": 2})
    assert read_settings(path, ["eval_strategy=no"])["eval_strategy"] == "no"  # YAML reads False


def test_the_launcher_s_flags_are_spelled_both_ways() -> None:
    for dash in "-_":
        flags = [f"--accelerate{dash}config", "ddp", f"--num{dash}processes=2"]
        assert bound("train", "--recipe", "r", *flags)["launcher"] == LaunchFlags("ddp", 2)
        assert without_launch_flags(["train", *flags, "--set", "a=b"]) == ["train", "--set", "a=b"]


def test_a_flag_and_a_setting_reach_the_same_place() -> None:
    by_flag = bound("rollout", "e", "--model", "m", "--num-generations", "6", "--seed", "3")["flags"]
    by_set = given_settings(
        {}, bound("rollout", "e", "--model", "m", "--set", "num_generations=6", "seed=3")["settings"]
    )
    assert given_settings(by_flag, ()) == by_set
    assert (by_set["initial_rollouts"], by_set["algorithm"]) == (3, "arpo")
    with pytest.raises(ValueError, match="give only one of them"):
        given_settings({"seed": 3}, ["seed=3"])


def test_a_word_without_a_place_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "arpo/MultiHop-v0", "more"]) == 2
    assert "no place for more; `arpo data show --help`" in capsys.readouterr().err


def test_envs_is_a_table_that_says_what_is_gated(capsys: Any) -> None:
    assert main(["envs"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "SIZE", "TOOLS", "SCORER", "LICENCE"]
    gated = [line.split()[0] for line, text in zip(lines[::2], lines[1::2], strict=True) if text.endswith("(gated)")]
    assert gated == ["arpo/GAIA-v0", "arpo/HLE-v0"]
    assert main(["envs", "arpo/GSM8K-v0", "arpo_env:arpo/AIME24-v0"]) == 0
    assert re.findall(r"^\S+-v0", capsys.readouterr().out, re.M) == ["arpo/GSM8K-v0", "arpo/AIME24-v0"]


def test_ctrl_c_ends_a_command_with_the_status_of_shells(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert reporting(interrupted, traceback=False) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_episode_by_a_model(tiny_policy: Path, isolation: str, capsys: Any) -> None:
    assert main(["play", "arpo/Arithmetic-v0", "--model", str(tiny_policy), "--env-set", "level=3"]) == 0
    assert "the answer is" in capsys.readouterr().out
