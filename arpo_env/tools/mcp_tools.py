"""Tools of an MCP server (Model Context Protocol) as tools of an episode, using the official `mcp` client.

    mcp_tools("npx -y @modelcontextprotocol/server-time")       a command line: speaks MCP over stdin and stdout
    mcp_tools("https://host/mcp", headers={"Authorization": "Bearer ..."})    a URL: streamable HTTP

All episodes of a process share one connection per server. It lives on the background event loop and is closed at exit
or by `close_connections`. The server has one state for all episodes, which is neither reset nor forked with an episode.
With a cache, tool lists and answers are recorded; a replay opens no connection and does not need the `mcp` package.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import hashlib
import json
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from arpo_env import event_loop
from arpo_env.cache import Cache, canonical
from arpo_env.errors import ServiceError
from arpo_env.net import canonical_address, redact_logs, strip_credentials
from arpo_env.services import current_record
from arpo_env.tools.tool import SharedTool, Tool, ToolResult, shorten
from envs_registry.install_line import install_line
from envs_registry.nearest_name import nearest_hint

if TYPE_CHECKING:
    import mcp

_MAX_CHARACTERS = 8000  # longer results are shortened in the middle
# Secrets of a command line or address: what a secret's name stands before, the login of an address, keys of known
# services. A secret without a name cannot be recognised; such a server gets a name by `mcp_tools(..., record_as=...)`.
_SECRET_NAME = (
    r"(?:key|token|secret|password|passwd|pwd|passphrase|auth|authorization|bearer|credential|cookie|signature|jwt)s?"
)
_SECRET = re.compile(
    rf"(?P<name>{_SECRET_NAME}(?:=|:\s*+(?:Bearer\s)?))[^&]+"
    r"|(?<=://)[^/@\s]+(?=@)|\b(?:sk|pk|rk|hf|gh[a-z]|github_pat|glpat|xox[a-z]|AKIA|AIza|tvly)[-_]?[\w-]{16,}",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(rf"(-.*{_SECRET_NAME})\s*+", re.IGNORECASE)


# Connections to MCP servers: one per server and process, opened at first use and closed at exit.
#
# Everything here runs on the background event loop. The `mcp` client must be opened and closed in the same task, so
# each connection has its own task. The calls of all episodes share the connection and run concurrently.

_CONNECT = 60.0  # seconds; `npx` and the like download the server at the first start
_CLOSE = 10.0
_SSE_READ = 600.0  # seconds without data on a stream; calls have their own, shorter time limit


class ConnectionLost(ServiceError):
    """Raised when the connection broke; the next call opens a new one."""


@dataclass(frozen=True)
class McpServer:
    """An MCP server: a command to start with its environment variables, or a URL with its headers."""

    command: tuple[str, ...] = field(default=(), repr=False)  # may contain an API key, as may all fields
    url: str = field(default="", repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"MCP server {strip_credentials(self.url) if self.url else _without_secrets(self.command)}"

    @property
    def identity(self) -> str:
        """Name of the server in a cache, without secrets."""
        given = [f"{name}={value}" for name, value in (*self.env, *self.headers)]
        public = [pair for pair in given if not re.search(rf"{_SECRET_NAME}\Z", pair.partition("=")[0], re.IGNORECASE)]
        return _without_secrets([*public, *(self.command or [canonical_address(self.url.partition("#")[0])])])

    @classmethod
    def parse(cls, text: str, env: Mapping[str, str], headers: Mapping[str, str]) -> McpServer:
        """Parse a command line or a URL."""
        if text.lower().startswith(("http://", "https://")):
            return cls(url=text, headers=tuple(sorted(headers.items())))
        try:
            command = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{text} is not a valid command line: {error}") from error
        if not command:
            raise ValueError("give an MCP server as a command line, or as a URL that begins with http")
        return cls(command=tuple(command), env=tuple(sorted(env.items())))

    @asynccontextmanager
    async def client(self, errors: IO[str]) -> AsyncIterator[mcp.Client]:
        """Connect to the server; the stderr of a started server is written to `errors`."""
        try:
            import httpx2
            import mcp
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client
        except ImportError as error:  # `Client` is new in version 2
            raise RuntimeError(f"MCP servers need mcp 2: {install_line('mcp')}") from error
        if self.command:
            program, *arguments = self.command
            parameters = mcp.StdioServerParameters(command=program, args=arguments, env=dict(self.env))
            async with Client(mcp.stdio_client(parameters, errlog=errors)) as client:  # type: ignore[arg-type]
                yield client
            return
        redact_logs()
        limits = httpx2.Timeout(30.0, read=_SSE_READ)
        async with (
            httpx2.AsyncClient(headers=dict(self.headers), timeout=limits) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client


def _without_secrets(words: Sequence[str]) -> str:
    shown: list[str] = []
    for word in words:
        follows = bool(shown) and _SECRET_OPTION.fullmatch(shown[-1]) and not word.startswith("-")
        shown.append("***" if follows else _SECRET.sub(lambda found: f"{found['name'] or ''}***", word))
    return " ".join(shown)


class McpConnection:
    """An open connection. Must be created on the background event loop."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        # The future lets callers wait for the connection, which the task below opens and closes.
        self._client: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def usable(self) -> bool:
        """Whether calls can still use this connection."""
        return not (self._task.done() or self._closing.is_set())

    async def tools(self) -> list[mcp.Tool]:
        """List the server's tools."""
        client = await self._wait_until_open()
        tools, cursor = [], None
        while True:
            page = await self._wait_for(client.list_tools(cursor=cursor), _CONNECT)
            if page is None:
                raise ServiceError(str(self._server), f"no list of tools within {_CONNECT:g} s")
            tools += page.tools
            if (cursor := page.next_cursor) is None:
                return tools

    async def call(self, tool: str, arguments: dict[str, Any], timeout: float) -> mcp.types.CallToolResult | None:
        """Call a tool; return None if it took longer than `timeout` seconds."""
        client = await self._wait_until_open()
        result: mcp.types.CallToolResult | None = await self._wait_for(client.call_tool(tool, arguments), timeout)
        return result

    async def close(self) -> None:
        """Close the connection, and stop the server if it was started here."""
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_CLOSE)
        self._task.cancel()

    async def _run(self) -> None:
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            try:
                async with self._server.client(errors) as client:
                    self._client.set_result(client)
                    await self._closing.wait()
            except Exception as error:  # the exceptions of a transport are not documented
                if not self._client.done():
                    self._client.set_exception(self._connection_error(error, errors))
            finally:
                self._closing.set()
                self._client.cancel()

    async def _wait_until_open(self) -> mcp.Client:
        await asyncio.wait({self._client}, timeout=_CONNECT)
        if not self._client.done():
            self._task.cancel()
            raise ServiceError(str(self._server), f"no connection within {_CONNECT:g} s")
        if self._client.cancelled():
            raise ConnectionLost(str(self._server), "the connection was closed")
        return self._client.result()

    async def _wait_for(self, request: Any, seconds: float) -> Any:
        """Wait until the request is done, the connection ends, or the time limit is reached (returns None)."""
        asked = asyncio.ensure_future(request)
        try:
            # A lost connection ends the task, while the request may never be answered.
            await asyncio.wait({asked, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return self._result(asked)
            if self._task.done():
                raise ConnectionLost(str(self._server), "the connection was lost")
            return None
        finally:
            asked.cancel()

    def _result(self, asked: asyncio.Future[Any]) -> Any:
        import mcp
        from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

        try:
            return asked.result()
        except mcp.MCPError as error:
            if error.code == INVALID_PARAMS:  # a mistake of the model, not an infrastructure failure
                return CallToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)
            if error.code in (CONNECTION_CLOSED, INVALID_REQUEST):  # the latter when the session has expired
                self._closing.set()
                raise ConnectionLost(str(self._server), f"the connection was lost ({error.message})") from error
            raise ServiceError(str(self._server), f"error {error.code}: {error.message}") from error
        except Exception as error:  # of the transport, or a result that violates the tool's output schema
            raise ServiceError(str(self._server), f"{type(error).__name__}: {error}") from error

    def _connection_error(self, error: Exception, errors: IO[str]) -> Exception:
        if isinstance(error, RuntimeError) and "pip install" in str(error):
            return error
        # task groups inside the client wrap the cause several times
        while isinstance(error, BaseExceptionGroup) and isinstance(error.exceptions[0], Exception):
            error = error.exceptions[0]
        errors.seek(0)
        said = " ".join(errors.read()[-500:].split())
        wrote = f" Its stderr ends with: {said}" if said else ""
        failed = ServiceError(str(self._server), f"no connection ({type(error).__name__}: {error}).{wrote}")
        failed.__cause__ = error
        return failed


# keyed by process id, since a forked child cannot use its parent's connections
_connections: dict[tuple[int, McpServer], McpConnection] = {}


async def connection(server: McpServer) -> McpConnection:
    """Return the connection to a server; opens one if there is none or it was lost. Runs on the background loop."""
    key = (os.getpid(), server)
    if key not in _connections or not _connections[key].usable:
        _connections[key] = McpConnection(server)
        _close_at_exit()
    return _connections[key]


async def close_all() -> None:
    """Close the connections of this process. Runs on the background loop."""
    mine = [key for key in _connections if key[0] == os.getpid()]
    await asyncio.gather(*(_connections.pop(key).close() for key in mine))


@functools.lru_cache(1)
def _close_at_exit() -> None:
    atexit.register(lambda: event_loop.run(close_all()))


# The record of a server: the list of its tools and the answers of its calls.
#
# If calls do not depend on each other (`stateless`), the key of a call is the tool and its arguments. Otherwise it also
# contains all earlier calls of the episode to this server, in order, so that branches of an episode have different keys
# after their first different call. In record mode, every call to a stateful server is executed even if it is already
# recorded, because the call may change the state of the server.

VERSION = 1  # format of the requests below; part of the cache key
Row = dict[str, Any]  # {"name", "description", "parameters"} of a tool, or {"text", "status"} of an answer


@dataclass(frozen=True)
class ServerRecord:
    """The recorded tools and answers of one server; without a cache every call goes through."""

    server: str
    cache: Cache | None

    @property
    def replayed(self) -> bool:
        """Whether all answers come from the cache."""
        return self.cache is not None and self.cache.mode == "replay"

    async def tools(self, ask: Callable[[], Awaitable[list[Row]]]) -> Any:
        """Return the tools of the server. Record mode always asks the server and keeps the latest list."""
        return await self._through({"list": "tools"}, ask, always=True)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        ask: Callable[[], Awaitable[Row]],
        history: Sequence[tuple[str, dict[str, Any]]] | None,
    ) -> Any:
        """Return the answer of a tool; `history` are the calls before it, None for a stateless server."""
        request: dict[str, Any] = {"tool": tool, "arguments": arguments}
        if history is None:  # errors and time-outs are asked for again, and are for replays only
            return await self._through(request, ask, lifetime=lambda answer: None if answer["status"] == "ok" else 0.0)
        # A hash keeps keys short, since every call of an episode repeats its whole history.
        digest = hashlib.sha256(canonical([list(call) for call in history]).encode()).hexdigest()
        return await self._through({**request, "calls before": len(history), "history": digest}, ask, always=True)

    async def _through(self, request: dict[str, Any], ask: Callable[[], Awaitable[Any]], **how: Any) -> Any:
        if self.cache is None:
            return await ask()
        return await self.cache.through("mcp", self.server, VERSION, request, ask, **how)


RESERVED = ("reset", "step", "state", "close")  # methods of an environment


class McpTool(SharedTool):
    """One tool of an MCP server; created by `mcp_tools`.

    `stateless`: calls do not depend on each other, so a call that lost its connection is repeated once on a new one.
    """

    voids = keeps_time = True

    def __init__(
        self, server: McpServer, tool: Row, record: ServerRecord, name: str, timeout: float, stateless: bool
    ) -> None:
        self.name, self.schema = name, {"type": "function", "function": {**tool, "name": name}}
        self._server, self._remote, self._record = server, str(tool["name"]), record
        self._timeout, self._stateless, self._called = timeout, stateless, False
        self.repeatable = stateless or record.replayed
        self.shared_state = "" if stateless else f"MCP server {record.server}"

    async def call(self, **arguments: Any) -> ToolResult:
        """Call the tool. May be awaited on any event loop.

        Raises:
            ServiceError: the server could not be reached, or the call failed other than by an error of the tool.
            CacheMiss: the cache is in replay mode and the call was not recorded.
        """
        self._called = True
        answer = await self._record.call(self._remote, arguments, lambda: self._ask(arguments), self._history())
        return ToolResult(shorten(answer["text"], _MAX_CHARACTERS), answer["status"])

    def _history(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Return the earlier calls of the episode on which this call may depend."""
        if self._stateless:
            return None
        return [(call.name, call.arguments) for call in self.earlier_calls if call.shared_state == self.shared_state]

    async def _ask(self, arguments: dict[str, Any]) -> Row:
        try:
            result = await event_loop.run_on_loop(self._call(arguments))
        except ConnectionLost:
            # only stateless calls may be repeated, since the lost call may have been executed
            if not self._stateless:
                raise
            result = await event_loop.run_on_loop(self._call(arguments))
        return _read(result) if result else {"text": f"(no answer within {self._timeout:g} s)", "status": "timeout"}

    async def _call(self, arguments: dict[str, Any]) -> mcp.types.CallToolResult | None:
        link = await connection(self._server)
        return await link.call(self._remote, arguments, self._timeout)

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
        return await super().fork(n)


def mcp_tools(
    server: str,
    *,
    allow: Sequence[str] | None = None,
    prefix: str = "",
    timeout: float = 60.0,
    stateless: bool = False,
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
        env: additional environment variables of the command; it inherits only PATH, HOME and a few more.
        headers: HTTP headers of requests to a URL.
        cache: where tool lists and answers are recorded; defaults to the cache of the environment that uses the tools.
        record_as: name of the server in the cache; defaults to its command line or URL with secrets redacted. Useful
            for secrets that cannot be recognised, and for paths that differ between machines.

    Raises:
        CacheMiss: the cache is in replay mode and the tools of the server were not recorded.
        ValueError: a name is reserved, duplicated or unknown.
        ServiceError: the server could not be started or reached.
        RuntimeError: the `mcp` package is not installed.
    """
    where = McpServer.parse(server, env or {}, headers or {})
    record = ServerRecord(record_as or where.identity, cache or current_record())
    listed = _list_tools(where, record)
    names: dict[str, str] = {}
    for name in listed if allow is None else allow:
        if name not in listed:
            hint = nearest_hint(name, listed, " Did you mean {!r}?", likeness=0.4)
            raise ValueError(f"the server has no tool {name!r}; available: {', '.join(sorted(listed))}.{hint}")
        ours = re.sub(r"[^A-Za-z0-9_-]", "_", prefix + name)  # chat templates accept no other characters
        if ours in RESERVED:
            raise ValueError(
                f"the tool name {ours!r} is reserved; set a prefix such as prefix='mcp_', or exclude it by `allow`"
            )
        if ours in names.values():
            raise ValueError(f"two tools of {where} would be named {ours!r}; exclude {name!r} or the other by `allow`")
        names[name] = ours
    return [McpTool(where, listed[name], record, ours, timeout, stateless) for name, ours in names.items()]


def close_connections() -> None:
    """Close all connections of this process and stop the servers it started. Later calls open new connections."""
    event_loop.run(close_all())
    _known_tools.clear()


_known_tools: dict[tuple[Any, ...], dict[str, Row]] = {}


def _list_tools(server: McpServer, record: ServerRecord) -> dict[str, Row]:
    """Return the tools of a server, listed once per process.

    Later episodes may be created on the background loop, where blocking on that loop would deadlock.
    """
    # recorded and live tool lists of the same server may differ
    kept = () if record.cache is None else (record.server, record.cache.path, record.cache.mode)
    key = (os.getpid(), server, *kept)
    if key not in _known_tools:
        listed = event_loop.run(record.tools(lambda: _ask_for_tools(server)))
        _known_tools[key] = {tool["name"]: tool for tool in listed}
    return _known_tools[key]


async def _ask_for_tools(server: McpServer) -> list[Row]:
    tools = await (await connection(server)).tools()
    return [
        {"name": tool.name, "description": (tool.description or "").strip(), "parameters": tool.input_schema}
        for tool in tools
    ]


def _read(result: mcp.types.CallToolResult) -> Row:
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
    return {"text": "\n".join(parts) or "(no output)", "status": "error" if result.is_error else "ok"}
