"""Several servers that answer the same requests: which one is asked, and what happens when one does not answer.

A new group goes to the next server in turn and stays there, because that server keeps the keys and values of its
prefixes. When that server fails, the group moves to the next one that works. A request that failed for a passing reason
is repeated as a whole until `patience` has passed since its first failure. A server that fails gets no requests for a
while: half a second, then twice that, up to ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from arpo_env.net import strip_credentials
from arpo_trainer.backends.base import GenerationError
from arpo_trainer.backends.generation_http import RequestFault

T = TypeVar("T")
Attempt = Callable[[str], Awaitable[T]]
logger = logging.getLogger(__name__)
_FIRST_REST, _LONGEST_REST = 0.5, 10.0  # seconds
_DOWN = "Is it running? Look at its output"


@dataclass(eq=False)
class _Server:
    url: str
    faults: int = 0
    rests_until: float = 0.0
    unreachable: bool = False

    @property
    def rest(self) -> float:
        """Seconds until it may get requests again."""
        return max(0.0, self.rests_until - time.monotonic())

    def failed(self, fault: RequestFault, patience: float) -> None:
        """Send it no requests for a while; many requests that fail together count as one failure."""
        if self.rest == 0:
            self.faults += 1
            logger.warning("%s %s; retrying for at most %g s", strip_credentials(self.url), fault.message, patience)
        pause = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (self.faults - 1))
        self.rests_until = max(self.rests_until, time.monotonic() + max(pause, fault.pause))
        self.unreachable = self.unreachable or fault.status is None

    def answered(self) -> None:
        """Use it as usual from now on."""
        if self.unreachable:
            logger.warning(
                "%s answers again. If it was restarted, its weights are those it started with, not those "
                "of the training, until they are next sent",
                strip_credentials(self.url),
            )
        self.faults, self.rests_until, self.unreachable = 0, 0.0, False


class ServerPool:
    """ServerPool that can answer the same requests.

    Args:
        urls: one or more addresses.
        patience: seconds of retrying, from the first failure of a request on.
        cures: what to do about a refusal, by words of its message in lower case.
    """

    def __init__(self, urls: Sequence[str], patience: float, cures: Mapping[str, str]) -> None:
        self.patience, self._cures = patience, cures
        self._servers = [_Server(url) for url in urls]
        self._next = int(os.environ.get("RANK", "0"))  # processes start with different servers
        self._homes: dict[str, _Server] = {}

    def forget_groups(self) -> None:
        """Assign servers to groups anew."""
        self._homes.clear()

    async def ask(self, group: str, attempt: Attempt[T]) -> T:
        """Return the result of `attempt` on the server of this group; it may be called several times.

        Raises:
            GenerationError: a server refused, or none answered in time.
        """
        return await self._persist(lambda: self._home(group), attempt)

    async def ask_all(self, attempt: Attempt[T]) -> list[T]:
        """Return the results of `attempt` on each server.

        Raises:
            GenerationError: one of them refused, or did not answer in time.
        """
        return await asyncio.gather(*(self._persist(_only(server), attempt) for server in self._servers))

    def _home(self, group: str) -> _Server:
        server = self._homes.get(group)
        if server is None or server.rest:
            server = self._turn()
            # requests without a group share no prefixes, so they need no fixed server
            if group:
                self._homes[group] = server
        return server

    def _turn(self) -> _Server:
        """Return the next server that may be used, or the one that may be used first."""
        order = [self._servers[(self._next + number) % len(self._servers)] for number in range(len(self._servers))]
        # `min` takes the first of equals, so servers that do not rest are taken in turn
        server = min(order, key=lambda one: one.rest)
        self._next = self._servers.index(server) + 1
        return server

    async def _persist(self, choose: Callable[[], _Server], attempt: Attempt[T]) -> T:
        server, ends, tries = choose(), 0.0, 0
        while True:
            if server.rest:
                # with some chance in it, or all requests would come back at the same moment
                await asyncio.sleep(min(server.rest, self.patience) * random.uniform(1.0, 1.25))
            tries += 1
            try:
                answer = await attempt(server.url)
            except RequestFault as fault:
                message = self._message(server, fault, tries)
                if not fault.passing:
                    raise GenerationError(message) from fault
                server.failed(fault, self.patience)
                ends, server = ends or time.monotonic() + self.patience, choose()
                # the next try could only begin when the patience is over
                if time.monotonic() + server.rest >= ends:
                    raise GenerationError(message) from fault
            else:
                server.answered()
                return answer

    def _message(self, server: _Server, fault: RequestFault, tries: int) -> str:
        said = f"{strip_credentials(server.url)} {fault.message}"
        cures = (cure for words, cure in self._cures.items() if fault.status and words in fault.message.lower())
        cure = next(cures, "")
        if fault.passing:
            busy = "Ask for less at once, with a lower concurrency" if fault.status == 429 else ""
            return f"{said} ({tries} tries, patience={self.patience:g} s). {busy or cure or _DOWN}"
        return f"{said}. {cure}" if cure else said


def _only(server: _Server) -> Callable[[], _Server]:
    return lambda: server
