"""Base of the small HTTP servers: JSON in, JSON out, bodies of bounded length, one thread per connection.

Requests of web pages are refused, including pages that the user of this machine has open: a page cannot send JSON to
another site without a preflight request, and its requests have an Origin. A server with a token serves only clients
that send it; a server without one should listen on loopback only, or on a private network.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import ipaddress
import json
import logging
import re
import resource
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Who may use a server: the rules on tokens and web pages, the same for every server of this library.
#
# A server that others can reach needs a token, and on loopback it may have one. Clients send it as bearer token or as
# the password of basic authentication. Requests of web pages are refused, including pages that the user of this machine
# has open.

NO_PAGES = "the request comes from a web page (it has an Origin); this server does not answer web pages"
NO_TOKEN = "this server needs a token; send it as 'Authorization: Bearer TOKEN', or as a password"


def sends_token(authorization: str, token: str) -> bool:
    """Return whether an Authorization header has the token; takes the same time for any wrong one."""
    # as bytes, since texts have to be ASCII for it
    return hmac.compare_digest(_token_of(authorization).encode("latin-1", "replace"), token.encode())


def check_token(host: str, token: str, variable: str, danger: str) -> None:
    """Check the token of a server before it listens.

    Args:
        host: the address to listen on.
        token: the token; empty for none.
        variable: the environment variable that holds the token.
        danger: what somebody could do without a token.

    Raises:
        ValueError: the address can be reached by others and there is no token, or a header cannot hold the token.
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


def _token_of(authorization: str) -> str:
    """Return the bearer token, or the password of basic authentication, as sent for a URL with user:password@."""
    scheme, _, given = authorization.strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return given.strip() if scheme.lower() == "bearer" else ""


LARGEST_BODY = 32 << 20  # bytes
_DRAINED = 1 << 16
_MOST_STRANGERS = 1024
_log = logging.getLogger(__name__)


class JsonHandler(BaseHTTPRequestHandler):
    """Answers GET for its state and POST to one path; subclasses may have more paths, and several tokens.

    Attributes:
        post_path: the path for POST.
        healthy_paths: the paths for GET, which returns the state.
        token: what a POST must send as bearer token or as password of basic authentication; empty for none.
    """

    protocol_version = "HTTP/1.1"
    timeout = 120  # seconds that a connection may be idle
    # an answer goes out at once, in one piece; otherwise it may wait 40 ms for the client's confirmation of its head
    disable_nagle_algorithm = True
    wbufsize = -1
    post_path: str
    healthy_paths: tuple[str, ...] = ("/health",)
    token: str = ""

    def state(self) -> dict[str, Any]:
        """Return the answer to GET."""
        raise NotImplementedError

    def respond(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of a POST."""
        raise NotImplementedError

    def page(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a GET; None if there is no such path."""
        return self.state() if path in self.healthy_paths else None

    def takes(self, path: str) -> bool:
        """Return whether a path takes POST."""
        return path == self.post_path

    def allows(self, authorization: str) -> bool:
        """Return whether a POST with this Authorization header is answered."""
        return not self.token or sends_token(authorization, self.token)

    def fault(self, message: str) -> dict[str, Any]:
        """Return an error as the protocol writes it."""
        raise NotImplementedError

    def parse_request(self) -> bool:
        """Read the head of a request; one with a bare CR, which others read differently, is refused."""
        whole, self.rfile = self.rfile, _HeadLines(self.rfile)  # type: ignore[assignment]
        try:
            fine = super().parse_request()
            odd = self.rfile.odd or b"\r" in self.raw_requestline.removesuffix(b"\r\n")  # type: ignore[attr-defined]
        finally:
            self.rfile = whole
        if fine and odd:
            self.send_error(400)
        return fine and not odd

    def do_GET(self) -> None:
        """Answer with the state."""
        # a body that is not read would be taken for the next request
        self.close_connection |= "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        if "Origin" in self.headers:
            self._answer(403, self.fault(NO_PAGES))
            return
        found = self.page(self.path.rstrip("/") or "/")
        self._answer(404, self._no_such_path()) if found is None else self._answer(200, found)

    def handle_expect_100(self) -> bool:
        """Ask for the body at once; in the buffer, the word would wait until the client no longer does."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def do_POST(self) -> None:
        """Read the body, and answer."""
        length = self._length()
        status, why = self._refusal(length)
        if status:
            # the body that is not read would be taken for the next request
            self.close_connection = True
            self._answer(status, self.fault(why))
            # otherwise the client may lose the answer with what was not read
            self.rfile.read(min(max(length, 0), _DRAINED))
            return
        self.server.trust(self.connection)  # type: ignore[attr-defined]
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone, in the middle of its request
            self.close_connection = True
            return
        if self.takes(self.path.rstrip("/")):
            self._answer(*self.respond(body))
        else:
            self._answer(404, self._no_such_path())

    def _length(self) -> int:
        """Return the length of the body as it is announced; -1 if it is not, or in a way that others read differently.

        Behind a proxy, a request that the two read differently would let one client speak in the name of another.
        """
        announced = self.headers.get_all("Content-Length", [])
        if len(announced) != 1 or "Transfer-Encoding" in self.headers:
            return -1
        # few ASCII digits only: `isdigit` accepts others as well, and `int` refuses thousands of them with an exception
        return int(announced[0]) if re.fullmatch(r"[0-9]{1,11}", announced[0]) else -1

    def _refusal(self, length: int) -> tuple[int, str]:
        """Return status and reason if a POST is refused before its body is read; status 0 if it is not refused."""
        if not 0 <= length <= LARGEST_BODY:
            return 411 if length < 0 else 413, f"send Content-Length, at most {LARGEST_BODY} bytes"
        if "Origin" in self.headers:
            return 403, NO_PAGES
        if not self.allows(self.headers.get("Authorization", "")):
            return 401, NO_TOKEN
        if self.headers.get_content_type() != "application/json":
            return 415, "the body has to be JSON, with the Content-Type application/json"
        return 0, ""

    def _no_such_path(self) -> dict[str, Any]:
        return self.fault(f"there is no path {self.path}; POST to {self.post_path}")

    def _answer(self, status: int, fields: dict[str, Any]) -> None:
        data = json.dumps(fields).encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request, quietly."""
        _log.debug(format, *args)


class _HeadLines:
    """Lines of a request's head; notes whether one has a CR that does not end it."""

    def __init__(self, file: Any) -> None:
        self._file, self.odd = file, False

    def readline(self, size: int = -1) -> bytes:
        line: bytes = self._file.readline(size)
        self.odd |= b"\r" in line.removesuffix(b"\n").removesuffix(b"\r")
        return line


class JsonServer(ThreadingHTTPServer):
    """Serves with one thread per connection.

    Connections that have not sent a request that is allowed are bounded, by half of the descriptors of this process:
    beyond that, the oldest of them is closed for each new one.

    Args:
        address: host and port; a host with a colon is an IPv6 address.
        handler: for each connection.

    Raises:
        OSError: the address cannot be listened on, for example since another program does.
    """

    daemon_threads = True
    # a batch of rollouts connects at once; the default is 5
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._strangers: dict[socket.socket, None] = {}  # in the order of their arrival
        self._most_strangers = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _MOST_STRANGERS)
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, handler)
        except (OSError, OverflowError) as error:  # OverflowError: there is no such port
            why = getattr(error, "strerror", None) or error
            raise OSError(f"cannot listen on {address[0]}, port {address[1]}: {why}") from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        with self._lock:
            self._strangers[request] = None
            if len(self._strangers) > self._most_strangers:
                self._drop_oldest()
        super().process_request(request, client_address)

    def trust(self, connection: socket.socket) -> None:
        """Note that a connection has sent a request that is allowed."""
        with self._lock:
            self._strangers.pop(connection, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.trust(request)
        super().shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:  # there are no descriptors left, by connections that are allowed
            with self._lock:
                if self._strangers:
                    self._drop_oldest()
            time.sleep(0.05)  # `serve_forever` asks again at once
            raise

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that broke, quietly."""
        _log.debug("a connection from %s broke", client_address, exc_info=True)

    def serve_until_interrupted(self) -> None:
        """Serve until Ctrl-C, then release the address."""
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            _log.info("interrupted; the server ends")
        finally:
            self.server_close()
