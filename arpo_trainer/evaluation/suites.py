"""Named suites of environments: `reasoning`, `deepsearch` and `papers`, with what the papers play of each set.

for row in suite("deepsearch"):
    row.env, row.options, row.tasks, row.metric     # "arpo/GAIA-v0", {}, 103, "accuracy"

What the papers report for each set is in `published_results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from arpo_trainer.validation import check_name
from envs_registry import all_specs
from envs_registry.nearest_name import nearest_hint

# Published checkpoints by name: with which prompt, tags, limits and sampling each is evaluated.
#
#     row = preset("arpo-qwen2.5-3b")
#     row.model, row.env_options["protocol"], row.rollout["temperature"]
#     options, rollout = apply(row, {"split": "test"}, {"seed": 1})   # what is given wins over the preset
#
# Values come from the published evaluation code that `source` names. `ours` lists what it leaves open and how it was
# chosen here, `not_known` what could not be established. The prompts convey the published ones in our words (`prompt:
# paper`); a protocol of your own whose `system_prompt` returns the published text takes their exact wording (docs/how-
# to/published-checkpoints.md). The weights are under licences of their own.

_ARPO_CODE = "https://github.com/RUC-NLPIR/ARPO/tree/main/evaluation"
_TOOL_STAR_CODE = "https://github.com/RUC-NLPIR/Tool-Star/tree/main/evaluation"
_WEBSAILOR_CODE = "https://github.com/Alibaba-NLP/DeepResearch/tree/main/WebAgent/WebSailor/src"
_AFTER_PROMPT = 28_672  # tokens: the published context of 32,768 less 4,096 for the prompt


@dataclass(frozen=True)
class Preset:
    """How a published checkpoint is evaluated.

    Attributes:
        name: of the preset.
        model: id on the Hugging Face hub.
        template: family of its chat template.
        env_options: options of every environment: protocol, prompt, tools and limits. The language is that of the
            environment, as in the published code, which has a Chinese prompt for Chinese sets.
        rollout: fields of `RolloutSettings`: sampling, and tokens of a turn.
        chat_template_kwargs: for the chat template; empty where the published code leaves its defaults.
        source: addresses that state the values.
        ours: what the published code leaves open or does in another way here.
        not_known: what could not be established.
    """

    name: str
    model: str
    template: str
    env_options: Mapping[str, Any]
    rollout: Mapping[str, Any]
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    source: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    not_known: tuple[str, ...] = ()


_ARPO = Preset(
    name="",
    model="",
    template="",
    env_options=MappingProxyType(
        {
            "protocol": "arpo-tags-reference",
            "prompt": "paper",
            "tools": ["search", "python"],
            "tool_limits": {"python": 5, "search": 10},
            "max_tool_calls": 15,
            "max_turns": 17,
            "max_tokens": _AFTER_PROMPT,
        }
    ),
    rollout=MappingProxyType(
        {
            "temperature": 0.6,
            "top_p": 0.95,
            "top_k": 0,
            "min_p": None,
            "repetition_penalty": 1.1,
            "max_turn_length": 4096,
        }
    ),
    source=(_ARPO_CODE, "https://arxiv.org/abs/2507.19849"),
    ours=(
        "max_turns: the published loop has no limit of turns; 17 are the calls, an answer and one to spare",
        "max_tokens: the published servers have a context of 32,768 tokens; 4,096 of them are left to the prompt",
        "top_k: the published script sets 20 but does not send it",
        "results have the white space of the training code; the evaluation code writes them without",
        "a turn ends at its closing tag; the published code sends no stop strings and cuts afterwards",
    ),
)
_TOOL_STAR = replace(
    _ARPO,
    env_options=MappingProxyType(
        {
            **_ARPO.env_options,
            "tool_limits": {"python": 3, "search": 3},
            "max_tool_calls": 6,
            "max_turns": 8,
            "max_tokens": 16_384,
        }
    ),
    rollout=MappingProxyType({**_ARPO.rollout, "temperature": 0.0, "top_p": 0.8, "top_k": 20, "max_turn_length": None}),
    source=(_TOOL_STAR_CODE, "https://arxiv.org/abs/2505.16410"),
    ours=(
        "max_turns: the calls, an answer and one to spare",
        "the published tools that debug, roll back and refine at inference are off; --with debugger,refiner adds them",
        "results have the white space of the training code",
    ),
)
_WEBSAILOR = Preset(
    name="",
    model="",
    template="qwen2.5",
    env_options=MappingProxyType(
        {
            "protocol": "websailor",
            "tools": ["search"],
            "search_results": 10,
            "max_tool_calls": 200,
            "max_turns": 40,
            "max_tokens": _AFTER_PROMPT,
        }
    ),
    rollout=MappingProxyType(
        {
            "temperature": 0.6,
            "top_p": 0.95,
            "top_k": 0,
            "min_p": None,
            "repetition_penalty": 1.0,
            "max_turn_length": None,
        }
    ),
    source=(_WEBSAILOR_CODE, "https://arxiv.org/abs/2507.02592"),
    ours=(
        "tools: the published `visit` (a page, summarised for a goal by Qwen2.5-72B) is not here; pages: summaries "
        "reads pages within a search",
        "max_tool_calls: not limited in the published code, where one call holds several queries",
        "the prompt has no date of today, which would change it from day to day",
        "at the end of the context the published code asks once more for an answer; here the episode is cut off",
    ),
)
_THINKING = ("enable_thinking: the published code leaves the template's default, which is on",)
_LENGTH = ("tokens of one call: the published code does not send a limit to the server",)


def _of(base: Preset, name: str, model: str, template: str = "", **changed: Any) -> Preset:
    return replace(base, name=name, model=model, template=template or base.template, **changed)


_AEPO: dict[str, Any] = {
    "source": (_ARPO_CODE, "https://arxiv.org/abs/2510.14545"),
    "not_known": ("whether AEPO's tables were made with other values; its repository has one evaluation for both",),
}
_QWEN3: dict[str, Any] = {"ours": (*_ARPO.ours, *_THINKING)}
_OF_HUB = {
    "arpo-qwen2.5-3b": _of(_ARPO, "", "dongguanting/Qwen2.5-3B-ARPO", "qwen2.5"),
    "arpo-qwen2.5-7b": _of(_ARPO, "", "dongguanting/Qwen2.5-7B-ARPO", "qwen2.5"),
    "arpo-llama3.1-8b": _of(_ARPO, "", "dongguanting/Llama3.1-8B-ARPO", "llama3.1"),
    "arpo-qwen3-8b-deepsearch": _of(_ARPO, "", "dongguanting/Qwen3-8B-ARPO-DeepSearch", "qwen3", **_QWEN3),
    "arpo-qwen3-14b-deepsearch": _of(_ARPO, "", "dongguanting/Qwen3-14B-ARPO-DeepSearch", "qwen3", **_QWEN3),
    "arpo-qwq-32b-deepsearch": _of(_ARPO, "", "dongguanting/QwQ-32B-ARPO-DeepSearch", "qwq"),
    "aepo-qwen2.5-7b": _of(_ARPO, "", "dongguanting/Qwen2.5-7B-AEPO", "qwen2.5", **_AEPO),
    "aepo-qwen3-8b-deepsearch": _of(_ARPO, "", "dongguanting/Qwen3-8B-AEPO-DeepSearch", "qwen3", **_QWEN3, **_AEPO),
    "aepo-qwen3-14b-deepsearch": _of(_ARPO, "", "dongguanting/Qwen3-14B-AEPO-DeepSearch", "qwen3", **_QWEN3, **_AEPO),
    "aepo-qwq-32b-deepsearch": _of(_ARPO, "", "dongguanting/QwQ-32B-AEPO-DeepSearch", "qwq", **_AEPO),
    "tool-star-qwen-0.5b": _of(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-0.5B", "qwen2.5"),
    "tool-star-qwen-1.5b": _of(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-1.5B", "qwen2.5"),
    "tool-star-qwen-3b": _of(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-3B", "qwen2.5"),
    "tool-star-qwen-7b": _of(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-7B", "qwen2.5"),
    "websailor-3b": _of(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-3B", not_known=_LENGTH),
    "websailor-7b": _of(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-7B", not_known=_LENGTH),
    "websailor-32b": _of(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-32B", not_known=_LENGTH),
}
PRESETS: Mapping[str, Preset] = MappingProxyType({name: replace(row, name=name) for name, row in _OF_HUB.items()})


def preset(name: str) -> Preset:
    """Return a preset by its name, or by the hub id of its model.

    Raises:
        ValueError: there is no such preset; the error lists all, and the nearest one.
    """
    for row in PRESETS.values():
        if name.lower() == row.model.lower():
            return row
    check_name("preset", name, PRESETS)
    return PRESETS[name]


def apply(
    row: Preset, env_options: Mapping[str, Any], rollout: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options of environments and settings of rollouts with a preset under those that are given.

    Limits of tools that are taken away with `tools` go with them.
    """
    options: dict[str, Any] = {**row.env_options, **env_options}
    limits = options.get("tool_limits")
    if limits and "tool_limits" not in env_options:
        options["tool_limits"] = {name: most for name, most in limits.items() if name in options["tools"]}
    return options, {**row.rollout, **rollout}


def preset_table() -> list[tuple[str, ...]]:
    """Return the presets as rows of text, the first of them the headings."""
    rows = [(row.name, row.model, str(row.env_options["protocol"]), row.source[0]) for row in PRESETS.values()]
    return [("PRESET", "MODEL", "PROTOCOL", "SOURCE"), *rows]


# The papers' evaluation results as rows, to stand beside your own: ARPO's tables 1 and 2, Pass@k, AEPO, Tool-Star.
#
#     [row.value for row in PUBLISHED if (row.set, row.model, row.method) == ("GAIA", "Qwen3-8B", "ARPO")]
#     published_for("arpo/GAIA-v0", "accuracy", {"tasks": 103})
#
# Values are in percent. Each is from a single run: on GAIA's 103 questions one question is 0.97 points, and differences
# of three points are within the noise.

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


SUITES: dict[str, tuple[str, ...]] = {
    "reasoning": TABLE_1,
    "deepsearch": TABLE_2,
    "papers": tuple(dict.fromkeys((*TABLE_1, *TABLE_2))),
}
PURPOSES = {
    "reasoning": "the ten sets of ARPO's table 1: mathematics and questions over Wikipedia and the web",
    "deepsearch": "the four sets of ARPO's table 2: deep search",
    "papers": "the thirteen sets of both tables",
}


@dataclass(frozen=True)
class SuiteRow:
    """One environment of a suite.

    Attributes:
        env: its id.
        options: options of the environment.
        tasks: how many tasks are played, the first ones.
        metric: what is compared with the papers: "accuracy" or "f1".
        subset: which part of the set the papers play.
        same_tasks: whether the first `tasks` are the papers' own; otherwise their file is needed (`data=FILE`).
        samples: samples of each task in the papers' tables.
    """

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    metric: str = "accuracy"
    subset: str = ""
    same_tasks: bool = True
    samples: int = 1


def suite(name: str) -> tuple[SuiteRow, ...]:
    """Return the environments of a suite.

    Raises:
        ValueError: there is no such suite; the message names the suites, and the nearest one or a nearby environment.
    """
    if name not in SUITES:
        ids = {spec.id.split("/")[-1].rsplit("-v", 1)[0].lower(): spec.id for spec in all_specs()}
        near = ids.get(name.lower()) or nearest_hint(name, [*SUITES, *ids.values()], "{}")
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"no suite {name!r}; there is {', '.join(SUITES)}{hint} (`arpo envs` lists environments)")
    return tuple(_row(each) for each in SUITES[name])


def suite_table() -> list[tuple[str, ...]]:
    """Return the suites as rows of a table, the first one with the columns' names."""
    rows: list[tuple[str, ...]] = [("SUITE", "ENVIRONMENT", "TASKS", "METRIC", "SUBSET")]
    for name in SUITES:
        for row in suite(name):
            own = "" if row.same_tasks else "; the same ones with data=FILE of the published code"
            rows.append((name, row.env, str(row.tasks), row.metric, row.subset + own))
    return rows


def _row(name: str) -> SuiteRow:
    known = PAPER_SETS[name]
    return SuiteRow(known.env, dict(known.options), known.tasks, known.metric, known.subset, known.same_tasks)
