"""The command line: lists, the doctor, and errors in one line."""

import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "arpo/Aritmetic-v0"], "Did you mean: arpo/Arithmetic-v0"),
        (["envs", "arpo/Aritmetic-v0"], "Did you mean: arpo/Arithmetic-v0"),
        (["train", "--config", "arithmetik-cpu"], "Did you mean: arithmetic-cpu"),
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
