"""Search backends by name: `open_search("serper")`, `open_search("search-r1:http://host:8000")`, `open_search(path)`.

A web search service, or a kind of retrieval server, is one row of `ROWS`. To add one, add a row, or call
`register_provider`. The fields of requests are those of the services' own references (2026-11).
"""

from __future__ import annotations

import asyncio
import html
import importlib.util
import json
import math
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arpo_env import net
from arpo_env.event_loop import run_in_daemon_thread
from arpo_env.search.local_search import SUFFIXES, open_local, split_title
from arpo_env.search.search_backend import Hit, RecordedSearch, SearchBackend
from envs_registry.nearest_name import nearest_hint

VARIABLE = "ARPO_SEARCH"
Factory = Callable[[str | None], SearchBackend]
_factories: dict[str, Factory] = {}  # those of `register_backend`


def open_search(where: SearchBackend | str | Path, *, asked: bool = True) -> SearchBackend:
    """Return a search backend.

    Args:
        where: a backend, which is returned; a name, such as "serper"; a name and an address, such as
            "search-r1:http://host:8000"; the folder of an index; or a corpus, a .jsonl file that is indexed into the
            user's cache at first use.
        asked: False for a provider whose recorded answers are replayed only; it needs no key.

    Raises:
        ValueError: the name is not known, or a key is missing.
        FileNotFoundError: the path does not exist.
    """
    if isinstance(where, SearchBackend):
        return where
    name, _, rest = str(where).partition(":")
    address = rest or None
    if isinstance(where, str) and name in backend_names():  # a known name has precedence over a file of that name
        if name in _factories:
            return _factories[name](address)
        if name in _BY_NAME:
            return Provider(name, address, asked=asked)
        if name == DDGS:
            return Ddgs()
        if name == "recorded":
            return RecordedSearch(address or "bing-arpo")
        if address is None:
            raise ValueError("'local' needs the folder of an index or a corpus, as in local:FOLDER")
        where = Path(address)
    # Paths come last, and a `Path` is never taken for a name.
    path = os.path.expanduser(where)
    if os.path.exists(path) or isinstance(where, Path):
        return open_local(path)
    raise _unknown(where, name)


def default_search(*, asked: bool = True) -> SearchBackend:
    """Return the backend that the variable ARPO_SEARCH names; `asked` is as for `open_search`.

    Raises:
        RuntimeError: the variable is not set.
    """
    if where := os.environ.get(VARIABLE):
        return open_search(where, asked=asked)
    servers = [row.name for row in _BY_NAME.values() if row.example]
    raise RuntimeError(
        f"no search is configured: set {VARIABLE}, or give the search option, one of: a corpus (FILE{SUFFIXES[0]}, "
        "indexed at first use); the folder of an index (arpo search index CORPUS FOLDER); a server, as in "
        f"search-r1:http://host:8000 ({', '.join(servers)}); or a provider with its key in the environment "
        f"({', '.join(sorted({DDGS, *_BY_NAME} - {*servers}))})"
    )


def register_backend(name: str, factory: Factory) -> None:
    """Register a backend under a name without a colon; `factory` is called with the text after the colon, or None."""
    _factories[name] = factory


def backend_names() -> list[str]:
    """Return the names that `open_search` knows."""
    return sorted({"local", "recorded", DDGS, *_BY_NAME, *_factories})


def _unknown(where: str, name: str) -> Exception:
    shown = net.strip_credentials(where)
    if name in ("http", "https"):  # an address alone does not tell the protocol of the server
        return ValueError(f"put the protocol of the search service before the address, as in search-r1:{shown}")
    # It was meant as a path; a list of backends would not help.
    if "/" in name or where.endswith(SUFFIXES):
        return FileNotFoundError(f"there is no index and no corpus at {where}")
    hint = nearest_hint(name.lower(), backend_names(), "did you mean {!r}? ")
    return ValueError(
        f"no search backend and no path {shown!r}; {hint}There are: {', '.join(backend_names())}, "
        f"the folder of an index, and a corpus (FILE{SUFFIXES[0]})"
    )


# What is sent to a service.

_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_CONTROL = re.compile(r"[\x00-\x20\x7f]+")


@dataclass(frozen=True)
class SearchQuery:
    """One search, from which the request to a provider is made."""

    text: str  # one line, short enough for the service
    k: int  # number of results, within the service's limit
    language: str  # "en" or "zh", guessed from the query
    keys: Mapping[str, str]  # environment variable of the provider -> its value

    @property
    def key(self) -> str:
        """The value of the provider's first variable."""
        return next(iter(self.keys.values()))

    def language_with(self, chinese: str) -> str:
        """Return the language, in the service's own spelling of Chinese."""
        return chinese if self.language == "zh" else self.language


Request = dict[str, Any]
"""What is sent to an endpoint: "headers", and "json" of a POST or "params" of a GET."""


def clean_query(query: str, characters: int = 2000, words: int | None = None) -> str:
    """Return the query as one line of valid Unicode, cut to so many characters and words.

    Services refuse longer queries. A model that wrote too much still gets an answer to how its query began.
    """
    # Lone surrogates could not be sent.
    line = _CONTROL.sub(" ", query.encode("utf-8", "replace").decode()).strip()
    if words is not None:
        line = " ".join(line.split(" ")[:words])
    return line[:characters].strip()


def query_language(query: str) -> str:
    """Return "zh" for a query with Chinese characters and no Japanese ones, otherwise "en"."""
    return "zh" if _HAN.search(query) and not _KANA.search(query) else "en"


def _bing(query: SearchQuery) -> Request:
    """Bing through Bright Data, as in the papers' search tool."""
    # Without a market Bing chooses one by the address of the proxy, and results change from call to call.
    market, language, country = ("zh-CN", "zh-CN", "cn") if query.language == "zh" else ("en-US", "en", "us")
    page = {"q": query.text, "mkt": market, "setLang": language, "count": query.k, "cc": country}
    return _brightdata(query, "https://www.bing.com/search", page, format="json", data_format="parsed_bing")


def _google(query: SearchQuery) -> Request:
    page = {"q": query.text, "num": query.k, "hl": query.language_with("zh-cn"), "brd_json": 1}
    return _brightdata(query, "https://www.google.com/search", page, format="raw")


def _brightdata(query: SearchQuery, url: str, page: Mapping[str, Any], **body: str) -> Request:
    address = f"{url}?{urllib.parse.urlencode(page)}"
    body |= {"zone": query.keys["BRIGHTDATA_ZONE"], "url": address}
    return {"headers": {"Authorization": f"Bearer {query.key}"}, "json": body}


def _elastic(query: SearchQuery) -> Request:
    # most_fields adds the scores of the fields, so that title and text both count
    fields = ["title^0.5", "text", "contents"]
    match = {"query": query.text, "fields": fields, "type": "most_fields", "lenient": True}
    wanted = ["id", "title", "text", "contents", "url", "date"]
    headers = {"Authorization": f"ApiKey {query.key}"} if query.keys else {}
    return {"headers": headers, "json": {"size": query.k, "query": {"multi_match": match}, "_source": wanted}}


# How a reply is unwrapped, where a service reports failures inside an answer with status 200.


def _serpapi_reply(data: Any) -> Any:
    """Accept a search without results, which SerpAPI reports as an error of a successful search."""
    if not isinstance(data, dict):
        return data
    state = data.get("search_metadata")
    status = state.get("status") if isinstance(state, dict) else None
    # Nothing found is an answer, whereas an error would void the episode.
    if status == "Success" and "hasn't returned any results" in str(data.get("error")):
        return {key: value for key, value in data.items() if key != "error"}
    if status not in ("Success", "Cached", None):
        raise ValueError(f"the search ended as {status!r}: {data.get('error', '')}")
    return data


def _searxng_reply(data: Any) -> Any:
    """Refuse an empty result if engines failed."""
    if isinstance(data, dict) and data.get("results") == [] and data.get("unresponsive_engines"):
        raise ValueError(f"found nothing, and these engines failed: {str(data['unresponsive_engines'])[:200]}")
    return data


def _brightdata_reply(data: Any) -> Any:
    """Return the result page that `format: json` wraps; `raw` does not wrap it."""
    if not isinstance(data, dict) or "body" not in data or "organic" in data:
        return data
    status = data.get("status_code", 200)
    if not isinstance(status, int) or status >= 400:
        raise ValueError(f"the search engine answered with status {status}")
    body = data["body"]
    try:
        return json.loads(body) if isinstance(body, str) else body
    except (ValueError, RecursionError):
        raise ValueError(f"the result page was not parsed; it begins with {str(body)[:80]!r}") from None


# Retrieval servers: what is unwrapped are the documents of a corpus with their scores.


def _search_r1_reply(data: Any) -> list[tuple[Any, Any]]:
    result = _listed(data, "result")
    if len(result) != 1 or not isinstance(result[0], list):
        raise ValueError(f"answered {len(result)} lists of passages to one query")
    return [_scored(item) for item in result[0]]


def _scored(item: Any) -> tuple[Any, Any]:
    # Some servers leave the scores out and send the documents alone.
    if isinstance(item, dict) and "document" in item:
        return item["document"], item.get("score")
    return item, item.get("score") if isinstance(item, dict) else None


def _flashrag_reply(data: Any) -> list[tuple[Any, Any]]:
    if not isinstance(data, list):
        raise ValueError(_wrong(data, "a list of passages"))
    if len(data) == 2 and all(isinstance(part, list) for part in data):
        scores = [*data[1], *[None] * len(data[0])]  # there may be fewer scores than passages
        return list(zip(data[0], scores, strict=False))
    return [(document, None) for document in data]


def _elastic_reply(data: Any) -> list[tuple[Any, Any]]:
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


# Reads the JSON of search services into `Hit`s. A single odd result never raises, since models read on without it; a
# reply of another shape does.

_TAG = re.compile(r"</?(?:strong|b|em|i|mark)>")
SNIPPET = 500  # characters of a text that stand for a snippet where the service has none


@dataclass(frozen=True)
class HitFields:
    """Names of the fields of one result. The first that is not empty counts, but snippets are joined.

    `markup` is whether texts hold HTML entities and emphasis.
    """

    title: tuple[str, ...] = ("title",)
    url: tuple[str, ...] = ("url",)
    snippet: tuple[str, ...] = ("snippet",)
    date: tuple[str, ...] = ("date",)
    score: str = ""
    markup: bool = False

    def hit(self, result: Mapping[str, Any]) -> Hit:
        """Read one result; a missing or odd field is empty."""
        return Hit(
            title=one_line(self._first(result, self.title)),
            url=self._first(result, self.url),
            snippet=one_line(" ".join(filter(None, (self._words(result, name) for name in self.snippet)))),
            date=one_line(self._first(result, self.date)),
            score=number(result.get(self.score)),
        )

    def _first(self, result: Mapping[str, Any], names: tuple[str, ...]) -> str:
        return next(filter(None, (self._words(result, name) for name in names)), "")

    def _words(self, result: Mapping[str, Any], name: str) -> str:
        words = json_text(result.get(name))
        return html.unescape(_TAG.sub("", words)) if self.markup else words


@dataclass(frozen=True)
class ReplyShape:
    """Where the results are in a reply.

    Attributes:
        leads: objects beside the list that answer the query directly: (key, fields).
    """

    path: tuple[str, ...]  # to the list of results
    columns: HitFields = HitFields()  # the fields of each result
    marker: str = ""  # a key whose presence in a reply without that list means that nothing was found
    leads: tuple[tuple[str, HitFields], ...] = ()

    def hits(self, reply: net.Reply, data: Any) -> list[Hit]:
        """Return the hits of a reply, whose unpacked JSON is `data`."""
        if not isinstance(data, dict):
            raise reply.fault(f"answered {json_kind(data)}, expected an object with {self._place}")
        found = self._list(reply, data)
        results = [result for result in found if isinstance(result, dict)]
        # Some odd results are skipped, but a list of nothing else is another format.
        if found and not results:
            raise reply.fault(f"answered {json_kind(found[0])} in {self._place}, expected objects")
        # Direct answers come first, as on the page of the search engine.
        leads = [columns.hit(data[key]) for key, columns in self.leads if isinstance(data.get(key), dict)]
        return [lead for lead in leads if lead.snippet] + with_text(map(self.columns.hit, results))

    def _list(self, reply: net.Reply, data: dict[str, Any]) -> list[Any]:
        found: Any = data
        for key in self.path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, list):
            return found
        # Before the marker: a reply can hold both, and an error must not look like an empty result.
        said = error_in(data)
        if said:
            raise reply.fault(f"answered an error: {said}")
        if found is None and self.marker and self.marker in data:
            return []
        raise reply.fault(f"answered an object without the list {self._place}; it has {sorted(data)[:8]}")

    @property
    def _place(self) -> str:
        return ".".join(self.path)


class Documents:
    """The shape of what retrieval servers answer: documents of a corpus with their scores."""

    def hits(self, reply: net.Reply, data: list[tuple[Any, Any]]) -> list[Hit]:
        """Return the documents as hits."""
        hits = [passage(document, score) for document, score in data]
        # Single passages without text are skipped, but a reply of nothing else has another format.
        if hits and not any(hits):
            raise reply.fault(f"answered passages without text; the first is {json_kind(data[0][0])}")
        return [hit for hit in hits if hit is not None]


def passage(document: Any, score: Any = None) -> Hit | None:
    """Return a document of a corpus as a hit, or None if it holds no text.

    The text is the field `text`, else `contents`, whose first line is the title (often quoted) if it has several.
    """
    fields = document if isinstance(document, dict) else {"contents": document}
    title, text = json_text(fields.get("title")), json_text(fields.get("text"))
    if not text:
        title, text = split_title(title, json_text(fields.get("contents")))
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


def with_text(hits: Iterable[Hit]) -> list[Hit]:
    """Leave out hits without any text."""
    return [hit for hit in hits if hit.title or hit.snippet or hit.text]


def error_in(data: Mapping[str, Any]) -> str:
    """Return the error that a reply reports, or ""."""
    for key in ("error", "message", "detail"):
        said = one_line(json_text(data.get(key)))
        if said:
            return said[:300]
    return ""


def json_text(value: Any) -> str:
    """Return the text of a JSON value: strings and numbers, lists of them, and objects of them as `name: value`."""
    if isinstance(value, str):  # lone surrogates could be neither sent nor recorded
        return value.encode("utf-8", "replace").decode().strip()
    if isinstance(value, list):
        return " ".join(filter(None, (json_text(part) for part in value if isinstance(part, str | int | float))))
    # Such as the attributes in a knowledge graph of Serper.
    if isinstance(value, dict):
        parts = ((key, json_text(part)) for key, part in value.items() if isinstance(part, str | int | float))
        return "; ".join(f"{json_text(key)}: {part}" for key, part in parts if part)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space."""
    return " ".join(text.split())


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    # bool is a subclass of int; NaN and infinity are no valid JSON.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def json_kind(value: Any) -> str:
    """Name the kind of a JSON value."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


# `Ddgs`: web search through the `ddgs` package, which needs no key and asks several engines itself.
#
# It is good for trying things out. The engines soon refuse a machine that asks often, so do not train with it.

DDGS = "ddgs"
DDGS_INSTALL = "pip install ddgs"
_DDGS_PER_SECOND = 1.0
_DDGS_SECONDS, _DDGS_PATIENCE = 20.0, 60.0  # for a search; for the wait for its turn
_DDGS_COLUMNS = HitFields(url=("href",), snippet=("body",))


class Ddgs(SearchBackend):
    """Web search through `ddgs`."""

    name = DDGS

    def __init__(self) -> None:
        if not ddgs_is_installed():
            raise ModuleNotFoundError(f"ddgs is not installed: {DDGS_INSTALL}")
        self._limiter = net.RateLimiter(_DDGS_PER_SECOND)

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits."""
        line = clean_query(query, 500)
        if not line or k < 1:
            return []
        try:
            await self._limiter.acquire(_DDGS_PATIENCE)
        except net.RateLimited:
            raise net.ServiceError(DDGS, f"too many searches wait for their turn at {_DDGS_PER_SECOND:g}/s") from None
        # Nothing can interrupt ddgs, and an ordinary thread would keep the interpreter from exiting.
        work = run_in_daemon_thread(lambda: self._found(line, k), "arpo-ddgs")
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(work), _DDGS_SECONDS)
        except TimeoutError:
            raise net.ServiceError(DDGS, f"found nothing within {_DDGS_SECONDS:g} s") from None
        return with_text(_DDGS_COLUMNS.hit(result) for result in found if isinstance(result, dict))[:k]

    def _found(self, line: str, k: int) -> list[Any]:
        import ddgs
        from ddgs.exceptions import RatelimitException

        region = "cn-zh" if query_language(line) == "zh" else "us-en"
        engines = ddgs.DDGS(timeout=max(1, int(_DDGS_SECONDS / 2)))  # per engine; time for a second one remains
        try:
            found = engines.text(line, region=region, max_results=k)
        except RatelimitException:
            message = "the engines refuse more searches from here: wait, or take a provider with a key"
        except Exception as error:  # ddgs has a dozen engines, each with its own exceptions
            if "No results found" in str(error):
                return []
            message = f"the search failed: {type(error).__name__}: {str(error)[:200]}"
        else:
            if isinstance(found, list):
                return found
            message = f"returned {type(found).__name__}, expected a list"
        raise net.ServiceError(DDGS, message)


def ddgs_is_installed() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("ddgs") is not None


@dataclass(frozen=True)
class ProviderRow:
    """One web search service, or one kind of server that users run themselves.

    Attributes:
        name: for `open_search`.
        endpoint: official address; only a path where each user has a server of their own (see `example`).
        variables: environment variables that must be set; the first is the key.
        page: where to get a key, or how to set the server up.
        request: makes a request from a query.
        shape: where the results are in a reply.
        most: maximum number of results per request.
        example: address of a server of one's own; with a path if that has to have one.
        base: variable with the address of such a server.
        optional: variable of a key that such a server may want.
        unpack: returns the part of the reply's JSON that `shape` describes; raises ValueError if it reports a failure.
        per_second: requests per second that the smallest plan allows, or None.
        characters: length of the longest query.
        words: maximum number of words of a query, or None.
        timeout: seconds for one try.
        cures: what to do about statuses that have a special meaning here.
    """

    name: str
    endpoint: str
    variables: tuple[str, ...]
    page: str
    request: Callable[[SearchQuery], Request]
    shape: ReplyShape | Documents
    most: int = 10_000
    example: str = ""
    base: str = ""
    optional: str = ""
    unpack: Callable[[Any], Any] = lambda data: data
    per_second: float | None = None
    characters: int = 2000
    words: int | None = None
    timeout: float = 20.0
    cures: Mapping[int, str] = field(default_factory=dict)


_GOOGLE = HitFields(url=("link",))
_SERPER_GRAPH = HitFields(url=("descriptionLink", "website"), snippet=("type", "description", "attributes"))
_SERPER = ReplyShape(
    ("organic",),
    _GOOGLE,
    marker="searchParameters",
    leads=(
        ("answerBox", HitFields(url=("link",), snippet=("answer", "snippet"))),
        ("knowledgeGraph", _SERPER_GRAPH),
    ),
)
_SERPAPI = ReplyShape(
    ("organic_results",),
    _GOOGLE,
    marker="search_metadata",
    leads=(
        ("answer_box", HitFields(url=("link",), snippet=("answer", "result", "snippet", "list"))),
        ("knowledge_graph", HitFields(url=("website",), snippet=("type", "description"))),
    ),
)
# One service with two engines, and two servers with one protocol: such a row is made once and varied in the table.
_BRIGHTDATA = ProviderRow(
    name="brightdata",
    endpoint="https://api.brightdata.com/request",
    variables=("BRIGHTDATA_API_KEY", "BRIGHTDATA_ZONE"),
    page="https://brightdata.com/cp/zones",
    request=_bing,
    shape=ReplyShape(("organic",), HitFields(url=("link",), snippet=("description",), markup=True), marker="general"),
    most=50,
    unpack=_brightdata_reply,
    timeout=40.0,
    cures={400: "Is BRIGHTDATA_ZONE the name of a SERP zone of yours?"},
)

_ELASTICSEARCH = ProviderRow(
    name="elasticsearch",
    endpoint="/_search",
    variables=(),
    page="https://www.elastic.co/docs",
    request=_elastic,
    shape=Documents(),
    example="http://127.0.0.1:9200/index",
    optional="ES_API_KEY",
    unpack=_elastic_reply,
)

ROWS = (
    ProviderRow(
        name="serper",
        endpoint="https://google.serper.dev/search",
        variables=("SERPER_API_KEY",),
        page="https://serper.dev/api-key",
        request=lambda query: {
            "headers": {"X-API-KEY": query.key},
            "json": {"q": query.text, "num": query.k, "hl": query.language_with("zh-cn")},
        },
        shape=_SERPER,
        most=100,
        per_second=50,
    ),
    ProviderRow(
        name="tavily",
        endpoint="https://api.tavily.com/search",
        variables=("TAVILY_API_KEY",),
        page="https://app.tavily.com",
        request=lambda query: {
            "headers": {"Authorization": f"Bearer {query.key}"},
            # the basic depth costs one credit
            "json": {"query": query.text, "max_results": query.k, "search_depth": "basic", "topic": "general"},
        },
        shape=ReplyShape(("results",), HitFields(snippet=("content",), date=("published_date",), score="score")),
        most=20,
        per_second=100 / 60,  # the documented limit is per minute
        characters=400,
        cures={432: "The plan is used up.", 433: "The pay-as-you-go limit is reached: raise it."},
    ),
    ProviderRow(
        name="brave",
        endpoint="https://api.search.brave.com/res/v1/web/search",
        variables=("BRAVE_API_KEY",),
        page="https://api-dashboard.search.brave.com",
        request=lambda query: {
            "headers": {"X-Subscription-Token": query.key, "Accept": "application/json"},
            "params": {
                **{"q": query.text, "count": query.k, "search_lang": query.language_with("zh-hans")},
                "text_decorations": "false",
            },
        },
        shape=ReplyShape(
            ("web", "results"),
            HitFields(snippet=("description", "extra_snippets"), date=("page_age", "age"), markup=True),
            marker="query",  # Brave leaves the list out of its reply if nothing was found
        ),
        most=20,
        per_second=1,
        characters=400,
        words=50,
        # Brave answers 422 to a wrong key as well as to a wrong parameter.
        cures={422: "Is the key right, and is the language among those that Brave knows?"},
    ),
    ProviderRow(
        name="serpapi",
        endpoint="https://serpapi.com/search",
        variables=("SERPAPI_API_KEY",),
        page="https://serpapi.com/manage-api-key",
        request=lambda query: {
            "params": {
                **{"engine": "google", "q": query.text, "num": query.k},
                **{"hl": query.language_with("zh-cn"), "api_key": query.key},
            }
        },
        shape=_SERPAPI,
        most=100,
        unpack=_serpapi_reply,
        timeout=30.0,
    ),
    ProviderRow(
        name="exa",
        endpoint="https://api.exa.ai/search",
        variables=("EXA_API_KEY",),
        page="https://dashboard.exa.ai/api-keys",
        request=lambda query: {
            "headers": {"x-api-key": query.key},
            "json": {"query": query.text, "numResults": query.k, "type": "auto", "contents": {"highlights": True}},
        },
        shape=ReplyShape(("results",), HitFields(snippet=("highlights",), date=("publishedDate",), score="score")),
        most=100,
        per_second=5,
    ),
    ProviderRow(
        name="perplexity",
        endpoint="https://api.perplexity.ai/search",
        variables=("PERPLEXITY_API_KEY",),
        page="https://www.perplexity.ai/settings/api",
        request=lambda query: {
            "headers": {"Authorization": f"Bearer {query.key}"},
            "json": {"query": query.text, "max_results": query.k, "max_tokens_per_page": 512},
        },
        shape=ReplyShape(("results",), HitFields(date=("date", "last_updated"))),
        most=20,
    ),
    _BRIGHTDATA,
    replace(_BRIGHTDATA, name="brightdata-google", request=_google, most=100),
    ProviderRow(
        name="searxng",
        endpoint="/search",
        variables=(),
        page="https://docs.searxng.org/admin/installation.html",
        # the server decides itself how many results it returns
        request=lambda query: {
            "params": {"q": query.text, "format": "json", "language": query.language, "pageno": 1},
        },
        shape=ReplyShape(("results",), HitFields(snippet=("content",), date=("publishedDate",), score="score")),
        example="http://127.0.0.1:8080",
        base="SEARXNG_API_BASE",
        unpack=_searxng_reply,
        cures={
            403: "SearXNG answers in JSON only if `json` stands under search.formats in its settings.yml.",
            429: "SearXNG's limiter is on: let this machine pass in its limiter.toml, or turn it off.",
        },
    ),
    ProviderRow(
        name="search-r1",
        endpoint="/retrieve",
        variables=(),
        page="https://github.com/PeterGriffinJin/Search-R1",
        # the published server fails without the scores
        request=lambda query: {"json": {"queries": [query.text], "topk": query.k, "return_scores": True}},
        shape=Documents(),
        example="http://127.0.0.1:8000",
        unpack=_search_r1_reply,
    ),
    ProviderRow(
        name="flashrag",
        endpoint="/search",
        variables=(),
        page="https://github.com/RUC-NLPIR/FlashRAG",
        request=lambda query: {"json": {"query": query.text, "top_n": query.k, "return_score": True}},
        shape=Documents(),
        example="http://127.0.0.1:80",
        unpack=_flashrag_reply,
    ),
    _ELASTICSEARCH,
    replace(_ELASTICSEARCH, name="opensearch", page="https://docs.opensearch.org"),
)


_BY_NAME = {row.name: row for row in ROWS}


def ready_providers() -> list[str]:
    """Return the names of the services whose keys are set; no service is asked."""
    return sorted(row.name for row in _BY_NAME.values() if row.variables and all(map(os.environ.get, row.variables)))


def register_provider(row: ProviderRow) -> None:
    """Make a web search service of your own available by its name, for `search=` and `arpo doctor`."""
    _BY_NAME[row.name] = row


class Provider(SearchBackend):
    """A service of the provider table, asked over HTTP.

    Args:
        name: of a row.
        address: asked instead of the official one (a proxy, a server of your own); the endpoint's path is appended
            unless it is there already.
        per_second: maximum number of requests per second; None is what the smallest plan allows, math.inf no limit.
        asked: False for a service whose recorded answers are replayed only; it needs no key.

    Raises:
        ValueError: a key or the address is missing.
    """

    def __init__(
        self, name: str, address: str | None = None, *, per_second: float | None = None, asked: bool = True
    ) -> None:
        self.name, self._row = name, (row := _BY_NAME[name])
        self._keys = {variable: _key(row, variable) if asked else "" for variable in row.variables}
        if row.optional and (key := os.environ.get(row.optional, "").strip()):
            self._keys[row.optional] = key
        self._url, self._own = row.endpoint, ""
        cures = {**_cures(row), **row.cures}
        if row.example or address is not None:
            base = _own_address(row, address or os.environ.get(row.base, "").strip())
            # For messages and the keys of the cache, where no password may stand.
            self._url, self._own = net.with_path(base, row.endpoint), net.strip_credentials(base)
            cures.setdefault(404, f"Is {self._own} the right address?")
        pace = row.per_second if per_second is None else per_second
        secrets = tuple(self._keys.values())
        self._http = net.Http(name, timeout=row.timeout, per_second=pace, secrets=secrets, cures=cures)

    @property
    def parameters(self) -> dict[str, Any]:  # noqa: D102  (as in the base class)
        language = {} if isinstance(self._row.shape, Documents) else {"language": "by query"}
        return {**language, **({"address": self._own} if self._own else {})}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, with a direct answer of the service first."""
        line = clean_query(query, self._row.characters, self._row.words)  # each service has its own limits
        if not line or k < 1:
            return []
        asked = SearchQuery(line, min(k, self._row.most), query_language(line), self._keys)
        request = self._row.request(asked)
        reply = await self._http.request("POST" if "json" in request else "GET", self._url, **request)
        try:
            # Some services report a failure inside a reply with status 200.
            data = self._row.unpack(reply.json())
        except ValueError as error:
            raise reply.fault(str(error)) from None
        return self._row.shape.hits(reply, data)[:k]

    async def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _key(row: ProviderRow, variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(f"{row.name} needs {variable}, which is not set; get one at {row.page}")
    return key


def _own_address(row: ProviderRow, address: str) -> str:
    """Return the address that a user gave, without the path of the endpoint."""
    if not address.strip():
        example = f'"{row.name}:{row.example}"' + (f" or in {row.base}" if row.base else "")
        raise ValueError(f"{row.name} needs an address, as in {example}; to set one up: {row.page}")
    base = net.checked_address(row.name, address).removesuffix(urllib.parse.urlsplit(row.endpoint).path)
    if urllib.parse.urlsplit(row.example).path and not urllib.parse.urlsplit(base).path:
        raise ValueError(f"{row.name} needs an index after the address, as in {row.example}")
    return base


def _cures(row: ProviderRow) -> dict[int, str]:
    key = row.variables[0] if row.variables else "the login in the address"
    key += f", or {row.optional}," if row.optional else ""
    cures = {401: f"Is {key} right? See {row.page}."}
    if row.variables:
        cures |= {
            402: f"The plan is used up: see {row.page}.",
            403: f"{key} may not do this: is it right, and does the plan include search? See {row.page}.",
            429: f"Too many requests, or the plan is used up: lower per_second, or see {row.page}.",
        }
    return cures
