"""The OpenAPI document of a sandbox server."""

from __future__ import annotations

from typing import Any

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
