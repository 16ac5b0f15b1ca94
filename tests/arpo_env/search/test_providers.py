"""Web providers against recorded answers: what is sent, what is read, and what is said when it goes wrong."""

import asyncio
import json
import logging
import math
import traceback
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arpo_env.net import ServiceError
from arpo_env.search.backends import ROWS, make_provider, ready_providers
from arpo_env.search.search_backend import Hit, SearchBackend
from tests.arpo_env.local_server import Call, LocalServer, Seen

RECORDED = Path(__file__).parent / "recorded"
KEY = "key-1234-secret"
BY_HTTP = sorted(row.name for row in ROWS)
WIKIPEDIA = "https://en.wikipedia.org/wiki/Solaris_(novel)"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in ROWS:
        for variable in row.variables:
            monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("BRIGHTDATA_ZONE", "my_zone")
    monkeypatch.delenv("SEARXNG_API_BASE", raising=False)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def quick(name: str, server: LocalServer) -> SearchBackend:
    backend: Any = make_provider(name, server.address, per_second=math.inf)
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

QUERY, BEARER = "who wrote Solaris", f"Bearer {KEY}"
BING = "https://www.bing.com/search?q=who+wrote+Solaris&mkt=en-US&setLang=en&count=3&cc=us"
GOOGLE = "https://www.google.com/search?q=who+wrote+Solaris&num=3&hl=en&brd_json=1"
POSTED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "serper": ("/search", {"x-api-key": KEY}, {"q": QUERY, "num": 3, "hl": "en"}),
    "tavily": (
        "/search",
        {"authorization": BEARER},
        {"query": QUERY, "max_results": 3, "search_depth": "basic", "topic": "general"},
    ),
    "exa": (
        "/search",
        {"x-api-key": KEY},
        {"query": QUERY, "numResults": 3, "type": "auto", "contents": {"highlights": True}},
    ),
    "perplexity": (
        "/search",
        {"authorization": BEARER},
        {"query": QUERY, "max_results": 3, "max_tokens_per_page": 512},
    ),
    "brightdata": (
        "/request",
        {"authorization": BEARER},
        {"zone": "my_zone", "url": BING, "format": "json", "data_format": "parsed_bing"},
    ),
    "brightdata-google": ("/request", {"authorization": BEARER}, {"zone": "my_zone", "url": GOOGLE, "format": "raw"}),
}
GOT = {
    "brave": (
        "/res/v1/web/search",
        "x-subscription-token",
        {"q": "who wrote Solaris", "count": "3", "search_lang": "en", "text_decorations": "false"},
    ),
    "serpapi": ("/search", "", {"engine": "google", "q": "who wrote Solaris", "num": "3", "hl": "en", "api_key": KEY}),
    "searxng": ("/search", "", {"q": "who wrote Solaris", "format": "json", "language": "en", "pageno": "1"}),
}


def test_every_service_of_the_table_is_tested() -> None:
    assert sorted([*POSTED, *GOT]) == BY_HTTP


@pytest.mark.parametrize("name", sorted(POSTED))
def test_a_posted_request(name: str) -> None:
    path, headers, body = POSTED[name]
    seen = sent(name)
    assert (seen.method, seen.path, seen.params, seen.json()) == ("POST", path, {}, body)
    assert seen.headers.items() >= {**headers, "content-type": "application/json"}.items()


@pytest.mark.parametrize("name", sorted(GOT))
def test_a_request_without_a_body(name: str) -> None:
    path, header, params = GOT[name]
    seen = sent(name)
    assert (seen.method, seen.path, seen.params, seen.body) == ("GET", path, params, b"")
    assert not header or seen.headers[header] == KEY


def everything(seen: Seen) -> str:
    body = seen.body.decode()
    url = json.loads(body).get("url", "") if body else ""
    return json.dumps([seen.params, body, urllib.parse.parse_qsl(url)], ensure_ascii=False)


LANGUAGES = {
    "serper": "zh-cn",
    "brave": "zh-hans",
    "serpapi": "zh-cn",
    "searxng": "zh",
    "brightdata": "zh-CN",
    "brightdata-google": "zh-cn",
}


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_a_chinese_query_asks_for_chinese_pages(name: str) -> None:
    assert LANGUAGES[name] not in everything(sent(name))
    assert f'"{LANGUAGES[name]}"' in everything(sent(name, "索拉里斯星 作者")).replace('\\"', '"')


def test_brave_gets_at_most_20_results_400_characters_and_50_words() -> None:
    seen = sent("brave", "ab " * 300, k=500)
    assert seen.params["count"] == "20"
    assert len(seen.params["q"].split()) == 50
    assert len(sent("brave", "abcdefghi " * 100).params["q"]) <= 400


@pytest.mark.parametrize("name", BY_HTTP)
def test_nothing_is_asked_for_nothing(name: str) -> None:
    with LocalServer(lambda call: call.reply({})) as server:
        assert search(quick(name, server), " \n") == []
        assert search(quick(name, server), "q", 0) == []
        assert not server.seen


# --- what is read

FIRST = {
    "serper": Hit("Solaris (novel) / Author", WIKIPEDIA, "Stanisław Lem Solaris is a 1961 novel by Stanisław Lem."),
    "tavily": Hit(
        "Solaris (novel)",
        WIKIPEDIA,
        "Solaris is a 1961 science fiction novel by Polish writer Stanisław Lem.",
        score=0.94,
    ),
    "brave": Hit(
        "Solaris (novel) - Wikipedia",
        WIKIPEDIA,
        "Solaris is a 1961 novel by Stanisław Lem & a film. "
        "The ocean of Solaris is alive. Kelvin arrives at the station.",
        date="2024-11-02T10:00:00",
    ),
    "serpapi": Hit("Solaris", WIKIPEDIA, "Stanisław Lem"),
    "exa": Hit(
        "Solaris (novel)",
        WIKIPEDIA,
        "Solaris is a 1961 novel by Stanisław Lem.",
        date="2023-11-16T01:36:32.547Z",
        score=0.46,
    ),
    "perplexity": Hit("Solaris (novel)", WIKIPEDIA, "Solaris is a 1961 novel by Stanisław Lem.", date="2025-03-20"),
    "searxng": Hit(
        "Solaris (novel)", WIKIPEDIA, "Solaris is a 1961 science fiction novel by Stanisław Lem.", score=4.0
    ),
    "brightdata": Hit("Solaris (novel) - Wikipedia", WIKIPEDIA, "Solaris is a 1961 novel by Stanisław Lem."),
    "brightdata-google": Hit("Solaris (novel) - Wikipedia", WIKIPEDIA, "Solaris is a 1961 novel by Stanisław Lem."),
}


@pytest.mark.parametrize("name", BY_HTTP)
def test_the_first_hit_is_read_in_full(name: str) -> None:
    assert served(name)[0] == FIRST[name]


def test_serper_answers_come_before_the_results() -> None:
    titles = [hit.title for hit in served("serper", k=10)]
    assert titles[:3] == ["Solaris (novel) / Author", "Solaris", "Solaris (novel) - Wikipedia"]
    assert "Originally published: 1961" in served("serper", k=10)[1].snippet


EMPTY: dict[str, list[Any]] = {
    "serper": [{"searchParameters": {"q": "q"}, "organic": []}, {"searchParameters": {"q": "q"}, "credits": 1}],
    "tavily": [{"query": "q", "results": []}],
    "brave": [{"type": "search", "query": {"original": "q"}}, {"query": {}, "web": {"results": []}}],
    "serpapi": [
        {
            "search_metadata": {"status": "Success"},
            "search_information": {"organic_results_state": "Fully empty"},
            "error": "Google hasn't returned any results for this query.",
        }
    ],
    "exa": [{"requestId": "1", "results": []}],
    "perplexity": [{"id": "1", "results": []}],
    "searxng": [{"query": "q", "results": [], "unresponsive_engines": []}],
    "brightdata": [{"general": {"search_engine": "bing"}}, {"status_code": 200, "body": '{"general": {}}'}],
    "brightdata-google": [{"general": {"search_engine": "google"}, "organic": []}],
}


@pytest.mark.parametrize(("name", "body"), [(name, body) for name in BY_HTTP for body in EMPTY[name]])
def test_an_honest_nothing_is_no_hits(name: str, body: Any) -> None:
    assert served(name, body) == []


def results_place(name: str) -> tuple[str, ...]:
    return next(row for row in ROWS if row.name == name).shape.path


def with_results(name: str, results: Any) -> Any:
    """A reply of the service that holds these results."""
    body = results
    for key in reversed(results_place(name)):
        body = {key: body}
    return body


ODD: list[Any] = [None, 1, [1, "a", None, ["b"]], {"a": 1, "b": [2]}, "\ud800", 1e999]


@pytest.mark.parametrize("name", BY_HTTP)
def test_an_odd_field_never_raises(name: str) -> None:
    columns = next(row for row in ROWS if row.name == name).shape.columns
    names = [*columns.title, *columns.url, *columns.snippet, *columns.date, columns.score]
    results = [{**dict.fromkeys(names, "x"), field: value} for field in names for value in ODD]
    hits = served(name, with_results(name, [*results, {}, None, "text", 7]), k=1000)
    assert len(hits) == len(results)
    for hit in hits:
        assert all(isinstance(part, str) for part in (hit.title, hit.url, hit.snippet, hit.date, hit.text))
        assert Hit.from_dict(json.loads(json.dumps(hit.as_dict(), allow_nan=False))) == hit
        hit.snippet.encode()


# --- what is said


@pytest.mark.parametrize("name", BY_HTTP)
@pytest.mark.parametrize(
    "body",
    [{"error": "out of order"}, {}, [], None, {"organic": {}, "results": "none", "organic_results": 1, "web": [1]}],
    ids=str,
)
def test_a_shape_that_is_not_understood_is_an_error(name: str, body: Any) -> None:
    error = refusal(name, lambda call: call.reply(json.dumps(body).encode()))
    assert error.status == 200
    if isinstance(body, dict) and len(body) == 1:
        assert next(iter(body.values())) in str(error)


def test_a_search_that_serpapi_reports_as_failed_is_an_error() -> None:
    body = {"search_metadata": {"status": "Error"}, "error": "We couldn't get valid results for this search."}
    assert "couldn't get valid results" in str(refusal("serpapi", lambda call: call.reply(body)))


def test_engines_that_all_failed_are_no_honest_nothing() -> None:
    body = {"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}
    assert "CAPTCHA" in str(refusal("searxng", lambda call: call.reply(body)))


@pytest.mark.parametrize("body", [{"status_code": 502, "body": ""}, {"status_code": 200, "body": "<html>"}])
def test_an_envelope_without_a_result_page_is_an_error(body: Any) -> None:
    refusal("brightdata", lambda call: call.reply(body))


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.variables])
@pytest.mark.parametrize("status", [401, 429])
def test_a_refusal_names_its_cure(name: str, status: int) -> None:
    row = next(row for row in ROWS if row.name == name)
    error = refusal(name, lambda call: call.reply(b"no", status))
    assert error.status == status
    assert row.page in str(error)
    assert status not in (401, 403) or row.variables[0] in str(error)


def echo(call: Call) -> None:
    call.reply(f"{call.handler.path} {call.seen.headers} {call.seen.body!r}".encode(), 401)


def elsewhere(call: Call) -> None:
    call.reply(b"", 302, Location=f"http://127.0.0.1:9{call.handler.path}")


HOSTILE = [echo, elsewhere, lambda call: call.reply(call.handler.path.encode())]


@pytest.mark.parametrize("name", BY_HTTP)
def test_no_fault_of_a_service_shows_the_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    for answer in HOSTILE:
        with LocalServer(answer) as server:
            backend = quick(name, server)
            with pytest.raises(ServiceError) as caught:
                search(backend)
        shown += [*traceback.format_exception(caught.value), repr(backend), str(backend.parameters)]
    everything = "".join(shown) + caplog.text
    assert "1234" not in everything
    assert "secret" not in everything


# --- construction


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.variables])
def test_a_missing_key_is_named_with_the_page_where_one_gets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ROWS if row.name == name)
    for variable in row.variables:
        monkeypatch.setenv(variable, " ")
        with pytest.raises(ValueError, match=f"{variable}, which is not set; get one at {row.page}"):
            make_provider(name)
        monkeypatch.setenv(variable, KEY)


def test_searxng_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="SEARXNG_API_BASE"):
        make_provider("searxng")
    monkeypatch.setenv("SEARXNG_API_BASE", "http://me:secret@host:8080/searx/")
    assert make_provider("searxng").parameters["address"] == "http://host:8080/searx"


def test_the_pace_is_that_of_the_smallest_plan_unless_told() -> None:
    with pytest.raises(ValueError, match="not above 0"):
        make_provider("brave", per_second=0)
    with LocalServer(lambda call: call.reply(recorded("brave"))) as server:
        backend: Any = make_provider("brave", server.address)
        backend._http = replace(backend._http, patience=0.5)
        asyncio.run(backend.search("q", 1))
        with pytest.raises(ServiceError, match="per_second=1;"):
            asyncio.run(backend.search("q", 1))


def test_those_with_all_their_keys_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRIGHTDATA_ZONE")
    assert ready_providers() == ["brave", "exa", "perplexity", "serpapi", "serper", "tavily"]
