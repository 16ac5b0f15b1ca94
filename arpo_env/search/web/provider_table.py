"""The web search services that are asked over HTTP, one row each. A new service is a new row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env.search.web import request_formats as web_requests
from arpo_env.search.web.request_formats import Ask, Request
from arpo_env.search.web.response_parsing import Columns, Shape


@dataclass(frozen=True)
class Row:
    """One service.

    Attributes:
        name: for `make_provider`.
        endpoint: official address; "" where every user has an own one (`base` names its variable).
        variables: environment variables that must be set; the first is the key.
        page: where one gets a key, or sets the service up.
        request: makes a request.
        shape: of the reply.
        most: results a request.
        takes: options that the service knows, of "country", "language", "full_text".
        base: variable with the address of a self-hosted service.
        unpack: from the reply's JSON to the object that `shape` describes; raises ValueError with what is wrong.
        per_second: requests a second that the smallest plan allows, or None.
        characters: longest query.
        words: most words of a query, or None.
        timeout: seconds for one try.
        cures: for statuses that mean something special here.
    """

    name: str
    endpoint: str
    variables: tuple[str, ...]
    page: str
    request: Callable[[Ask], Request]
    shape: Shape
    most: int
    takes: frozenset[str]
    base: str = ""
    unpack: Callable[[Any], Any] = lambda data: data
    per_second: float | None = None
    characters: int = 2000
    words: int | None = None
    timeout: float = 20.0
    cures: Mapping[int, str] = field(default_factory=dict)


_ALL = frozenset({"country", "language", "full_text"})
_GOOGLE = Columns(url=("link",))
_SERPER = Shape(
    ("organic",),
    _GOOGLE,
    marker="searchParameters",
    leads=(
        ("answerBox", Columns(url=("link",), snippet=("answer", "snippet"))),
        ("knowledgeGraph", Columns(url=("descriptionLink", "website"), snippet=("type", "description", "attributes"))),
    ),
)
_SERPAPI = Shape(
    ("organic_results",),
    _GOOGLE,
    marker="search_metadata",
    leads=(
        ("answer_box", Columns(url=("link",), snippet=("answer", "result", "snippet", "list"))),
        ("knowledge_graph", Columns(url=("website",), snippet=("type", "description"))),
    ),
)
_BRIGHTDATA = Row(
    name="brightdata",
    endpoint="https://api.brightdata.com/request",
    variables=("BRIGHTDATA_API_KEY", "BRIGHTDATA_ZONE"),
    page="https://brightdata.com/cp/zones",
    request=web_requests.bing,
    shape=Shape(("organic",), Columns(url=("link",), snippet=("description",), markup=True), marker="general"),
    most=50,
    takes=_ALL - {"full_text"},
    unpack=web_requests.brightdata_reply,
    timeout=40.0,
    cures={400: "Is BRIGHTDATA_ZONE the name of a SERP zone of yours?"},
)

ROWS = (
    Row(
        name="serper",
        endpoint="https://google.serper.dev/search",
        variables=("SERPER_API_KEY",),
        page="https://serper.dev/api-key",
        request=web_requests.serper,
        shape=_SERPER,
        most=100,
        takes=_ALL - {"full_text"},
        per_second=50,
    ),
    Row(
        name="tavily",
        endpoint="https://api.tavily.com/search",
        variables=("TAVILY_API_KEY",),
        page="https://app.tavily.com",
        request=web_requests.tavily,
        shape=Shape(
            ("results",),
            Columns(snippet=("content",), date=("published_date",), text=("raw_content",), score="score"),
        ),
        most=20,
        takes=_ALL - {"language"},
        per_second=100 / 60,
        characters=400,
        cures={432: "The plan is used up.", 433: "The pay-as-you-go limit is reached: raise it."},
    ),
    Row(
        name="brave",
        endpoint="https://api.search.brave.com/res/v1/web/search",
        variables=("BRAVE_API_KEY",),
        page="https://api-dashboard.search.brave.com",
        request=web_requests.brave,
        shape=Shape(
            ("web", "results"),
            Columns(snippet=("description", "extra_snippets"), date=("page_age", "age"), markup=True),
            marker="query",
        ),
        most=20,
        takes=_ALL - {"full_text"},
        per_second=1,
        characters=400,
        words=50,
        cures={422: "Is the key right, and are country and language among those that Brave knows?"},
    ),
    Row(
        name="serpapi",
        endpoint="https://serpapi.com/search",
        variables=("SERPAPI_API_KEY",),
        page="https://serpapi.com/manage-api-key",
        request=web_requests.serpapi,
        shape=_SERPAPI,
        most=100,
        takes=_ALL - {"full_text"},
        unpack=web_requests.serpapi_reply,
        timeout=30.0,
    ),
    Row(
        name="exa",
        endpoint="https://api.exa.ai/search",
        variables=("EXA_API_KEY",),
        page="https://dashboard.exa.ai/api-keys",
        request=web_requests.exa,
        shape=Shape(
            ("results",),
            Columns(snippet=("highlights",), date=("publishedDate",), text=("text",), score="score"),
        ),
        most=100,
        takes=_ALL - {"language"},
        per_second=5,
    ),
    Row(
        name="perplexity",
        endpoint="https://api.perplexity.ai/search",
        variables=("PERPLEXITY_API_KEY",),
        page="https://www.perplexity.ai/settings/api",
        request=web_requests.perplexity,
        shape=Shape(("results",), Columns(date=("date", "last_updated"))),
        most=20,
        takes=_ALL - {"full_text"},
    ),
    Row(
        name="searxng",
        endpoint="/search",
        variables=(),
        page="https://docs.searxng.org/admin/installation.html",
        request=web_requests.searxng,
        shape=Shape(("results",), Columns(snippet=("content",), date=("publishedDate",), score="score")),
        most=20,
        takes=frozenset({"language"}),
        base="SEARXNG_API_BASE",
        unpack=web_requests.searxng_reply,
        cures={
            403: "SearXNG answers in JSON only if `json` stands under search.formats in its settings.yml.",
            429: "SearXNG's limiter is on: let this machine pass in its limiter.toml, or turn it off.",
        },
    ),
    _BRIGHTDATA,
    replace(_BRIGHTDATA, name="brightdata-google", request=web_requests.google, most=100),
)
