"""How long `arpo view` takes on 5,000 episodes: writing the page, and each action in a headless Chromium.

    python -m benchmarks.views [--tokens 400]

Two models, two environments and two samples of 625 tasks each, and a second run beside it. An action ends when the page
has drawn its result: the script dispatches the event and waits for the next frame that is painted. Medians of five. The
results are printed and written to benchmarks/results/views.json. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "views.json"
MODELS, ENVS = ("qwen2.5-3b", "llama3.1-8b"), ("GSM8K", "MATH500")
REPEATS = 5
# each ends with a promise that is kept when the result has been painted
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
TYPE = """const box = document.querySelector("input[type=search]"); box.value = %s;
box.dispatchEvent(new Event("input"));"""
CHOOSE = """const one = document.querySelector("[aria-label=Environment]"); one.value = %s;
one.dispatchEvent(new Event("change"));"""
KEY = """document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: %s, bubbles: true}));"""
SHOWN = (
    """while (document.documentElement.dataset.shown === before) await new Promise((again) => setTimeout(again, 1));"""
)
CLICK = "document.querySelector(%s).click();"
GO = """if (document.querySelector("#detail").open) document.querySelector("#detail").close();
document.querySelector(".port").scrollTop = %d;"""
OPEN = """document.querySelector(".grid-box").focus(); document.querySelectorAll(".space .grid-row")[9].click();"""
FILTERS = {False: ("right", "wrong", "broken", "some", "all"), True: ("gained", "lost", "same", "broken", "all")}
COLUMNS = {False: ("tokens", "question", "seconds", "answer", "result"), True: ("question", "A", "B", "gold", "change")}


def action(body: str, *, shows: bool = False) -> str:
    """JavaScript that does something and returns the milliseconds until its result was painted."""
    before, wait = ("const before = document.documentElement.dataset.shown;", SHOWN) if shows else ("", "")
    steps = f"{before} {body} {wait} await {PAINTED}; return performance.now() - begun;"
    return f"(async () => {{ const begun = performance.now(); {steps} }})()"


def key(name: str) -> list[str]:
    """A key that changes what is shown of a task, pressed several times."""
    return [action(KEY % json.dumps(name), shows=True) for _ in range(REPEATS)]


def actions(pairs: bool) -> dict[str, list[str]]:
    """What is measured, in this order: names and the scripts of the repetitions."""
    openings = [
        (f"(async () => {{ {GO % (38 * place)} await {PAINTED}; }})()", OPEN) for place in (3, 400, 700, 1000, 1200)
    ]
    return {
        "search": [action(TYPE % json.dumps(words)) for words in ("apples", "31", "ann has 7", "zzz", "")],
        "filter by result": [action(CLICK % json.dumps(f"#filters [data-name={name}]")) for name in FILTERS[pairs]],
        "filter by environment": [action(CHOOSE % json.dumps(value)) for value in ("GSM8K", "MATH500", "")],
        "sort": [action(CLICK % json.dumps(f"[data-key={name}]")) for name in COLUMNS[pairs]],
        "scroll to the end": [
            action(f"document.querySelector('.port').scrollTop = {y};") for y in (1e6, 0, 1e6, 0, 1e6)
        ],
        "open a conversation": [script for go, click in openings for script in (go, action(click, shows=True))],
        "next task": key("j"),
        "tree and back": key("t"),
        "entropies": key("h"),
    }


def measure(browser: Any, page: Path, pairs: bool) -> dict[str, float]:
    """Return the median milliseconds of each action, and of opening the page."""
    found = {}
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        browser.open(page.as_uri())
        times.append(1000 * (time.perf_counter() - begun))
    found["open the page"] = statistics.median(times)
    for name, scripts in actions(pairs).items():
        measured = [value for script in scripts if isinstance(value := browser.value(script), (int, float))]
        found[name] = statistics.median(measured)
        found[f"{name}, slowest"] = max(measured)
    assert browser.logs == [], browser.logs
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=400, help="tokens of an episode")
    arguments = parser.parse_args()

    from arpo_trainer.views.run_page import write_view
    from tests.arpo_trainer.views.browser import Browser
    from tests.arpo_trainer.views.sample_runs import make_run

    results: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "tokens": arguments.tokens}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        about: dict[str, Any] = {"tasks": 625, "samples": 2, "envs": ENVS, "tokens": arguments.tokens}
        runs = [make_run(root / name, models=MODELS, seed=number, **about) for number, name in enumerate(("a", "b"))]
        browser = Browser(root / "profile")
        try:
            browser.size(1360, 950)
            for name, folders in (("one run", runs[:1]), ("two runs side by side", runs)):
                begun, used = time.perf_counter(), time.process_time()
                page = write_view(folders, output=root / "view.html")
                written = {"seconds": time.perf_counter() - begun, "cpu seconds": time.process_time() - used}
                results[name] = {
                    "episodes": 5000 * len(folders),
                    "page, MB": round(page.stat().st_size / 1e6, 1),
                    **{f"writing, {key}": round(value, 2) for key, value in written.items()},
                    "milliseconds": measure(browser, page, len(folders) > 1),
                }
        finally:
            browser.close()
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
