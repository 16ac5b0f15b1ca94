"""`arpo view RUN --text`: scores, tasks and conversations as plain text, for a terminal, a pager or a pipe.

    lines = summary_lines([load_eval_run("evals/gsm8k")])
    lines = conversation_lines(run, run.rows[0], 0)

Control characters of what a model or a tool wrote are shown as escapes: text cannot move the cursor or change colours.
"""

from __future__ import annotations

import json
import math
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow
from arpo_trainer.tree import ABANDONED, Span
from arpo_trainer.views.run_page import ScoreLine, comparisons, is_right, score_lines, turn_parts, unique_names

WIDTH = 100
_QUESTION = 60
_SIGNS = {True: "right", False: "wrong", None: "broken"}


def visible(text: str) -> str:
    """Return a text whose control characters are escapes; line breaks and tabs stay."""
    return "".join(_escaped(sign) if unicodedata.category(sign) in ("Cc", "Cf", "Cs") else sign for sign in text)


def _escaped(sign: str) -> str:
    if sign in "\n\t\u200c\u200d":  # the last two join letters and emoji
        return sign
    return f"\\x{ord(sign):02x}" if ord(sign) < 256 else f"\\u{ord(sign):04x}"


def one_line(text: str, width: int = _QUESTION) -> str:
    """Return a text in one line, cut to a width."""
    text = visible(" ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 1]}…"


def score_rows(runs: Sequence[EvalRun]) -> list[tuple[str, ...]]:
    """Return the scores of runs as rows of a table, with a head."""
    heads = (
        "RUN",
        "MODEL",
        "ENVIRONMENT",
        "SCORE",
        "95 % INTERVAL",
        "PUBLISHED",
        "EPISODES",
        "BROKEN",
        "CALLS",
        "TOKENS",
    )
    rows: list[tuple[str, ...]] = [heads]
    for name, run in zip(unique_names(runs), runs, strict=True):
        rows += [tuple(one_line(cell, 40) for cell in (name, *_score_cells(line))) for line in score_lines(run)]
    return rows if len(runs) > 1 else [row[1:] for row in rows]


def _score_cells(line: ScoreLine) -> tuple[str, ...]:
    score, planned = line["score"] or {}, line["planned"] or 0
    bounds = [f"{bound:.3f}" for bound in (score.get("low"), score.get("high")) if bound is not None]
    return (
        line["model"],
        line["env"],
        f"{score['mean']:.3f} {line['metric']} {line['average']}".rstrip() if score else "-",
        f"[{', '.join(bounds)}]" if len(bounds) == 2 else "-",
        _published(line["published"]),
        f"{line['episodes']}" + (f" of {planned}" if planned > line["episodes"] else ""),
        ", ".join(f"{cause} {count}" for cause, count in line["broken"].items()) or "0",
        f"{sum(line['calls'].values()):.2f}",
        "-" if line["tokens"] is None else f"{line['tokens']:.0f}",
    )


def _published(published: dict[str, Any] | None) -> str:
    """Return the best published number for the same base model and what others measured, or the range of all models."""
    if not published:
        return "-"
    if published["same_model"]:
        best = max(published["rows"], key=lambda row: float(row["value"]))
        again = [row["value"] for row in published["reproductions"] if row["method"] == best["method"]]
        return f"{best['value']:.3f} {best['method']}" + (f", reproduced {_range(again)}" if again else "")
    return _range([row["value"] for row in published["rows"]])


def _range(values: Sequence[float]) -> str:
    return "-".join(f"{value:.3f}" for value in sorted({min(values), max(values)}))


def comparison_rows(runs: Sequence[EvalRun]) -> list[tuple[str, ...]]:
    """Return the paired comparisons of runs as rows of a table; [] if nothing can be paired."""
    names = unique_names(runs)
    rows: list[tuple[str, ...]] = []
    for pair in comparisons(runs):
        first, second = (one_line(f"{names[run]}: {model}", 40) for run, model in pair["sides"])
        interval = bounds(pair["low"], pair["high"])
        change = (f"{pair['difference']:+.3f}", interval, f"{pair['p']:.4f}", f"{pair['gained']}", f"{pair['lost']}")
        rows.append((first, second, one_line(pair["env"], 40), f"{pair['tasks']}", *change))
    head = ("A", "B", "ENVIRONMENT", "TASKS", "B - A", "95 % INTERVAL", "P", "GAINED", "LOST")
    return [head, *rows] if rows else []


def bounds(low: float, high: float) -> str:
    """Return the interval of a difference, or "-" where it is not known."""
    return f"[{low:+.3f}, {high:+.3f}]" if math.isfinite(low) else "-"


def task_rows(run: EvalRun, only: str = "all") -> list[tuple[str, ...]]:
    """Return the units of a run as a table: all, or those with an episode that is "right", "wrong" or "broken"."""
    rows: list[tuple[str, ...]] = [("TASK", "MODEL", "SAMPLE", "RESULT", "ANSWER", "GOLD", "QUESTION")]
    for row in run.rows:
        results = [_SIGNS[is_right(entry)] for entry in row.episodes]
        if only == "all" or only in results:
            answers = ", ".join(dict.fromkeys(str(entry.answer) for entry in row.episodes))
            counts = ", ".join(f"{results.count(name)} {name}" for name in dict.fromkeys(results))
            said = results[0] if len(results) == 1 else counts
            gold = ", ".join(row.answers)
            texts = (row.model, f"{row.sample}", said, answers, gold)
            task, question = one_line(f"{row.env}/{row.task}", 80), one_line(row.question)
            rows.append((task, *(one_line(text, 32) for text in texts), question))
    return rows


def rows_of_task(run: EvalRun, task: str) -> list[UnitRow]:
    """Return the units of a task: by its id, or ENVIRONMENT/ID."""
    found = [row for row in run.rows if task in (row.task, f"{row.env}/{row.task}")]
    if not found:
        some = ", ".join(dict.fromkeys(f"{row.env}/{row.task}" for row in run.rows[:5]))
        raise ValueError(
            f"{run.folder} has no task {task!r}; it has {some or 'none yet'} (`arpo view RUN --text --tasks`)"
        )
    return found


def conversation_lines(run: EvalRun, row: UnitRow, number: int, *, prompt: bool = False) -> Iterator[str]:
    """Yield the lines of one episode, a trajectory of a unit; with its prompt if that is wanted.

    Raises:
        ValueError: the trace was changed or cut.
    """
    entry = row.episodes[number]
    result = _SIGNS[is_right(entry)]
    title = f"{row.env}/{row.task}  {row.model}  sample {row.sample}" + (f".{number}" if len(row.episodes) > 1 else "")
    yield "=" * WIDTH
    yield visible(f"{title}  {result}" + (f" ({entry.cause})" if result == "broken" else ""))
    yield from _wrapped("question", row.question)
    yield from _wrapped("gold", ", ".join(row.answers))
    yield from _wrapped("answer", "-" if entry.answer is None else entry.answer)
    tree = run.tree(row)
    if prompt:
        yield from _box("prompt", f"{len(tree.prompt_ids)} tokens", tree.prompt)
    for turn in tree.path(number):
        yield from _span_lines(turn)
    left = [span for span in tree.spans if span.has_outcome(ABANDONED)]
    if left:
        yield from ("", f"{len(left)} spans were abandoned by tools at inference time:")
    for span in left:
        yield from _span_lines(span)
    if entry.error:
        yield from _box("broke", "", entry.error)


def _span_lines(span: Span) -> Iterator[str]:
    if span.kind == "fold":
        memory = (span.tool or {}).get("memory", {})
        text = "\n".join(f"{name}: {json.dumps(part, ensure_ascii=False)}" for name, part in memory.items())
        yield from _box("fold", f"new prompt, {len(span.ids)} tokens", text)
        return
    if span.kind == "environment":
        tool = span.tool or {}
        about = " ".join(str(tool[name]) for name in ("name", "status") if tool.get(name))
        about += f", pictures: {len(tool['images'])}" if tool.get("images") else ""
        yield from _box("result", f"{about}, {len(span.ids)} tokens".lstrip(", "), span.text)
        return
    about = f"{len(span.ids)} tokens"
    if span.measured:
        about += f", entropy {sum(span.entropies) / len(span.entropies):.2f}"
    for mark in span.interventions or ():
        name = f"{mark['tool']} {mark['outcome']}"
        yield from _box(name, "", mark["detail"]) if mark.get("detail") else ("", visible(f"-- {name}"))
    for part in turn_parts(span.text):
        yield from _box(f"{part.kind} {part.label}".strip(), about, span.text[part.start : part.end])
        about = ""


def _box(name: str, about: str, text: str) -> Iterator[str]:
    yield ""
    head = visible(f"-- {name} ")
    end = f" {visible(about)}" if about else ""
    yield head + "-" * max(2, WIDTH - len(head) - len(end)) + end
    for line in visible(text).strip("\n").split("\n"):
        yield from textwrap.wrap(line, WIDTH, replace_whitespace=False) or [""]


def _wrapped(name: str, text: str) -> Iterator[str]:
    indent = " " * 10
    yield from textwrap.wrap(visible(text), WIDTH, initial_indent=f"{name:<10}", subsequent_indent=indent) or [name]


def summary_lines(runs: Sequence[EvalRun]) -> Iterator[str]:
    """Yield the status of each run."""
    for name, run in zip(unique_names(runs), runs, strict=True):
        yield visible(f"{name}: {run.facts.get('status', 'status unknown')}, {len(run.rows)} units in {run.folder}")
