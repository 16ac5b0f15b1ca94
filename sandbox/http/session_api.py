"""The HTTP interface to sessions: which path does what, how fields are checked, and which status an error has.

All requests are POST with a JSON object. Each path takes the fields that `ROUTES` names. `openapi` describes them to
programs.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
import os
import secrets
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from sandbox.errors import ForkError, SandboxError, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.http.client_table import Client
from sandbox.http.hosted_session import HostedSession, StaleNumber
from sandbox.http.hosted_sessions import HostedSessions
from sandbox.pool.connection import Reply
from sandbox.server.wire import INTERRUPT, LARGEST_PIECE, LIST, READ, RUN, RUN_ONCE, WRITE
from sandbox.validation import checked_cell, checked_directory, checked_forks, checked_name, checked_seed

LONGEST_WAIT = 20.0
"""Seconds after which a request is answered with 202; the client sends it again, and waits on."""
_log = logging.getLogger(__name__)
_LARGEST, _LONGEST_NAME = 1 << 40, 200
Answer = tuple[int, dict[str, Any]]


class WrongServer(SandboxError):
    """The request is for a server that was restarted since."""


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (StaleNumber, 409),
    (WrongServer, 409),
    (SessionLost, 410),
    (ForkError, 422),
    (SandboxFull, 429),
    (SandboxUnavailable, 503),
    (SandboxError, 500),
    (TypeError, 400),
    (ValueError, 400),
    (RecursionError, 400),
)


class SessionApi:
    """Answers the requests of clients.

    Args:
        sessions: of the server.
    """

    def __init__(self, sessions: HostedSessions) -> None:
        self._sessions = sessions
        # actions of a session that take their turn, and may be sent again with the same number
        self._actions: dict[str, Callable[[HostedSession, dict[str, Any]], Future[Reply]]] = {
            "run": self._run,
            "fork": self._fork,
            "put": _put,
            "get": _get,
            "ls": _ls,
        }
        self._others: dict[str, Callable[[Client, dict[str, Any]], Answer]] = {
            "/v1/hello": self._hello,
            "/v1/sessions": self._create,
            "/v1/keep": self._keep,
            "/v1/close": self._close_all,
        }

    def takes(self, path: str) -> bool:
        """Return whether there is such a path."""
        return path in self._others or self._split(path) is not None

    def answer(self, client: Client, path: str, body: bytes) -> Answer:
        """Return the status and the answer to a POST."""
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ValueError("the body has to be a JSON object")
            if path in self._others:
                return self._others[path](client, request)
            identity, action = self._split(path) or ("", "")
            return self._act(self._sessions.find(client, identity), action, request)
        except (SandboxError, ValueError, TypeError, RecursionError) as error:
            return _failure(error)
        except Exception as error:  # without an answer the client would take the server for gone, with all sessions
            _log.exception("a request to %s failed", path.rpartition("/")[2])
            return _failure(SandboxError(f"the server failed: {type(error).__name__}: {error}"))

    def _split(self, path: str) -> tuple[str, str] | None:
        empty, version, what, *rest = [*path.split("/"), "", "", ""][:6]
        if (empty, version, what) != ("", "v1", "sessions") or path.count("/") != 4:
            return None
        return (rest[0], rest[1]) if rest[1] in (*self._actions, "interrupt", "close") else None

    def _hello(self, client: Client, request: dict[str, Any]) -> Answer:
        sandbox = self._sessions.sandbox
        options = sandbox._pool.plan.options
        return 200, {
            "server": self._sessions.instance,
            "client": client.name,
            "isolation": sandbox.isolation,
            "slots": self._sessions.capacity(client),
            "profile": options.profile,
            "packages": list(options.packages),
            "limits": asdict(sandbox.limits),
            "idle_seconds": self._sessions.idle_seconds,
        }

    def _create(self, client: Client, request: dict[str, Any]) -> Answer:
        key, lease, server = (_text(request, name) for name in ("key", "lease", "server"))
        if server and server != self._sessions.instance:
            raise WrongServer("the server was restarted, and its sessions are lost")
        once, wait = request.get("once", False) is True, _seconds(request, "wait")
        longest, key = (LONGEST_WAIT, key) if key else (math.inf, secrets.token_urlsafe(12))
        future = self._sessions.create(client, key, lease, once)
        status, answer = _await(future, 201, min(longest, wait))
        if status == 201 or wait > longest:
            return status, answer
        if self._sessions.give_up(client, key):
            raise SandboxFull(
                "no session of the server became free in time; close sessions, or start the server with more "
                "--containers or --sessions"
            )
        return _await(future, 201)  # it has come at the last moment

    def _keep(self, client: Client, request: dict[str, Any]) -> Answer:
        held = self._sessions.keep(client, _text(request, "lease"))
        slots = self._sessions.capacity(client)
        return 200, {"server": self._sessions.instance, "slots": slots, "sessions": held}

    def _close_all(self, client: Client, request: dict[str, Any]) -> Answer:
        final = request.get("final", False) is True
        return 200, {"closed": self._sessions.close_lease(client, _text(request, "lease"), final)}

    def _act(self, hosted: HostedSession, action: str, request: dict[str, Any]) -> Answer:
        if action == "close":
            closed = self._sessions.close(hosted)
            return _await(closed) if closed is not None else (200, {})
        if action == "interrupt":
            cell = request.get("cell")
            return _await(hosted.session.request(INTERRUPT, cell=None if cell is None else _whole(request, "cell")))
        number = None if request.get("number") is None else _whole(request, "number")
        with hosted.in_use():
            future = hosted.submit(number, lambda: self._actions[action](hosted, request))
            status, answer = _await(future, 200, math.inf if number is None else LONGEST_WAIT)
        if status == 200 and hosted.once and action == "run":
            self._sessions.close(hosted, ended=True)
        return (422, _named(answer)) if "errno" in answer else (status, answer)

    def _fork(self, hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
        seed = request.get("reseed")
        copies = checked_forks(request.get("n", 1))
        return self._sessions.fork(hosted, copies, checked_seed(False if seed is None else seed))

    def _run(self, hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
        limits = self._sessions.sandbox.limits
        cell = checked_cell(request.get("code", ""), request.get("timeout"), limits)
        name = None if request.get("cell") is None else _whole(request, "cell")
        fields = {**cell, "setup": request.get("setup", False) is True, "cell": name}
        hosted.session.count("runs")
        if not hosted.once:
            return hosted.session.request(RUN, **fields)
        before = checked_cell(request.get("before", ""), request.get("before_timeout"), limits)
        steps = [(RUN, {**before, "setup": True})] if before["code"] else []
        return hosted.session.request(RUN_ONCE, steps=steps, **fields)


def _put(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    data = request.get("data", "")
    try:
        content = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError("'data' has to be base64") from error
    if len(content) > LARGEST_PIECE:
        raise ValueError(f"{len(content)} bytes of data; send at most {LARGEST_PIECE} at once, and go on with 'offset'")
    path = checked_name(request.get("path", ""))
    return hosted.session.request(WRITE, path=path, offset=_whole(request, "offset"), data=data)


def _get(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    path = checked_name(request.get("path", ""))
    length = min(_whole(request, "length", LARGEST_PIECE), LARGEST_PIECE)
    return hosted.session.request(READ, path=path, offset=_whole(request, "offset"), length=length)


def _ls(hosted: HostedSession, request: dict[str, Any]) -> Future[Reply]:
    return hosted.session.request(LIST, path=checked_directory(request.get("path", ".")))


def _await(future: Future[Reply], status: int = 200, seconds: float = math.inf) -> Answer:
    """Wait for an answer; the status is 202 if it takes too long."""
    done, _ = futures.wait([future], None if seconds == math.inf else seconds)
    return (status, future.result()) if done else (202, {"running": True})


def _whole(request: dict[str, Any], name: str, default: int = 0) -> int:
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ValueError(f"{name!r} is {value!r}; it has to be a whole number, at least 0")
    return value


def _seconds(request: dict[str, Any], name: str) -> float:
    value = request.get(name, math.inf)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name!r} is {value!r}; it has to be a number of seconds, at least 0")
    return math.inf if value > _LARGEST else float(value)


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError(f"{name!r} has to be a text of at most {_LONGEST_NAME} characters")
    return value


def _named(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "failure": "OSError", "message": os.strerror(answer["errno"])}


def _failure(error: Exception) -> Answer:
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return status, {"failure": type(error).__name__, "message": str(error)}
