r"""`ArpoTags`: the tag protocol of the ARPO papers; `ArpoTagsReference` renders results as the published code does.

The whole episode is one assistant message: the model writes `<python> code </python>`, the environment appends
`<result> ... </result>`, and the model continues until `<answer> \boxed{...} </answer>`.

The first closing tag of a tool or of the answer ends a turn, because generation stops there; text after it has no
effect. The tag only counts if its own opening tag is the first one that is open outside thoughts. A closing tag inside
a thought ends the turn as well, but runs nothing, and the model is told so.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from arpo_env.protocols.protocol import (
    Action,
    Language,
    Malformed,
    Nothing,
    Style,
    ToolCalls,
    UnreadableCall,
    boxed_answer,
    find_tool,
    tagged_call,
    tool_names,
)
from arpo_env.protocols.system_prompts import tag_prompt
from arpo_env.tools.tool import JsonSchema

_RESERVED = ("think", "answer", "result")
_LONGEST_TAG = 64
_TAG = re.compile(rf"<(/?)([\w.-]{{1,{_LONGEST_TAG}}})>")
# also in environments without these tools, so that results are the same for every set of tools
_ALWAYS_DEFUSED = ("think", "answer", "result", "search", "python")


class ArpoTags:
    r"""The tags of the ARPO papers: think, python, search, result, answer, and `\boxed{}` around the answer."""

    name = "arpo-tags"
    native = False

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions for these tools.

        Raises:
            ValueError: a tool has the name of one of the protocol's own tags, or one that cannot be a tag.
        """
        for name in tool_names(tools):
            if name in _RESERVED or not _TAG.fullmatch(f"<{name}>"):
                raise ValueError(
                    f"a tool named {name!r} cannot be called by a tag; rename it (letters, digits, '_', '-', '.'; at "
                    f"most {_LONGEST_TAG}; not {', '.join(_RESERVED)}) or use a protocol with native tool calls: hermes"
                )
        return tag_prompt(tools, language, style)

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the closing tags of all tools and of the answer."""
        return [f"</{name}>" for name in (*tool_names(tools), "answer")]

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse the first closing tag that ends a turn, with the opening tag before it; a turn holds one call."""
        try:
            return _read(text, tools)
        except UnreadableCall as fault:
            return Malformed(str(fault))

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return the text with the `<` of every tag of the protocol, in any spelling, replaced by `&lt;`."""
        return _tag_starts(tuple(tool_names(tools))).sub("&lt;", text)

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return each text between result tags, defused."""
        return "".join(f"\n<result>\n{self.defuse(text, tools)}\n</result>\n" for text in texts)

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether every thought is closed, at least one turn thinks, and there is exactly one answer.

        A tool result that the model wrote itself is malformed. The content of tool calls is not checked.
        """
        outer = [_outer_tags(turn) for turn in turns]
        stray = any(tag in tags for tags in outer for tag in ("think", "/think", "result"))
        thinks = any("thought" in tags for tags in outer)
        return thinks and not stray and sum(tags.count("answer") for tags in outer) == 1


class ArpoTagsReference(ArpoTags):
    """The same tags, with results in exactly the white space of the published training code.

    For checkpoints trained with that code. Tags inside a result are defused here as well.
    """

    name = "arpo-tags-reference"

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return each text between result tags, defused."""
        return "".join(f" <result>\n{self.defuse(text, tools)}\n</result>" for text in texts)


@functools.lru_cache(maxsize=64)
def _tag_starts(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that finds the `<` of the tags of the protocol and of these tools."""
    words = "|".join(map(re.escape, sorted({*_ALWAYS_DEFUSED, *names})))
    # possessive quantifiers (*+) keep the search linear, since tool results are written by others
    return re.compile(rf"<(?=\s*+/?+\s*+(?:{words})(?!\w))", re.IGNORECASE)


def _read(text: str, tools: Sequence[JsonSchema]) -> Action:
    ends = {*tool_names(tools), "answer"}
    thought, opened = False, None
    # only the first tool tag outside thoughts can open a call; inside it, "<think>" is content
    for tag in _TAG.finditer(text):
        closes, name = bool(tag[1]), tag[2]
        # generation stops at this tag, whether it is valid or not
        if closes and name in ends:
            if thought:
                raise UnreadableCall(f"{name} stands inside a thought; close the thought first")
            return _complete(text, tools, opened, tag)
        if opened is None and name == "think":
            thought = not closes
        elif opened is None and not thought and name in ends:
            opened = tag
    return _nothing_or_unknown_tool(text, tools)


def _complete(text: str, tools: Sequence[JsonSchema], opened: re.Match[str] | None, closing: re.Match[str]) -> Action:
    name = closing[2]
    if opened is None:
        raise UnreadableCall(f"{name} was closed but not opened; write its opening tag first")
    content = text[opened.end() : closing.start()]
    if opened[2] != name or f"<{name}>" in content:
        raise UnreadableCall(f"{name} stands inside {opened[2]}, which is still open; close that first")
    content = content.strip()
    if name == "answer":
        return boxed_answer(content)
    return ToolCalls((tagged_call(name, content, tools),))


def _nothing_or_unknown_tool(text: str, tools: Sequence[JsonSchema]) -> Action:
    """Return `Nothing`, or raise if the turn ends with the call of a tool that does not exist."""
    # only the end is searched, since the whole text may be long
    last = list(_TAG.finditer(text.rstrip()[-_LONGEST_TAG - 3 :]))
    if not last or not text.rstrip().endswith(last[-1][0]):
        return Nothing()
    closes, name = last[-1][1], last[-1][2]
    if closes and name not in _RESERVED and f"<{name}>" in text:
        find_tool(name, tools)
    return Nothing()


def _outer_tags(turn: str) -> list[str]:
    """Return the tags outside thoughts and calls, in order; a complete thought is the entry "thought"."""
    closings = {tag[2]: tag.start() for tag in _TAG.finditer(turn) if tag[1]}  # last closing position per name
    found, position = [], 0
    while tag := _TAG.search(turn, position):
        closes, name = tag[1], tag[2]
        position = tag.end()
        # a tag without a later closing tag cannot be skipped as a whole
        skips = not closes and name not in ("answer", "result") and closings.get(name, -1) >= position
        if skips:
            position = turn.index(f"</{name}>", position) + len(name) + 3
        if name == "think" or not skips:
            found.append("thought" if skips else f"{closes}{name}")
    return found
