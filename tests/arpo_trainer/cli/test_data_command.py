"""`arpo data` and `arpo envs` on the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from tests.envs_registry.datasets.sample_rows import sample_file


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
