"""Web providers and retrieval servers against recorded answers: what is sent, what is read, what is said."""

import asyncio
import itertools
import json
import logging
import math
import re
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from arpo_env.net import ServiceError
from arpo_env.search.backends import ROWS, Ddgs, Documents, Provider, ReplyShape, open_search, ready_providers
from arpo_env.search.search_backend import Hit, SearchBackend
from tests.arpo_env.local_server import Call, LocalServer, Seen

RECORDED = Path(__file__).parent / "recorded"
KEY = "key-1234-secret"
BY_HTTP = sorted(row.name for row in ROWS if isinstance(row.shape, ReplyShape))
RETRIEVERS = sorted(row.name for row in ROWS if isinstance(row.shape, Documents))
INDEX = {"elasticsearch": "/wiki", "opensearch": "/wiki"}
WIKIPEDIA = "https://en.wikipedia.org/wiki/Solaris_(novel)"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in ROWS:
        for variable in row.variables:
            monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("BRIGHTDATA_ZONE", "my_zone")
    monkeypatch.delenv("SEARXNG_API_BASE", raising=False)


def recorded(name: str) -> Any:
    if name == "brightdata-google":  # bare what Bright Data wraps for Bing
        return json.loads(recorded("brightdata")["body"])
    return json.loads((RECORDED / f"{name.replace('opensearch', 'elasticsearch')}.json").read_text())


def quick(name: str, server: LocalServer) -> SearchBackend:
    backend = Provider(name, server.address + INDEX.get(name, ""), per_second=math.inf)
    backend._http = replace(backend._http, timeout=0.5, retries=0)
    return backend


def search(backend: SearchBackend, query: str = "who wrote Solaris", k: int = 3) -> list[Hit]:
    async def once() -> list[Hit]:
        try:
            return await backend.search(query, k)
        finally:
            await backend.close()

    return asyncio.run(once())


def served(name: str, body: Any = None, query: str = "who wrote Solaris", k: int = 3) -> list[Hit]:
    """Search a server that answers with the recording, or with `body`."""
    with LocalServer(lambda call: call.reply(recorded(name) if body is None else body)) as server:
        return search(quick(name, server), query, k)


def sent(name: str, query: str = "who wrote Solaris", k: int = 3) -> Seen:
    with LocalServer(lambda call: call.reply(recorded(name))) as server:
        search(quick(name, server), query, k)
        (seen,) = server.seen
    return seen


def refusal(name: str, answer: Any, query: str = "q") -> ServiceError:
    with LocalServer(answer) as server, pytest.raises(ServiceError) as caught:
        search(quick(name, server), query)
    return caught.value


# --- what is sent

QUERY, AUTH = "who wrote Solaris", "authorization"
BING = "https://www.bing.com/search?q=who+wrote+Solaris&mkt=en-US&setLang=en&count=3&cc=us"
GOOGLE = "https://www.google.com/search?q=who+wrote+Solaris&num=3&hl=en&brd_json=1"
ZONE = {"zone": "my_zone"}
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {  # path, header with the key, body or parameters
    "serper": ("/search", "x-api-key", {"q": QUERY, "num": 3, "hl": "en"}),
    "tavily": ("/search", AUTH, {"query": QUERY, "max_results": 3, "search_depth": "basic", "topic": "general"}),
    "exa": (
        "/search",
        "x-api-key",
        {"query": QUERY, "numResults": 3, "type": "auto", "contents": {"highlights": True}},
    ),
    "perplexity": ("/search", AUTH, {"query": QUERY, "max_results": 3, "max_tokens_per_page": 512}),
    "brightdata": ("/request", AUTH, {**ZONE, "url": BING, "format": "json", "data_format": "parsed_bing"}),
    "brightdata-google": ("/request", AUTH, {**ZONE, "url": GOOGLE, "format": "raw"}),
    "brave": (
        "/res/v1/web/search",
        "x-subscription-token",
        {"q": QUERY, "count": "3", "search_lang": "en", "text_decorations": "false"},
    ),
    "serpapi": ("/search", "", {"engine": "google", "q": QUERY, "num": "3", "hl": "en", "api_key": KEY}),
    "searxng": ("/search", "", {"q": QUERY, "format": "json", "language": "en", "pageno": "1"}),
    "search-r1": ("/retrieve", "", {"queries": [QUERY], "topk": 3, "return_scores": True}),
    "flashrag": ("/search", "", {"query": QUERY, "top_n": 3, "return_score": True}),
}
FIELDS, SOURCE = ["title^0.5", "text", "contents"], ["id", "title", "text", "contents", "url", "date"]
MATCH = {"multi_match": {"query": QUERY, "fields": FIELDS, "type": "most_fields", "lenient": True}}
REQUESTS |= dict.fromkeys(INDEX, ("/wiki/_search", "", {"size": 3, "query": MATCH, "_source": SOURCE}))


@pytest.mark.parametrize("name", BY_HTTP + RETRIEVERS)
def test_a_request(name: str) -> None:
    path, header, fields = REQUESTS[name]
    seen = sent(name)
    assert (seen.method, seen.path) == ("POST" if seen.body else "GET", path)
    assert (seen.json() if seen.body else seen.params) == fields
    assert not header or seen.headers[header] == (f"Bearer {KEY}" if header == AUTH else KEY)


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize("tail", ["", "/", "endpoint"])
def test_the_address_of_a_server_may_end_as_it_likes(name: str, tail: str) -> None:
    path = REQUESTS[name][0]
    with LocalServer(lambda call: call.reply(recorded(name))) as server:
        base = server.address + INDEX.get(name, "")
        backend = Provider(name, server.address + path if tail == "endpoint" else base + tail)
        asyncio.run(backend.search("q", 1))
        assert server.seen[0].path == path
        assert "authorization" not in server.seen[0].headers
        assert backend.parameters == {"address": base}


LANGUAGES = dict.fromkeys(("serper", "serpapi", "brightdata-google"), "zh-cn")
LANGUAGES |= {"brave": "zh-hans", "searxng": "zh", "brightdata": "zh-CN"}


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_a_chinese_query_asks_for_chinese_pages(name: str) -> None:
    for query, chinese in ((QUERY, False), ("索拉里斯星 作者", True)):
        seen = sent(name, query)
        words = re.findall(r"[\w-]+", f"{seen.params} {seen.body.decode()}")
        assert (LANGUAGES[name] in words) is chinese


@pytest.mark.parametrize("query", ["ab " * 300, "abcdefghi " * 100])
def test_brave_gets_at_most_20_results_400_characters_and_50_words(query: str) -> None:
    params = sent("brave", query, k=500).params
    assert params["count"] == "20"
    assert len(params["q"].split()) <= 50
    assert len(params["q"]) <= 400


# --- what is read

NOVEL, LONG, SHORT = "Solaris (novel)", "science fiction novel by", "Solaris is a 1961 novel by Stanisław Lem."
FIRST = {
    "serper": Hit(f"{NOVEL} / Author", WIKIPEDIA, f"Stanisław Lem {SHORT}"),
    "tavily": Hit(NOVEL, WIKIPEDIA, f"Solaris is a 1961 {LONG} Polish writer Stanisław Lem.", score=0.94),
    "brave": Hit(
        f"{NOVEL} - Wikipedia",
        WIKIPEDIA,
        f"{SHORT[:-1]} & a film. The ocean of Solaris is alive. Kelvin arrives at the station.",
        date="2024-11-02T10:00:00",
    ),
    "serpapi": Hit("Solaris", WIKIPEDIA, "Stanisław Lem"),
    "exa": Hit(NOVEL, WIKIPEDIA, SHORT, date="2023-11-16T01:36:32.547Z", score=0.46),
    "perplexity": Hit(NOVEL, WIKIPEDIA, SHORT, date="2025-03-20"),
    "searxng": Hit(NOVEL, WIKIPEDIA, f"Solaris is a 1961 {LONG} Stanisław Lem.", score=4.0),
    "brightdata": Hit(f"{NOVEL} - Wikipedia", WIKIPEDIA, SHORT),
    "brightdata-google": Hit(f"{NOVEL} - Wikipedia", WIKIPEDIA, SHORT),
}


@pytest.mark.parametrize("name", BY_HTTP)
def test_the_first_hit_is_read_in_full(name: str) -> None:
    assert served(name)[0] == FIRST[name]


def test_documents_of_retrieval_servers_in_all_their_shapes() -> None:
    def rows(name: str, body: Any = None) -> list[tuple[Any, ...]]:
        return [(hit.title, hit.url, hit.text, hit.score) for hit in served(name, body)]

    assert served("search-r1")[0].snippet == "Solaris is a 1961 novel. It is by Stanisław Lem."
    assert rows("search-r1") == [
        (NOVEL, "13", "Solaris is a 1961 novel.\nIt is by Stanisław Lem.", 12.5),
        ('"Heroes" (album)', "14", "An album by David Bowie.", 3.0),
        ("Bare", "15", "A document without its envelope.", 1.0),
    ]
    found = [(NOVEL, "13", "Solaris is a 1961 novel.", 0.9), ("", "14", "A text without a title.", 0.5)]
    assert rows("flashrag") == found
    for body in (recorded("flashrag")[0], [recorded("flashrag")[0], [0.9]]):  # without scores, or with too few
        assert [row[:3] for row in rows("flashrag", body)] == [row[:3] for row in found]
    first, second = rows("elasticsearch")
    assert (first[0], first[1], first[3]) == (NOVEL, WIKIPEDIA, 9.1)
    assert second[:3] == ("Lem", "a2", "The author of Solaris.")


@pytest.mark.parametrize("document", [None, 3, [], {}, {"contents": None}, {"title": "only"}, "", {"text": " "}])
def test_a_document_without_text_is_left_out(document: Any) -> None:
    good = {"document": {"contents": "t\nx"}, "score": 1}
    hits = served("search-r1", {"result": [[{"document": document, "score": "x"}, good]]})
    assert all(hit.text for hit in hits)
    assert hits[-1].text == "x"


EMPTY: dict[str, list[Any]] = {
    "serper": [{"searchParameters": {"q": "q"}, "organic": []}, {"searchParameters": {"q": "q"}, "credits": 1}],
    "tavily": [{"query": "q", "results": []}],
    "brave": [{"type": "search", "query": {"original": "q"}}, {"query": {}, "web": {"results": []}}],
    "serpapi": [
        {"search_metadata": {"status": "Success"}, "error": "Google hasn't returned any results for this query."}
    ],
    "exa": [{"requestId": "1", "results": []}],
    "perplexity": [{"id": "1", "results": []}],
    "searxng": [{"query": "q", "results": [], "unresponsive_engines": []}],
    "brightdata": [{"general": {"search_engine": "bing"}}, {"status_code": 200, "body": '{"general": {}}'}],
    "brightdata-google": [{"general": {"search_engine": "google"}, "organic": []}],
    **{"search-r1": [{"result": [[]]}], "flashrag": [[[], []]], "opensearch": [{"hits": {"hits": []}}]},
    "elasticsearch": [{"hits": {"total": {"value": 0}, "hits": []}}],
}


@pytest.mark.parametrize(("name", "body"), [(name, body) for name in BY_HTTP + RETRIEVERS for body in EMPTY[name]])
def test_an_honest_nothing_is_no_hits(name: str, body: Any) -> None:
    assert served(name, body) == []


ODD: list[Any] = [None, 1, [1, "a", None, ["b"]], {"a": 1, "b": [2]}, "\ud800", 1e999]


@pytest.mark.parametrize("name", BY_HTTP)
def test_an_odd_field_never_raises(name: str) -> None:
    shape = next(row for row in ROWS if row.name == name).shape
    assert isinstance(shape, ReplyShape)
    columns = shape.columns
    names = [*columns.title, *columns.url, *columns.snippet, *columns.date, columns.score]
    results = [{**dict.fromkeys(names, "x"), field: value} for field in names for value in ODD]
    body: Any = [*results, {}, None, "text", 7]
    for key in reversed(shape.path):
        body = {key: body}
    hits = served(name, body, k=1000)
    assert len(hits) == len(results)
    for hit in hits:
        assert all(isinstance(part, str) for part in (hit.title, hit.url, hit.snippet, hit.date, hit.text))
        assert Hit(**json.loads(json.dumps(asdict(hit), allow_nan=False))) == hit
        hit.snippet.encode()


# --- what is said


SHAPES = ({"error": "out of order"}, {}, None)
OF_PROVIDERS = (*SHAPES, [], {"organic": {}, "results": "none", "organic_results": 1, "web": [1]})
OF_SERVERS = (*SHAPES, {"result": [[], []]}, {"hits": {"hits": {}}})


@pytest.mark.parametrize(
    ("name", "body"), [*itertools.product(BY_HTTP, OF_PROVIDERS), *itertools.product(RETRIEVERS, OF_SERVERS)], ids=str
)
def test_a_shape_that_is_not_understood_is_an_error(name: str, body: Any) -> None:
    error = refusal(name, lambda call: call.reply(json.dumps(body).encode()))
    assert error.status == 200
    assert "error" not in str(body) or "out of order" in str(error)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("serpapi", {"search_metadata": {"status": "Error"}, "error": "Out of order."}, "Out of order"),
        ("searxng", {"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}, "CAPTCHA"),
        ("brightdata", {"status_code": 502, "body": ""}, "status 502"),
        ("brightdata", {"status_code": 200, "body": "<html>"}, "not parsed"),
        ("search-r1", {"result": [[{"document": {"id": "1", "passage": "x"}, "score": 1}]]}, "passages without text"),
        ("elasticsearch", {"hits": {"hits": []}, "timed_out": True}, "a part of the index"),
        ("opensearch", {"hits": {"hits": []}, "_shards": {"failed": 1}}, "a part of the index"),
    ],
)
def test_a_failure_inside_an_answer_is_no_honest_nothing(name: str, body: Any, said: str) -> None:
    assert said in str(refusal(name, lambda call: call.reply(body)))


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.variables])
def test_a_refusal_and_a_missing_key_name_the_variable_and_the_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ROWS if row.name == name)
    for status in (401, 429):
        error = refusal(name, lambda call, status=status: call.reply(b"no", status))
        assert error.status == status
        assert row.page in str(error)
        assert status == 429 or row.variables[0] in str(error)
    for variable in row.variables:
        monkeypatch.setenv(variable, " ")
        with pytest.raises(ValueError, match=f"{variable}, which is not set; get one at {row.page}"):
            open_search(name)
        monkeypatch.setenv(variable, KEY)


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("name", BY_HTTP)
def test_no_service_that_repeats_the_request_shows_the_key(name: str, status: int, caplog: Any) -> None:
    """Other faults are in tests/arpo_env/net."""

    def echo(call: Call) -> None:
        call.reply(f"{call.handler.path} {call.seen.headers} {call.seen.body!r}".encode(), status)

    caplog.set_level(logging.DEBUG)
    with LocalServer(echo) as server:
        backend = quick(name, server)
        with pytest.raises(ServiceError) as caught:
            search(backend)
    shown = f"{traceback.format_exception(caught.value)} {backend!r} {backend.parameters} {caplog.text}"
    assert not [part for part in ("1234", "secret") if part in shown]


def test_a_key_is_sent_and_so_is_a_password_in_the_address_that_is_never_shown(monkeypatch: Any) -> None:
    with LocalServer(lambda call: call.reply(b"no", 401)) as server:
        address = server.address.replace("//", "//me:s3cret@") + "/wiki"
        backend = Provider("elasticsearch", address)
        with pytest.raises(ServiceError, match="Is the login in the address, or ES_API_KEY, right") as caught:
            asyncio.run(backend.search("q", 1))
        assert server.seen[0].headers["authorization"].startswith("Basic ")
    assert "s3cret" not in f"{caught.value} {backend!r} {backend.parameters}"
    monkeypatch.setenv("ES_API_KEY", "abc==")
    assert sent("elasticsearch").headers["authorization"] == "ApiKey abc=="


# --- construction


@pytest.mark.parametrize("address", [None, "me:s3cret@host:9200/x"])
def test_an_address_that_is_none_is_refused(address: str | None) -> None:
    for name in RETRIEVERS:
        with pytest.raises(ValueError, match=f"{name} needs an address") as caught:
            Provider(name, address)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ValueError, match="elasticsearch needs an index"):
        Provider("elasticsearch", "http://host:9200/")


def test_those_with_all_their_keys_are_ready_and_searxng_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRIGHTDATA_ZONE")
    assert ready_providers() == ["brave", "exa", "perplexity", "serpapi", "serper", "tavily"]
    with pytest.raises(ValueError, match="SEARXNG_API_BASE"):
        open_search("searxng")
    monkeypatch.setenv("SEARXNG_API_BASE", "http://me:secret@host:8080/searx/")
    assert open_search("searxng").parameters["address"] == "http://host:8080/searx"


def test_the_pace_is_that_of_the_smallest_plan_unless_told() -> None:
    with pytest.raises(ValueError, match="not above 0"):
        Provider("brave", per_second=0)
    assert Provider("brave")._http.per_second == 1
    with LocalServer(lambda call: call.reply(recorded("brave"))) as server:
        backend = Provider("brave", server.address, per_second=0.01)
        asyncio.run(backend.search("q", 1))
        with pytest.raises(ServiceError, match=r"per_second=0\.01;"):
            asyncio.run(backend.search("q", 1))


# --- the package `ddgs`


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands for `ddgs.DDGS().text`, since the engines behind it are the web."""
    text = Mock(return_value=recorded("ddgs"))
    monkeypatch.setattr(pytest.importorskip("ddgs"), "DDGS", lambda timeout: Mock(text=text))
    return text


def test_hits_of_ddgs_are_read(text: Mock) -> None:
    from ddgs.exceptions import DDGSException

    first = recorded("ddgs")[0]
    for query, region in ((QUERY, "us-en"), ("黄金", "cn-zh")):
        assert search(Ddgs(), query)[0] == Hit(first["title"], first["href"], first["body"])
        text.assert_called_with(query, region=region, max_results=3)
    text.side_effect = DDGSException("No results found.")
    assert search(Ddgs()) == []


def test_a_fault_or_another_shape_of_ddgs_is_a_service_error(text: Mock) -> None:
    from ddgs.exceptions import DDGSException, RatelimitException

    text.side_effect = [RatelimitException("403"), DDGSException("x"), KeyError("a"), {"results": []}]
    for _ in range(4):
        with pytest.raises(ServiceError, match=r"ddgs: (the |returned dict, expected a list)"):
            search(Ddgs())
