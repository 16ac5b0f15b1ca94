"""The clients of a sandbox server: whom a token stands for, and how many sessions each may have open.

A token names its client. Without any token, which only a server on loopback may do, all requests come from one client.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.http.token_rules import check_token, sends_token

_DANGER = "run code in the sandbox"
_VARIABLE = "ARPO_SANDBOX_TOKEN"


@dataclass(frozen=True)
class Client:
    """One client of a server.

    Attributes:
        name: for the log and for messages.
        token: what its requests send; empty if the server needs none.
        sessions: how many sessions it may have open, not counting their forks; None for all of the server's.
    """

    name: str
    token: str = field(default="", repr=False)
    sessions: int | None = None


class ClientTable:
    """The clients of one server.

    Args:
        clients: all of them; a single one without a token stands for everybody.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = tuple(clients)

    @property
    def needs_token(self) -> bool:
        """Whether requests have to send a token."""
        return any(client.token for client in self._clients)

    def find(self, authorization: str) -> Client | None:
        """Return the client that an Authorization header names; takes the same time for any wrong token."""
        if not self.needs_token:
            return self._clients[0]
        found = [client for client in self._clients if sends_token(authorization, client.token)]
        return found[0] if found else None

    def check(self, host: str) -> None:
        """Check the tokens before a server listens on an address.

        Raises:
            ValueError: others can reach the address and there is no token, or a header cannot hold one of the tokens.
        """
        for client in self._clients:
            check_token(host, client.token, _VARIABLE, _DANGER)


def clients_of(token: str = "", file: Path | None = None) -> ClientTable:
    """Return the clients that a token or a file names.

    Args:
        token: of a single client; empty for none.
        file: has a line "NAME TOKEN" or "NAME TOKEN SESSIONS" for each client; "#" begins a comment.

    Raises:
        ValueError: both are given, or the file is malformed, or others can read it.
        OSError: the file cannot be read.
    """
    if file is None:
        return ClientTable([Client("client", token)])
    if token:
        raise ValueError(f"give either a token ({_VARIABLE} or --token) or a file of clients (--clients), not both")
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"other users may read {file}, which holds tokens: run chmod 600 {file}")
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    rows = [(number, text.partition("#")[0].split()) for number, text in lines]
    clients = [_client(f"{file}, line {number}", words) for number, words in rows if words]
    if not clients:
        raise ValueError(f"{file} names no client; write a line 'NAME TOKEN [SESSIONS]' for each")
    for what in ("name", "token"):
        if len({getattr(client, what) for client in clients}) < len(clients):
            raise ValueError(f"{file} has the same {what} twice; each client needs its own")
    return ClientTable(clients)


def _client(where: str, words: list[str]) -> Client:
    if not 2 <= len(words) <= 3:
        raise ValueError(f"{where}: {len(words)} words; write 'NAME TOKEN' or 'NAME TOKEN SESSIONS'")
    if len(words) == 2:
        return Client(words[0], words[1])
    if not (words[2].isascii() and words[2].isdigit() and int(words[2][:9]) > 0):
        raise ValueError(f"{where}: {words[2]!r} sessions; it has to be a whole number, at least 1")
    return Client(words[0], words[1], int(words[2]))
