"""`ToolRegistry`: thousands of tools that can be found by a search, and what runs them.

    registry = ToolRegistry.from_functions([weather, timetable, ...])
    registry = ToolRegistry(documents, run)          # `run(name, arguments)` answers every call

A registry is shared by all episodes of an environment and keeps no state of an episode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_env.search.search_backend import SearchBackend
from arpo_env.tools.execute_tool_call import invoke
from arpo_env.tools.function_schema import function_schema
from arpo_env.tools.tool_document import ToolDocument, as_document, read_documents
from envs_registry.nearest_name import nearest_hint

Run = Callable[[str, Mapping[str, Any]], Any]


class ToolRegistry:
    """Documents of tools, an index over them, and a function that runs them.

    Args:
        documents: what `read_documents` takes: a file, or documents in any of its formats; those that cannot be read
            are left out.
        run: called with a name and arguments, on a thread or awaited; returns a text or a value that is shown as JSON.
            It raises `ValueError` for a mistake of the caller, which the model is told.
        index: finds documents; the `url` of its hits is the name of a tool. None is BM25 over names, descriptions and
            parameters.
        repeatable: calling a tool twice does no harm outside the episode (see `Tool.repeatable`).

    Attributes:
        faults: rows that could not be read.

    Raises:
        ValueError: there is no document that can be read.
    """

    def __init__(
        self,
        documents: str | Path | Iterable[Any],
        run: Run,
        index: SearchBackend | None = None,
        repeatable: bool = False,
    ) -> None:
        every, self.faults = read_documents(documents)
        self._documents = {document.name: document for document in every}
        self._run, self.repeatable = run, repeatable
        self.index = _bm25(every) if index is None else index

    @classmethod
    def from_functions(cls, functions: Iterable[Callable[..., Any]]) -> ToolRegistry:
        """Return a registry of typed functions, whose documents come from their signatures and docstrings.

        Raises:
            ValueError: two functions have the same name.
        """
        by_name: dict[str, Callable[..., Any]] = {}
        rows = []
        for function in functions:
            schema = function_schema(function)
            name = schema["function"]["name"]
            if name in by_name:
                raise ValueError(f"two functions are named {name!r}; rename one of them")
            by_name[name] = function
            rows.append(as_document(schema))

        async def run(name: str, arguments: Mapping[str, Any]) -> Any:
            return await invoke(by_name[name], arguments)

        return cls(rows, run)

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def documents(self) -> Sequence[ToolDocument]:
        """All documents, in order."""
        return list(self._documents.values())

    def document(self, name: str) -> ToolDocument:
        """Return the document of a tool.

        Raises:
            KeyError: there is no such tool; the message suggests a similar name.
        """
        if name not in self._documents:
            raise KeyError(f"no tool {name!r}{nearest_hint(name, list(self._documents), otherwise='')}")
        return self._documents[name]

    async def find(self, query: str, k: int, among: Sequence[str] | None = None) -> list[ToolDocument]:
        """Return at most k documents, best first.

        Args:
            query: any text.
            k: number of documents.
            among: names of the only tools that may be found; None for all.

        Raises:
            ServiceError: the index failed.
        """
        # with few candidates, the index is asked for all, since the best of all may not be among them
        allowed = None if among is None else {name for name in among if name in self._documents}
        hits = await self.index.search(query, k if allowed is None else len(self._documents))
        names = [hit.url for hit in hits if hit.url in self._documents and (allowed is None or hit.url in allowed)]
        return [self._documents[name] for name in dict.fromkeys(names)][:k]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run a tool.

        Raises:
            ValueError: a mistake of the caller.
            Exception: the tool failed.
        """
        # by position, since parameters may be named otherwise
        return await invoke(functools.partial(self._run, name, arguments), {})


@dataclass(frozen=True)
class ToolPassage:
    """A document in the form that indexes take: its name, the words of the name, and its whole text."""

    id: str
    title: str
    text: str


def passages_of(documents: str | Path | Iterable[Any]) -> list[ToolPassage]:
    """Return documents, as `ToolRegistry` takes them, in the form that indexes take."""
    every, _ = read_documents(documents, warn=False)
    return [ToolPassage(document.name, document.title, document.text) for document in every]


def _bm25(documents: Sequence[ToolDocument]) -> SearchBackend:
    from arpo_env.search.local.world_search import WorldSearch

    return WorldSearch(passages_of(documents))
