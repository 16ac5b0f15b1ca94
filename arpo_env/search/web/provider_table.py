"""The web search services that are asked over HTTP: one row each. To add a service, add a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env.search.web import request_formats
from arpo_env.search.web.request_formats import ProviderRequest, SearchQuery
from arpo_env.search.web.response_parsing import HitFields, ReplyShape


@dataclass(frozen=True)
class ProviderRow:
    """One web search service.

    Attributes:
        name: for `make_provider`.
        endpoint: official address; only a path where each user runs a server of their own (see `base`).
        variables: environment variables that must be set; the first is the key.
        page: where to get a key, or how to set the service up.
        request: makes a request from a query.
        shape: where the results are in a reply.
        most: most results per request.
        takes: options that the service has, of "country", "language", "full_text".
        base: variable with the address of a self-hosted service.
        unpack: returns the part of the reply's JSON that `shape` describes; raises ValueError if it reports a failure.
        per_second: requests per second that the smallest plan allows, or None.
        characters: length of the longest query.
        words: most words of a query, or None.
        timeout: seconds for one try.
        cures: what to do about statuses that have a special meaning here.
    """

    name: str
    endpoint: str
    variables: tuple[str, ...]
    page: str
    request: Callable[[SearchQuery], ProviderRequest]
    shape: ReplyShape
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
_GOOGLE = HitFields(url=("link",))
_SERPER = ReplyShape(
    ("organic",),
    _GOOGLE,
    marker="searchParameters",
    leads=(
        ("answerBox", HitFields(url=("link",), snippet=("answer", "snippet"))),
        (
            "knowledgeGraph",
            HitFields(url=("descriptionLink", "website"), snippet=("type", "description", "attributes")),
        ),
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
# One service with two engines: the row is made once and varied at the end of the table.
_BRIGHTDATA = ProviderRow(
    name="brightdata",
    endpoint="https://api.brightdata.com/request",
    variables=("BRIGHTDATA_API_KEY", "BRIGHTDATA_ZONE"),
    page="https://brightdata.com/cp/zones",
    request=request_formats.bing,
    shape=ReplyShape(("organic",), HitFields(url=("link",), snippet=("description",), markup=True), marker="general"),
    most=50,
    # Bright Data returns a result page, not the pages behind it.
    takes=_ALL - {"full_text"},
    unpack=request_formats.brightdata_reply,
    timeout=40.0,
    cures={400: "Is BRIGHTDATA_ZONE the name of a SERP zone of yours?"},
)

ROWS = (
    ProviderRow(
        name="serper",
        endpoint="https://google.serper.dev/search",
        variables=("SERPER_API_KEY",),
        page="https://serper.dev/api-key",
        request=request_formats.serper,
        shape=_SERPER,
        most=100,
        takes=_ALL - {"full_text"},
        per_second=50,
    ),
    ProviderRow(
        name="tavily",
        endpoint="https://api.tavily.com/search",
        variables=("TAVILY_API_KEY",),
        page="https://app.tavily.com",
        request=request_formats.tavily,
        shape=ReplyShape(
            ("results",),
            HitFields(snippet=("content",), date=("published_date",), text=("raw_content",), score="score"),
        ),
        most=20,
        takes=_ALL - {"language"},
        # The documented limit is per minute.
        per_second=100 / 60,
        characters=400,
        cures={432: "The plan is used up.", 433: "The pay-as-you-go limit is reached: raise it."},
    ),
    ProviderRow(
        name="brave",
        endpoint="https://api.search.brave.com/res/v1/web/search",
        variables=("BRAVE_API_KEY",),
        page="https://api-dashboard.search.brave.com",
        request=request_formats.brave,
        shape=ReplyShape(
            ("web", "results"),
            HitFields(snippet=("description", "extra_snippets"), date=("page_age", "age"), markup=True),
            # Brave leaves the list out of its reply if nothing was found.
            marker="query",
        ),
        most=20,
        takes=_ALL - {"full_text"},
        per_second=1,
        characters=400,
        words=50,
        # Brave answers 422 to a wrong key as well as to a wrong parameter.
        cures={422: "Is the key right, and are country and language among those that Brave knows?"},
    ),
    ProviderRow(
        name="serpapi",
        endpoint="https://serpapi.com/search",
        variables=("SERPAPI_API_KEY",),
        page="https://serpapi.com/manage-api-key",
        request=request_formats.serpapi,
        shape=_SERPAPI,
        most=100,
        takes=_ALL - {"full_text"},
        unpack=request_formats.serpapi_reply,
        timeout=30.0,
    ),
    ProviderRow(
        name="exa",
        endpoint="https://api.exa.ai/search",
        variables=("EXA_API_KEY",),
        page="https://dashboard.exa.ai/api-keys",
        request=request_formats.exa,
        shape=ReplyShape(
            ("results",),
            HitFields(snippet=("highlights",), date=("publishedDate",), text=("text",), score="score"),
        ),
        most=100,
        takes=_ALL - {"language"},
        per_second=5,
    ),
    ProviderRow(
        name="perplexity",
        endpoint="https://api.perplexity.ai/search",
        variables=("PERPLEXITY_API_KEY",),
        page="https://www.perplexity.ai/settings/api",
        request=request_formats.perplexity,
        shape=ReplyShape(("results",), HitFields(date=("date", "last_updated"))),
        most=20,
        takes=_ALL - {"full_text"},
    ),
    ProviderRow(
        name="searxng",
        endpoint="/search",
        variables=(),
        page="https://docs.searxng.org/admin/installation.html",
        request=request_formats.searxng,
        shape=ReplyShape(("results",), HitFields(snippet=("content",), date=("publishedDate",), score="score")),
        most=20,
        takes=frozenset({"language"}),
        base="SEARXNG_API_BASE",
        unpack=request_formats.searxng_reply,
        cures={
            403: "SearXNG answers in JSON only if `json` stands under search.formats in its settings.yml.",
            429: "SearXNG's limiter is on: let this machine pass in its limiter.toml, or turn it off.",
        },
    ),
    _BRIGHTDATA,
    replace(_BRIGHTDATA, name="brightdata-google", request=request_formats.google, most=100),
)
