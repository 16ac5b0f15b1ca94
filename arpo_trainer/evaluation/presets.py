"""Published checkpoints by name: with which prompt, tags, limits and sampling each is evaluated.

    row = preset("arpo-qwen2.5-3b")
    row.model, row.env_options["protocol"], row.rollout["temperature"]
    options, rollout = apply(row, {"split": "test"}, {"seed": 1})   # what is given wins over the preset

Values come from the published evaluation code that `source` names. `ours` lists what it leaves open and how it was
chosen here, `not_known` what could not be established. The prompts convey the published ones in our words (`prompt:
paper`); a protocol of your own whose `system_prompt` returns the published text takes their exact wording
(docs/how-to/published-checkpoints.md). The weights are under licences of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from arpo_trainer.validation import check_name

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


def _row(base: Preset, name: str, model: str, template: str = "", **changed: Any) -> Preset:
    return replace(base, name=name, model=model, template=template or base.template, **changed)


_AEPO: dict[str, Any] = {
    "source": (_ARPO_CODE, "https://arxiv.org/abs/2510.14545"),
    "not_known": ("whether AEPO's tables were made with other values; its repository has one evaluation for both",),
}
_QWEN3: dict[str, Any] = {"ours": (*_ARPO.ours, *_THINKING)}
_OF_HUB = {
    "arpo-qwen2.5-3b": _row(_ARPO, "", "dongguanting/Qwen2.5-3B-ARPO", "qwen2.5"),
    "arpo-qwen2.5-7b": _row(_ARPO, "", "dongguanting/Qwen2.5-7B-ARPO", "qwen2.5"),
    "arpo-llama3.1-8b": _row(_ARPO, "", "dongguanting/Llama3.1-8B-ARPO", "llama3.1"),
    "arpo-qwen3-8b-deepsearch": _row(_ARPO, "", "dongguanting/Qwen3-8B-ARPO-DeepSearch", "qwen3", **_QWEN3),
    "arpo-qwen3-14b-deepsearch": _row(_ARPO, "", "dongguanting/Qwen3-14B-ARPO-DeepSearch", "qwen3", **_QWEN3),
    "arpo-qwq-32b-deepsearch": _row(_ARPO, "", "dongguanting/QwQ-32B-ARPO-DeepSearch", "qwq"),
    "aepo-qwen2.5-7b": _row(_ARPO, "", "dongguanting/Qwen2.5-7B-AEPO", "qwen2.5", **_AEPO),
    "aepo-qwen3-8b-deepsearch": _row(_ARPO, "", "dongguanting/Qwen3-8B-AEPO-DeepSearch", "qwen3", **_QWEN3, **_AEPO),
    "aepo-qwen3-14b-deepsearch": _row(_ARPO, "", "dongguanting/Qwen3-14B-AEPO-DeepSearch", "qwen3", **_QWEN3, **_AEPO),
    "aepo-qwq-32b-deepsearch": _row(_ARPO, "", "dongguanting/QwQ-32B-AEPO-DeepSearch", "qwq", **_AEPO),
    "tool-star-qwen-0.5b": _row(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-0.5B", "qwen2.5"),
    "tool-star-qwen-1.5b": _row(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-1.5B", "qwen2.5"),
    "tool-star-qwen-3b": _row(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-3B", "qwen2.5"),
    "tool-star-qwen-7b": _row(_TOOL_STAR, "", "dongguanting/Tool-Star-Qwen-7B", "qwen2.5"),
    "websailor-3b": _row(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-3B", not_known=_LENGTH),
    "websailor-7b": _row(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-7B", not_known=_LENGTH),
    "websailor-32b": _row(_WEBSAILOR, "", "Alibaba-NLP/WebSailor-32B", not_known=_LENGTH),
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
