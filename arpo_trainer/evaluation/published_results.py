"""The papers' evaluation results as rows, to stand beside your own: ARPO's tables 1 and 2, Pass@k, AEPO, Tool-Star.

    [row.value for row in PUBLISHED if (row.set, row.model, row.method) == ("GAIA", "Qwen3-8B", "ARPO")]
    published_for("arpo/GAIA-v0", "accuracy", {"tasks": 103})

Values are in percent. Each is from a single run: on GAIA's 103 questions one question is 0.97 points, and differences
of three points are within the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ARPO, AEPO, TOOL_STAR = "arXiv 2507.19849", "arXiv 2510.14545", "arXiv 2505.16410"
_FIGURE = "read off a figure"
_ABSTRACT = "from the paper's text; the full table was not at hand"


@dataclass(frozen=True)
class PublishedRow:
    """One published number.

    Attributes:
        model: the base model.
        method: "ARPO", "GRPO", "TIR prompting", ... .
        set: name of the environment without namespace and version.
        metric: "accuracy", "f1", "pass@3" or "pass@5".
        value: in percent.
        source: the paper, and its table.
        part: a level or category of the set, or "" for the whole set. HLE's NS, CE and SF are the paper's own groups.
        note: what to keep in mind, or "".
    """

    model: str
    method: str
    set: str
    metric: str
    value: float
    source: str
    part: str = ""
    note: str = ""


@dataclass(frozen=True)
class PaperSet:
    """One evaluation set of the papers.

    Attributes:
        name: of the environment, without namespace and version.
        tasks: number of questions that the papers play; at most 500 of a set.
        metric: what is compared: "f1", or "accuracy" (judged by Qwen2.5-72B-Instruct in the papers).
        subset: which questions these are.
        options: options of the environment.
        same_tasks: whether the first `tasks` of the environment are the papers' questions. For the other sets they are
            in the published code's evaluation/data; give its files with `data=`.
    """

    name: str
    tasks: int
    metric: str
    subset: str
    options: tuple[tuple[str, Any], ...] = ()
    same_tasks: bool = True

    @property
    def env(self) -> str:
        """Id of the environment."""
        return f"arpo/{self.name}-v0"


_TEST, _VALIDATION = (("split", "test"),), (("split", "validation"),)
PAPER_SETS = {
    each.name: each
    for each in (
        PaperSet("AIME24", 30, "accuracy", "all 30"),
        PaperSet("AIME25", 30, "accuracy", "all 30"),
        PaperSet("MATH500", 500, "accuracy", "all 500"),
        PaperSet("GSM8K", 500, "accuracy", "the first 500 of 1,319 (test)", _TEST),
        PaperSet("MATH", 500, "accuracy", "500 of 5,000 (test)", _TEST, same_tasks=False),
        PaperSet("WebWalker", 200, "accuracy", "200 of 680 (test)", _TEST, same_tasks=False),
        PaperSet("HotpotQA", 200, "f1", "200 of 7,405 (validation)", _VALIDATION, same_tasks=False),
        PaperSet("2Wiki", 200, "f1", "200 of 12,576 (validation)", _VALIDATION, same_tasks=False),
        PaperSet("MuSiQue", 200, "f1", "200 of 2,417 (validation)", _VALIDATION, same_tasks=False),
        PaperSet("Bamboogle", 125, "f1", "all 125"),
        PaperSet("GAIA", 103, "accuracy", "the 103 text-only of 165 (validation)"),
        PaperSet("HLE", 500, "accuracy", "500 of about 2,150 text-only ones", same_tasks=False),
        PaperSet("xBench", 100, "accuracy", "all 100"),
    )
}
TABLE_1 = ("AIME24", "AIME25", "MATH500", "GSM8K", "MATH", "WebWalker", "HotpotQA", "2Wiki", "MuSiQue", "Bamboogle")
TABLE_2 = ("GAIA", "WebWalker", "HLE", "xBench")
_PARTS = {"GAIA": ("1", "2", "3"), "WebWalker": ("easy", "medium", "hard"), "HLE": ("NS", "CE", "SF"), "xBench": ()}

_REASONING = """
Qwen2.5-3B   | base          | 10.0  6.7 63.0 75.0 71.6  0.5  9.7  9.4  3.6 11.7
Qwen2.5-3B   | TIR prompting |  6.7  6.7 52.2 56.6 62.8 14.0 15.4 14.1  6.1 16.4
Qwen2.5-3B   | GRPO          | 20.0 13.3 72.0 86.0 81.0 21.0 56.5 64.5 24.7 65.2
Qwen2.5-3B   | REINFORCE++   | 16.7 13.3 70.4 85.0 80.2 19.5 55.9 62.3 27.9 65.7
Qwen2.5-3B   | DAPO          | 20.0 16.7 71.2 85.0 81.2 19.5 54.8 62.5 30.0 64.8
Qwen2.5-3B   | ARPO          | 23.3 20.0 71.4 85.0 82.5 24.5 58.5 67.4 28.7 66.8
Llama3.1-8B  | base          |  3.3  0.0 43.3 81.4 60.6  3.0 24.3 24.6 10.4 40.0
Llama3.1-8B  | TIR prompting |  3.3  3.3 39.4 73.8 58.2 15.0 48.5 47.5 15.5 58.4
Llama3.1-8B  | GRPO          | 13.3 13.3 62.4 87.4 79.2 26.5 57.8 71.8 31.0 68.2
Llama3.1-8B  | REINFORCE++   | 13.3 16.7 61.4 87.0 77.2 27.5 57.1 71.6 29.9 69.1
Llama3.1-8B  | DAPO          | 16.7 13.3 61.2 87.4 76.4 25.5 56.6 70.3 29.2 67.3
Llama3.1-8B  | ARPO          | 23.3 16.7 64.6 88.0 80.2 30.5 65.4 75.5 34.8 73.8
Qwen2.5-7B   | base          | 10.0 10.0 70.6 90.2 82.0  2.0 12.2 12.6  6.6 24.0
Qwen2.5-7B   | TIR prompting |  6.7 10.0 68.2 64.6 78.2 15.5 14.8 18.3  9.5 23.6
Qwen2.5-7B   | GRPO          | 23.3 26.7 78.0 92.8 87.8 22.0 59.0 76.1 30.6 68.4
Qwen2.5-7B   | REINFORCE++   | 26.7 23.3 78.0 92.2 88.8 26.0 55.1 68.9 25.2 64.9
Qwen2.5-7B   | DAPO          | 20.0 23.3 80.4 91.0 88.8 24.0 57.7 68.4 28.6 65.5
Qwen2.5-7B   | ARPO          | 30.0 30.0 78.8 92.2 88.8 26.0 58.8 76.1 31.1 71.5
"""
# the three parts of a set, then the whole
_DEEP_SEARCH = """
Qwen3-8B  | base | 28.1 15.4 16.7 20.4 |  0.0  2.4  2.8  2.0 |  3.9  2.7  8.4  4.6 |  9
Qwen3-8B  | GRPO | 48.7 25.0  8.3 32.0 | 24.4 33.3 26.8 29.0 |  7.9  4.0 10.5  7.8 | 20
Qwen3-8B  | ARPO | 53.9 32.7 16.7 38.8 | 26.7 33.3 29.6 30.5 |  7.3  6.7 15.8  8.8 | 25
Qwen3-14B | base | 33.3 13.5  0.0 19.4 |  6.7  2.4  4.2  4.0 |  5.5  6.7 11.6  6.8 | 14
Qwen3-14B | GRPO | 51.3 34.6  0.0 36.9 | 28.9 33.3 26.8 30.0 |  7.9  6.7 12.6  8.6 | 27
Qwen3-14B | ARPO | 56.4 40.4 16.7 43.7 | 31.1 42.9 31.0 36.0 | 10.3 10.7 13.7 10.0 | 32
"""
# the whole sets only: GAIA, WebWalker, HLE, xBench
_WORKFLOWS = """
Qwen3-8B    | RAG        | 20.4 10.0 5.8  8
Qwen3-8B    | Search-o1  | 21.4 11.5 6.4 10
Qwen3-8B    | WebThinker | 22.3 13.0 6.6 13
Qwen3-8B    | ReAct      | 23.3 15.5 4.6 16
Qwen3-14B   | RAG        | 25.2 13.5 6.0 15
Qwen3-14B   | Search-o1  | 30.1 17.5 6.8 21
Qwen3-14B   | WebThinker | 33.0 19.5 7.0 23
Qwen3-14B   | ReAct      | 32.0 15.5 6.6 20
GPT-4o      | base       | 17.5  5.5 2.6 18
DeepSeek-R1 | base       | 25.2 10.0 8.6 32.7
QwQ-32B     | base       | 18.9  4.3 9.6 10.7
"""
# model | method | metric | source | note | set value ...
_SINGLE = f"""
Qwen3-14B  | ARPO      | pass@5   | {ARPO}      |             | GAIA 61.2 HLE 24.0 xBench 59
Qwen3-8B   | ARPO      | pass@3   | {ARPO}      | {_FIGURE}   | GAIA 42.8 HLE 14.0 WebWalker 42.8 xBench 38
Qwen3-8B   | ARPO      | pass@5   | {ARPO}      | {_FIGURE}   | GAIA 47.2 HLE 18.4 WebWalker 52.0 xBench 44
QwQ-32B    | ARPO      | accuracy | {AEPO}      | {_ABSTRACT} | GAIA 51.5 HLE 11.2
QwQ-32B    | AEPO      | accuracy | {AEPO}      | {_ABSTRACT} | GAIA 53.4 HLE 12.8
Qwen3-14B  | AEPO      | accuracy | {AEPO}      | {_ABSTRACT} | GAIA 47.6 HLE 11.2 WebWalker 43.0
Qwen3-14B  | AEPO      | pass@5   | {AEPO}      | {_ABSTRACT} | GAIA 65.0 HLE 26.0 WebWalker 70.0
Qwen2.5-3B | Tool-Star | accuracy | {TOOL_STAR} |             | AIME24 20.0 MATH 82.6 GSM8K 85.0 WebWalker 20.8
Qwen2.5-3B | Tool-Star | accuracy | {TOOL_STAR} |             | GAIA 15.5 HLE 8.0
Qwen2.5-3B | Tool-Star | f1       | {TOOL_STAR} |             | HotpotQA 51.9 Bamboogle 52.5
"""


def _cells(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def _rows() -> Iterator[PublishedRow]:
    for model, method, values in _cells(_REASONING):
        for name, value in zip(TABLE_1, values.split(), strict=True):
            yield PublishedRow(model, method, name, PAPER_SETS[name].metric, float(value), f"{ARPO}, table 1")
    for model, method, *sets in _cells(_DEEP_SEARCH):
        for name, values in zip(TABLE_2, sets, strict=True):
            for part, value in zip((*_PARTS[name], ""), values.split(), strict=True):
                yield PublishedRow(model, method, name, "accuracy", float(value), f"{ARPO}, table 2", part)
    for model, method, values in _cells(_WORKFLOWS):
        for name, value in zip(TABLE_2, values.split(), strict=True):
            yield PublishedRow(model, method, name, "accuracy", float(value), f"{ARPO}, table 2")
    for model, method, metric, source, note, values in _cells(_SINGLE):
        words = values.split()
        for name, value in zip(words[::2], words[1::2], strict=True):
            yield PublishedRow(model, method, name, metric, float(value), source, note=note)


PUBLISHED = tuple(_rows())


def paper_set(env: str) -> PaperSet | None:
    """Return the papers' set behind an environment id, or None."""
    return PAPER_SETS.get(env.rsplit("/", 1)[-1].rsplit("-v", 1)[0])


def published_for(env: str, metric: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the papers report for an environment, as plain data; {} if they do not use it.

    Args:
        env: id of the environment.
        metric: what was measured.
        about: facts of the environment in the run: `tasks`, and `data` or `options` with "data" for files of one's own.

    Returns:
        {"set", "metric", "subset", "tasks", "differs": [reasons], "rows": [...]}. `differs` says why a number is not
        comparable with the papers'; it is empty if nothing is known to differ.
    """
    known = paper_set(env)
    if known is None:
        return {}
    differs = []
    if metric != known.metric:
        differs.append(f"the papers report {known.metric}, this is {metric}")
    if (tasks := about.get("tasks")) != known.tasks:
        differs.append(f"the papers play {known.tasks:,} tasks, this run {'?' if tasks is None else f'{tasks:,}'}")
    if not known.same_tasks and not about.get("options", {}).get("data"):
        differs.append(f"the papers' {known.tasks:,} tasks are in their own file (data=FILE)")
    rows = [asdict(row) for row in PUBLISHED if row.set == known.name]
    return {"set": known.name, "metric": known.metric, "subset": known.subset, "tasks": known.tasks} | {
        "differs": differs,
        "rows": [{name: value for name, value in row.items() if name != "set"} for row in rows],
    }
