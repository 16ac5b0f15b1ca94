"""Records and replays an MCP server: the list of its tools and the answers of its calls.

A replay starts no process, opens no connection, and does not need the `mcp` package.

The cache key of a call depends on the server. If calls do not depend on each other (`stateless`), the key is the tool
and its arguments. Otherwise the key also contains all earlier calls of the episode to this server, in order, so that
branches of an episode have different keys after their first different call. In record mode, every call to a stateful
server is executed even if it is already recorded, because the call may change the state of the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arpo_env.cache.cache import Cache
from arpo_env.cache.sqlite_store import canonical
from arpo_env.tools.tool import Status

VERSION = 1  # format of the requests below; part of the cache key
KIND = "mcp"


@dataclass(frozen=True)
class RemoteTool:
    """A tool as listed by its server."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class McpAnswer:
    """The result of a call: the text for the model and the status."""

    text: str
    status: Status


class _Failed(Exception):
    """Carries the answer of a failed stateless call past the cache, so that it is not stored as a success."""

    def __init__(self, answer: McpAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


class ServerRecord:
    """The recorded tools and answers of one server.

    Args:
        server: name of the server in the cache.
        cache: where answers are stored; None disables recording.
    """

    def __init__(self, server: str, cache: Cache | None) -> None:
        self.server = server
        self.cache = None if cache is None or cache.mode == "live" else cache

    @property
    def replayed(self) -> bool:
        """Whether all answers come from the cache."""
        return self.cache is not None and self.cache.mode == "replay"

    async def tools(self, ask: Callable[[], Awaitable[list[RemoteTool]]]) -> list[RemoteTool]:
        """Return the tools of the server. Record mode always asks the server and keeps the latest list."""
        if self.cache is None:
            return await ask()

        async def rows() -> list[dict[str, Any]]:
            return [asdict(tool) for tool in await ask()]

        listed = await self.cache.through(KIND, self.server, VERSION, {"list": "tools"}, rows, always=True)
        return [RemoteTool(**row) for row in listed]

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        ask: Callable[[], Awaitable[McpAnswer]],
        history: Sequence[tuple[str, dict[str, Any]]] | None,
    ) -> McpAnswer:
        """Return the answer of a tool.

        Args:
            tool: name of the tool at the server.
            arguments: JSON object.
            ask: executes the call.
            history: earlier calls to this server (name and arguments); None if they do not matter.

        Raises:
            CacheMiss: the cache is in replay mode and the call was not recorded.
        """
        if self.cache is None:
            return await ask()
        request: dict[str, Any] = {"tool": tool, "arguments": arguments}
        if history is None:
            return await self._call_stateless(request, ask)
        # A hash keeps keys short, since every call of an episode repeats its whole history.
        digest = hashlib.sha256(canonical([list(call) for call in history]).encode()).hexdigest()
        request |= {"calls before": len(history), "history": digest}

        async def row() -> dict[str, Any]:
            return asdict(await ask())

        return McpAnswer(**await self.cache.through(KIND, self.server, VERSION, request, row, always=True))

    async def _call_stateless(self, request: dict[str, Any], ask: Callable[[], Awaitable[McpAnswer]]) -> McpAnswer:
        """Return the answer of a stateless call. Errors and time-outs are stored for replays only."""
        assert self.cache is not None

        async def row() -> dict[str, Any]:
            answer = await ask()
            if answer.status != "ok":
                raise _Failed(answer)
            return asdict(answer)

        try:
            return McpAnswer(**await self.cache.through(KIND, self.server, VERSION, request, row))
        except _Failed as failure:
            await self.cache.note(KIND, self.server, VERSION, request, asdict(failure.answer))
            return failure.answer
