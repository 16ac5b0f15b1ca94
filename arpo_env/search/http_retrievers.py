"""Retrieval servers as backends: the protocols of Search-R1 and FlashRAG, and Elasticsearch or OpenSearch.

    backend = make_retriever("search-r1", "http://127.0.0.1:8000")
    backend = make_retriever("elasticsearch", "http://me:password@127.0.0.1:9200/wiki")

One request per query; connections are kept open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from arpo_env.net import Http, Reply, checked_address, with_path, without_login
from arpo_env.search.search_backend import Hit, SearchBackend
from arpo_env.search.web import SNIPPET, clean_query, error_in, json_kind, json_text, number, one_line
from envs_registry.nearest_name import nearest_hint

_ELASTIC_FIELDS = ("title^0.5", "text", "contents")


@dataclass(frozen=True)
class _Protocol:
    """The request and reply of one kind of server.

    Attributes:
        path: appended to the address.
        example: of an address.
        body: makes the request's body from query and k.
        found: returns the (document, score) pairs of the reply's JSON; raises ValueError for another shape.
        key: environment variable with an optional key; the address of such a server ends in an index.
    """

    path: str
    example: str
    body: Callable[[str, int], dict[str, Any]]
    found: Callable[[Any], list[tuple[Any, Any]]]
    key: str = ""


def make_retriever(name: str, address: str | None, *, http: Http | None = None) -> SearchBackend:
    """Return a search backend for a retrieval server.

    Args:
        name: one of `RETRIEVERS`.
        address: of the server, with or without the protocol's path; for Elasticsearch with the index. User and
            password may stand in it.
        http: limits of time, size, rate and retries.

    Raises:
        ValueError: unknown name, or no valid address.
    """
    if name not in _PROTOCOLS:
        hint = nearest_hint(name, RETRIEVERS, "did you mean {!r}?", f"there are {', '.join(RETRIEVERS)}")
        raise ValueError(f"no retriever is called {name!r}; {hint}")
    protocol = _PROTOCOLS[name]
    if address is None or not address.strip():
        raise ValueError(f'{name} needs an address, as in "{name}:{protocol.example}"')
    checked = checked_address(name, address)
    base = checked.removesuffix(protocol.path)  # users give the address with or without the endpoint's path
    if protocol.key and "/" not in base.partition("://")[2]:
        raise ValueError(f"{name} needs an index after the address, as in {protocol.example}")
    return Retriever(name, base, protocol, http or Http(name))


class Retriever(SearchBackend):
    """A retrieval server. Made by `make_retriever`."""

    def __init__(self, name: str, address: str, protocol: _Protocol, http: Http) -> None:
        self.name = name
        # For messages and the keys of the cache, where no password may stand.
        self._address = without_login(address)
        self._url, self._protocol = with_path(address, protocol.path), protocol
        key = os.environ.get(protocol.key, "").strip() if protocol.key else ""
        self._headers = {"Authorization": f"ApiKey {key}"} if key else {}
        login = "the login in the address" + (f", or {protocol.key}," if protocol.key else "")
        cures = {401: f"Is {login} right?", 404: f"Is {self._address} the right address?"}
        self._http = replace(http, cures={**cures, **http.cures}, secrets=(*http.secrets, key) if key else http.secrets)

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k."""
        return {"address": self._address}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k passages."""
        line = clean_query(query)
        if not line or k < 1:
            return []
        body = self._protocol.body(line, k)
        reply = await self._http.request("POST", self._url, json=body, headers=self._headers)
        return self._hits(reply)[:k]

    async def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _hits(self, reply: Reply) -> list[Hit]:
        try:
            found = self._protocol.found(reply.json())
        except ValueError as error:
            raise reply.fault(str(error)) from None
        hits = [passage(document, score) for document, score in found]
        # Single passages without text are skipped, but a reply of nothing else has another format.
        if hits and not any(hits):
            raise reply.fault(f"answered passages without text; the first is {json_kind(found[0][0])}")
        return [hit for hit in hits if hit is not None]


def passage(document: Any, score: Any = None) -> Hit | None:
    """Return a document of a corpus as a hit, or None if it holds no text.

    The text is the field `text`, else `contents`, whose first line is the title (often quoted) if it has several.
    """
    fields = document if isinstance(document, dict) else {"contents": document}
    title, text = json_text(fields.get("title")), json_text(fields.get("text"))
    if not text:
        head, cut, tail = json_text(fields.get("contents")).partition("\n")
        title, text = (title or _unquoted(head.strip()), tail.strip()) if cut else (title, head)
    if not text:
        return None
    return Hit(
        title=one_line(title),
        url=json_text(fields.get("url")) or json_text(fields.get("id")),
        snippet=one_line(text[:SNIPPET]),
        date=one_line(json_text(fields.get("date"))),
        text=text,
        score=number(score),
    )


def _unquoted(title: str) -> str:
    return title[1:-1] if len(title) > 1 and title[0] == title[-1] == '"' else title


def _search_r1(query: str, k: int) -> dict[str, Any]:
    return {"queries": [query], "topk": k, "return_scores": True}  # the published server fails without the scores


def _search_r1_found(data: Any) -> list[tuple[Any, Any]]:
    result = _listed(data, "result")
    if len(result) != 1 or not isinstance(result[0], list):
        raise ValueError(f"answered {len(result)} lists of passages to one query")
    return [_scored(item) for item in result[0]]


def _scored(item: Any) -> tuple[Any, Any]:
    # Some servers leave the scores out and send the documents alone.
    if isinstance(item, dict) and "document" in item:
        return item["document"], item.get("score")
    return item, item.get("score") if isinstance(item, dict) else None


def _flashrag(query: str, k: int) -> dict[str, Any]:
    return {"query": query, "top_n": k, "return_score": True}


def _flashrag_found(data: Any) -> list[tuple[Any, Any]]:
    if not isinstance(data, list):
        raise ValueError(_wrong(data, "a list of passages"))
    if len(data) == 2 and all(isinstance(part, list) for part in data):
        scores = [*data[1], *[None] * len(data[0])]  # there may be fewer scores than passages
        return list(zip(data[0], scores, strict=False))
    return [(document, None) for document in data]


def _elastic(query: str, k: int) -> dict[str, Any]:
    # most_fields adds the scores of the fields, so that title and text both count
    match = {"query": query, "fields": list(_ELASTIC_FIELDS), "type": "most_fields", "lenient": True}
    wanted = ["id", "title", "text", "contents", "url", "date"]
    return {"size": k, "query": {"multi_match": match}, "_source": wanted}


def _elastic_found(data: Any) -> list[tuple[Any, Any]]:
    hits = _listed(data.get("hits") if isinstance(data, dict) and "hits" in data else data, "hits")
    # A search over some shards only would look like a worse ranking; it is an error instead.
    shards = data.get("_shards")
    if data.get("timed_out") or (isinstance(shards, dict) and shards.get("failed")):
        raise ValueError("searched only a part of the index (time-out, or a shard that failed)")
    return [_elastic_document(hit) for hit in hits if isinstance(hit, dict)]


def _elastic_document(hit: dict[str, Any]) -> tuple[Any, Any]:
    source = hit.get("_source")
    return {"id": hit.get("_id"), **(source if isinstance(source, dict) else {})}, hit.get("_score")


def _listed(data: Any, key: str) -> list[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise ValueError(_wrong(data, f"an object with the list {key}"))
    return found


def _wrong(data: Any, expected: str) -> str:
    said = error_in(data) if isinstance(data, dict) else ""
    return f"answered an error: {said}" if said else f"answered {json_kind(data)}, expected {expected}"


_ELASTIC = _Protocol("/_search", "http://127.0.0.1:9200/index", _elastic, _elastic_found, key="ES_API_KEY")
_PROTOCOLS = {
    "search-r1": _Protocol("/retrieve", "http://127.0.0.1:8000", _search_r1, _search_r1_found),
    "flashrag": _Protocol("/search", "http://127.0.0.1:80", _flashrag, _flashrag_found),
    "elasticsearch": _ELASTIC,
    "opensearch": _ELASTIC,
}
RETRIEVERS = tuple(sorted(_PROTOCOLS))
