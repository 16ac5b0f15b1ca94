"""A real HTTP server on this machine whose answers a test writes itself, well or badly."""

import contextlib
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Call:
    """One request to answer: `reply`, or write bytes yourself."""

    seen: Seen
    handler: BaseHTTPRequestHandler
    gone: threading.Event

    def reply(self, body: Any, status: int = 200, **headers: str) -> None:
        """Answer with bytes, or anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.head(status, **{"Content-Length": str(len(data)), **headers})
        self.write(data)

    def head(self, status: int = 200, **headers: str) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def drip(self, data: bytes = b" ", every: float = 0.05) -> None:
        """Write the same again and again until the client has gone."""
        while not self.gone.wait(every):
            self.write(data)


@dataclass
class LocalServer:
    """`with LocalServer(answer) as server:`; `answer(call)` runs for each request, and `seen` holds them."""

    answer: Callable[[Call], None]
    certificate: str | None = None
    host: str = "127.0.0.1"
    seen: list[Seen] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        name = self.host.replace("127.0.0.1", "localhost")
        return f"{'https' if self.certificate else 'http'}://{name}:{self.port}"

    @property
    def connections(self) -> set[tuple[str, int]]:
        return {request.connection for request in self.seen}

    def __enter__(self) -> Self:
        self._gone = threading.Event()
        self._server = _Server((self.host, 0), _handler(self))
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="test-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        params = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        seen = Seen(handler.command, parts.path, params, headers, body, handler.client_address)
        self.seen.append(seen)
        with contextlib.suppress(OSError):  # the client may go away, that is the point of many tests
            self.answer(Call(seen, handler, self._gone))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that break off are expected."""


def _handler(server: LocalServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            server.take(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    return Handler
