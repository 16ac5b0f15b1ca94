"""The server of `arpo sandbox serve`: sessions that can be forked, and SandboxFusion's `POST /run_code`.

`GET /v1/openapi.json` describes the interface to sessions. The connection is not encrypted: where others can listen,
put a proxy with TLS in front of it. Each `/run_code` runs in a session of its own, so that verl and others can use this
sandbox; only Python is supported.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import Any

import yaml

from sandbox.backends.http_backend import TOKEN_VARIABLE, is_http_address
from sandbox.errors import SandboxError, SandboxFull
from sandbox.http.json_server import Answer, HttpServer, JsonApi, check_token
from sandbox.http.session_api import Client, HostedSessions, SessionApi, clients_of, find_client
from sandbox.interpreter import Execution
from sandbox.options import Limits
from sandbox.sandbox import Sandbox

IDLE_SECONDS = 900.0
_HOST, _PORT = "127.0.0.1", 8080
_INPUT = ".stdin"
# sessions have no standard input, so it comes as a file; the code finds neither the file nor these imports
_READ_INPUT = f"""
import os, sys
os.dup2(os.open({_INPUT!r}, os.O_RDONLY), 0)
os.unlink({_INPUT!r})
sys.stdin = open(0, closefd=False)
del os, sys
"""
_LESS_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({0}, {0}))
del resource
"""
_log = logging.getLogger(__name__)


class BadRequest(ValueError):
    """The request is malformed; the message says why."""


async def run_code(sandbox: Sandbox, request: dict[str, Any]) -> dict[str, Any]:
    """Answer one `/run_code` request.

    Args:
        sandbox: where to run.
        request: code, and optionally language ("python"), run_timeout (seconds), stdin, memory_limit_MB,
            files (name to base64). No files are sent back.

    Returns:
        status "Success" (the code ran without an error), "Failed" (an error of the code) or "SandboxError" (an error of
        the machinery, which says nothing about the code); run_result with status "Finished" or "TimeLimitExceeded",
        execution_time in seconds, return_code (negative when the process was killed, null after a time-out), stdout,
        stderr with the traceback.

    Raises:
        BadRequest: the request is malformed.
        SandboxFull: no session became free in time.
    """
    code, language = request.get("code"), request.get("language", "python")
    if not isinstance(code, str):
        raise BadRequest("'code' has to be a string")
    if language not in ("python", "python3"):
        raise BadRequest(f"language {language!r} is not supported; use python")
    timeout = _number(request, "run_timeout", sandbox.limits.timeout)
    if request.get("fetch_files"):
        raise BadRequest("'fetch_files' is not supported; have the code print what is wanted")
    given = _mapping(request, "files").items()
    files: dict[str | PurePath, bytes | str | Path] = {name: _decoded(name, data) for name, data in given}
    setup = ""
    if request.get("stdin"):
        files[_INPUT] = str(request["stdin"]).encode("utf-8", "replace")
        setup += _READ_INPUT
    most = request.get("memory_limit_MB") or -1
    if isinstance(most, bool) or not isinstance(most, (int, float)):
        raise BadRequest("'memory_limit_MB' has to be a number")
    if 0 < most * (1 << 20) < sandbox.limits.session_memory:  # a limit can only be lowered
        setup += _LESS_MEMORY.format(int(most * (1 << 20)))
    try:
        execution = await sandbox.run(code, timeout, setup, files)
    except SandboxFull:  # a SandboxError too, but the client can try again: it gets a status of its own
        raise
    except (SandboxError, OSError) as error:
        failed = {"status": "SandboxError", "message": str(error)}
        return {**failed, "compile_result": None, "run_result": None, "files": {}}
    return {**_verdict(execution), "executor_pod_name": None, "files": {}}


def _number(request: dict[str, Any], name: str, default: float) -> float:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 86_400:
        raise BadRequest(f"{name!r} has to be a number of seconds between 0 and 86400")
    return float(value)


def _mapping(request: dict[str, Any], name: str) -> dict[str, Any]:
    value = request.get(name) or {}
    if not isinstance(value, dict):
        raise BadRequest(f"{name!r} has to be an object of names and base64 texts")
    return value


def _decoded(name: str, data: Any) -> bytes:
    try:
        return base64.b64decode(data or "", validate=True)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"file {name!r} is not base64") from error


def _verdict(execution: Execution) -> dict[str, Any]:
    code = _return_code(execution)
    result = {
        "status": "TimeLimitExceeded" if execution.status == "timeout" else "Finished",
        "execution_time": execution.duration,
        "return_code": code,
        "stdout": execution.stdout,
        "stderr": "\n".join(filter(None, (execution.stderr, execution.error))),
    }
    status = "Success" if code == 0 else "Failed"
    return {"status": status, "message": "", "compile_result": None, "run_result": result}


def _return_code(execution: Execution) -> int | None:
    if execution.status in ("ok", "timeout"):
        return 0 if execution.status == "ok" else None
    if execution.status == "exit":
        # as Python does: only the lowest byte of a number counts, and a text means 1
        code = (execution.error or "SystemExit: 0").removeprefix("SystemExit: ")
        return int(code) % 256 if re.fullmatch(r"-?[0-9]{1,9}", code) else 1
    # what is left was stopped or killed, and is reported like a SIGKILL
    return 1 if execution.status == "error" else -9


class SandboxApi(JsonApi):
    """What the server answers."""

    def __init__(self, sandbox: Sandbox, clients: Sequence[Client], idle_seconds: float) -> None:
        self.sandbox, self.clients = sandbox, clients
        self.sessions = HostedSessions(sandbox, idle_seconds)
        self.api = SessionApi(self.sessions)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Close idle sessions while the server runs; all end with the sandbox."""
        watching = asyncio.create_task(self.sessions.watch())
        yield
        watching.cancel()

    def client(self, authorization: str) -> Client | None:
        """Return the client that a request's token names."""
        return find_client(self.clients, authorization)

    def fault(self, message: str) -> dict[str, Any]:
        """Return an error as the protocols write it."""
        return {"status": "SandboxError", "failure": "SandboxError", "message": message}

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return the state, or the description of the interface."""
        if path == "/v1/openapi.json":
            document: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text())
            return document
        if path not in ("/", "/v1/ping", "/health"):
            return None
        isolation = await asyncio.to_thread(lambda: self.sandbox.isolation)  # may have to start a container first
        return {"status": "ok", "isolation": isolation, **self.sandbox.stats()}

    async def post(self, path: str, body: bytes, client: Client) -> Answer | None:
        """Answer `/run_code`, or a request for sessions."""
        if path != "/run_code":
            return await self.api.answer(client, path, body)
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise BadRequest("the body has to be a JSON object")
            with self.sessions.slot(client):
                return 200, await run_code(self.sandbox, request)
        except SandboxFull as error:
            return 504, self.fault(str(error))
        # malformed JSON and BadRequest are ValueErrors; deep nesting is a RecursionError
        except (ValueError, RecursionError) as error:
            return 400, self.fault(str(error))


def make_server(
    sandbox: Sandbox,
    host: str = _HOST,
    port: int = _PORT,
    token: str = "",
    clients: Sequence[Client] = (),
    idle_seconds: float = IDLE_SECONDS,
) -> HttpServer:
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
    clients = clients or clients_of(token)
    for client in clients:
        check_token(host, client.token, TOKEN_VARIABLE, "run code in the sandbox")
    return HttpServer(SandboxApi(sandbox, clients, idle_seconds), host, port)


def serve(
    host: str = _HOST,
    port: int = _PORT,
    token: str = "",
    clients_file: Path | None = None,
    idle_seconds: float = IDLE_SECONDS,
    backend: str = "auto",
    limits: Limits | None = None,
    **options: Any,
) -> None:
    """Serve until interrupted; see `make_server`, `clients_of` and `Sandbox`."""
    if is_http_address(backend):
        raise ValueError(f"a sandbox server cannot serve {backend}; choose a backend of this machine")
    with Sandbox(backend, limits, **options) as sandbox:
        # bound before containers are started, which takes seconds
        server = make_server(sandbox, host, port, clients=clients_of(token, clients_file), idle_seconds=idle_seconds)
        _log.info("serving %s (%s); press Ctrl-C to end", server.url, sandbox.isolation)
        server.serve()
