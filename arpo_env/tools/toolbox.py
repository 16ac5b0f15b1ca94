"""`Toolbox` creates the tools of an episode by name; `fork_tools` and `close_tools` fork and close them together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arpo_env.services import Services
from arpo_env.tools.bifurcation_tool import BifurcationTool
from arpo_env.tools.python import PythonTool
from arpo_env.tools.tool import Tool, tools_from_entry
from envs_registry import EnvSpec, Task, TaskSource
from envs_registry.nearest_name import nearest_hint
from sandbox import Sandbox, default_sandbox

if TYPE_CHECKING:
    from arpo_env.tools.tool_search import ResultCondenser, ToolRegistry

ToolName = str | Callable[..., Any]
MCP = "mcp:"
# options that serve one tool; without it they do nothing
_SERVED = {"search": "search", "show_images": "read_file", "result_model": "tool_search"}
_OPENING = threading.Lock()
_OUTSIDE_SECONDS = 60.0  # minimum time limit of a search or an MCP call


@dataclass(frozen=True)
class Toolbox:
    """The tool configuration of an environment.

    Attributes:
        tools: "python", "search", "read_file" (the files of the task), "browse" (web pages by their links), "go" (of
            `arpo/Bifurcation-v0`), "tool_search" (finds further tools), "mcp:SERVER" (all tools of an MCP server, given
            as a command line or a URL), typed functions, or factories of `Tool` objects (see `arpo_env.tools.tool`).
        timeout: time limit of one call in seconds; at least 60 for searches and MCP calls.
        sandbox: where Python runs: a sandbox, or settings of the process-wide one.
        services: search backend, page reader and cache.
        source: source of the tasks, which may provide its own documents to search.
    """

    tools: Sequence[ToolName]
    timeout: float
    sandbox: Sandbox | Mapping[str, Any] | None
    services: Services
    source: TaskSource

    def __post_init__(self) -> None:
        if isinstance(self.tools, str):
            raise ValueError(f"tools must be a list such as [{self.tools!r}], not the string {self.tools!r}")
        default_sandbox(self.sandbox)  # refuses settings that it does not know; nothing is started yet

    def make(self) -> dict[str, Tool]:
        """Return new tools by name."""
        made: dict[str, Tool] = {}
        for entry in self.tools:
            with self.services.lending_record():
                tools = self._tools(entry)
            for tool in tools:
                name, called = getattr(tool, "name", None), getattr(tool, "schema", {}).get("function", {}).get("name")
                if called is None or called != name:
                    raise ValueError(
                        f"the tool {type(tool).__name__} needs a name and a schema of that name, as `name = 'count'` "
                        f"and `schema = function_schema(f, name)`; it has {name!r} and {called!r}"
                    )
                if tool.name in made:
                    raise ValueError(f"two tools are named {tool.name!r}; remove or rename one of them")
                made[tool.name] = tool
        for tool in made.values():
            tool.reserved = frozenset(made)
        for option, tool_name in _SERVED.items():
            # without any tools nothing is asked for; `arpo synth` plays its questions like that, too
            if made and getattr(self.services, option) and tool_name not in made:
                raise ValueError(
                    f"{option}= is given, but there is no tool {tool_name} (tools: {', '.join(made)}); add "
                    f"tools=[{tool_name!r}, ...], or leave it out"
                )
        return made

    def _tools(self, entry: ToolName) -> Sequence[Tool]:
        if not isinstance(entry, str):
            return tools_from_entry(entry)
        if entry in TOOLS:
            return [TOOLS[entry](self)]
        if entry.startswith(MCP):
            from arpo_env.tools.mcp_tools import mcp_tools

            return mcp_tools(entry.removeprefix(MCP), timeout=self.outside_timeout)
        hint = nearest_hint(entry, TOOLS, " Did you mean {!r}?")
        raise ValueError(f"unknown tool {entry!r}; available: {', '.join(TOOLS)} and {MCP}SERVER.{hint}")

    @property
    def outside_timeout(self) -> float:
        """Time limit in seconds of a call that leaves this machine."""
        return max(_OUTSIDE_SECONDS, self.timeout)

    def _opened_registry(self) -> ToolRegistry:
        with _OPENING:  # the first searches of many episodes come at once
            return self.registry

    @functools.cached_property
    def registry(self) -> ToolRegistry:
        """The tools that `tool_search` finds, shared by all episodes."""
        from arpo_env.tools.tool_search import open_registry

        return open_registry(self.services, self.source, self.sandbox, self.timeout)

    @functools.cached_property
    def condenser(self) -> ResultCondenser | None:
        """What condenses long results of found tools, shared by all episodes; None if no model is named."""
        from arpo_env.tools.tool_search import LONGEST_RESULT, ResultCondenser

        chat = self.services.chat("result_model")
        return ResultCondenser(chat, LONGEST_RESULT, self.services.record) if chat else None

    def check(self) -> None:
        """Check early that search, page reading and file reading are configured and installed."""
        if "search" in self.names:
            self.services.backend(self.source)
        if {"search", "browse"} & set(self.names):
            self.services.check_reader(browses="browse" in self.names)
        if "tool_search" in self.names:
            self._opened_registry()
        if "read_file" in self.names:
            from arpo_env.task_files.file_extractor import check_libraries

            check_libraries()

    @property
    def names(self) -> list[str]:
        """The entries of `tools` that are names."""
        return [entry for entry in self.tools if isinstance(entry, str)]


# The tools by name. Imported at need: an environment without a tool loads none of its libraries.


def _search(box: Toolbox) -> Tool:
    from arpo_env.tools.search_tool import SearchTool

    services = box.services
    return SearchTool(
        lambda: services.backend(box.source),
        k=services.search_results,
        max_characters=services.result_characters,
        timeout=box.outside_timeout,
        reader=services.reader,
        summariser=services.summariser,
    )


def _read_file(box: Toolbox) -> Tool:
    from arpo_env.tools.read_file_tool import ReadFileTool

    return ReadFileTool(box.services.result_characters, images=box.services.show_images)


def _browse(box: Toolbox) -> Tool:
    from arpo_env.tools.browse_tool import BrowseTool

    return BrowseTool(lambda: box.services.link_reader, box.services.result_characters)


def _tool_search(box: Toolbox) -> Tool:
    from arpo_env.tools.tool_search import ToolSearchTool

    return ToolSearchTool(box._opened_registry, box.services.tool_results, box.outside_timeout, box.condenser)


TOOLS: dict[str, Callable[[Toolbox], Tool]] = {
    "python": lambda box: PythonTool(box.timeout, box.sandbox),
    "search": _search,
    "read_file": _read_file,
    "browse": _browse,
    "go": lambda box: BifurcationTool(),
    "tool_search": _tool_search,
}


def chosen_tools(
    given: Sequence[ToolName] | None, spec: EnvSpec, with_files: bool, services: Services
) -> Sequence[ToolName]:
    """Return the entries of `tools` of an environment; without any given, those of its spec.

    `read_file` is among the latter if tasks have files. `browse` is added if `services` asks for it.
    """
    if isinstance(given, str):
        return given  # `Toolbox` refuses it
    chosen = tuple(spec.tools if given is None else given)
    if given is None and with_files and "read_file" not in chosen:
        chosen += ("read_file",)
    return (*chosen, "browse") if services.browse and "browse" not in chosen else chosen


async def reset_tools(tools: Iterable[Tool], task: Task) -> None:
    """Begin an episode: each tool gets the task, and starts anew with its setup."""
    for tool in tools:
        tool.task = task
        await tool.reset(task.setup)


async def fork_tools(tools: Mapping[str, Tool], n: int) -> list[dict[str, Tool]]:
    """Return n copies of an episode's tools. If a tool cannot be forked, the copies made so far are closed."""
    copies: list[dict[str, Tool]] = [{} for _ in range(n)]
    try:
        for name, tool in tools.items():
            twins = await tool.fork(n)
            if not isinstance(twins, list) or len(twins) != n:
                raise TypeError(f"{type(tool).__name__}.fork({n}) returned {twins!r:.80}, not a list of {n} tools")
            for own, twin in zip(copies, twins, strict=True):
                own[name] = twin
    except BaseException:  # cancellation included, or the copies made so far would leak sandbox sessions
        with contextlib.suppress(Exception):
            await close_tools(twin for own in copies for twin in own.values())
        raise
    return copies


def seed_tools(tools: Iterable[Tool], seed: int | None, draw: Callable[[], int]) -> None:
    """Give tools with noise the seed of the episode; without one it is drawn, as the task is."""
    noisy = [tool for tool in tools if tool.noisy]
    if noisy and seed is None:
        seed = draw()
    for tool in noisy:
        tool.seed = seed or 0


async def close_tools(tools: Iterable[Tool]) -> None:
    """Close all tools; afterwards raise the first exception, if any."""
    results = await asyncio.gather(*(tool.close() for tool in tools), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
