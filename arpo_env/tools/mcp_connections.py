"""Connections to MCP servers: one per server and process, opened at first use and closed at exit.

Everything here runs on the background event loop. The `mcp` client must be opened and closed in the same task, so each
connection has its own task. The calls of all episodes share the connection and run concurrently.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from arpo_env import event_loop
from arpo_env.errors import ServiceError
from arpo_env.net.redaction import redact_logs, strip_credentials
from arpo_env.tools.mcp_identity import identity
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import mcp

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
        return f"MCP server {strip_credentials(self.url) if self.url else identity(self.command, '', (), ())}"

    @property
    def identity(self) -> str:
        """Name of the server in a cache, without secrets."""
        return identity(self.command, self.url, self.env, self.headers)

    @classmethod
    def parse(cls, text: str, env: Mapping[str, str], headers: Mapping[str, str]) -> McpServer:
        """Parse a command line or a URL.

        Raises:
            ValueError: the text is neither, or `env` was given for a URL, or `headers` for a command.
        """
        if text.lower().startswith(("http://", "https://")):
            if env:
                raise ValueError(f"{strip_credentials(text)} is a URL, which takes `headers`, not `env`")
            return cls(url=text, headers=tuple(sorted(headers.items())))
        if headers:
            raise ValueError(f"{text!r} is a command, which takes `env`, not `headers`; a URL begins with http")
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

        try:
            return asked.result()
        except mcp.MCPError as error:
            return self._handle_mcp_error(error)
        except Exception as error:  # as above; also a result that violates the tool's output schema
            raise ServiceError(str(self._server), f"{type(error).__name__}: {error}") from error

    def _handle_mcp_error(self, error: mcp.MCPError) -> Any:
        from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

        if error.code == INVALID_PARAMS:  # a mistake of the model, not an infrastructure failure
            return CallToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)
        if error.code in (
            CONNECTION_CLOSED,
            INVALID_REQUEST,
        ):  # servers send INVALID_REQUEST when the session has expired
            self._closing.set()
            raise ConnectionLost(str(self._server), f"the connection was lost ({error.message})") from error
        raise ServiceError(str(self._server), f"error {error.code}: {error.message}") from error

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


_connections: dict[
    tuple[int, McpServer], McpConnection
] = {}  # keyed by process id, since a forked child cannot use its parent's connections


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
