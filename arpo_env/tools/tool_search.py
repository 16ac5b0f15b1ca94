"""The tool `tool_search`: finds tools by what they do; a tool can be called from the moment it is found.

The result shows the documents of the tools as JSON: name, description and parameters. Which tools an episode has found
is state of this tool, so that a fork knows them, and a reset forgets them. As in DeepAgent (arXiv 2510.21618), a
search or a call that was made before in the episode is refused with a notice, which costs no call. After a fold of the
history both may be repeated, since the model does not see their results any more. Results over a limit are shortened,
or condensed by another model. Protocols with calls by name ("deepagent", "hermes", "llama3", "websailor") can call a
found tool.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from arpo_env.daemon_threads import run_in_daemon_thread
from arpo_env.episode import FOLD, Call
from arpo_env.tools.execute_tool_call import as_result
from arpo_env.tools.function_schema import function_schema
from arpo_env.tools.result_condenser import ResultCondenser
from arpo_env.tools.tool import Tool, ToolResult, shorten
from arpo_env.tools.tool_document import ToolDocument
from arpo_env.tools.tool_registry import ToolRegistry

NAME = "tool_search"
TOP_TOOLS = 10  # DeepAgent's
LONGEST_LIST = 15_000  # characters of the documents that a search shows; DeepAgent's
LONGEST_RESULT = 5_000  # characters of the result of a found tool; DeepAgent's
LONGEST_QUERY = 2_000  # characters
NOTHING = "No tool was found. Describe in other words what the tool should do."
SEARCHED_BEFORE = "You have already searched for this. Use the tools that were found, or search for something else."
CALLED_BEFORE = "You have already called this tool with the same arguments. Use what it returned."


def tool_search(query: str) -> str:
    """Find further tools by what they do. A tool that was found can be called by its name from then on.

    Args:
        query: What the tool should do.
    """
    raise NotImplementedError(query)  # only the schema is used; `ToolSearchTool.call` searches


class ToolSearchTool(Tool):
    """Searches a registry of tools and remembers what it found.

    Args:
        registry: the tools, or a function that opens them at the first search.
        k: maximum number of tools that a search finds.
        max_characters: maximum number of characters of the documents that it shows; see `shown_documents`.
        result_characters: maximum number of characters of the result of a found tool; longer ones lose their middle.
        timeout: time limit of a call of a found tool in seconds.
        among: names of the only tools that can be found; None for all.
        refuse_repeats: refuse a call of a found tool that was made before with the same arguments. Turn it off if equal
            calls may return different things.
        condenser: condenses the results of found tools that are too long; None cuts out their middle.
    """

    name = NAME
    repeatable = voids = True
    keeps_time = True  # the first search may have to embed thousands of documents; requests have limits of their own

    def __init__(
        self,
        registry: ToolRegistry | Callable[[], ToolRegistry],
        k: int = TOP_TOOLS,
        max_characters: int = LONGEST_LIST,
        result_characters: int = LONGEST_RESULT,
        timeout: float = 60.0,
        among: Sequence[str] | None = None,
        refuse_repeats: bool = True,
        condenser: ResultCondenser | None = None,
    ) -> None:
        self.schema = function_schema(tool_search)
        self._condenser = condenser
        self._registry = registry if isinstance(registry, ToolRegistry) else None
        self._open = registry if callable(registry) else None
        self._k, self._max_characters, self.min_timeout = k, max_characters, timeout
        self._result_characters, self._among, self._refuse_repeats = result_characters, among, refuse_repeats
        self._found: dict[str, Tool] = {}

    @property
    def found(self) -> Mapping[str, Tool]:
        """The tools that were found in this episode."""
        return self._found

    async def call(self, *, query: str = "", **arguments: Any) -> ToolResult:
        """Find tools, make them callable, and return their documents.

        Raises:
            ServiceError: the index failed.
        """
        started = time.perf_counter()
        words = _words(query)
        if not any(one.isalnum() for one in words):
            return ToolResult("error: the query is empty; write what the tool should do", "error")
        if words.casefold() in _queries(self.earlier_calls):
            return ToolResult(SEARCHED_BEFORE, "refused")
        registry = await self._opened()
        # a call by such a name would be one of the environment's own tool
        taken = self.reserved | {NAME}
        hits = await registry.find(words, self._k + len(taken), self._among)
        documents = [document for document in hits if document.name not in taken][: self._k]
        text, shown = shown_documents(documents, self._max_characters)
        for document in shown:
            self._found.setdefault(document.name, self._tool(registry, document))
        return ToolResult(text, "ok", time.perf_counter() - started)

    async def reset(self, setup: str) -> None:
        """Forget the tools that were found; `setup` is only for interpreters."""
        self._found = {}

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools that have found the same tools and search the same registry."""
        return [self._copy() for _ in range(n)]

    async def close(self) -> None:
        """Do nothing, since the registry is shared by all episodes."""

    async def _opened(self) -> ToolRegistry:
        if self._registry is None:
            assert self._open is not None
            # on a thread, since documents may have to be read and indexed first
            self._registry = await asyncio.wrap_future(run_in_daemon_thread(self._open, "arpo-tools"))
        return self._registry

    def _tool(self, registry: ToolRegistry, document: ToolDocument) -> Tool:
        limits = self._result_characters, self.min_timeout, self._refuse_repeats
        return FoundTool(registry, document, *limits, self._condenser)

    def _copy(self) -> ToolSearchTool:
        twin = ToolSearchTool(
            self._registry or self._open,  # type: ignore[arg-type]  # one of them is given
            self._k,
            self._max_characters,
            self._result_characters,
            self.min_timeout,
            self._among,
            self._refuse_repeats,
            self._condenser,
        )
        twin.reserved = self.reserved
        # copies, since the environment sets the context of a call on the tool
        twin._found = {name: tool.copy() for name, tool in self._found.items() if isinstance(tool, FoundTool)}
        return twin


class FoundTool(Tool):
    """A tool of a registry. Its name, description and parameters are those of its document."""

    def __init__(
        self,
        registry: ToolRegistry,
        document: ToolDocument,
        max_characters: int = LONGEST_RESULT,
        timeout: float = 60.0,
        refuse_repeats: bool = True,
        condenser: ResultCondenser | None = None,
    ) -> None:
        self.name, self.schema, self._condenser = document.name, document.schema, condenser
        self.min_timeout, self.repeatable = timeout, registry.repeatable
        self._registry, self._document = registry, document
        self._max_characters, self._refuse_repeats = max_characters, refuse_repeats

    async def call(self, /, **arguments: Any) -> ToolResult:
        """Call the tool; a `ValueError` is a mistake of the caller, which is told."""
        if self._refuse_repeats and any(
            (call.name, call.arguments) == (self.name, arguments) and call.status != "timeout"
            for call in _still_seen(self.earlier_calls)
        ):
            return ToolResult(CALLED_BEFORE, "refused")
        try:
            result = as_result(await self._registry.call(self.name, arguments))
        except ValueError as error:
            return ToolResult(shorten(f"error: {error}", self._max_characters), "error")
        # a condenser has to see all of it
        return result if self._condenser else replace(result, text=shorten(result.text, self._max_characters))

    async def shown(self, result: ToolResult, arguments: Mapping[str, Any]) -> ToolResult:
        """Return the result, condensed if it is too long and there is a condenser."""
        if self._condenser is None:
            return result
        if result.status != "ok":
            return replace(result, text=shorten(result.text, self._max_characters))
        return replace(result, text=await self._condenser.condense(self.name, arguments, self.context, result.text))

    def copy(self) -> FoundTool:
        """Return the same tool for another episode."""
        limits = self._max_characters, self.min_timeout, self._refuse_repeats
        return FoundTool(self._registry, self._document, *limits, self._condenser)

    async def reset(self, setup: str) -> None:
        """Do nothing, since it has no state."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n copies."""
        return [self.copy() for _ in range(n)]

    async def close(self) -> None:
        """Do nothing."""


def shown_documents(documents: Sequence[ToolDocument], limit: int) -> tuple[str, list[ToolDocument]]:
    """Return documents as JSON, and those that are in it, which are the first ones that fit.

    The first is shown in any case, with its descriptions cut short if it must be.
    """
    if not documents:
        return NOTHING, []
    lines: list[str] = []
    for document in documents:
        line = json.dumps(document.schema["function"], ensure_ascii=False)
        if lines and sum(map(len, lines)) + len(lines) + len(line) > limit:
            break
        lines.append(line if len(line) <= limit else shorten(line, limit))
    shown = list(documents[: len(lines)])
    left_out = len(documents) - len(shown)
    note = f"\n({left_out} more did not fit; search more precisely to see them)" if left_out else ""
    return "[" + ",\n".join(lines) + "]" + note, shown


def _queries(calls: Sequence[Call]) -> set[str]:
    """Return the queries of earlier searches, in the form in which they are compared."""
    seen = (call for call in _still_seen(calls) if call.name == NAME)
    return {_words(str(call.arguments.get("query", ""))).casefold() for call in seen}


def _words(query: str) -> str:
    return " ".join(query.split())[:LONGEST_QUERY]


def _still_seen(calls: Sequence[Call]) -> Sequence[Call]:
    """Return the calls since the last fold: the results of earlier ones are not in the context any more."""
    folds = [number for number, call in enumerate(calls) if (call.name, call.status) == (FOLD, "ok")]
    return calls[folds[-1] + 1 :] if folds else calls
