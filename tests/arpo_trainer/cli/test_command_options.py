"""One grammar for all commands: `--set`, `--env-set`, `--recipe`, `--config`; and nothing in Python's spelling."""

from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import app, main
from arpo_trainer.cli.command_options import chosen
from arpo_trainer.cli.play_commands import given_settings
from arpo_trainer.run.launch import LaunchFlags, without_launch_flags
from arpo_trainer.run.recipes import parse_assignments, read_settings

ROOT = Path(__file__).resolve().parents[3]


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
    by_flag = given_settings(
        bound("rollout", "e", "--model", "m", "--num-generations", "6", "--seed", "3")["flags"], ()
    )
    by_set = given_settings(
        {}, bound("rollout", "e", "--model", "m", "--set", "num_generations=6", "seed=3")["settings"]
    )
    assert by_flag == by_set
    assert (by_set["initial_rollouts"], by_set["algorithm"]) == (3, "arpo")
    with pytest.raises(ValueError, match="give only one of them"):
        given_settings({"seed": 3}, ["seed=3"])


@pytest.mark.parametrize("flag", ["--set", "--env-set"])
def test_python_s_none_is_refused_with_the_word_of_yaml(flag: str) -> None:
    with pytest.raises(ValueError, match=f"{flag} 'cache=None': write null"):
        parse_assignments(["cache=None"], flag)


def test_a_word_without_a_place_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "arpo/MultiHop-v0", "more"]) == 2
    assert capsys.readouterr().err == "error: no place for more; `arpo data show --help` says what it takes\n"


@pytest.mark.parametrize(("given", "error"), [(("a", "b"), "give only one of"), ((None, None), "give one of")])
def test_one_of_two_options_is_needed(given: tuple[str | None, str | None], error: str) -> None:
    with pytest.raises(ValueError, match=f"{error} --recipe, --config"):
        chosen(dict(zip(("--recipe", "--config"), given, strict=True)), needed=True)


def test_a_default_of_0_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "--help"]) == 0
    assert "--seed INT: of everything that is drawn (default 0)" in capsys.readouterr().out
