"""`arpo view RUN`: one self-contained HTML page of an evaluation, of a suite, or of runs side by side.

The rows of all episodes are in the page; trees are in compressed pieces that the browser unpacks when one is opened.
The page loads nothing. `live_server` serves the same page and reads trees from the trace instead.

    write_view(["evals/gsm8k"])                       # evals/gsm8k/view.html
    write_view(["evals/before", "evals/after"])       # side by side
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import TRACES, EvalRun, load_eval_run
from arpo_trainer.evaluation.unit_row import UnitRow
from arpo_trainer.report.html_page import make_page
from arpo_trainer.statistics.comparison import compare_paired
from arpo_trainer.views.page_rows import PIECE, compact_rows, packed, tree_pieces
from arpo_trainer.views.run_summary import metric_of, score_lines, task_scores
from arpo_trainer.views.token_widths import TokenWidths

LIMIT = 200_000_000  # bytes of trees, above which browsers take long to open the file
_PAIRS = 15  # most pairs of models that are compared
_MARK = "<!-- pieces -->"
_SCRIPTS = (
    "tools",
    "layout",
    "trees",
    "panel",
    "rows",
    "overview",
    "filters",
    "table",
    "turns",
    "detail",
    "keys",
    "start",
)
_PACKAGES = ("arpo_trainer.views", "arpo_trainer.report")


def write_view(
    folders: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    trees: str = "all",
    tokenizer: str | Path | None = None,
    limit: int = LIMIT,
) -> Path:
    """Write the page, and return its path.

    Args:
        folders: folders of `arpo eval`.
        output: path of the page; by default view.html in the first folder.
        trees: "all", "broken" (those of units that broke), "none", or a number: so many, spread over the run.
        tokenizer: folder of a tokenizer, to colour texts by entropy; by default those of the models, where they are.
        limit: most bytes of trees; a page that would have more gets none, and says so.

    Raises:
        FileNotFoundError: a folder is not of an evaluation, or that of `output` is missing.
        ValueError: a file cannot be read, or `trees` has another value.
    """
    runs = [load_eval_run(folder) for folder in folders]
    target = Path(output) if output else Path(folders[0]) / "view.html"
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name} to; make it first")
    chosen = [choose_units(run, trees) for run in runs]
    pieces, notes = _pieces(runs, chosen, tokenizer, limit)
    if notes:
        chosen = [[] for _ in runs]
    page = render(page_data(runs, notes))
    head, _, tail = page.partition(_MARK)
    unfinished = target.with_name(f"{target.name}.unfinished")
    with unfinished.open("w", encoding="utf-8", errors="replace") as file:
        file.write(head)
        file.writelines(_element(name, text) for name, text in _row_pieces(runs, chosen))
        file.writelines(_element(name, text) for name, text in pieces)
        file.write(tail)
    unfinished.replace(target)
    return target


def render(data: dict[str, Any], *, policy: str = "") -> str:
    """Return the page with a mark where the pieces belong; `policy` allows a served page to ask its server."""
    title = " and ".join(run["name"] for run in data["runs"])
    scripts = [f"{name}.js" for name in _SCRIPTS]
    styles = ["style.css", "view.css"]
    extra = {"pieces": _MARK}
    policy = f"img-src data:; {policy}".rstrip("; ")  # pictures that a tool has shown to the model
    return make_page("view.html", title, styles, scripts, data, packages=_PACKAGES, extra=extra, policy=policy)


def page_data(runs: Sequence[EvalRun], notes: Sequence[str] = (), *, served: bool = False) -> dict[str, Any]:
    """Return what the page shows besides rows and trees."""
    names = unique_names(runs)
    return {
        "facts": {},  # of one run, in the report, whose scripts are used
        "trees": [],
        "served": served,
        "piece": PIECE,
        "runs": [
            {
                "name": name,
                "facts": run.facts,
                "scores": [asdict(line) for line in score_lines(run)],
                "bytes": path.stat().st_size if (path := run.folder / TRACES).is_file() else 0,
            }
            for name, run in zip(names, runs, strict=True)
        ],
        "pairs": list(comparisons(runs)),
        "notes": list(notes),
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def unique_names(runs: Sequence[EvalRun]) -> list[str]:
    """Return a name for each run: its own, or with its folder where two runs have the same."""
    names = [str(run.facts.get("name") or run.folder.resolve().name) for run in runs]
    if len(set(names)) == len(names):
        return names
    folders = [f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)]
    return folders if len(set(folders)) == len(folders) else [f"{name} {i + 1}" for i, name in enumerate(folders)]


def comparisons(runs: Sequence[EvalRun]) -> Iterator[dict[str, Any]]:
    """Yield paired comparisons of models or runs, by environment, over the tasks that both have."""
    groups: dict[tuple[int, str], dict[str, list[UnitRow]]] = {}
    for number, run in enumerate(runs):
        for row in run.rows:
            groups.setdefault((number, row.model), {}).setdefault(row.env, []).append(row)
    for first, second in _compared(list(groups))[:_PAIRS]:
        for env in [env for env in groups[first] if env in groups[second]]:
            one, two = (task_scores(groups[side][env], metric_of(runs[side[0]].facts, env)) for side in (first, second))
            asked, asks = ({row.task: row.question for row in groups[side][env]} for side in (first, second))
            # the same id with another question is another task
            shared = [task for task, scores in one.items() if scores and two.get(task) and asked[task] == asks[task]]
            if shared:
                result = compare_paired({task: one[task] for task in shared}, {task: two[task] for task in shared})
                numbers = {name: getattr(result, name) for name in ("first", "second", "difference", "low", "high")}
                counts = {"p": result.p_value, "gained": len(result.gained), "lost": len(result.lost)}
                yield {"sides": [first, second], "env": env, "tasks": result.tasks, **numbers, **counts}


def _compared(sides: list[tuple[int, str]]) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """Return which sides to compare: the models of one run, or the same model in several runs, if there is one."""
    pairs = list(itertools.combinations(sides, 2))
    across = [(one, two) for one, two in pairs if one[0] != two[0]]
    return [(one, two) for one, two in across if one[1] == two[1]] or across or pairs


def choose_units(run: EvalRun, trees: str) -> list[int]:
    """Return the positions of the units whose trees are wanted.

    Raises:
        ValueError: `trees` is none of its values.
    """
    every = range(len(run.rows))
    if trees == "all":
        return list(every)
    if trees == "none":
        return []
    if trees == "broken":
        return [number for number in every if run.rows[number].broken]
    if not trees.isdecimal():
        raise ValueError(f"--trees {trees}: write all, broken, none, or a number")
    count = min(int(trees), len(every))
    return [number * len(every) // count for number in range(count)]


def model_widths(run: EvalRun, tokenizer: str | Path | None) -> dict[str, TokenWidths | None]:
    """Return how texts are divided into tokens, by model."""
    models = run.facts.get("models")
    described = models if isinstance(models, dict) else {}
    labels = [*described, *{row.model for row in run.rows}]
    paths = {label: facts.get("path") for label, facts in described.items() if isinstance(facts, dict)}
    folders = {label: tokenizer or paths.get(label) for label in labels}
    made = {folder: TokenWidths.of_model(folder) for folder in set(folders.values())}
    return {label: made[folder] for label, folder in folders.items()}


def _pieces(
    runs: Sequence[EvalRun], chosen: Sequence[Sequence[int]], tokenizer: str | Path | None, limit: int
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pieces with their names, or none and a note if there are too many bytes of them."""
    found: list[tuple[str, str]] = []
    total = 0
    for number, (run, units) in enumerate(zip(runs, chosen, strict=True)):
        rows = [run.rows[unit] for unit in units]
        for place, text in enumerate(tree_pieces(run, rows, model_widths(run, tokenizer))):
            found.append((f"trees-{number}-{place}", text))
            total += len(text)
            if total > limit:
                return [], [
                    f"The conversations are left out: they take more than {limit / 1e6:.0f} MB. `arpo view RUN "
                    "--serve` shows all of them; `--trees broken` or `--trees 500` puts some into a file."
                ]
    return found, []


def _row_pieces(runs: Sequence[EvalRun], chosen: Sequence[Sequence[int]]) -> Iterator[tuple[str, str]]:
    for number, (run, units) in enumerate(zip(runs, chosen, strict=True)):
        place = {unit: position for position, unit in enumerate(units)}
        yield f"rows-{number}", packed(compact_rows(run, functools.partial(_place_of, place)))


def _place_of(place: dict[int, int], unit: int, row: UnitRow) -> int | None:
    return place.get(unit)


def _element(name: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{text}</script>\n'
