"""Serves an ASGI application with uvicorn, under the rules on tokens that all servers of this library share.

with bind(host, port) as listener:
    serve(TokenGuard(app, token), listener)
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from sandbox.http.json_server import NO_PAGES, NO_TOKEN, check_token, sends_token

TOKEN_VARIABLE = "ARPO_SERVE_TOKEN"
IDLE_SECONDS = 600.0
_DANGER = "play episodes and run code in the sandbox"
_OPEN_PATHS = ("/health",)  # asked by container engines, which have no token

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class TokenGuard:
    """An ASGI application that refuses web pages (403) and, if there is a token, requests without it (401).

    Args:
        app: answers all other requests.
        token: what a request has to send as bearer token or as password of basic authentication; empty for none.
    """

    def __init__(self, app: App, token: str) -> None:
        self.app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request or a WebSocket."""
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await _refuse(scope, send, *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if b"origin" in headers:
            return 403, NO_PAGES
        if self._token and scope["path"] not in _OPEN_PATHS:
            return None if sends_token(headers.get(b"authorization", ""), self._token) else (401, NO_TOKEN)
        return None


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    kind = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": why[:100]})
            return
        kind = "websocket.http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": why.encode()})


def bind(host: str, port: int, token: str) -> socket.socket:
    """Return a listening socket.

    Args:
        host: the address; beyond loopback there has to be a token.
        port: 0 chooses a free one.
        token: the token of the server; empty for none.

    Raises:
        ValueError: there is no token but others can reach the address, or the address cannot be used.
    """
    check_token(host, token, TOKEN_VARIABLE, _DANGER)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} of {host} is in use: choose another with --port, or 0 for any free one"
            ) from error
        raise ValueError(f"the server cannot listen on {host}, port {port}: {error.strerror or error}") from error


def uvicorn_server(app: App) -> Any:
    """Return a `uvicorn.Server`."""
    import uvicorn

    # by default it pings WebSockets every 20 s, so that the session of a client that has gone is closed
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))


def serve(app: App, listener: socket.socket) -> None:
    """Serve until interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn_server(app).run(sockets=[listener])


def address(listener: socket.socket) -> str:
    """Return the URL of a listening socket, without a slash at the end."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
