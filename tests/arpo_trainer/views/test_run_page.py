"""The page of an evaluation: it holds every episode, a browser shows them, and hostile text stays text."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.cli.play_commands import write_summary
from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.report.html_report import tree_svg
from arpo_trainer.tree import ABANDONED, WORKED, write_traces
from arpo_trainer.views import run_page
from arpo_trainer.views.run_page import score_lines, view_tree, write_view
from arpo_trainer.views.terminal_view import conversation_lines, visible
from tests.arpo_trainer.evaluation import made_rows
from tests.arpo_trainer.sample_timeline import sample_tree
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.sample_runs import HOSTILE, hostile_run, make_run

COUNT = 'document.querySelector("#filters [role=status]").textContent'
SHOWN = "document.documentElement.dataset.shown"


def pieces(page: Path) -> dict[str, Any]:
    """The compressed pieces of a page, as a browser reads them."""
    found = re.findall(
        r'<script type="application/octet-stream" id="([\w-]+)">([^<]*)</script>', page.read_text(encoding="utf-8")
    )
    return {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in found}


def press(browser: Browser, *names: str) -> None:
    for name in names:
        browser.key(name)


def open_task(browser: Browser, key: str = "Enter") -> None:
    """Press a key and wait until the conversation that it opens is drawn."""
    before = browser.value(f'{SHOWN} || "0"')
    browser.key(key)
    browser.wait(f'({SHOWN} || "0") !== {json.dumps(before)}')


def choose(browser: Browser, label: str, value: str) -> None:
    browser.value(
        f"(() => {{ const one = document.querySelector('[aria-label={json.dumps(label)}]'); one.value = "
        f"{json.dumps(value)}; one.dispatchEvent(new Event('change')); }})()"
    )


def search(browser: Browser, words: str) -> None:
    browser.value(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = "
        f"{json.dumps(words)}; box.dispatchEvent(new Event('input')); }})()"
    )


def test_every_row_and_every_tree_is_in_the_page(large_run: Path, large_page: Path) -> None:
    run, page = load_eval_run(large_run), large_page
    found = pieces(page)
    rows = found["rows-0"]
    assert len(rows["units"]) == len(run.rows) == 5000
    assert len(rows["tasks"]) == 1250
    assert page.stat().st_size < 30e6
    for number in (0, 1, 2499, 4999):
        row, (model, task, sample, attempt, generated, tree, episodes) = run.rows[number], rows["units"][number]
        assert (rows["models"][model], sample, attempt, generated) == (row.model, row.sample, 1, row.generated)
        assert rows["tasks"][task][1:5] == [row.task, row.question, row.answers, row.level]
        assert [one[1] for one in episodes] == [entry.reward for entry in row.episodes]
        stored = found[f"trees-0-{tree // 20}"][tree % 20]
        assert stored == json.loads(json.dumps(view_tree(run.tree(row))))
        assert stored["spans"][0]["text"] == run.tree(row).spans[0].text


@pytest.mark.parametrize(("wanted", "count"), [("none", 0), ("7", 7), ("100000", 30), ("broken", None)])
def test_trees_can_be_left_out(tree_run: Path, tmp_path: Path, wanted: str, count: int | None) -> None:
    run = load_eval_run(tree_run)
    found = pieces(write_view([tree_run], output=tmp_path / "view.html", trees=wanted))
    with_tree = [number for number, unit in enumerate(found["rows-0"]["units"]) if unit[5] is not None]
    if count is None:
        assert with_tree == [number for number, row in enumerate(run.rows) if row.broken]
    else:
        assert len(with_tree) == count
    assert sum(len(piece) for name, piece in found.items() if name.startswith("trees")) == len(with_tree)


def test_a_page_that_would_be_too_large_has_no_trees_and_says_so(
    tree_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_page, "LIMIT", 10_000)
    page = write_view([tree_run], output=tmp_path / "view.html")
    assert set(pieces(page)) == {"rows-0"}
    assert "--serve` shows all of them" in page.read_text(encoding="utf-8")


def test_a_score_of_many_samples_stands_beside_published_and_reproduced_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", tasks=30, samples=32, models=("Qwen2.5-7B",), envs=("AIME25",), tokens=8)
    assert write_summary(load_eval_run(run), 1.0) == 0
    _, line, *notes = capsys.readouterr().out.splitlines()
    assert re.search(r"0\.\d+ accuracy avg@32 +\[0\.\d+, 0\.\d+\] +0\.300 ARPO, reproduced 0\.180 +960 ", line)
    assert "others measured ARPO 18.0" in " ".join(notes)
    data = json.loads(re.search(r'id="data">(.*?)</script>', write_view([run]).read_text(), re.DOTALL)[1])  # type: ignore[index]
    assert [row["value"] for row in data["runs"][0]["scores"][0]["published"]["reproductions"]] == [0.18]


def test_a_trace_that_was_cut_costs_only_its_own_conversations(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", tasks=5)
    traces = run / "traces.jsonl"
    traces.write_bytes(traces.read_bytes()[:-100])
    found = pieces(write_view([run]))
    assert [tree is None for tree in found["trees-0-0"]] == [False] * 4 + [True]
    traces.unlink()
    assert len(pieces(write_view([run]))["rows-0"]["units"]) == 5


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run nowhere", "no evaluation in 'nowhere'; give the --output folder of `arpo eval`"),
        ("run run --trees some", "--trees some: write all, broken, none, or a number"),
        ("run run --output missing/page.html", "no folder 'missing'"),
        ("run run --task x", "belong to --text"),
        ("run run --text --task x", "has no task 'x'; it has GSM8K/GSM8K-0"),
        ("timeline nowhere", "give the output_dir of a run or its traces.jsonl"),
        ("timeline .", "trace_every: 1"),
        ("timeline trained --step 7", "no trees of step 7"),
        ("timeline empty", "holds no tree yet"),
    ],
)
def test_errors_name_the_cure(command: str, said: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    make_run(tmp_path / "run", tasks=2)
    for name, trees in {"trained": [sample_tree()], "empty": []}.items():
        (tmp_path / name).mkdir()
        write_traces(tmp_path / name / "traces.jsonl", trees)
    monkeypatch.chdir(tmp_path)
    assert main(["view", *command.split()]) == 1
    assert said in capsys.readouterr().err


def test_a_browser_filters_sorts_and_opens_5000_episodes(large_run: Path, large_page: Path, browser: Browser) -> None:
    run, page = load_eval_run(large_run), large_page
    browser.size(1360, 950)
    browser.open(page.as_uri())
    assert browser.value(COUNT) == "2,500 tasks listed"
    assert 10 < browser.value('document.querySelectorAll(".space .grid-row").length') < 60
    browser.value('document.querySelector("#filters [data-name=broken]").click()')
    broken = {row.key.task + row.model for row in run.rows if row.broken}
    assert browser.value(COUNT) == f"{len(broken)} tasks listed"
    browser.value('document.querySelector("#filters [data-name=all]").click()')
    choose(browser, "Environment", "MATH500")
    choose(browser, "Level", "2")
    listed = {(row.model, row.task) for row in run.rows if row.env == "MATH500" and row.level == "2"}
    assert browser.value(COUNT) == f"{len(listed)} tasks listed"
    choose(browser, "Tools", "without")
    assert browser.value(COUNT) == "nothing fits these filters"
    choose(browser, "Tools", "=python")
    search(browser, 'ann "has 31 APPLES"')
    assert browser.value(COUNT) == "2 tasks listed"
    search(browser, "")
    choose(browser, "Environment", "")
    choose(browser, "Level", "")
    browser.value(
        "document.querySelector('[data-key=seconds]').click(); document.querySelector('[data-key=seconds]').click()"
    )
    pairs = zip(run.rows[::2], run.rows[1::2], strict=True)
    slowest = max(sum(entry.seconds for row in rows for entry in row.episodes) / 2 for rows in pairs)
    first = browser.value('document.querySelector(".space .grid-row .cell-seconds").textContent')
    assert float(first) == pytest.approx(slowest, rel=0.1)
    browser.value("document.querySelector('[data-key=seconds]').click()")  # the third click: as it was
    browser.value('document.querySelector(".grid-box").focus()')
    press(browser, "End")
    assert browser.value('document.querySelector(".space .grid-row.at").ariaRowIndex') == "2501"
    open_task(browser)
    last = run.rows[-2]
    assert last.question in browser.value('document.querySelector("#detail").textContent')
    kinds = browser.value('[...document.querySelectorAll("#detail .part")].map((one) => one.classList[1])')
    assert kinds == ["thought", "call", "result", "text", "answer"]
    open_task(browser, "k")
    assert run.rows[-4].question in browser.value('document.querySelector("#detail").textContent')
    open_task(browser, "n")
    assert browser.value('document.querySelector("#detail [data-hold=pick-0-1]").ariaPressed') == "true"
    press(browser, "Escape")
    assert not browser.value('document.querySelector("#detail").open')
    assert (browser.logs, browser.requests) == ([], [page.as_uri()])


@pytest.mark.parametrize("width", [1360, 390])
def test_a_browser_draws_trees(tree_run: Path, tmp_path: Path, browser: Browser, width: int) -> None:
    page = write_view([tree_run], output=tmp_path / "view.html")
    browser.size(width, 844, dark=width < 500)
    browser.open(page.as_uri())
    assert browser.value("document.documentElement.scrollWidth") <= width
    browser.value('document.querySelector(".grid-box").focus()')
    open_task(browser)
    open_task(browser, "t")
    tree = load_eval_run(tree_run).tree(load_eval_run(tree_run).rows[0])
    assert browser.value('document.querySelectorAll("#detail [data-node^=span]").length') == len(tree.spans)
    assert browser.value('document.querySelectorAll("#detail button.leaf").length') == 4
    browser.value('document.querySelectorAll("#detail button.leaf")[2].click()')
    assert "Trajectory 2" in browser.value('document.querySelector("#detail .panel").textContent')
    press(browser, "t", "h")
    browser.wait('document.querySelector("#detail .spark")')
    assert browser.value('document.querySelector("#detail").scrollWidth') <= width
    press(browser, "Escape", "?")
    assert browser.value('document.querySelector("#help").open')
    press(browser, "Escape")
    assert browser.logs == []


def test_hostile_text_stays_text(tmp_path: Path, browser: Browser) -> None:
    run = hostile_run(tmp_path / "run")
    page = write_view([run])
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"<script", text)) == len(re.findall(r"</script", text)) == 2 + len(pieces(page))
    assert "<img" not in text
    assert "unsafe" not in text
    browser.size(1360, 950)
    browser.open(page.as_uri())
    press(browser, "j", "j")
    open_task(browser)
    for key in ("h", "r", "t", "n"):
        open_task(browser, key)
    root = browser.value("document.documentElement.outerHTML")
    assert "data-pwned" not in root[:500]
    assert browser.value('document.querySelectorAll("img, #detail script, #list script").length') == 0
    assert browser.value('document.querySelector("#detail .question").textContent') == HOSTILE.replace("\ud800", "?")
    assert (browser.logs, browser.requests) == ([], [page.as_uri()])


def test_what_was_abandoned_is_shown_apart_and_counted_once(tmp_path: Path) -> None:
    """A call that failed and was taken back, then one that worked, and the answer."""
    tree = made_rows.tree("t0", "12", 1.0)
    tree.spans[0].mark("backtracer", WORKED, "ZeroDivisionError")
    numbers = {"logprobs": [0.0, 0.0], "entropies": [0.1, 0.1]}
    bad = tree.add_span(None, "model", [3, 4], text="<think>a</think><python>1 / 0</python>", **numbers)
    python = {"name": "python", "status": "error", "seconds": 0.1}
    error = tree.add_span(bad.index, "environment", [5], text="\n<result>\nZeroDivisionError\n</result>\n", tool=python)
    for span in (bad, error):
        span.mark("backtracer", ABANDONED)
    tree.reorder([0])
    folder = made_rows.play(tmp_path / "run", {})
    with EpisodeStore(folder) as store:
        row = store.add(UnitKey("a", "GSM8K", "t0"), 0, tree)
    assert row.episodes[0].inference == {"backtracer": 1}
    assert (row.episodes[0].calls, row.generated) == ({"python": 1}, 5)
    run = load_eval_run(folder)
    assert tree_svg(run.tree(run.rows[0])).count("stroke-dasharray") == 2
    lines = list(conversation_lines(run, run.rows[0], 0))
    end = lines.index("2 spans were abandoned by tools at inference time:")
    assert [at for at, line in enumerate(lines) if "ZeroDivisionError" in line][-1] > end > lines.index("12")


DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # 1 x 1 pixel


def test_a_browser_shows_the_pictures_of_a_result(tmp_path: Path, browser: Browser) -> None:
    folder = made_rows.play(tmp_path / "run", {})
    tree = made_rows.tree("t0", "12", 1.0)
    tree.spans[1].tool = {"name": "read_file", "status": "ok", "images": [DOT, "http://192.0.2.1/x.png", 7]}
    with EpisodeStore(folder) as store:
        store.add(UnitKey("a", "GSM8K", "t0"), 0, tree)
    browser.open(write_view([folder]).as_uri())
    browser.value('document.querySelector(".grid-box").focus()')
    open_task(browser)
    browser.wait('document.querySelector("#detail .part.result img.seen").naturalWidth === 1', seconds=10)
    assert browser.value('document.querySelectorAll("#detail img").length') == 1
    assert not browser.logs


def test_the_summary_has_every_model_and_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = make_run(tmp_path / "one", tasks=20, samples=2, models=("a", "b"), envs=("X", "Y"))
    ids = {"X": "arpo/GAIA-v0", "Y": "arpo/Y-v0"}
    about = {name: {"id": env, "tasks": 20, "metric": "accuracy"} for name, env in ids.items()}
    two = make_run(tmp_path / "two", tasks=20, models=("a",), envs=("X", "Y"), skill=0.9, seed=3, environments=about)
    assert main(["view", str(one), str(two), "--text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("one: finished, 160 units in ")
    table = [line.split() for line in lines if line.startswith(("one ", "two "))]
    assert [" ".join(cells[:3]) for cells in table] == [
        "one a X",
        "one a Y",
        "one b X",
        "one b Y",
        "two a X",
        "two a Y",
    ]
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
