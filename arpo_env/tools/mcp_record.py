"""An MCP server in the record: what it lists and what its tools answer, asked for, recorded, or replayed.

A replay starts no process, makes no connection, and does not need the `mcp` package.

What a recording of a call means depends on the server. If no call depends on another (`stateless`), the answer belongs
to tool and arguments. Otherwise it belongs to them and to all calls of this server that the episode made before, in
their order; branches of an episode have different histories from their first different call on. A recorder makes each
call of such a server, whatever was recorded before, since the call may change something there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arpo_env.cache.cache import Cache
from arpo_env.cache.sqlite_store import canonical
from arpo_env.tools.tool import Status

VERSION = 1  # of the requests below
KIND = "mcp"


@dataclass(frozen=True)
class RemoteTool:
    """A tool as its server lists it."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a call gave: the text for the model, and how it ended."""

    text: str
    status: Status


class _Failed(Exception):
    """A call of a stateless tool ended badly; it is not served again."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer


class ServerRecord:
    """What a cache knows of one server.

    Args:
        server: its name in the record.
        cache: None keeps nothing, and asks each time.
    """

    def __init__(self, server: str, cache: Cache | None) -> None:
        self.server = server
        self.cache = None if cache is None or cache.mode == "live" else cache

    @property
    def replayed(self) -> bool:
        """Whether nothing is asked of the server."""
        return self.cache is not None and self.cache.mode == "replay"

    async def tools(self, ask: Callable[[], Awaitable[list[RemoteTool]]]) -> list[RemoteTool]:
        """Return the server's tools. Recording asks each time, and keeps the last list."""
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
        ask: Callable[[], Awaitable[Answer]],
        history: Sequence[tuple[str, dict[str, Any]]] | None,
    ) -> Answer:
        """Return what a tool answers.

        Args:
            tool: the server's name of it.
            arguments: as JSON.
            ask: calls it.
            history: the calls of this server before, by name and arguments; None if they do not matter.

        Raises:
            CacheMiss: it is a replay, and this call was not recorded.
        """
        if self.cache is None:
            return await ask()
        request: dict[str, Any] = {"tool": tool, "arguments": arguments}
        if history is None:
            return await self._by_itself(request, ask)
        digest = hashlib.sha256(canonical([list(call) for call in history]).encode()).hexdigest()
        request |= {"calls before": len(history), "history": digest}

        async def row() -> dict[str, Any]:
            return asdict(await ask())

        return Answer(**await self.cache.through(KIND, self.server, VERSION, request, row, always=True))

    async def _by_itself(self, request: dict[str, Any], ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return what does not depend on other calls; errors and time-outs are noted for a replay alone."""
        assert self.cache is not None

        async def row() -> dict[str, Any]:
            answer = await ask()
            if answer.status != "ok":
                raise _Failed(answer)
            return asdict(answer)

        try:
            return Answer(**await self.cache.through(KIND, self.server, VERSION, request, row))
        except _Failed as failure:
            await self.cache.note(KIND, self.server, VERSION, request, asdict(failure.answer))
            return failure.answer
