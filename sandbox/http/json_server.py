"""Small HTTP servers on Starlette and uvicorn (the extra `serve`): JSON in, JSON out, and who may use them.

Requests of web pages are refused, including pages that the user of this machine has open: a page cannot send JSON to
another site without a preflight request, and its requests have an Origin. A server that others can reach needs a token,
and on loopback it may have one; clients send it as bearer token or as the password of basic authentication.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import json
import re
import resource
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from starlette.requests import Request
    from starlette.routing import Router

NO_PAGES = "the request comes from a web page (it has an Origin); this server does not answer web pages"
NO_TOKEN = "this server needs a token; send it as 'Authorization: Bearer TOKEN', or as a password"
LARGEST_BODY = 32 << 20  # bytes
_IDLE_SECONDS = 120  # of a connection
_MOST_STRANGERS = 1024
Answer = tuple[int, dict[str, Any]]


def sends_token(authorization: str, token: str) -> bool:
    """Return whether an Authorization header has the token; takes the same time for any wrong one."""
    # as bytes, since texts have to be ASCII for it
    return hmac.compare_digest(_token_of(authorization).encode("latin-1", "replace"), token.encode())


def _token_of(authorization: str) -> str:
    """Return the bearer token, or the password of basic authentication, as sent for a URL with user:password@."""
    scheme, _, given = authorization.strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            return ""
    return given.strip() if scheme.lower() == "bearer" else ""


def check_token(host: str, token: str, variable: str, danger: str) -> None:
    """Check the token of a server before it listens: others must not reach it without one.

    `variable` is the environment variable that holds the token, and `danger` what somebody could do without.
    """
    if not token and not is_loopback(host):
        raise ValueError(
            f"others can reach {host or 'every address of this machine'}, and could {danger}: set a token ({variable} "
            "or --token), such as the output of `openssl rand -hex 32`, or serve on 127.0.0.1"
        )
    if not re.fullmatch(r"[!-~]*", token):
        raise ValueError("the token has to consist of visible ASCII characters, without spaces")


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class JsonApi:
    """What a server answers; subclasses fill it in. `make_app` makes an ASGI application of it."""

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a GET; None if there is no such path."""
        raise NotImplementedError

    async def post(self, path: str, body: bytes, client: Any) -> Answer | None:
        """Return the status and the answer of a POST; None if there is no such path."""
        raise NotImplementedError

    def client(self, authorization: str) -> Any:
        """Return who sends a POST with this Authorization header; None refuses it."""
        return ""

    def fault(self, message: str) -> dict[str, Any]:
        """Return an error as the protocol writes it."""
        raise NotImplementedError

    def lifespan(self, app: Any) -> contextlib.AbstractAsyncContextManager[None]:
        """Run while the server does."""
        return contextlib.nullcontext()


def make_app(api: JsonApi) -> Router:
    """Return the ASGI application of a server."""
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Router

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            status, fields = await (_post if request.method == "POST" else _get)(api, request)
        except ClientDisconnect:  # the client is gone, in the middle of its request
            return
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if status in (411, 413):  # the body that is not read has no end that both sides agree upon
            headers["Connection"] = "close"
        # not by JSONResponse, which refuses lone surrogates
        await Response(json.dumps(fields), status, headers, "application/json")(scope, receive, send)

    # the paths of an API are its own, so that no middleware and no routes stand before each call
    return Router(default=answer, redirect_slashes=False, lifespan=api.lifespan)


async def _get(api: JsonApi, request: Request) -> Answer:
    if "Origin" in request.headers:
        return 403, api.fault(NO_PAGES)
    found = await api.get(request.url.path.rstrip("/") or "/")
    return (404, api.fault(f"there is no path {request.url.path}")) if found is None else (200, found)


async def _post(api: JsonApi, request: Request) -> Answer:
    headers = request.headers
    length = int(headers.get("Content-Length", -1))  # digits alone: h11 refuses others, and two that differ
    # a proxy may read a request with both headers differently: one client could speak in the name of another
    if "Transfer-Encoding" in headers or not 0 <= length <= LARGEST_BODY:
        return 413 if length > LARGEST_BODY else 411, api.fault(f"send Content-Length, at most {LARGEST_BODY} bytes")
    if "Origin" in headers:
        return 403, api.fault(NO_PAGES)
    client = api.client(headers.get("Authorization", ""))
    if client is None:
        return 401, api.fault(NO_TOKEN)
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, api.fault("the body has to be JSON, with the Content-Type application/json")
    _strangers.pop((request.scope["server"], request.scope["client"]), None)
    path = request.url.path.rstrip("/")
    found = await api.post(path, await request.body(), client)
    return (404, api.fault(f"there is no path {path}")) if found is None else found


# connections that have sent no request that is allowed, by their two addresses, in the order of their arrival
_strangers: dict[tuple[Any, Any], asyncio.Transport] = {}


def _connection_class() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        """A connection; of those that have sent no request that is allowed, the oldest is closed for each new one.

        They are bounded by half of the descriptors of this process, which uvicorn does not do: whoever opens
        connections and says nothing would keep all others out.
        """

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            _strangers[self.server, self.client] = transport
            most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _MOST_STRANGERS)
            if len(_strangers) > most:
                _strangers.pop(next(iter(_strangers))).close()

        def connection_lost(self, exc: Exception | None) -> None:
            _strangers.pop((self.server, self.client), None)
            super().connection_lost(exc)

    return Connection


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; a host with a colon is an IPv6 address, and port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol named, asyncio sets TCP_NODELAY: otherwise a body waits 40 ms for the confirmation of its head
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)  # a batch of rollouts connects at once
        return listener
    except (OSError, OverflowError) as error:  # OverflowError: there is no such port
        listener.close()
        why = getattr(error, "strerror", None) or error
        raise OSError(f"cannot listen on {host}, port {port}: {why}; choose another with --port, or 0") from error


class HttpServer:
    """A server that is bound, and serves once it is told to.

    Attributes:
        url: its address, without a slash at the end.
    """

    def __init__(self, api: JsonApi, host: str, port: int) -> None:
        import uvicorn

        self.api = api
        self._listener = listen(host, port)
        shown, bound = self._listener.getsockname()[:2]
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{bound}"
        config = uvicorn.Config(
            make_app(api),
            http=_connection_class(),
            ws="none",
            log_level="error",
            access_log=False,
            proxy_headers=False,  # a connection is known by its own addresses, not by those that a header claims
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=1,  # a client asks again, and finds nobody
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Serve until interrupted, or stopped from another thread, then release the address."""
        with self._listener, contextlib.suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        """Have `serve` return."""
        self._server.should_exit = True
