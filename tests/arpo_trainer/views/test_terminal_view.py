"""`arpo view --text`: what the page shows, as text that cannot drive a terminal."""

import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.views.run_page import score_lines
from arpo_trainer.views.terminal_view import visible
from tests.arpo_trainer.views.sample_runs import hostile_run, make_run


def test_the_summary_has_every_model_and_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = make_run(tmp_path / "one", tasks=20, samples=2, models=("a", "b"), envs=("X", "Y"))
    about = {
        name: {"id": f"arpo/{of}-v0", "tasks": 20, "metric": "accuracy"} for name, of in (("X", "GAIA"), ("Y", "Y"))
    }
    two = make_run(tmp_path / "two", tasks=20, models=("a",), envs=("X", "Y"), skill=0.9, seed=3, environments=about)
    assert main(["view", str(one), str(two), "--text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("one: finished, 160 units in ")
    table = [line.split() for line in lines if line.startswith(("one ", "two "))]
    assert [cells[:3] for cells in table] == [
        ["one", "a", "X"], ["one", "a", "Y"], ["one", "b", "X"], ["one", "b", "Y"], ["two", "a", "X"], ["two", "a", "Y"]
    ]  # fmt: skip
    scores = [line["score"] for run in (one, two) for line in score_lines(load_eval_run(run))]
    assert [cells[3] for cells in table] == [f"{score['mean']:.3f}" for score in scores if score]
    assert "0.155-0.534" in table[4]  # of GAIA, over all models
    assert [line.split()[4] for line in lines if line.startswith("one: a")] == ["X", "Y"]


def test_tasks_and_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", tasks=20, samples=2)
    stored = load_eval_run(run)
    assert main(["view", str(run), "--text", "--tasks", "broken"]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("GSM8K/")]
    assert len(listed) == sum(row.broken for row in stored.rows)
    assert main(["view", str(run), "--text", "--task", "GSM8K-3", "--prompt"]) == 0
    shown = capsys.readouterr().out
    rows = [row for row in stored.rows if row.task == "GSM8K-3"]
    assert shown.count("-- call python") == shown.count("-- result") == len(rows) == 2
    for row in rows:
        said = " ".join(span.text for span in stored.tree(row).spans)
        assert all(word in shown for word in re.sub(r"</?\w+>", " ", said).split())


@pytest.mark.parametrize("more", [["--tasks", "all"], ["--task", "hostile", "--prompt"]])
def test_hostile_text_does_not_reach_the_terminal(more: list[str], tmp_path: Path, capsys: Any) -> None:
    run = hostile_run(tmp_path / "run")
    assert main(["view", str(run), "--text", *more]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[31mred" in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


def test_visible_text_is_the_text_where_nothing_is_hidden() -> None:
    text = "plain\ttext\n中文 עברית 👩‍👩‍👧"
    assert visible(text) == text
    assert visible("\x1b[2J\r\u202e\ud800\x9b") == "\\x1b[2J\\x0d\\u202e\\ud800\\x9b"
