"""Tools of an MCP server (Model Context Protocol) as tools of an episode, using the official `mcp` client.

    mcp_tools("npx -y @modelcontextprotocol/server-time")       a command line: speaks MCP over stdin and stdout
    mcp_tools("https://host/mcp", headers={"Authorization": "Bearer ..."})    a URL: streamable HTTP

All episodes of a process share one connection per server. It lives on the background event loop and is closed at exit
or by `close_connections`. The server has one state for all episodes, which is neither reset nor forked with an episode.

With a cache, tool lists and answers are recorded, and replayed without a connection; see `mcp_record`.
"""

from __future__ import annotations

import copy
import json
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arpo_env import event_loop
from arpo_env.services import current_record
from arpo_env.tools.function_schema import JsonSchema
from arpo_env.tools.mcp_connections import ConnectionLost, McpServer, close_all, connection
from arpo_env.tools.mcp_record import McpAnswer, RemoteTool, ServerRecord
from arpo_env.tools.tool import Tool, ToolResult, shorten
from envs_registry.nearest_name import nearest_hint

if TYPE_CHECKING:
    import mcp

    from arpo_env.cache.cache import Cache

RESERVED = ("reset", "step", "state", "close")  # methods of an environment


class McpTool(Tool):
    """One tool of an MCP server; created by `mcp_tools`.

    Args:
        server: the server.
        tool: the tool as listed by the server.
        record: cache of the server's answers.
        name: name under which the model calls the tool.
        timeout: time limit of one call in seconds.
        stateless: calls do not depend on each other, so a call that lost its connection is repeated once on a new one.
        max_characters: longer results are shortened in the middle.
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
        """Call the tool. May be awaited on any event loop.

        Raises:
            ServiceError: the server could not be reached, or the call failed other than by an error of the tool.
            CacheMiss: the cache is in replay mode and the call was not recorded.
        """
        started = time.perf_counter()
        self._called = True
        answer = await self._record.call(self._remote, arguments, lambda: self._ask(arguments), self._history())
        return ToolResult(shorten(answer.text, self._max_characters), answer.status, time.perf_counter() - started)

    def _history(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Return the earlier calls of the episode on which this call may depend."""
        if self._stateless:
            return None
        return [(call.name, call.arguments) for call in self.earlier_calls if call.shared_state == self.shared_state]

    async def _ask(self, arguments: dict[str, Any]) -> McpAnswer:
        try:
            result = await event_loop.run_on_loop(self._call(arguments))
        except ConnectionLost:
            # only stateless calls may be repeated, since the lost call may have been executed
            if not self._stateless:
                raise
            result = await event_loop.run_on_loop(self._call(arguments))
        return _read(result) if result else McpAnswer(f"(no answer within {self._timeout:g} s)", "timeout")

    async def _call(self, arguments: dict[str, Any]) -> mcp.types.CallToolResult | None:
        link = await connection(self._server)
        return await link.call(self._remote, arguments, self._timeout)

    async def reset(self, setup: str) -> None:
        """Do nothing, since other episodes share the state of the server."""

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools that share the connection and thus the state of the server.

        This is exact for `stateless` tools and in replays. Other tools warn if they were called before the fork.
        """
        if self._called and not self.repeatable:
            warnings.warn(
                f"the MCP tool {self.name!r} was forked, but the state of its server cannot be forked: all branches "
                "share it. If calls do not depend on each other, use mcp_tools(..., stateless=True)",
                RuntimeWarning,
                stacklevel=2,
            )
        return [copy.copy(self) for _ in range(n)]

    async def close(self) -> None:
        """Do nothing, since the connection belongs to the process."""


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
        server: a command line, or an http(s) URL.
        allow: names of the tools to take, as listed by the server; None takes all.
        prefix: prepended to each name, for example `time_`.
        timeout: time limit of one call in seconds.
        stateless: calls do not depend on each other; see `McpTool`.
        max_characters: longer results are shortened in the middle.
        env: additional environment variables of the command; it inherits only PATH, HOME and a few more.
        headers: HTTP headers of requests to a URL.
        cache: where tool lists and answers are recorded; defaults to the cache of the environment that uses the tools.
        record_as: name of the server in the cache; defaults to its command line or URL with secrets redacted. Useful
            for secrets that cannot be recognised, and for paths that differ between machines.

    Raises:
        CacheMiss: the cache is in replay mode and the tools of the server were not recorded.
        ValueError: a name is reserved, duplicated or unknown, or an option belongs to the other kind of server.
        ServiceError: the server could not be started or reached.
        RuntimeError: the `mcp` package is not installed.
    """
    where = McpServer.parse(server, env or {}, headers or {})
    record = ServerRecord(record_as or where.identity, cache or current_record())
    listed = _list_tools(where, record)
    wanted = list(listed) if allow is None else [_check_listed(name, listed) for name in allow]
    names = {name: _callable_name(prefix + name) for name in wanted}
    for name, ours in names.items():
        if ours in RESERVED:
            raise ValueError(
                f"the tool name {ours!r} is reserved; set a prefix such as prefix='mcp_', or exclude it by `allow`"
            )
        if list(names.values()).count(ours) > 1:
            raise ValueError(f"two tools of {where} would be named {ours!r}; exclude {name!r} or the other by `allow`")
    return [
        McpTool(where, listed[name], record, ours, timeout, stateless, max_characters) for name, ours in names.items()
    ]


def close_connections() -> None:
    """Close all connections of this process and stop the servers it started. Later calls open new connections."""
    event_loop.run(close_all())
    _known_tools.clear()


_known_tools: dict[tuple[Any, ...], dict[str, RemoteTool]] = {}


def _list_tools(server: McpServer, record: ServerRecord) -> dict[str, RemoteTool]:
    """Return the tools of a server, listed once per process.

    Later episodes may be created on the background loop, where blocking on that loop would deadlock.
    """
    # recorded and live tool lists of the same server may differ
    kept = () if record.cache is None else (record.server, record.cache.path, record.cache.mode)
    key = (os.getpid(), server, *kept)
    if key not in _known_tools:
        listed = event_loop.run(record.tools(lambda: _ask_for_tools(server)))
        _known_tools[key] = {tool.name: tool for tool in listed}
    return _known_tools[key]


async def _ask_for_tools(server: McpServer) -> list[RemoteTool]:
    tools = await (await connection(server)).tools()
    return [RemoteTool(tool.name, (tool.description or "").strip(), tool.input_schema) for tool in tools]


def _check_listed(name: str, listed: Mapping[str, Any]) -> str:
    if name not in listed:
        hint = nearest_hint(name, listed, " Did you mean {!r}?", likeness=0.4)
        raise ValueError(f"the server has no tool {name!r}; available: {', '.join(sorted(listed))}.{hint}")
    return name


def _callable_name(name: str) -> str:
    """Replace characters that chat templates do not accept in function names."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _schema(tool: RemoteTool, name: str) -> JsonSchema:
    function = {"name": name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _read(result: mcp.types.CallToolResult) -> McpAnswer:
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
    return McpAnswer("\n".join(parts) or "(no output)", "error" if result.is_error else "ok")
