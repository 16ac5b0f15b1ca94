"""Reports and timelines: what goes in comes out, hostile text stays text, and a run that is not whole gets its page."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.report import run_data
from arpo_trainer.report.html_report import payload, spans_of, write_report, write_timeline
from arpo_trainer.report.run_data import load_run
from arpo_trainer.rollout.metrics import by_trajectory
from arpo_trainer.tree import RolloutTree, write_traces
from tests.arpo_trainer.sample_timeline import sample_tree
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.sample_runs import HOSTILE, make_hostile

NASTY = HOSTILE.replace("\ud800", "$&") + "x" * 500
TRACKED = "https://wandb.example/me/project/runs/1"


def make_tree(step: int = 0, group: int = 0) -> RolloutTree:
    """Two roots; the first branches after its tool result, the second breaks."""
    tree = make_hostile(sample_tree(group, 2, 1, 2, step), NASTY)
    tree.spans[0].entropies[:3] = [0.12345, 1.0, 0.5]
    return tree


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A whole run of two steps and two prompts a step."""
    folder = tmp_path / "run"
    folder.mkdir()
    facts = {"name": NASTY, "status": "finished", "env": {"id": "arpo/Arithmetic-v0"}, "settings": {NASTY: NASTY}}
    facts["trackers"] = {"W&B": TRACKED, "TensorBoard": "runs/board", "trackio": "javascript:alert(1)", NASTY: NASTY}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    steps = {"branches": 2, "roots": 4, "seconds_generate": 2.0}
    rewards: list[dict[str, Any]] = [{"reward": 0.25, "reward_std": 0.1}, {"reward": float("nan"), "entropy": None}]
    write_lines(folder / "metrics.jsonl", [{"step": n, **steps, **row} for n, row in enumerate(rewards, 1)])
    sample = {"task": {"id": "s", "question": NASTY, "answers": ["4"]}, "reward": 0.0, "text": NASTY, "answer": NASTY}
    held: dict[str, Any] = {"n": 10, "accuracy": 0.3, "accuracy_low": 0.2, "accuracy_high": 0.4}
    held["samples"] = [{**sample, "correct": True}]
    held["by_level"] = {level: {"n": 5, "accuracy": 0.3} for level in "12"}
    write_lines(folder / "eval.jsonl", [{"name": name, **held} for name in ("before", "middle", "after")])
    write_traces(folder / "traces.jsonl", [make_tree(step, group) for step in (0, 1) for group in (0, 1)])
    return folder


def embedded(page: str) -> dict[str, Any]:
    """Read the page's data back the way a browser does: everything up to the first closing tag."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_holds_what_the_run_holds(run_dir: Path) -> None:
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    assert [entry.name for entry in run_dir.glob("report*")] == ["report.html"]
    data, run = embedded(path.read_text(encoding="utf-8")), load_run(run_dir)
    assert data["facts"] == run.facts
    assert data["metrics"][1]["reward"] is None  # NaN, for which JSON has no word
    assert [len(row["samples"]) for row in data["evaluations"]] == [1, 0, 1]  # of the first and the last
    assert data["metrics"][0] == run.metrics[0]
    assert data["evaluations"][-1] == run.evaluations[-1]
    tree, drawn = make_tree(1, 1), data["trees"][-1]
    assert run.trees[-1] == tree
    assert [span["text"] for span in drawn["spans"]] == [span.text for span in tree.spans]
    assert [span["n"] for span in drawn["spans"]] == [len(span.ids) for span in tree.spans]
    assert drawn["spans"][0]["entropies"][:3] == [123, 1000, 500]
    assert drawn["spans"][1]["decision"]["reason"] == "entropy rose"
    assert drawn["trajectories"][2]["fork_span"] == 1
    assert (drawn["unique"], drawn["copied"]) == (tree.unique_tokens(), tree.copied_tokens())


@pytest.mark.parametrize("write", [write_report, lambda folder: write_timeline(folder)[0]], ids=["report", "timeline"])
def test_text_cannot_become_markup_and_only_the_page_s_own_code_is_allowed(write: Any, run_dir: Path) -> None:
    page = write(run_dir).read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 2
    assert "<img" not in page
    assert "<!--" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    for tag in ("style", "script"):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[-1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_an_empty_directory_still_gets_a_page(tmp_path: Path) -> None:
    data = embedded(write_report(tmp_path).read_text(encoding="utf-8"))
    assert data["facts"] == {"name": tmp_path.name}
    assert len(data["notes"]) == 4


@pytest.mark.parametrize("name", ["metrics.jsonl", "traces.jsonl"])
def test_a_broken_line_is_named_unless_a_running_run_is_in_the_middle_of_it(run_dir: Path, name: str) -> None:
    count = len((run_dir / name).read_text(encoding="utf-8").splitlines())
    with (run_dir / name).open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "rew')
    with pytest.raises(ValueError, match=rf"{name}, line {count + 1}:"):
        write_report(run_dir)
    (run_dir / "run.json").write_text('{"status": "running"}', encoding="utf-8")
    run = load_run(run_dir)
    assert (run.running, len(run.metrics), run.tree_total) == (True, 2, 4)


def test_trees_left_out_are_counted_and_steps_are_those_of_the_metrics(run_dir: Path, monkeypatch: Any) -> None:
    assert [tree["step"] for tree in payload(load_run(run_dir))["trees"]] == [1, 1, 2, 2]
    (run_dir / "metrics.jsonl").unlink()
    assert [tree["step"] for tree in payload(load_run(run_dir))["trees"]] == [0, 0, 1, 1]
    monkeypatch.setattr(run_data, "TREES", 3)
    data = payload(load_run(run_dir))
    assert (len(data["trees"]), data["tree_total"]) == (3, 4)


def test_a_browser_draws_it_and_runs_nothing_else(run_dir: Path, browser: Browser) -> None:
    browser.open(write_report(run_dir).as_uri() + "#tree=3&leaf=2")
    drawn = browser.value("document.documentElement.outerHTML")
    assert "data-broken" not in drawn[:500]
    assert "pwned" not in drawn[:500]
    assert "<img" not in drawn
    assert len(re.findall(r'data-node="span-\d+"', drawn)) == len(make_tree().spans)
    assert len(re.findall(r'class="leaf [a-z]+"', drawn)) == len(make_tree().trajectories)
    assert "Trajectory 2" in drawn
    assert browser.value("Array.from(document.querySelectorAll('#facts a'), (a) => a.href).join()") == TRACKED
    assert "logged to TensorBoard" in browser.value("document.getElementById('facts').textContent")
    assert 'class="line-a"' in drawn
    assert browser.logs == []


def test_a_timeline_holds_every_event_of_the_last_step(run_dir: Path) -> None:
    page, shown = write_timeline(run_dir)
    assert page == run_dir / "timeline.html"
    data = embedded(page.read_text(encoding="utf-8"))
    assert ([tree.meta["step"] for tree in shown], data["step"], data["steps"]) == ([1, 1], 1, 2)
    for tree, entry in zip(shown, data["trees"], strict=True):
        assert {lane["number"] for lane in entry["lanes"]} == set(range(len(tree.trajectories)))
        assert sum(len(lane["events"]) for lane in entry["lanes"]) == len(tree.timeline)


def test_turns_and_results_are_found_for_their_events() -> None:
    tree = sample_tree(0, 3, 3, 4)
    for number, events in by_trajectory(tree).items():
        path = [span.index for span in tree.path(number)]
        for event, span in zip(events, spans_of(tree, number, events), strict=True):
            if event.kind == "generate":
                assert (span.kind, len(span.ids)) == ("model", event.tokens)
                assert span.index in path
                last = span
            elif event.kind == "tool":
                assert (span.tool, span.parent) == ({"name": event.name, "status": event.status}, last.index)
            else:
                assert span is None


def test_a_step_done_again_after_a_resume_is_shown_once(run_dir: Path) -> None:
    write_traces(run_dir / "traces.jsonl", [sample_tree(group, 5, 0, 2, 1) for group in (0, 1)])
    _, shown = write_timeline(run_dir, step=1)
    assert [len(tree.trajectories) for tree in shown] == [5, 5]


def test_a_browser_draws_a_timeline(tmp_path: Path, browser: Browser) -> None:
    tree = sample_tree(0, step=3)
    tree.task["question"] = tree.spans[0].text = NASTY
    write_traces(tmp_path / "traces.jsonl", [tree])
    browser.open(write_timeline(tmp_path)[0].as_uri())
    shown = browser.value("document.documentElement.outerHTML")
    assert "data-broken" not in shown[:500]
    assert "pwned" not in shown[:500]
    assert shown.count('class="tree-lanes"') == 1
    assert "model idle" in shown
    assert browser.logs == []
