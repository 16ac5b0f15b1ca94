"""`arpo view RUN`: one self-contained HTML page of an evaluation, of a suite, or of runs side by side.

The rows of all episodes are in the page; trees are in compressed pieces that the browser unpacks when one is opened.
The page loads nothing. `live_server` serves the same page and reads trees from the trace instead.

    write_view(["evals/gsm8k"])                       # evals/gsm8k/view.html
    write_view(["evals/before", "evals/after"])       # side by side
"""

from __future__ import annotations

import base64
import datetime
import gzip
import importlib.util
import itertools
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from arpo_trainer.evaluation import eval_metrics
from arpo_trainer.evaluation.episode_store import TRACES, EpisodeEntry, EvalRun, UnitRow, load_eval_run
from arpo_trainer.models import MODELS
from arpo_trainer.report.html_report import clean_data, make_page, tree_data
from arpo_trainer.report.run_data import write_whole
from arpo_trainer.tree import RolloutTree

logger = logging.getLogger(__name__)
_FILE = "tokenizer.json"
_UNFINISHED = "\ufffd"  # what a decoder writes for a part of a character
_LONGEST = 12  # tokens of one character


class TokenWidths:
    """Says how many characters of a turn's text each token wrote, so that a page can colour the text by entropy.

    A trace has the token ids and the text of a turn. `decode` returns the text of ids, special tokens included.
    """

    def __init__(self, decode: Any) -> None:
        self._decode = decode
        self._one = lru_cache(maxsize=200_000)(lambda token: decode([token]))

    @classmethod
    def of_model(cls, model: str | Path | None) -> TokenWidths | None:
        """Return those of a model: a folder, or a name whose files are in the cache; nothing is downloaded.

        None if it has no tokenizer.json that can be read, or `tokenizers` is not installed.
        """
        path = _tokenizer_file(model) if model else None
        if path is None or importlib.util.find_spec("tokenizers") is None:
            return None
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            logger.warning("%s cannot be read (%s): texts are not coloured by entropy", path, error)
            return None
        return cls(partial(tokenizer.decode, skip_special_tokens=False))

    def __call__(self, ids: Sequence[int], text: str) -> list[int] | None:
        """Return the length of each token's text in UTF-16 units, as browsers count; None if they do not fit `text`.

        Of the tokens of one character the last one has its length.
        """
        widths: list[int] = []
        held: list[int] = []
        position = 0
        for token in ids:
            held.append(token)
            piece: str = self._one(token) if len(held) == 1 else self._decode(held)
            if piece.endswith(_UNFINISHED) and not text.startswith(piece, position) and len(held) < _LONGEST:
                widths.append(0)
                continue
            if not text.startswith(piece, position):
                if not piece.startswith(text[position:]):
                    return None
                piece = text[position:]  # a stop string ended the text within this token, or it ends the turn unseen
            widths.append(utf16(piece))
            position, held = position + len(piece), []
        return widths if position == len(text) and not held else None


def _tokenizer_file(model: str | Path) -> Path | None:
    folder = MODELS[str(model)].folder if str(model) in MODELS else Path(model)
    if (path := folder / _FILE).is_file():
        return path
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(str(model), _FILE)
    except HFValidationError:  # a folder that is gone is no name of a model
        return None
    return Path(cached) if isinstance(cached, str) else None


def utf16(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


PartKind = Literal["thought", "call", "result", "answer", "text"]

_THOUGHTS = ("think", "thinking", "thought", "reasoning")
_ANSWERS = ("answer", "final_answer")
_RESULTS = ("result", "tool_response", "observation", "information")
# tags around a call that is JSON or of a form of its own; other tags of calls name the tool
_WRAPPERS = ("tool_call", "function_call", "call", "tool")
_CALLS = (*_WRAPPERS, "python", "search", "code", "browser", "browse", "visit", "fetch", "execute")
_KINDS: dict[str, PartKind] = {
    **dict.fromkeys(_THOUGHTS, "thought"),
    **dict.fromkeys(_ANSWERS, "answer"),
    **dict.fromkeys(_RESULTS, "result"),
    **dict.fromkeys(_CALLS, "call"),
}
_TAGS = "|".join(sorted(_KINDS, key=len, reverse=True))
_OPEN = re.compile(
    rf"<(?P<tag>{_TAGS})>|<(?P<form>function)=(?P<name>[\w.-]{{1,64}})>|(?P<mark><\|python_tag\|>|\[TOOL_CALLS\])"
)
_END_OF_THOUGHT = re.compile(rf"</(?:{'|'.join(_THOUGHTS)})>")
_NAME = re.compile(r'"name"\s*:\s*"([\w.-]{1,64})"|<function=([\w.-]{1,64})>')


@dataclass(frozen=True)
class TurnPart:
    """A piece of a turn, from `start` to `end` without its tags; `label` is the tool of a call, if it names one."""

    kind: PartKind
    label: str
    start: int
    end: int


def turn_parts(text: str) -> list[TurnPart]:
    """Return the parts of a turn in order, for people who read it; blank text between tags is left out.

    This reads any protocol's text and never fails: a tag that is not closed lasts to the end of the turn. It decides
    nothing: what counted as a call or as an answer is recorded in the tree.
    """
    parts = []
    for part in _all_parts(text):
        body = text[part.start : part.end]
        start = part.start + len(body) - len(body.lstrip())
        end = part.end - (len(body) - len(body.rstrip()))
        if start < end or part.kind != "text":
            # an empty call or answer is worth showing; blank text is not
            parts.append(TurnPart(part.kind, part.label, min(start, end), end))
    return parts


def _all_parts(text: str) -> Iterator[TurnPart]:
    position = 0
    first, ends = _OPEN.search(text), _END_OF_THOUGHT.search(text)
    # some templates open the thought in the prompt, so that the turn holds only its end
    if ends and (first is None or ends.start() < first.start()):
        yield TurnPart("thought", "", 0, ends.start())
        position = ends.end()
    while found := _OPEN.search(text, position):
        yield TurnPart("text", "", position, found.start())
        begin = found.end()
        closing = f"</{found['tag'] or found['form']}>" if not found["mark"] else ""
        # what lies inside belongs to the outer tag, such as an answer's tag within code
        end = text.find(closing, begin) if closing else -1
        position = end + len(closing) if end >= 0 else len(text)
        body = slice(begin, end if end >= 0 else len(text))
        kind: PartKind = _KINDS[found["tag"]] if found["tag"] else "call"
        yield TurnPart(kind, _label(found, text[body]) if kind == "call" else "", body.start, body.stop)
    yield TurnPart("text", "", position, len(text))


def _label(found: re.Match[str], body: str) -> str:
    if found["name"]:
        return found["name"]
    if found["tag"] and found["tag"] not in _WRAPPERS:
        return found["tag"]
    try:
        call = json.loads(body)
        name = call.get("name") if isinstance(call, dict) else None
    except (ValueError, RecursionError):
        name = None
    if isinstance(name, str):
        return name
    inside = _NAME.search(body)  # a call that is not quite JSON still names its tool
    return (inside[1] or inside[2]) if inside else ""


ScoreLine = dict[str, Any]
"""What one model did in one environment: an entry of results.json, and

    planned    episodes of the whole run, if run.json has them
    seconds    mean seconds of an episode
    pass       {} for single samples, whose pass@1 and pass^1 are accuracy
    average    of how many samples of a task the score is the mean, as in "avg@32"; "" for single ones
    published  the papers' numbers for the whole set as shares, of the same base model if there are any; None without
"""


def score_lines(run: EvalRun) -> list[ScoreLine]:
    """Return the lines of a run, by model and environment."""
    seconds, lines = eval_metrics.mean_seconds(run.rows), []
    for entry in _results(run)["scores"]:
        model = _described(run.facts, "models", entry["model"])
        tasks = _described(run.facts, "environments", entry["env"]).get("tasks")
        samples = run.facts.get("samples", 1)
        names = (entry["model"], str(model.get("path", "")), str(model.get("name", "")))
        changed = {
            "planned": tasks * samples if isinstance(tasks, int) and isinstance(samples, int) else None,
            "seconds": seconds.get((entry["model"], entry["env"])),
            "pass": entry["pass"] if len(entry["pass"]) > 2 else {},
            "average": f"avg@{samples}" if isinstance(samples, int) and samples > 1 else "",
            "published": published_numbers(entry["published"], names),
        }
        lines.append({**entry, **changed})
    return lines


def published_numbers(published: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Return what the papers report for a whole set, as shares; those of the same base model, if there are any.

    `names` are label, path and name of the model. None without numbers, else {"subset", "differs", "same_model",
    "rows": [{"model", "method", "value", "source", "note"}], "reproductions": [the same, of the same base model]}.
    """
    rows = published.get("rows", ())
    whole = [row for row in rows if not row["part"] and row["metric"] == published["metric"]]
    if not whole:
        return None

    def letters(name: str) -> str:  # sizes are "3B" in the tables; names are like Qwen2.5-3B-Instruct or qwen2.5_3b
        return "".join(sign for sign in name.lower() if sign.isalnum())

    own, again = (
        [row for row in each if any(letters(row["model"]) in letters(name) for name in names if name)]
        for each in (whole, published["reproductions"])
    )
    numbers, others = (
        [{**{n: row[n] for n in ("model", "method", "source", "note")}, "value": row["value"] / 100} for row in each]
        for each in (own or whole, again)
    )
    about = {name: published[name] for name in ("subset", "differs")}
    return {**about, "same_model": bool(own), "rows": numbers, "reproductions": others}


def _described(facts: Mapping[str, Any], part: str, label: str) -> dict[str, Any]:
    """Return what run.json says of a model or an environment."""
    found: dict[str, Any] = (facts.get(part) or {}).get(label) or {}
    return found


def metric_of(facts: Mapping[str, Any], env: str) -> str:
    """Return the name of an environment's metric."""
    return str(_described(facts, "environments", env).get("metric") or eval_metrics.ACCURACY)


def is_right(entry: EpisodeEntry) -> bool | None:
    """Return whether an episode answered right, as accuracy counts it; None if it broke."""
    return None if entry.reward is None else eval_metrics.episode_value(entry) == 1.0


def _results(run: EvalRun) -> dict[str, Any]:
    try:
        return eval_metrics.results(run.rows, run.facts)
    except ValueError:  # no episode has the environment's metric: the view shows accuracy then
        told = {row.env: _described(run.facts, "environments", row.env) for row in run.rows}
        envs = {env: {**about, "metric": eval_metrics.ACCURACY} for env, about in told.items()}
        return eval_metrics.results(run.rows, {**run.facts, "environments": envs})


# The rows and trees of an evaluation as compact data for the page: lists instead of names, in pieces of gzip in base64,
# so that 5,000 episodes stay small and the browser unpacks only what is opened.

PIECE = 20  # units in a piece
_LEVEL = 6  # of compression: 9 takes three times as long for 1 %


def _table() -> dict[Any, int]:
    """Return a table that numbers texts in the order in which they appear."""
    return defaultdict(itertools.count().__next__)


def compact_rows(run: EvalRun, tree_of: Callable[[int, UnitRow], int | None]) -> dict[str, Any]:
    """Return a run's rows as the page reads them (`page/rows.js`).

    `tree_of` returns from a unit's position and row what the page asks for to see its tree (its number, or its place in
    traces.jsonl); None if it cannot.
    """
    models, envs, tools, outcomes, tasks = (_table() for _ in range(5))
    described: list[list[Any]] = []
    metrics = {env: metric_of(run.facts, env) for env in {row.env for row in run.rows}}
    units = []
    for number, row in enumerate(run.rows):
        task = tasks[row.env, row.task]
        if task == len(described):
            described.append([envs[row.env], row.task, row.question, row.answers, row.level, row.index])
        episodes = [_episode(entry, metrics[row.env], outcomes, tools) for entry in row.episodes]
        tree = tree_of(number, row)
        units.append([models[row.model], task, row.sample, row.attempt, row.generated, tree, episodes])
    names = {"models": models, "envs": envs, "tools": tools, "outcomes": outcomes}
    return {**{name: list(table) for name, table in names.items()}, "tasks": described, "units": units}


def _episode(entry: EpisodeEntry, metric: str, outcomes: dict[Any, int], tools: dict[Any, int]) -> list[Any]:
    right = is_right(entry)
    calls = [[tools[name], count] for name, count in entry.calls.items()]
    score = None if right is None else eval_metrics.episode_value(entry, metric)
    scores = [score, entry.reward, None if right is None else int(right)]
    told = [outcomes[entry.outcome], entry.error, entry.cause, entry.answer, calls]
    return [*scores, *told, entry.turns, entry.tokens, entry.context, entry.cached, entry.seconds, int(entry.counted)]


def view_tree(tree: RolloutTree, widths: TokenWidths | None = None) -> dict[str, Any]:
    """Return a tree as the page draws it: as in the training report, with the parts and tokens of each turn."""
    data = tree_data(tree)
    for span, entry in zip(tree.spans, data["spans"], strict=True):
        at, parts = _positions(span.text), turn_parts(span.text)
        if span.kind == "environment" and [part.kind for part in parts] == ["result"]:
            entry["inner"] = [at(parts[0].start), at(parts[0].end)]  # without its tags
        elif span.kind == "model":
            entry["parts"] = [[part.kind, part.label, at(part.start), at(part.end)] for part in parts]
            if widths and (found := widths(span.ids, span.text)):
                entry["widths"] = found
    return data


def _positions(text: str) -> Callable[[int], int]:
    """Return a function from positions in a text to those in UTF-16 units, in which browsers count."""
    if text.isascii():
        return lambda position: position
    return lambda position: utf16(text[:position])


def tree_pieces(run: EvalRun, rows: Sequence[UnitRow], widths: dict[str, TokenWidths | None]) -> Iterator[str]:
    """Yield pieces with the trees of `rows`, `PIECE` in each and in this order; a tree that is lost is null."""
    for first in range(0, len(rows), PIECE):
        yield packed([_tree_or_none(run, row, widths.get(row.model)) for row in rows[first : first + PIECE]])


def _tree_or_none(run: EvalRun, row: UnitRow, widths: TokenWidths | None) -> dict[str, Any] | None:
    try:
        return view_tree(run.tree(row), widths)
    except ValueError:  # the page says that this one is missing, and shows the others
        return None


def packed(value: Any) -> str:
    """Return plain data as JSON in gzip in base64, which holds nothing that could end a script element."""
    return base64.b64encode(gzip.compress(json_bytes(value), _LEVEL, mtime=0)).decode("ascii")


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON in UTF-8; half of a surrogate pair, which a model may write, becomes "?"."""
    write = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    try:
        text = write(value)
    except ValueError:  # a number that is not finite, which is rare: to look for it in all trees would take long
        text = write(clean_data(value))
    return text.encode("utf-8", "replace")


LIMIT = 200_000_000  # bytes of trees, above which browsers take long to open the file
_PAIRS = 15  # most pairs of models that are compared
_MARK = "<!-- pieces -->"
_SCRIPTS = [
    *("tools", "layout", "trees", "panel", "rows", "overview"),
    *("filters", "table", "turns", "detail", "keys", "start"),
]


def write_view(
    folders: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    trees: str = "all",
    tokenizer: str | Path | None = None,
) -> Path:
    """Write the page as `arpo view` with these options, and return its path."""
    runs = [load_eval_run(folder) for folder in folders]
    target = Path(output) if output else Path(folders[0]) / "view.html"
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name} to; make it first")
    for run in (run for run in runs if not run.rows):
        logger.warning("%s holds 0 episodes; arpo eval --resume --output %s plays them", run.folder, run.folder)
    chosen = [choose_units(run, trees) for run in runs]
    pieces, notes = _pieces(runs, chosen, tokenizer)
    if notes:
        chosen = [[] for _ in runs]
    page = render(page_data(runs, notes))
    rows = [(f"rows-{number}", _rows_of(*each)) for number, each in enumerate(zip(runs, chosen, strict=True))]
    kind = "application/octet-stream"
    elements = "".join(f'<script type="{kind}" id="{name}">{text}</script>\n' for name, text in [*rows, *pieces])
    write_whole(target, page.replace(_MARK, elements, 1))
    return target


def render(data: dict[str, Any], *, policy: str = "") -> str:
    """Return the page with a mark where the pieces belong; `policy` allows a served page to ask its server."""
    title = " and ".join(run["name"] for run in data["runs"])
    policy = f"img-src data:; {policy}".rstrip("; ")  # pictures that a tool has shown to the model
    return make_page("view", title, ["style", "view"], _SCRIPTS, data, pieces=_MARK, policy=policy)


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
                "scores": score_lines(run),
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
    groups: dict[tuple[int, str], list[UnitRow]] = {}
    for number, run in enumerate(runs):
        for row in run.rows:
            groups.setdefault((number, row.model), []).append(row)
    for first, second in _compared(list(groups))[:_PAIRS]:
        try:
            values = eval_metrics.paired_values(groups[first], groups[second], partial(metric_of, runs[first[0]].facts))
        except ValueError:  # no episode has an environment's metric
            values = eval_metrics.paired_values(groups[first], groups[second], lambda _: eval_metrics.ACCURACY)
        for env, result in eval_metrics.compare_environments(values).items():
            numbers = {name: getattr(result, name) for name in ("first", "second", "difference", "low", "high")}
            counts = {"p": result.p_value, "gained": len(result.gained), "lost": len(result.lost)}
            yield {"sides": [first, second], "env": env, "tasks": result.tasks, **numbers, **counts}


def _compared(sides: list[tuple[int, str]]) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """Return which sides to compare: the models of one run, or the same model in several runs, if there is one."""
    pairs = list(itertools.combinations(sides, 2))
    across = [(one, two) for one, two in pairs if one[0] != two[0]]
    return [(one, two) for one, two in across if one[1] == two[1]] or across or pairs


def choose_units(run: EvalRun, trees: str) -> list[int]:
    """Return the positions of the units whose trees are wanted."""
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
    described: dict[str, Any] = run.facts.get("models") or {}
    paths = {label: facts.get("path") for label, facts in described.items()}
    folders = {label: tokenizer or paths.get(label) for label in [*described, *{row.model for row in run.rows}]}
    made = {folder: TokenWidths.of_model(folder) for folder in set(folders.values())}
    return {label: made[folder] for label, folder in folders.items()}


def _pieces(
    runs: Sequence[EvalRun], chosen: Sequence[Sequence[int]], tokenizer: str | Path | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pieces with their names, or none and a note if there are too many bytes of them."""
    found: list[tuple[str, str]] = []
    total = 0
    for number, (run, units) in enumerate(zip(runs, chosen, strict=True)):
        rows = [run.rows[unit] for unit in units]
        for place, text in enumerate(tree_pieces(run, rows, model_widths(run, tokenizer))):
            found.append((f"trees-{number}-{place}", text))
            total += len(text)
            if total > LIMIT:
                return [], [
                    f"The conversations are left out: they take more than {LIMIT / 1e6:.0f} MB. `arpo view RUN "
                    "--serve` shows all of them; `--trees broken` or `--trees 500` puts some into a file."
                ]
    return found, []


def _rows_of(run: EvalRun, units: Sequence[int]) -> str:
    place = {unit: position for position, unit in enumerate(units)}
    return packed(compact_rows(run, lambda unit, _: place.get(unit)))
