"""The browser-agent step: another model reads the pages and reports what they contain for the query.

As in the papers' evaluation, the previous reasoning, the query and the pages go in, and what follows
**Final Information** comes out. Pages are marked as data, so that the model does not follow instructions in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arpo_env.cache import Cache
from arpo_env.chat_model import ChatModel, reply_to_what_fits
from arpo_env.errors import ServiceError
from arpo_env.pages.page import Page
from arpo_env.text import cut_middle, fenced_prompt

if TYPE_CHECKING:
    from arpo_env.search.search_backend import Hit

_KEPT_STEPS = 5
_STEP_CHARACTERS = 4000
_PAGE_CHARACTERS, _CHARACTERS = 6000, 60_000  # of one page, of all; the first pages have precedence
_TEMPERATURE, _MAX_TOKENS = 0.6, 4096  # the temperature is that of the papers
_NAME = r"(?:final\s++information|最终信息)\s*+"  # possessive (++, *+), which keeps the search linear
_MARKER = re.compile(  # small models leave the asterisks out, others put the colon between them
    rf"\*\*\s*+{_NAME}[:：]?\s*+\*\*\s*+[:：]?|^(?:[^\S\n]|#)*+{_NAME}[:：]", re.IGNORECASE | re.MULTILINE
)
_NO_MARKER = "Final info"  # in its place in quoted texts
_TOOLS = re.compile(r"<(?:search|result|tool_call|tool_response)>")
_NOTHING = "No helpful information found."
# The papers' prompt offers a sentence for pages that hold nothing, and Qwen2.5-Coder-1.5B wrote it nearly always, also
# where the answer stood in the pages (docs/results/qwen.md).
_TASK = """\
You read web pages for someone who is working on a question. Collect what helps them on.

1. Read the pages with the current search query and the previous reasoning steps in mind.
2. Give the facts in the pages about what the query names, also those that answer only a part of it. They must be \
accurate and stand in the pages; do not add what you know from elsewhere, and do not guess.
3. Give names, numbers, dates and the page they come from, so that the next step can build on them."""
_REPLY = """\
Think if you need to. Then write a line **Final Information**, and after it the facts alone, in the language of \
the query."""


class PageSummariser:
    """Summarises pages for a query with a chat model; a cache keeps the first sample, as records of "summary"."""

    def __init__(self, chat: ChatModel, cache: Cache | None = None) -> None:
        self.chat, self.cache = chat, cache

    async def summarise(self, query: str, steps: Sequence[str], pages: Sequence[Page | Hit]) -> str:
        """Return what the pages contain for the query."""
        if not _shown(pages, _CHARACTERS):
            return _NOTHING
        return await reply_to_what_fits(
            self.chat,
            lambda characters: _prompt(query, steps, _shown(pages, characters)),
            _CHARACTERS,
            read=self._information,
            cache=self.cache,
            kind="summary",
            about={"query": query},
            temperature=_TEMPERATURE,
            max_tokens=_MAX_TOKENS,
        )

    def _information(self, reply: str) -> str:
        # The last marker counts, since a model may write it in its reasoning as well.
        text = _MARKER.split(reply)[-1].strip()
        if not text:
            raise ServiceError(f"chat model {self.chat.model}", "wrote nothing after **Final Information**")
        return text


def _shown(pages: Sequence[Page | Hit], characters: int) -> list[dict[str, str]]:
    left, shown = characters, []
    for page in pages:
        text = page.text.strip()[: min(_PAGE_CHARACTERS, left)]
        if text:
            left -= len(text)
            shown.append({"url": page.url[:500], "title": page.title[:300], "text": text})
    return shown


def _prompt(query: str, steps: Sequence[str], pages: Sequence[dict[str, str]]) -> str:
    quoted = {"Previous reasoning steps": reasoning_context(steps) or "-", "Current search query": query}
    quoted |= {f"Web Page {number}": _as_json(page) for number, page in enumerate(pages, 1)}
    return fenced_prompt(_TASK, quoted, _REPLY)


def _as_json(page: dict[str, str]) -> str:
    """Return a page as JSON without our marker: a model that quotes the marker would end its reasoning too early."""
    return json.dumps({name: _MARKER.sub(_NO_MARKER, text) for name, text in page.items()}, ensure_ascii=False)


def reasoning_context(steps: Sequence[str]) -> str:
    """Return the reasoning steps that matter, numbered.

    Of more than five steps these are the first, the last four, and those with a search or a result; "..." stands for
    the others. The papers' evaluation does the same.
    """
    lines: list[str] = []
    for number, step in enumerate(steps, 1):
        # The first step is always kept, so that `lines` is never empty below.
        near = number == 1 or number > len(steps) - (_KEPT_STEPS - 1)
        if len(steps) <= _KEPT_STEPS or near or _TOOLS.search(step):
            lines.append(f"Step {number}: {_MARKER.sub(_NO_MARKER, cut_middle(step.strip(), _STEP_CHARACTERS))}")
        elif lines[-1] != "...":
            lines.append("...")
    return "\n\n".join(lines)
