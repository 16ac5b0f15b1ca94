"""What tools at inference time abandoned is drawn apart in a browser: in the tree and in the conversation."""

from pathlib import Path

from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.report.html_report import tree_svg
from arpo_trainer.tree import ABANDONED, WORKED, RolloutTree, Trajectory
from arpo_trainer.views.run_page import write_view
from arpo_trainer.views.terminal_view import conversation_lines
from tests.arpo_trainer.evaluation import made_rows
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.test_run_page import open_task


def taken_back() -> RolloutTree:
    """A call that failed and was taken back, then one that worked, and the answer."""
    tree = RolloutTree([1, 2], task={"id": "t0", "question": "What?", "answers": ["12"], "kind": "qa"}, prompt="What?")
    numbers = {"logprobs": [0.0, 0.0], "entropies": [0.1, 0.1]}
    python = {"name": "python", "status": "error", "seconds": 0.1}
    bad = tree.add_span(None, "model", [3, 4], text="<think>a</think><python>1 / 0</python>", **numbers)
    error = tree.add_span(bad.index, "environment", [5], text="\n<result>\nZeroDivisionError\n</result>\n", tool=python)
    for span in (bad, error):
        span.mark("backtracer", ABANDONED)
    again = tree.add_span(None, "model", [6, 7], text="<think>b</think><python>12</python>", **numbers)
    again.mark("backtracer", WORKED, "ZeroDivisionError")
    result = {**python, "status": "ok"}
    shown = tree.add_span(again.index, "environment", [8], text="\n<result>\n12\n</result>\n", tool=result)
    last = tree.add_span(shown.index, "model", [9, 9], text="<answer>\\boxed{12}</answer>", **numbers)
    tree.trajectories = [Trajectory(last.index, reward=1.0, components={"accuracy": 1.0}, answer="12", tool_calls=1)]
    tree.reorder([0])
    return tree


def test_the_picture_and_the_text_show_it_too(tmp_path: Path) -> None:
    folder = made_rows.play(tmp_path / "run", {})
    with EpisodeStore(folder) as store:
        store.add(UnitKey("a", "GSM8K", "t0"), 0, taken_back())
    run = load_eval_run(folder)
    assert tree_svg(run.tree(run.rows[0])).count("stroke-dasharray") == 2
    lines = list(conversation_lines(run, run.rows[0], 0))
    end = lines.index("2 spans were abandoned by tools at inference time:")
    assert [at for at, line in enumerate(lines) if "ZeroDivisionError" in line][-1] > end > lines.index("12")


def test_a_browser_draws_what_was_abandoned_apart(tmp_path: Path, browser: Browser) -> None:
    folder = made_rows.play(tmp_path / "run", {})
    with EpisodeStore(folder) as store:
        row = store.add(UnitKey("a", "GSM8K", "t0"), 0, taken_back())
    assert row.episodes[0].inference == {"backtracer": 1}
    assert (row.episodes[0].calls, row.generated) == ({"python": 1}, 6)
    browser.open(write_view([folder]).as_uri())
    browser.value('document.querySelector(".grid-box").focus()')
    open_task(browser)
    assert "ZeroDivisionError" in browser.value('document.querySelector("#detail .abandoned-part").textContent')
    assert browser.value('document.querySelectorAll("#detail .said > .part.call").length') == 1
    open_task(browser, "t")
    assert browser.value('document.querySelectorAll("#detail [data-node].abandoned").length') == 2
    assert browser.value('document.querySelector("#detail .node .helped").textContent') == "B"
    assert browser.value('document.querySelectorAll("#detail button.leaf").length') == 1
    assert browser.logs == []
