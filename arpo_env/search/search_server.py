r"""Serves a search backend over HTTP with Search-R1's protocol, for frameworks that use its retrieval server.

    POST /retrieve {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"id": "...", "contents": "\"Title\"\ntext"}, "score": 1.5}, ...]]}

`arpo search serve` runs it. It has no authentication: keep it on loopback or in a private network.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_on_loop
from arpo_env.search.search_backend import Hit, SearchBackend
from sandbox.http.json_server import Answer, HttpServer, JsonApi

DEFAULT_TOPK = 3
# One request must not keep the server busy for long, as it has no authentication.
MOST_TOPK = 1000
MOST_QUERIES = 4096
_log = logging.getLogger(__name__)


async def retrieve(backend: SearchBackend, request: Any) -> dict[str, Any]:
    """Answer one `/retrieve` request."""
    if not isinstance(request, dict):
        raise ValueError("the body has to be a JSON object")
    queries, topk, scored = request.get("queries"), request.get("topk") or DEFAULT_TOPK, request.get("return_scores")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise ValueError("'queries' has to be a list of strings")
    if len(queries) > MOST_QUERIES:
        raise ValueError(f"{len(queries)} queries; at most {MOST_QUERIES} are taken at once")
    # bool is a subclass of int: true would pass for 1.
    if isinstance(topk, bool) or not isinstance(topk, int) or not 0 < topk <= MOST_TOPK:
        raise ValueError(f"'topk' has to be a whole number up to {MOST_TOPK}, or null")
    found = await run_on_loop(_search(backend, queries, topk))  # which all users of a backend share
    show = _scored if scored else _document
    return {"result": [[show(hit) for hit in hits] for hits in found]}


async def _search(backend: SearchBackend, queries: list[str], topk: int) -> list[list[Hit]]:
    return await asyncio.gather(*(backend.search(query, topk) for query in queries))


def _document(hit: Hit) -> dict[str, Any]:
    return {"id": hit.url, "contents": f'"{hit.title}"\n{hit.text or hit.snippet}'}


def _scored(hit: Hit) -> dict[str, Any]:
    # Clients of the protocol expect a number, and some backends have no score.
    return {"document": _document(hit), "score": hit.score or 0.0}


class _SearchApi(JsonApi):
    def __init__(self, backend: SearchBackend) -> None:
        self.backend = backend

    async def get(self, path: str) -> dict[str, Any] | None:
        if path not in ("/", "/health"):
            return None
        return {"status": "healthy", "backend": self.backend.name, **self.backend.parameters}

    def fault(self, message: str) -> dict[str, Any]:
        return {"error": message}

    async def post(self, path: str, body: bytes, client: str) -> Answer | None:
        if path != "/retrieve":
            return None
        try:
            return 200, await retrieve(self.backend, json.loads(body))
        except ServiceError as error:
            _log.warning("%s", error)
            return 502, self.fault(str(error))
        except (ValueError, RecursionError) as error:
            return 400, self.fault(str(error))


def make_server(backend: SearchBackend, host: str = "127.0.0.1", port: int = 8000) -> HttpServer:
    """Return a server that is bound but does not serve yet; port 0 takes a free port."""
    return HttpServer(_SearchApi(backend), host, port)


def serve(backend: SearchBackend, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until interrupted."""
    server = make_server(backend, host, port)
    _log.info("POST %s/retrieve (%s); Ctrl-C stops it", server.url, backend.name)
    server.serve()
