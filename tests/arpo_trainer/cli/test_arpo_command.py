"""The command line: its grammar, lists and tables, an episode by hand and by a model, and errors in one line."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import app, main
from arpo_trainer.cli.command_options import chosen
from arpo_trainer.cli.play_commands import given_settings
from arpo_trainer.run.launch import LaunchFlags, without_launch_flags
from arpo_trainer.run.recipes import parse_assignments, read_settings
from tests.envs_registry.datasets.sample_rows import sample_file


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "arpo/Aritmetic-v0"], "Did you mean: arpo/Arithmetic-v0"),
        (["envs", "arpo/Aritmetic-v0"], "Did you mean: arpo/Arithmetic-v0"),
        (["train", "--config", "arithmetik-cpu"], "Did you mean: arithmetic-cpu"),
        (["train", "--recipe", "arithmetic-gpu"], "did you mean: arithmetic-cpu"),
        (["train"], "--config"),
        (["train", "--recipe", "arithmetic-cpu", "--config", "my.yaml"], "--config"),
        (["play", "arpo/Arithmetic-v0", "--env-set", "level"], "write name=value"),
        (["train", "--recipe", "arithmetic-cpu", "--set", "env=CartPole-v1", "--set", "env_kwargs={}"], "arpo envs"),
    ],
)
def test_errors_are_one_line_with_the_cure(arguments: list[str], words: str, capsys: Any) -> None:
    assert main(arguments) == 1
    assert words in capsys.readouterr().err


def test_envs_lists_the_ids_that_it_is_given(capsys: Any) -> None:
    assert main(["envs", "arpo/GSM8K-v0", "arpo_env:arpo/AIME24-v0"]) == 0
    assert re.findall(r"^\S+-v0", capsys.readouterr().out, re.M) == ["arpo/GSM8K-v0", "arpo/AIME24-v0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "{folder}"], r"holds no run \(run\.json, .*give the output_dir of a run"),
        (["train", "--config", "{folder}/binary"], r"binary is not a YAML file .*give a file of `name: value` lines"),
        (["train", "--config", "{folder}/list"], "expected `name: value` lines"),
        (
            ["train", "--config", "any", "--accelerate_config", "ddp", "--num_processes", "-1"],
            "must be at least 1, got -1",
        ),
        (
            ["train", "--recipe", "arithmetic-cpu", "--set", "wxyz=3"],
            "no setting 'wxyz' of arpo train. Settings are the fields of ARPOConfig",
        ),
        (["cache", "import", "{folder}/new.sqlite", "{folder}/binary.jsonl"], "line 1: not a cache record"),
    ],
)
def test_what_is_no_such_file_is_named(arguments: list[str], words: str, tmp_path: Path, capsys: Any) -> None:
    for name in ("binary", "binary.jsonl"):
        (tmp_path / name).write_bytes(b"\x00\xff\xfe")
    (tmp_path / "list").write_text("[1, 2]")
    assert main([argument.format(folder=tmp_path) for argument in arguments]) == 1
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "report.html").exists()


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


def test_envs_is_a_table_with_size_tools_scorer_and_licence_and_says_what_is_gated(capsys: Any) -> None:
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == ["ID", "SIZE", "TOOLS", "SCORER", "LICENCE"]
    ids, descriptions = lines[1::2], lines[2::2]
    assert dict(zip([line.split()[0] for line in ids], descriptions, strict=True))["arpo/GSM8K-v0"] == (
        "  word problems of school mathematics"
    )
    gated = [line.split()[0] for line, text in zip(ids, descriptions, strict=True) if text.endswith("(gated)")]
    assert gated == ["arpo/GAIA-v0", "arpo/HLE-v0"]


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_file("arpo/2Wiki-v0", tmp_path)
    assert main(["data", "show", "arpo/2Wiki-v0", "--env-set", "split=validation", f"data={path}"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert {"ROWS READ 3", "TASKS 3", "repeated alias 3", "KINDS qa 3", "LANGUAGES en 3"} <= set(lines)
    assert out.count("answers: New Ford; N.F.") == 3


def test_show_of_an_endless_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "arpo/Arithmetic-v0", "--env-set", "level=2"]) == 0
    assert "endless; the first 1000" in capsys.readouterr().out


def test_overlap_counts_and_shows_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": "WHO founded the invented town Ober1", "answer": ["x"]}, {"question": "Who?", "answer": ["y"]}]
    other = tmp_path / "simple.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = sample_file("arpo/Reasoning10K-v0", tmp_path)
    arguments: list[Any] = [f"arpo/Reasoning10K-v0={train}", f"arpo/SimpleQA-v0={other}", f"arpo/HotpotQA-v0={other}"]
    assert main(["data", "overlap", *arguments]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split() for line in out[1:3]] == [
        ["arpo/SimpleQA-v0:test", "2", "1", "0"],
        ["arpo/HotpotQA-v0:validation", "2", "1", "0"],
    ]
    assert "arpo/SimpleQA-v0:test simpleqa-test-0 = reasoning10k-train-1" in out


def containers_of(pid: int) -> list[str]:
    """Containers that a process has opened."""
    import docker

    client = docker.from_env()
    try:
        label = {"label": f"arpo.sandbox.client={pid}"}
        return [c.id for c in client.containers.list(all=True, filters=label, ignore_removed=True)]
    finally:
        client.close()


def test_ctrl_c_leaves_no_container_behind(isolation: str) -> None:
    if not isolation.startswith("docker"):
        pytest.skip(f"the sandbox here is {isolation}, not Docker")
    command = [sys.executable, "-m", "arpo_trainer.cli", "play", "arpo/Arithmetic-v0", "--env-set", "level=1"]
    player = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert player.stdout
    player.stdin.write("<think>c</think><python>6 * 7</python>\n")
    player.stdin.flush()
    while player.stdout.readline() != "</result>\n":
        pass
    assert len(containers_of(player.pid)) == 1
    player.send_signal(signal.SIGINT)
    _, errors = player.communicate(timeout=30)
    assert player.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    for _ in range(50):
        if not containers_of(player.pid):
            break
        time.sleep(0.1)
    assert containers_of(player.pid) == []


def test_an_episode_by_a_model(tiny_policy: Path, isolation: str, capsys: Any) -> None:
    assert main(["play", "arpo/Arithmetic-v0", "--model", str(tiny_policy), "--env-set", "level=3"]) == 0
    assert "the answer is" in capsys.readouterr().out
