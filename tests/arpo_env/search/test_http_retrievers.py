"""Retrieval servers: what is sent to them, every shape of document they answer with, and their faults."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arpo_env.net import ServiceError
from arpo_env.search.backends import _PROTOCOLS, Retriever, passage
from arpo_env.search.search_backend import Hit
from tests.arpo_env.local_server import LocalServer

RETRIEVERS = sorted(_PROTOCOLS)
RECORDED = Path(__file__).parent / "recorded"
INDEX = {"elasticsearch": "/wiki", "opensearch": "/wiki"}
ENDPOINT = {
    "search-r1": "/retrieve",
    "flashrag": "/search",
    "elasticsearch": "/wiki/_search",
    "opensearch": "/wiki/_search",
}


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name.replace('opensearch', 'elasticsearch')}.json").read_text())


def search(name: str, address: str, query: str = "Solaris", k: int = 5) -> list[Hit]:
    async def once() -> list[Hit]:
        backend = Retriever(name, address + INDEX.get(name, ""))
        backend._http = replace(backend._http, timeout=0.5, retries=0)
        try:
            return await backend.search(query, k)
        finally:
            await backend.close()

    return asyncio.run(once())


def served(name: str, body: Any) -> list[Hit]:
    with LocalServer(lambda call: call.reply(body)) as server:
        return search(name, server.address)


def refusal(name: str, answer: Any) -> ServiceError:
    with LocalServer(answer) as server, pytest.raises(ServiceError) as caught:
        search(name, server.address)
    return caught.value


BODIES = {
    "search-r1": {"queries": ["Solaris"], "topk": 5, "return_scores": True},
    "flashrag": {"query": "Solaris", "top_n": 5, "return_score": True},
    "elasticsearch": {
        "size": 5,
        "query": {
            "multi_match": {
                "query": "Solaris",
                "fields": ["title^0.5", "text", "contents"],
                "type": "most_fields",
                "lenient": True,
            }
        },
        "_source": ["id", "title", "text", "contents", "url", "date"],
    },
}
BODIES["opensearch"] = BODIES["elasticsearch"]


@pytest.mark.parametrize("name", RETRIEVERS)
def test_the_request(name: str) -> None:
    with LocalServer(lambda call: call.reply(recorded(name))) as server:
        search(name, server.address)
        (seen,) = server.seen
    assert (seen.method, seen.path, seen.params, seen.json()) == ("POST", ENDPOINT[name], {}, BODIES[name])
    assert "authorization" not in seen.headers


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize("tail", ["", "/", "endpoint"])
def test_the_address_may_end_as_it_likes(name: str, tail: str) -> None:
    with LocalServer(lambda call: call.reply(recorded(name))) as server:
        base = server.address + INDEX.get(name, "")
        address = tail.replace("endpoint", server.address + ENDPOINT[name]) if "end" in tail else base + tail
        backend = Retriever(name, address)
        asyncio.run(backend.search("q", 1))
        assert server.seen[0].path == ENDPOINT[name]
        assert backend.parameters == {"address": base}


def test_search_r1_documents_in_their_three_shapes() -> None:
    assert served("search-r1", recorded("search-r1")) == [
        Hit(
            "Solaris (novel)",
            "13",
            "Solaris is a 1961 novel. It is by Stanisław Lem.",
            text="Solaris is a 1961 novel.\nIt is by Stanisław Lem.",
            score=12.5,
        ),
        Hit('"Heroes" (album)', "14", "An album by David Bowie.", text="An album by David Bowie.", score=3.0),
        Hit("Bare", "15", "A document without its envelope.", text="A document without its envelope.", score=1.0),
    ]


def test_flashrag_documents_with_and_without_scores() -> None:
    with_scores = recorded("flashrag")
    hits = served("flashrag", with_scores)
    assert [(hit.title, hit.url, hit.text, hit.score) for hit in hits] == [
        ("Solaris (novel)", "13", "Solaris is a 1961 novel.", 0.9),
        ("", "14", "A text without a title.", 0.5),
    ]
    assert [hit.text for hit in served("flashrag", with_scores[0])] == [hit.text for hit in hits]
    assert len(served("flashrag", [with_scores[0], [0.9]])) == 2


def test_elasticsearch_documents() -> None:
    first, second = served("elasticsearch", recorded("elasticsearch"))
    assert (first.title, first.url, first.score) == (
        "Solaris (novel)",
        "https://en.wikipedia.org/wiki/Solaris_(novel)",
        9.1,
    )
    assert (second.title, second.url, second.text) == ("Lem", "a2", "The author of Solaris.")


EMPTY = {
    "search-r1": {"result": [[]]},
    "flashrag": [[], []],
    "elasticsearch": {"hits": {"hits": []}},
    "opensearch": {"hits": {"total": {"value": 0}, "hits": []}},
}


@pytest.mark.parametrize("name", RETRIEVERS)
def test_an_honest_nothing_is_no_hits(name: str) -> None:
    assert served(name, EMPTY[name]) == []


@pytest.mark.parametrize("document", [None, 3, [], {}, {"contents": None}, {"title": "only"}, "", {"text": " "}])
def test_a_document_without_text_is_left_out(document: Any) -> None:
    hit = passage(document)
    assert hit is None or hit.text
    good = {"document": {"contents": "t\nx"}, "score": 1}
    assert len(served("search-r1", {"result": [[{"document": document, "score": "x"}, good]]})) in (1, 2)


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize(
    "body", [{"error": "index is loading"}, {}, None, {"result": [[], []]}, {"hits": {"hits": {}}}], ids=str
)
def test_a_shape_that_is_not_understood_is_an_error(name: str, body: Any) -> None:
    error = refusal(name, lambda call: call.reply(json.dumps(body).encode()))
    assert "error" not in str(body) or "index is loading" in str(error)


def test_documents_that_all_have_no_text_are_an_error() -> None:
    body = {"result": [[{"document": {"id": "1", "passage": "in another column"}, "score": 1}]]}
    assert "passages without text" in str(refusal("search-r1", lambda call: call.reply(body)))


def test_a_part_of_an_index_is_not_taken_for_the_whole() -> None:
    body = recorded("elasticsearch")
    for broken in ({**body, "timed_out": True}, {**body, "_shards": {"failed": 1}}):
        assert "a part of the index" in str(refusal("elasticsearch", lambda call, broken=broken: call.reply(broken)))


def test_a_password_in_the_address_is_sent_and_never_shown() -> None:
    with LocalServer(lambda call: call.reply(b"no", 401)) as server:
        address = server.address.replace("//", "//me:s3cret@") + "/wiki"
        backend = Retriever("elasticsearch", address)
        with pytest.raises(ServiceError, match="Is the login in the address, or ES_API_KEY, right") as caught:
            asyncio.run(backend.search("q", 1))
        assert server.seen[0].headers["authorization"].startswith("Basic ")
    assert "s3cret" not in f"{caught.value} {backend!r} {backend.parameters}"


def test_an_api_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ES_API_KEY", "abc==")
    with LocalServer(lambda call: call.reply(recorded("elasticsearch"))) as server:
        search("elasticsearch", server.address)
        assert server.seen[0].headers["authorization"] == "ApiKey abc=="


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize("address", [None, "me:s3cret@host:9200/x"])
def test_an_address_that_is_none_is_refused(name: str, address: str | None) -> None:
    with pytest.raises(ValueError, match=f"{name} needs an address") as caught:
        Retriever(name, address)
    assert "s3cret" not in str(caught.value)


def test_elasticsearch_needs_an_index() -> None:
    with pytest.raises(ValueError, match="needs an index"):
        Retriever("elasticsearch", "http://host:9200/")
