"""Answers SandboxFusion's `POST /run_code`, so that verl and others can use this sandbox.

Each request runs in a session of its own, which is closed afterwards. `arpo sandbox serve` serves it. Only Python is
supported. `openapi` describes all paths of the server to programs.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from typing import Any

from sandbox.errors import SandboxError, SandboxFull
from sandbox.interpreter import Execution, SyncInterpreter
from sandbox.sandbox import Sandbox

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
_NOTHING: dict[str, Any] = {"status": "SandboxError", "compile_result": None, "run_result": None, "files": {}}
_log = logging.getLogger(__name__)


class BadRequest(ValueError):
    """The request is malformed; the message says why."""


def run_code(sandbox: Sandbox, request: dict[str, Any]) -> dict[str, Any]:
    """Answer one `/run_code` request.

    Args:
        sandbox: where to run.
        request: code, and optionally language ("python"), run_timeout (seconds), stdin, memory_limit_MB,
            files (name to base64), fetch_files (names).

    Returns:
        status "Success" (the code ran without an error), "Failed" (an error of the code) or "SandboxError" (an error of
        the machinery, which says nothing about the code); run_result with status "Finished" or "TimeLimitExceeded",
        execution_time in seconds, return_code (negative when the process was killed, null after a time-out), stdout,
        stderr with the traceback; files as base64.

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
    wanted = request.get("fetch_files") or []
    if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
        raise BadRequest("'fetch_files' has to be a list of names")
    uploads = {name: _decoded(name, data) for name, data in _mapping(request, "files").items()}
    try:
        with sandbox.interpreter_sync() as python:
            _prepare(python, sandbox, request, uploads)
            execution = python.run(code, timeout)
            files = _fetch(python, wanted) if execution.alive else {}
    # a SandboxError too, but the client can try again: it gets a status of its own
    except SandboxFull:
        raise
    except (SandboxError, OSError) as error:
        return {
            "status": "SandboxError",
            "message": str(error),
            "compile_result": None,
            "run_result": None,
            "files": {},
        }
    return {**_verdict(execution), "executor_pod_name": None, "files": files}


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
    except (TypeError, ValueError, binascii.Error) as error:
        raise BadRequest(f"file {name!r} is not base64") from error


def _prepare(python: SyncInterpreter, sandbox: Sandbox, request: dict[str, Any], uploads: dict[str, bytes]) -> None:
    for name, data in uploads.items():
        python.put(name, data)
    setup = ""
    if request.get("stdin"):
        python.put(_INPUT, str(request["stdin"]).encode("utf-8", "replace"))
        setup += _READ_INPUT
    most = request.get("memory_limit_MB") or -1
    if isinstance(most, bool) or not isinstance(most, (int, float)):
        raise BadRequest("'memory_limit_MB' has to be a number")
    if 0 < most * (1 << 20) < sandbox.limits.session_memory:  # a limit can only be lowered
        setup += _LESS_MEMORY.format(int(most * (1 << 20)))
    if setup:
        prepared = python.run(setup)
        if prepared.status != "ok":
            raise SandboxError(f"the session could not be prepared: {prepared.text}")


def _fetch(python: SyncInterpreter, names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = base64.b64encode(python.get(name)).decode()
        except OSError as error:
            _log.info("a requested file cannot be read: %s", error)
    return found


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


# The OpenAPI document of a sandbox server.

_STRING, _WHOLE, _FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_IDS = {"type": "array", "items": _STRING}
_NUMBER = {**_WHOLE, "description": "counts the requests of the session; one with the same number is not run again"}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "description": "seconds"}
_FILE = {"type": "integer", "description": "errno, with the status 422, if the file system refuses it"}
_EXECUTION = {
    "stdout": _STRING,
    "stderr": _STRING,
    "value": {"type": ["string", "null"]},
    "error": {"type": ["string", "null"]},
    "status": {
        "enum": ["ok", "error", "timeout", "output_limit", "memory_limit", "killed", "exit", "interrupted"],
    },
    "duration": _SECONDS,
    "truncated": _FLAG,
    "alive": {**_FLAG, "description": "whether the session goes on"},
    "pictures": {"type": "array", "items": _BASE64},
    "pictures_left_out": _WHOLE,
}
_LEASE = {**_STRING, "description": "names the program: its sessions can be kept and closed together"}

# path: what it does, fields of the request, fields of the answer
PATHS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/v1/hello": (
        "What this server is",
        {},
        {
            "server": {**_STRING, "description": "another one after each start"},
            "client": {**_STRING, "description": "whom the token names"},
            "isolation": _STRING,
            "slots": {**_WHOLE, "description": "sessions that the client may have open, not counting forks"},
            "profile": _STRING,
            "packages": {"type": "array", "items": _STRING, "description": "added to the profile"},
            "limits": {"type": "object"},
            "idle_seconds": _SECONDS,
        },
    ),
    "/v1/sessions": (
        "Open a session (status 201)",
        {
            "key": {**_STRING, "description": "a request with the same key opens no second session"},
            "lease": _LEASE,
            "server": {**_STRING, "description": "if this is another server, the answer is 409"},
            "wait": {"type": "number", "minimum": 0, "description": "seconds to wait for a free session, at most"},
            "once": {**_FLAG, "description": "the session ends with its first cell"},
        },
        {"session": _STRING},
    ),
    "/v1/sessions/{session}/run": (
        "Run a cell. Its failure is an answer with status 200, too",
        {
            "code": _STRING,
            "timeout": _SECONDS,
            "setup": {**_FLAG, "description": "the code is a setup: it is not counted as a cell"},
            "before": {**_STRING, "description": "setup of a session with once"},
            "before_timeout": _SECONDS,
            "cell": {**_WHOLE, "description": "a name for interrupt"},
            "number": _NUMBER,
        },
        _EXECUTION,
    ),
    "/v1/sessions/{session}/fork": (
        "Copy a session, with variables, files and random state",
        {
            "n": {**_WHOLE, "minimum": 1, "maximum": 64},
            "reseed": {"type": ["boolean", "integer", "null"], "description": "give each copy its own random state"},
            "number": _NUMBER,
        },
        {"sessions": _IDS, "losses": {"type": "object", "description": "what could not be copied: threads, sockets"}},
    ),
    "/v1/sessions/{session}/put": (
        "Write a file, in pieces of at most 1 MiB; the piece at offset 0 replaces the file",
        {"path": _STRING, "offset": _WHOLE, "data": _BASE64, "number": _NUMBER},
        {"errno": _FILE},
    ),
    "/v1/sessions/{session}/get": (
        "Read a piece of a file",
        {"path": _STRING, "offset": _WHOLE, "length": _WHOLE, "number": _NUMBER},
        {"data": _BASE64, "size": {**_WHOLE, "description": "of the file"}, "errno": _FILE},
    ),
    "/v1/sessions/{session}/ls": (
        "List a directory: for each entry size (8 bytes), is it a directory (1), length of the name (2), name",
        {"path": _STRING, "number": _NUMBER},
        {"data": _BASE64, "errno": _FILE},
    ),
    "/v1/sessions/{session}/interrupt": ("Stop the running cell", {"cell": _WHOLE}, {"interrupted": _FLAG}),
    "/v1/sessions/{session}/close": ("End a session", {}, {}),
    "/v1/keep": (
        "Keep all sessions of a program from being idle",
        {"lease": _LEASE},
        {"server": _STRING, "slots": _WHOLE, "sessions": _WHOLE},
    ),
    "/v1/close": (
        "End all sessions of a program",
        {"lease": _LEASE, "final": {**_FLAG, "description": "open no more with this lease"}},
        {"closed": _WHOLE},
    ),
}
_ERRORS = {
    "202": "it takes longer: send the same request, with the same number or key, again",
    "400": "a field is malformed",
    "401": "the token is missing or wrong",
    "409": "the server was restarted, or the number is too small",
    "410": "the client has no such session: it was closed, was idle for too long, or is lost",
    "422": "the fork, or the file, is refused; the session goes on",
    "429": "no session is free, or the client has as many as it may have",
    "500": "the machinery failed",
    "503": "the server has no working sandbox",
}


def openapi() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "arpo sandbox", "version": "1", "description": "Python sessions that can be forked"},
        "security": [{"token": []}],
        "paths": {path: {"post": _operation(path, *what)} for path, what in PATHS.items()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _object({"failure": _STRING, "message": _STRING})},
        },
    }


def _operation(path: str, summary: str, request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    status = "201" if path == "/v1/sessions" else "200"
    good = {"description": "done", "content": {"application/json": {"schema": _object(answer)}}}
    session = {"name": "session", "in": "path", "required": True, "schema": _STRING}
    return {
        "summary": summary,
        "operationId": path.removeprefix("/v1/").replace("{session}/", "").replace("/", "_"),
        "parameters": [session] if "{session}" in path else [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _object(request)}}},
        "responses": {status: good} | {code: {"description": why, "content": error} for code, why in _ERRORS.items()},
    }


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}
