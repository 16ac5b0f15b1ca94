"""One grammar for all commands: `--set`, `--env-set`, `--recipe`, `--config`; and nothing in Python's spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import _parser
from arpo_trainer.cli.command_options import read_env_options
from arpo_trainer.run.recipes import parse_assignments, read_settings

ROOT = Path(__file__).resolve().parents[3]


def parsed(*argv: str) -> Any:
    """The arguments of a command."""
    return _parser().parse_args(argv)


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


@pytest.mark.parametrize("flag", ["--set", "--env-set"])
def test_python_s_none_is_refused_with_the_word_of_yaml(flag: str) -> None:
    with pytest.raises(ValueError, match=f"{flag} 'cache=None': write null"):
        parse_assignments(["cache=None"], flag)
