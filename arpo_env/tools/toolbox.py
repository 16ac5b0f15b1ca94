"""The tools of one episode: `Toolbox` makes them by name, sharing what can be; they are forked and closed together."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arpo_env.services import Services
from arpo_env.tools.function_tool import tools_of
from arpo_env.tools.python import PythonTool
from arpo_env.tools.tool import Tool
from envs_registry import TaskSource
from sandbox import Sandbox

ToolName = str | Callable[..., Any]
MCP = "mcp:"
_NAMES = ("python", "search")
_OUTSIDE_SECONDS = 60.0  # a search or an MCP call has at least as long


@dataclass(frozen=True)
class Toolbox:
    """The recipe of an environment's tools.

    Attributes:
        tools: "python", "search", "mcp:SERVER" (all tools of an MCP server, given as a command line or an address),
            typed functions, or what makes a fresh `Tool` of your own, or several (see `function_tool`).
        timeout: seconds one call may take; a search and an MCP call have 60 at least.
        sandbox: where Python runs; None is the process-wide one.
        services: where search is.
        source: of the tasks, which may bring its own world to search.
    """

    tools: Sequence[ToolName]
    timeout: float
    sandbox: Sandbox | None
    services: Services
    source: TaskSource

    def __post_init__(self) -> None:
        if isinstance(self.tools, str):
            raise ValueError(f"tools is a list, as in [{self.tools!r}]; not {self.tools!r}")

    def make(self) -> dict[str, Tool]:
        """Return fresh tools by name.

        Raises:
            ValueError: a name that is no tool, or that two tools have.
        """
        made: dict[str, Tool] = {}
        for entry in self.tools:
            with self.services.lending_record():
                tools = self._tools(entry)
            for tool in tools:
                if tool.name in made:
                    raise ValueError(f"two tools are named {tool.name!r}; leave one out, or give it another name")
                made[tool.name] = tool
        return made

    def _tools(self, entry: ToolName) -> Sequence[Tool]:
        if not isinstance(entry, str):
            return tools_of(entry)
        if entry == "python":
            return [PythonTool(self.timeout, self.sandbox)]
        if entry == "search":
            return [self._search()]
        if entry.startswith(MCP):
            from arpo_env.tools.mcp_tools import mcp_tools

            return mcp_tools(entry.removeprefix(MCP), timeout=max(_OUTSIDE_SECONDS, self.timeout))
        near = difflib.get_close_matches(entry, _NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no tool {entry!r}; there are: {', '.join(_NAMES)} and {MCP}SERVER.{hint}")

    def _search(self) -> Tool:
        from arpo_env.tools.search_tool import SearchTool

        services = self.services
        return SearchTool(
            lambda: services.backend(self.source),
            k=services.search_results,
            max_characters=services.result_characters,
            timeout=max(_OUTSIDE_SECONDS, self.timeout),
            reader=services.reader,
            summariser=services.summariser,
        )


async def fork_tools(tools: Mapping[str, Tool], n: int) -> list[dict[str, Tool]]:
    """Return n copies of an episode's tools; if one of them cannot be forked, no copy of another is left open."""
    copies: list[dict[str, Tool]] = [{} for _ in range(n)]
    try:
        for name, tool in tools.items():
            for own, twin in zip(copies, await tool.fork(n), strict=True):
                own[name] = twin
    except BaseException:
        with contextlib.suppress(Exception):
            await close_tools(twin for own in copies for twin in own.values())
        raise
    return copies


async def close_tools(tools: Iterable[Tool]) -> None:
    """Close all of them, whatever becomes of one; raises the first failure afterwards."""
    results = await asyncio.gather(*(tool.close() for tool in tools), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
