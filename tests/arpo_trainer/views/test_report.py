"""The report: what goes in comes out, hostile text stays text, and a run that is not whole still gets its page."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.report import run_data
from arpo_trainer.report.html_report import payload, write_report
from arpo_trainer.report.run_data import load_run
from arpo_trainer.tree import Decision, RolloutTree, Trajectory, write_traces
from tests.arpo_trainer.views.browser import Browser

NASTY = (
    "</script><script>document.documentElement.dataset.pwned=1</script>"
    '<img src=x onerror="document.documentElement.dataset.pwned=2"> <!-- {{data}} $& 中文 \u202e עברית ' + "x" * 500
)
TRACKED = "https://wandb.example/me/project/runs/1"


def make_tree(step: int = 0, group: int = 0) -> RolloutTree:
    """Two roots; the first branches after its tool result, the second breaks."""
    tree = RolloutTree(
        [1, 2, 3],
        task={"id": f"t{step}-{group}", "question": NASTY, "answers": ["4", NASTY], "level": "1"},
        prompt=NASTY,
        meta={"step": step, "group": group, "seed": 3, "algorithm": "arpo"},
    )
    call = tree.add_span(
        None, "model", [5, 6, 7], logprobs=[-0.1, -0.2, -0.3], entropies=[0.12345, 1.0, 0.5], text=NASTY, finish="stop"
    )
    result = tree.add_span(
        call.index, "environment", [8, 9], text=NASTY, tool={"name": NASTY, "status": "error", "seconds": 0.25}
    )
    result.decision = Decision(0.2, 0.03, 0.506, 0.5, 1, "entropy rose")
    ends = [
        tree.add_span(result.index, "model", [n], logprobs=[-1.0], entropies=[2.0], text="end", finish="eos")
        for n in (10, 11)
    ]
    broken = tree.add_span(None, "model", [12], logprobs=[-1.0], entropies=[2.0], text="oh", finish="length")
    tree.trajectories = [
        Trajectory(ends[0].index, "root", None, None, 1.0, {"accuracy": 1.0}, "answered", None, NASTY, 1),
        Trajectory(broken.index, "root", outcome="failed", error=NASTY),
        Trajectory(ends[1].index, "branch", 0, result.index, 0.0, {"accuracy": 0.0}, "no answer", None, None, 1),
    ]
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
    write_lines(
        folder / "metrics.jsonl",
        [
            {"step": 1, "reward": 0.25, "reward_std": 0.1, "branches": 2, "roots": 4, "seconds_generate": 2.0},
            {"step": 2, "reward": float("nan"), "entropy": None, "branches": 2, "roots": 4, "seconds_generate": 2.5},
        ],
    )
    sample = {"task": {"id": "s", "question": NASTY, "answers": ["4"]}, "reward": 0.0, "text": NASTY, "answer": NASTY}
    write_lines(
        folder / "eval.jsonl",
        [
            {
                "name": name,
                "n": 10,
                "accuracy": value,
                "accuracy_low": value - 0.1,
                "accuracy_high": value + 0.1,
                "by_level": {"1": {"n": 5, "accuracy": value}, "2": {"n": 5, "accuracy": value}},
                "samples": [{**sample, "correct": value > 0.3}],
            }
            for name, value in (("before", 0.2), ("middle", 0.3), ("after", 0.5))
        ],
    )
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
    assert drawn["spans"][0]["entropies"] == [123, 1000, 500]
    assert drawn["spans"][1]["decision"]["reason"] == "entropy rose"
    assert drawn["trajectories"][2]["fork_span"] == 1
    assert (drawn["unique"], drawn["copied"]) == (tree.unique_tokens(), tree.copied_tokens())


def test_text_cannot_become_markup(run_dir: Path) -> None:
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 2
    assert "<img" not in page
    assert "<!--" not in page


def test_only_the_page_s_own_script_and_style_are_allowed(run_dir: Path) -> None:
    page = write_report(run_dir).read_text(encoding="utf-8")
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
def test_a_broken_line_is_named(run_dir: Path, name: str) -> None:
    count = len((run_dir / name).read_text(encoding="utf-8").splitlines())
    with (run_dir / name).open("a", encoding="utf-8") as file:
        file.write("[1, 2]")
    with pytest.raises(ValueError, match=rf"{name}, line {count + 1}:"):
        write_report(run_dir)


def test_a_running_run_may_be_in_the_middle_of_a_line(run_dir: Path) -> None:
    (run_dir / "run.json").write_text('{"status": "running"}', encoding="utf-8")
    for name in ("metrics.jsonl", "traces.jsonl"):
        with (run_dir / name).open("a", encoding="utf-8") as file:
            file.write('{"step": 3, "rew')
    run = load_run(run_dir)
    assert run.running
    assert (len(run.metrics), run.tree_total) == (2, 4)


def test_trees_left_out_are_counted(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "TREES", 3)
    run = load_run(run_dir)
    assert (len(run.trees), run.tree_total, run.tree_steps) == (3, 4, 2)
    data = payload(run)
    assert (len(data["trees"]), data["tree_total"]) == (3, 4)


def test_steps_of_trees_count_like_those_of_the_metrics(run_dir: Path) -> None:
    assert [tree["step"] for tree in payload(load_run(run_dir))["trees"]] == [1, 1, 2, 2]
    (run_dir / "metrics.jsonl").unlink()
    assert [tree["step"] for tree in payload(load_run(run_dir))["trees"]] == [0, 0, 1, 1]


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
