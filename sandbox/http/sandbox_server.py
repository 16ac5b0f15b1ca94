"""The server of `arpo sandbox serve`: sessions that can be forked, and SandboxFusion's `POST /run_code`.

`GET /v1/openapi.json` describes the interface to sessions. The connection is not encrypted: where others can listen,
put a proxy with TLS in front of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.backends.http_backend import is_http_address
from sandbox.connection import start_thread
from sandbox.errors import SandboxFull
from sandbox.http.json_server import JsonHandler, JsonServer
from sandbox.http.run_code_endpoint import BadRequest, openapi, run_code
from sandbox.http.session_api import Client, ClientTable, HostedSessions, SessionApi, check_idle_seconds, clients_of
from sandbox.options import Limits
from sandbox.sandbox import PoolOptions, Sandbox

IDLE_SECONDS = 900.0
_HOST, _PORT = "127.0.0.1", 8080
_log = logging.getLogger(__name__)


class _Handler(JsonHandler):
    post_path = "/run_code"
    healthy_paths = ("/", "/v1/ping", "/health")
    sandbox: Sandbox
    clients: ClientTable
    sessions: HostedSessions
    api: SessionApi
    client: Client  # of the current request

    def state(self) -> dict[str, Any]:
        return {"status": "ok", "isolation": self.sandbox.isolation, **self.sandbox.stats()}

    def fault(self, message: str) -> dict[str, Any]:
        return {"status": "SandboxError", "failure": "SandboxError", "message": message}

    def page(self, path: str) -> dict[str, Any] | None:
        return openapi() if path == "/v1/openapi.json" else super().page(path)

    def takes(self, path: str) -> bool:
        return super().takes(path) or self.api.takes(path)

    def allows(self, authorization: str) -> bool:
        client = self.clients.find(authorization)
        if client is not None:
            self.client = client
        return client is not None

    def respond(self, body: bytes) -> tuple[int, dict[str, Any]]:
        path = self.path.rstrip("/")
        return self._run_code(body) if path == self.post_path else self.api.answer(self.client, path, body)

    def _run_code(self, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise BadRequest("the body has to be a JSON object")
            with self.sessions.slot(self.client):
                return 200, run_code(self.sandbox, request)
        except SandboxFull as error:
            return 504, self.fault(str(error))
        # malformed JSON and BadRequest are ValueErrors; deep nesting is a RecursionError
        except (ValueError, RecursionError) as error:
            return 400, self.fault(str(error))


class SandboxServer(JsonServer):
    """Serves a sandbox, and closes sessions that are idle.

    Args:
        address: host and port.
        handler: for each connection.
        sessions: of the clients.
    """

    def __init__(self, address: tuple[str, int], handler: type[_Handler], sessions: HostedSessions) -> None:
        self.sessions = sessions  # first, since an address that cannot be bound calls `server_close`
        super().__init__(address, handler)
        start_thread("sandbox idle sessions", sessions.watch)

    def server_close(self) -> None:
        """Release the address. The sessions end with the sandbox."""
        self.sessions.end()
        super().server_close()


def make_server(
    sandbox: Sandbox,
    host: str = _HOST,
    port: int = _PORT,
    token: str = "",
    clients: ClientTable | None = None,
    idle_seconds: float = IDLE_SECONDS,
) -> SandboxServer:
    """Return a server that is bound and does not serve yet.

    Args:
        sandbox: where to run.
        host: the address to listen on.
        port: 0 chooses a free one.
        token: what requests have to send; not needed on loopback.
        clients: instead of one token, those of several clients.
        idle_seconds: a session that was not used for this long is closed.

    Raises:
        ValueError: the address can be reached by others and there is no token, a header cannot hold the token, or the
            idle time is not positive.
        OSError: the address cannot be listened on.
    """
    known = clients_of(token) if clients is None else clients
    known.check(host)
    check_idle_seconds(idle_seconds)
    sessions = HostedSessions(sandbox, idle_seconds)
    # the values go into a class, since the server makes a new handler for each connection
    values = {"sandbox": sandbox, "clients": known, "sessions": sessions, "api": SessionApi(sessions)}
    return SandboxServer((host, port), type("Handler", (_Handler,), values), sessions)


def serve(
    host: str = _HOST,
    port: int = _PORT,
    containers: int = 4,
    sessions: int = 64,
    token: str = "",
    clients_file: Path | None = None,
    idle_seconds: float = IDLE_SECONDS,
    backend: str = "auto",
    profile: str = "math",
    limits: Limits | None = None,
    packages: Sequence[str] = (),
) -> None:
    """Serve until interrupted; see `make_server`, `clients_of` and `Sandbox`."""
    clients = clients_of(token, clients_file)
    # before containers are started, which takes seconds
    clients.check(host)
    check_idle_seconds(idle_seconds)
    if is_http_address(backend):
        raise ValueError(f"a sandbox server cannot serve {backend}; choose a backend of this machine")
    options: PoolOptions = {"containers": containers, "sessions": sessions, "profile": profile, "packages": packages}
    with Sandbox.open_sync(backend, limits, **options) as sandbox:
        server = make_server(sandbox, host, port, clients=clients, idle_seconds=idle_seconds)
        address, bound = server.server_address[:2]
        shown = f"[{address!s}]" if ":" in str(address) else address
        _log.info("serving http://%s:%s (%s); press Ctrl-C to end", shown, bound, sandbox.isolation)
        server.serve_until_interrupted()
