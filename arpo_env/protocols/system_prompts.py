r"""The system prompts: for each set of tools, in English and Chinese, in two styles.

"short" is a few words, for models that are too small to use more. "paper" conveys the content of the ARPO papers'
prompts (`code_search` and its variants `search`, `math` and `base`) in our own words: the meaning of each tag, one
worked pattern with all tools, and the box around the answer. Tools are described by their schemas; `python` and
`search` have their own texts. Only the model reads the pattern: prompts are never parsed by a protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from arpo_env.protocols.protocol import Language, Style, tag_parameter, tool_names
from arpo_env.tools.tool import JsonSchema

_SHORT: dict[Language, dict[str, str]] = {
    "en": {
        "think": "Think in <think> </think>.",
        "python": "Run Python in <python> </python>; variables stay alive.",
        "search": "Search with <search> query </search>.",
        "other": "Call {name} in <{name}> {content} </{name}>: {description}",
        "result": "The output comes in <result> </result>.",
        "answer": "Answer in <answer> \\boxed{} </answer>.",
        "json": "JSON object with {keys}",
        "none": "{}",
        "either": "{parameter} (or a JSON object with {keys})",
        "joint": " ",
    },
    "zh": {
        "think": "在 <think> </think> 中思考。",
        "python": "在 <python> </python> 中运行 Python，变量会一直保留。",
        "search": "用 <search> 查询词 </search> 搜索。",
        "other": "在 <{name}> {content} </{name}> 中调用 {name}：{description}",
        "result": "输出会出现在 <result> </result> 中。",
        "answer": "在 <answer> \\boxed{} </answer> 中作答。",
        "json": "含 {keys} 的 JSON 对象",
        "none": "{}",
        "either": "{parameter}（或含 {keys} 的 JSON 对象）",
        "joint": "",
    },
}

_PAPER: dict[Language, dict[str, str]] = {
    "en": {
        "intro": "You are a helpful assistant who solves the given question step by step{help}.",
        "help": ", with the help of {tools}",
        "python_tool": "a Python interpreter",
        "search_tool": "a search engine",
        "other_tool": "the tool {name}",
        "and": " and ",
        "think": "First reason about the question, inside <think> and </think>; then give the answer, inside <answer> "
        "and </answer>.",
        "python": "Whenever something has to be computed or checked, write Python code inside <python> and </python>; "
        "variables stay alive from one call to the next.",
        "search": "Whenever you need facts, write one search query inside <search> and </search>.",
        "other": "To use {name} ({description}), write its {content} inside <{name}> and </{name}>.",
        "result": "Stop there: what the tool returns is then shown to you inside <result> and </result>, and you go on "
        "from it. Never write a result yourself.",
        "pattern": "A solution looks like this: {pattern}.",
        "thought": "what I consider here",
        "python_content": "Python code",
        "search_content": "search query",
        "shown": "what the tool returned",
        "box": "End the answer with the final exact result, in LaTeX, inside \\boxed{}.",
        "final": "The final answer is \\[ \\boxed{result} \\]",
        "json": "arguments as a JSON object with {keys}",
        "none": "arguments {} (there are none)",
        "either": "{parameter} (or a JSON object with {keys})",
        "joint": " ",
    },
    "zh": {
        "intro": "你是一个乐于助人的助手，会一步一步地解答给定的问题{help}。",
        "help": "，并可以借助{tools}",
        "python_tool": " Python 解释器",
        "search_tool": "搜索引擎",
        "other_tool": "工具 {name}",
        "and": "和",
        "think": "先在 <think> 与 </think> 之间进行推理，然后在 <answer> 与 </answer> 之间给出答案。",
        "python": "需要计算或验证时，把 Python 代码写在 <python> 与 </python> 之间；变量在多次调用之间会一直保留。",
        "search": "需要事实信息时，把一条搜索查询写在 <search> 与 </search> 之间。",
        "other": "要使用 {name}（{description}），请把{content}写在 <{name}> 与 </{name}> 之间。",
        "result": "写完后就停下：工具返回的内容会出现在 <result> 与 </result> 之间，你再据此继续。不要自己编写结果。",
        "pattern": "解答的样式如下：{pattern}。",
        "thought": "这一步的思考",
        "python_content": "Python 代码",
        "search_content": "搜索查询",
        "shown": "工具返回的内容",
        "box": "在答案的最后，用 LaTeX 把最终的准确结果写在 \\boxed{} 中。",
        "final": "最终答案是 \\[ \\boxed{结果} \\]",
        "json": "参数（含 {keys} 的 JSON 对象）",
        "none": "参数 {}（没有参数）",
        "either": "{parameter}（或含 {keys} 的 JSON 对象）",
        "joint": "",
    },
}

_NATIVE: dict[Language, dict[str, str]] = {
    "en": {
        "short": "Think step by step.",
        "paper": "You are a helpful assistant who solves the given question step by step.",
        "tools_short": "Call tools where they help.",
        "tools_paper": "Whenever you need facts, or something has to be computed or checked, call one of the tools and "
        "go on from what it returns. Never make up what a tool returns. When you know enough, answer without a call.",
        "box": "Put the final answer in \\boxed{}.",
        "joint": " ",
    },
    "zh": {
        "short": "请一步一步思考。",
        "paper": "你是一个乐于助人的助手，会一步一步地解答给定的问题。",
        "tools_short": "需要时调用工具。",
        "tools_paper": "需要事实信息、计算或验证时，请调用工具，并根据返回的内容继续。不要编造工具的返回内容。"
        "掌握足够的信息后，不再调用工具，直接作答。",
        "box": "把最终答案写在 \\boxed{} 中。",
        "joint": "",
    },
}


def tag_prompt(tools: Sequence[JsonSchema], language: Language, style: Style) -> str:
    """Return the instructions of the tag protocol."""
    check_wording(language, style)
    words = (_SHORT if style == "short" else _PAPER)[language]
    calls = [_tool_line(tool, words) for tool in tools]
    if tools:
        calls.append(words["result"])
    if style == "short":
        return words["joint"].join([words["think"], *calls, words["answer"]])
    pattern = words["pattern"].replace("{pattern}", _pattern(tools, words))
    return words["joint"].join([_intro(tools, words), words["think"], *calls, pattern, words["box"]])


def native_prompt(tools: Sequence[JsonSchema], language: Language, style: Style) -> str:
    """Return the instructions for a protocol whose chat template shows the tools itself."""
    check_wording(language, style)
    words = _NATIVE[language]
    return words["joint"].join([words[style], *([words[f"tools_{style}"]] if tools else []), words["box"]])


def check_wording(language: str, style: str) -> None:
    """Raise ValueError if there are no prompts in a language or style."""
    if language not in _SHORT:
        raise ValueError(f"unknown language {language!r}; available: {', '.join(_SHORT)}")
    if style not in ("short", "paper"):
        raise ValueError(f"unknown prompt style {style!r}; available: short, paper, or a text of several words")


def _intro(tools: Sequence[JsonSchema], words: dict[str, str]) -> str:
    named = [words.get(f"{name}_tool", words["other_tool"].format(name=name)) for name in tool_names(tools)]
    shown = words["help"].format(tools=words["and"].join(named)) if named else ""
    return words["intro"].format(help=shown)


def _tool_line(tool: JsonSchema, words: dict[str, str]) -> str:
    name = tool["function"]["name"]
    if name in ("python", "search"):
        return words[name]
    content, parameter, keys = _content(tool, words), tag_parameter(tool), _keys(tool)
    if parameter is not None and len(keys) > 1:  # all accepted forms
        content = words["either"].format(parameter=parameter, keys=", ".join(keys))
    return words["other"].format(name=name, content=content, description=tool["function"].get("description") or name)


def _keys(tool: JsonSchema) -> list[str]:
    return list((tool["function"].get("parameters") or {}).get("properties") or {})


def _content(tool: JsonSchema, words: dict[str, str]) -> str:
    """Return what may be written between the tags of a tool."""
    keys, usual = _keys(tool), tag_parameter(tool)
    usual = usual or (words["json"].format(keys=", ".join(keys)) if keys else words["none"])
    return words.get(f"{tool['function']['name']}_content", usual)


def _pattern(tools: Sequence[JsonSchema], words: dict[str, str]) -> str:
    steps = []
    for tool in tools:
        name = tool["function"]["name"]
        steps += [f"<think> {words['thought']} </think>", f"<{name}> {_content(tool, words)} </{name}>"]
        steps.append(f"<result> {words['shown']} </result>")
    return " ".join([*steps, f"<think> {words['thought']} </think>", f"<answer> {words['final']} </answer>"])
