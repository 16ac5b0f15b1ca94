"""`arpo view timeline`: the page holds every event, a browser draws it, and errors name the cure."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.report.html_report import spans_of, write_timeline
from arpo_trainer.rollout.metrics import by_trajectory
from arpo_trainer.tree import write_traces
from tests.arpo_trainer.sample_timeline import sample_tree
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.test_report import NASTY, embedded


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Two steps of two trees."""
    trees = [sample_tree(group, 3, 3, 3, step) for step in (1, 2) for group in (0, 1)]
    write_traces(tmp_path / "traces.jsonl", trees)
    return tmp_path


def drawn(page: Path) -> dict[str, Any]:
    return embedded(page.read_text(encoding="utf-8"))


def test_the_page_holds_every_event_of_the_last_step(run_dir: Path) -> None:
    page, shown = write_timeline(run_dir)
    assert page == run_dir / "timeline.html"
    assert [tree.meta["step"] for tree in shown] == [2, 2]
    data = drawn(page)
    assert (data["step"], data["steps"]) == (2, 2)
    for tree, entry in zip(shown, data["trees"], strict=True):
        assert {lane["number"] for lane in entry["lanes"]} == set(range(len(tree.trajectories)))
        assert sum(len(lane["events"]) for lane in entry["lanes"]) == len(tree.timeline)


def test_turns_and_results_are_found_for_their_events() -> None:
    tree = sample_tree(0, 3, 3, 4)
    for number, events in by_trajectory(tree).items():
        path = [span.index for span in tree.path(number)]
        made = spans_of(tree, number, events)
        for event, span in zip(events, made, strict=True):
            if event.kind == "generate":
                assert (span.kind, len(span.ids)) == ("model", event.tokens)
                assert span.index in path
            elif event.kind == "tool":
                assert span.tool == {"name": event.name, "status": event.status}
            else:
                assert span is None


def test_a_step_done_again_after_a_resume_is_shown_once(run_dir: Path) -> None:
    write_traces(run_dir / "traces.jsonl", [sample_tree(group, 5, 0, 2, 2) for group in (0, 1)])
    _, shown = write_timeline(run_dir, step=2)
    assert [len(tree.trajectories) for tree in shown] == [5, 5]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "give the output_dir of a run or its traces.jsonl"),
        (["."], "trace_every: 1"),
        (["run", "--step", "7"], "no trees of step 7 .* it has those of steps 1-2"),
        (["empty"], "holds no tree yet"),
    ],
)
def test_errors_name_the_cure(arguments: list[str], said: str, run_dir: Path, monkeypatch: Any, capsys: Any) -> None:
    for name in ("run", "empty"):
        (run_dir / name).mkdir()
    (run_dir / "traces.jsonl").rename(run_dir / "run" / "traces.jsonl")
    (run_dir / "empty" / "traces.jsonl").touch()
    monkeypatch.chdir(run_dir)
    assert main(["view", "timeline", *arguments]) == 1
    assert re.search(said, capsys.readouterr().err)


def test_a_browser_draws_it(run_dir: Path, browser: Browser) -> None:
    tree = sample_tree(0)
    tree.task["question"] = tree.spans[0].text = NASTY
    write_traces(run_dir / "traces.jsonl", [replace(tree, meta={"step": 3, "group": 0})])
    browser.open(write_timeline(run_dir)[0].as_uri())
    shown = browser.value("document.documentElement.outerHTML")
    assert "data-broken" not in shown[:500]
    assert "pwned" not in shown[:500]
    assert shown.count('class="tree-lanes"') == 1
    assert "model idle" in shown
    assert browser.logs == []
