"""One grammar for all commands: `--set`, `--env-set`, `--recipe`, `--config`; old flags work with a warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import _parser, main
from arpo_trainer.cli.command_options import read_env_options, read_settings_options, settle_old_names
from arpo_trainer.run.recipes import read_settings

ROOT = Path(__file__).resolve().parents[3]


def parsed(*argv: str) -> Any:
    """The arguments of a command, with those of old names where the new ones have them."""
    arguments = _parser().parse_args(argv)
    settle_old_names(arguments)
    return arguments


@pytest.mark.parametrize("command", [["play", "e"], ["rollout", "e", "--model", "m"], ["data", "show", "e"]])
def test_environment_options_are_yaml_everywhere(command: list[str]) -> None:
    given = ["--env-set", "level=2", "tools=[python, search]", "--env-set", "cache=null", "data=a=b", "prompt='no'"]
    options = read_env_options(parsed(*command, *given))
    assert options == {"level": 2, "tools": ["python", "search"], "cache": None, "data": "a=b", "prompt": "no"}


def test_environment_options_of_a_training_are_merged_into_env_kwargs(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("env_kwargs: {level: 1, split: train}\n")
    settings = read_settings(path, ["env_kwargs={level: 2, limit: 9}"], ["limit=3"])
    assert settings == {"env_kwargs": {"level": 2, "limit": 3}}
    settings = read_settings(path, ["eval_env_kwargs.split=test", "limits.python=2"], ["level=1e-1"])
    assert settings["env_kwargs"] == {"level": 0.1, "split": "train"}
    assert (settings["eval_env_kwargs"], settings["limits"]) == ({"split": "test"}, {"python": 2})


@pytest.mark.parametrize(
    ("command", "flag", "given", "options"),
    [
        (["play", "e"], "--option", ["level=2"], {"level": 2}),
        (["rollout", "e", "--model", "m"], "--env-kwargs", ["level=2", "cache=None"], {"level": 2, "cache": None}),
    ],
)
def test_old_environment_flags_read_python_and_name_the_new_flag(
    command: list[str], flag: str, given: list[str], options: dict[str, Any]
) -> None:
    arguments = parsed(*command, flag, *given, flag, "tools=('python',)")
    with pytest.warns(DeprecationWarning, match=f"{flag} is deprecated .*use --env-set"):
        assert read_env_options(arguments) == {**options, "tools": ("python",)}


@pytest.mark.parametrize(
    ("command", "new", "dest", "value"),
    [
        (["rollout", "--env", "e", "--model", "m"], "use ENV", "env", "e"),
        (["rollout", "e", "--model", "m", "--max-turn-tokens", "7"], "use --max-turn-length", "max_turn_length", 7),
        (["sandbox", "ps", "--host", "unix:///x"], "use --docker-host", "docker_host", "unix:///x"),
    ],
)
def test_renamed_flags_work_with_a_warning(command: list[str], new: str, dest: str, value: object) -> None:
    with pytest.warns(DeprecationWarning, match=new):
        assert getattr(parsed(*command), dest) == value


@pytest.mark.parametrize(
    "command",
    [
        ["play", "arpo/Arithmetic-v0", "--option", "level=1", "--env-set", "level=1"],
        ["rollout", "arpo/Arithmetic-v0", "--model", "x/y", "--env-kwargs", "level=1", "--env-set", "level=1"],
        ["rollout", "arpo/Arithmetic-v0", "--env", "arpo/Arithmetic-v0", "--model", "x/y"],
        ["rollout", "e", "--model", "x/y", "--max-turn-tokens", "7", "--max-turn-length", "7"],
        ["data", "show", "arpo/Arithmetic-v0", "--level", "1", "--env-set", "level=1"],
        ["sandbox", "ps", "--host", "unix:///x", "--docker-host", "unix:///x"],
        ["train", "--recipe", "arithmetic-cpu", "--set", "env_kwargs.level=1", "--env-set", "level=1"],
    ],
    ids=" ".join,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_option_under_both_names_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 1
    assert "give only" in capsys.readouterr().err


def test_a_single_environment_option_as_a_setting_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"--set env_kwargs\.level=\.\.\. .*use --env-set level="):
        settings = read_settings("arithmetic-cpu", ["env_kwargs.level=2"])
    assert settings["env_kwargs"] == {"level": 2}


def test_a_recipe_given_as_a_file_is_deprecated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(DeprecationWarning, match="use --recipe arithmetic-cpu"):
        assert main(["train", "--config", "arithmetic-cpu", "--set", "wxyz=1"]) == 1
    assert "no setting 'wxyz'" in capsys.readouterr().err


def test_python_literals_as_settings_are_deprecated() -> None:
    assert read_settings_options(["a=null", "b=1e-3", "c=text", "d=[1, x]", "e=true"]) == {
        "a": None,
        "b": 1e-3,
        "c": "text",
        "d": [1, "x"],
        "e": True,
    }
    with pytest.warns(DeprecationWarning, match="--set budget=None: write YAML"):
        assert read_settings_options(["budget=None"]) == {"budget": None}


@pytest.mark.parametrize("old", [["--split", "test"], ["--level", "2"]])
def test_old_flags_of_data_show_name_the_new_form(old: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(DeprecationWarning, match=f"use --env-set {old[0][2:]}={old[1]}"):
        assert main(["data", "show", "arpo/Arithmetic-v0", *old]) == 0
    shown = capsys.readouterr().out
    assert main(["data", "show", "arpo/Arithmetic-v0", "--env-set", f"{old[0][2:]}={old[1]}"]) == 0
    assert capsys.readouterr().out == shown


def test_the_terminal_shows_a_deprecation_as_one_line() -> None:
    command = [sys.executable, "-m", "arpo_trainer.cli", "data", "show", "arpo/Arithmetic-v0", "--level", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    said = "--level is deprecated and will be removed in the next version: use --env-set level=2"
    assert done.stderr.splitlines() == [f"warning: {said}"]


def test_the_launcher_s_flags_are_spelled_both_ways() -> None:
    dashed = parsed("train", "--recipe", "r", "--accelerate-config", "ddp", "--num-processes", "2")
    underscored = parsed("train", "--recipe", "r", "--accelerate_config", "ddp", "--num_processes", "2")
    for arguments in (dashed, underscored):
        assert (arguments.accelerate_config, arguments.num_processes, arguments.num_machines) == ("ddp", 2, 1)


def test_a_flag_and_a_setting_reach_the_same_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from arpo_trainer.cli.rollout_command import _given_settings

    by_flag = _given_settings(parsed("rollout", "e", "--model", "m", "--num-generations", "6", "--seed", "3"))
    by_set = _given_settings(parsed("rollout", "e", "--model", "m", "--set", "num_generations=6", "seed=3"))
    assert by_flag == by_set
    assert (by_set["initial_rollouts"], by_set["algorithm"]) == (3, "arpo")
    assert json.dumps(by_set)


def test_python_s_none_as_an_environment_option_is_deprecated() -> None:
    arguments = _parser().parse_args(["play", "arpo/Arithmetic-v0", "--env-set", "cache=None", "level=2"])
    with pytest.warns(DeprecationWarning, match="write YAML, cache=null"):
        assert read_env_options(arguments) == {"cache": None, "level": 2}
