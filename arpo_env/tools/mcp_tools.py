"""Tools of an MCP server (Model Context Protocol) as tools of an episode, through the official `mcp` client.

    mcp_tools("npx -y @modelcontextprotocol/server-time")       a command line: spoken to over stdin and stdout
    mcp_tools("https://host/mcp", headers={"Authorization": "Bearer ..."})    an address: streamable HTTP

All episodes of a process share one connection to a server; it lives on the background loop and is closed at exit, or
by `close_connections`. A server has one state for all of them: it is neither reset nor forked along with an episode.

With a cache, lists of tools and answers are recorded, and replayed without any connection: see `mcp_record`.
"""

from __future__ import annotations

import copy
import difflib
import json
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arpo_env import event_loop as background
from arpo_env.services import current_record
from arpo_env.tools.json_schema import JsonSchema
from arpo_env.tools.mcp_connections import ConnectionLost, McpServer, close_all, connection
from arpo_env.tools.mcp_record import Answer, RemoteTool, ServerRecord
from arpo_env.tools.tool import Tool, ToolResult, shorten

if TYPE_CHECKING:
    import mcp

    from arpo_env.cache.cache import Cache

RESERVED = ("reset", "step", "state", "close")  # an environment's own verbs


class McpTool(Tool):
    """One tool of an MCP server; `mcp_tools` makes them.

    Args:
        server: where it is.
        tool: as the server listed it.
        record: of the server.
        name: how the model calls it.
        timeout: seconds one call may take.
        stateless: no call depends on another. Then one that met a broken connection is repeated once on a new one.
        max_characters: a longer result keeps its head and tail.
    """

    voids = keeps_time = True

    def __init__(
        self,
        server: McpServer,
        tool: RemoteTool,
        record: ServerRecord,
        name: str,
        timeout: float = 60.0,
        stateless: bool = False,
        max_characters: int = 8000,
    ) -> None:
        self.name = name
        self.schema = _schema(tool, name)
        self._server, self._remote, self._record = server, tool.name, record
        self._timeout, self._stateless, self._max_characters = timeout, stateless, max_characters
        self._called = False
        self.repeatable = stateless or record.replayed
        self.shared_state = "" if stateless else f"MCP server {record.server}"

    async def call(self, **arguments: Any) -> ToolResult:
        """Call it; also from another event loop than the connection's.

        Raises:
            ServiceError: the server could not be reached, broke off, or failed otherwise than by its tool's own error.
            CacheMiss: it is a replay, and this call was not recorded.
        """
        started = time.perf_counter()
        self._called = True
        answer = await self._record.call(self._remote, arguments, lambda: self._ask(arguments), self._history())
        return ToolResult(shorten(answer.text, self._max_characters), answer.status, time.perf_counter() - started)

    def _history(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Return the episode's earlier calls on which this one may depend."""
        if self._stateless:
            return None
        return [(call.name, call.arguments) for call in self.earlier_calls if call.shared_state == self.shared_state]

    async def _ask(self, arguments: dict[str, Any]) -> Answer:
        try:
            result = await background.there(self._call(arguments))
        except ConnectionLost:
            if not self._stateless:
                raise
            result = await background.there(self._call(arguments))
        return _read(result) if result else Answer(f"(no answer within {self._timeout:g} s)", "timeout")

    async def _call(self, arguments: dict[str, Any]) -> mcp.types.CallToolResult | None:
        link = await connection(self._server)
        return await link.call(self._remote, arguments, self._timeout)

    async def reset(self, setup: str) -> None:
        """Do nothing: other episodes use the same server, which keeps what state it has."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools that share the connection, and with it whatever state the server has.

        That is exact for a `stateless` tool, and in a replay. For another one a warning says so, once it was called.
        """
        if self._called and not self.repeatable:
            warnings.warn(
                f"the MCP tool {self.name!r} was forked, but its server's state cannot be: all branches share it. "
                "If no call depends on another, say so: mcp_tools(..., stateless=True)",
                RuntimeWarning,
                stacklevel=2,
            )
        return [copy.copy(self) for _ in range(n)]

    async def close(self) -> None:
        """Do nothing: the connection is the process's."""


def mcp_tools(
    server: str,
    *,
    allow: Sequence[str] | None = None,
    prefix: str = "",
    timeout: float = 60.0,
    stateless: bool = False,
    max_characters: int = 8000,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    cache: Cache | None = None,
    record_as: str | None = None,
) -> list[McpTool]:
    """Connect to a server and return its tools.

    Args:
        server: a command line, or an http(s) address.
        allow: names, as the server has them, of the only tools to take; None takes all.
        prefix: put before each name, such as `time_`.
        timeout: seconds one call may take.
        stateless: no call depends on another; see `McpTool`.
        max_characters: a longer result keeps its head and tail.
        env: further environment variables of a command; it gets PATH, HOME and a few more, not all of ours.
        headers: of requests to an address.
        cache: where lists and answers are recorded and replayed; default that of the environment that makes its tools.
        record_as: the server's name in the record, in place of its command line or address without what looks secret;
            for secrets that nothing tells from other words, or a place that changes from machine to machine.

    Raises:
        CacheMiss: it is a replay, and the server's tools were not recorded.
        ValueError: a name that is reserved, given twice, or not there; options for the other kind of server.
        ServiceError: the server could not be started or reached.
        RuntimeError: the `mcp` package is missing.
    """
    where = McpServer.parse(server, env or {}, headers or {})
    record = ServerRecord(record_as or where.identity, cache or current_record())
    listed = _tools_of(where, record)
    wanted = list(listed) if allow is None else [_known(name, listed) for name in allow]
    names = {name: _callable_name(prefix + name) for name in wanted}
    for name, ours in names.items():
        if ours in RESERVED:
            raise ValueError(f"a tool may not be called {ours!r}; give a prefix, as in prefix='mcp_', or leave it out")
        if list(names.values()).count(ours) > 1:
            raise ValueError(f"two tools of {where} would be called {ours!r}; leave one out through `allow`: {name!r}")
    return [
        McpTool(where, listed[name], record, ours, timeout, stateless, max_characters) for name, ours in names.items()
    ]


def close_connections() -> None:
    """Close all connections of this process; stops the servers that were started. A later call opens a new one."""
    background.run(close_all())
    _known_tools.clear()


_known_tools: dict[tuple[Any, ...], dict[str, RemoteTool]] = {}


def _tools_of(server: McpServer, record: ServerRecord) -> dict[str, RemoteTool]:
    """Return a server's tools, asked for once: the episodes after the first are made on the background loop itself."""
    kept = () if record.cache is None else (record.server, record.cache.path, record.cache.mode)
    key = (os.getpid(), server, *kept)
    if key not in _known_tools:
        listed = background.run(record.tools(lambda: _listed(server)))
        _known_tools[key] = {tool.name: tool for tool in listed}
    return _known_tools[key]


async def _listed(server: McpServer) -> list[RemoteTool]:
    tools = await (await connection(server)).tools()
    return [RemoteTool(tool.name, (tool.description or "").strip(), tool.input_schema) for tool in tools]


def _known(name: str, listed: Mapping[str, Any]) -> str:
    if name not in listed:
        near = difflib.get_close_matches(name, listed, n=3, cutoff=0.4) or sorted(listed)
        raise ValueError(f"the server has no tool {name!r}. Did you mean: {', '.join(near)}?")
    return name


def _callable_name(name: str) -> str:
    """Keep to what chat templates take as a function's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _schema(tool: RemoteTool, name: str) -> JsonSchema:
    function = {"name": name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _read(result: mcp.types.CallToolResult) -> Answer:
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and (text := getattr(block.resource, "text", None)) is not None:
            parts.append(text)
        else:
            parts.append(f"({block.type} left out)")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return Answer("\n".join(parts) or "(no output)", "error" if result.is_error else "ok")
