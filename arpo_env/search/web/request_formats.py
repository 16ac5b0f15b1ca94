"""The requests of the web search services: how a query is cleaned and sent, and how the reply is unwrapped.

The fields are those of the services' own references (2026-11).
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_CONTROL = re.compile(r"[\x00-\x20\x7f]+")


@dataclass(frozen=True)
class SearchQuery:
    """One search, from which the request to a provider is made.

    Attributes:
        text: one line, short enough for the service.
        k: number of results, within the service's limit.
        language: "en", "zh", ...: chosen by the user, or guessed from the query.
        chosen: whether the user chose the language.
        country: two letters, or None; Tavily expects its English name.
        full_text: whether page texts are wanted.
        keys: environment variable of the provider -> its value.
    """

    text: str
    k: int
    language: str
    chosen: bool
    country: str | None
    full_text: bool
    keys: Mapping[str, str]


@dataclass(frozen=True)
class ProviderRequest:
    """What is sent to a provider's endpoint; parts that are None are left out."""

    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] | None = None
    json: Mapping[str, Any] | None = None

    @property
    def method(self) -> str:
        """POST with a body, GET without."""
        return "GET" if self.json is None else "POST"


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


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _capital(country: str | None) -> str | None:
    return country.upper() if country else None


def _small(country: str | None) -> str | None:
    return country.lower() if country else None


def _google_language(query: SearchQuery) -> str:
    return "zh-cn" if query.language == "zh" else query.language


def serper(query: SearchQuery) -> ProviderRequest:
    """Google through Serper."""
    body = _given(q=query.text, num=query.k, gl=_small(query.country), hl=_google_language(query))
    return ProviderRequest({"X-API-KEY": query.keys["SERPER_API_KEY"]}, json=body)


def tavily(query: SearchQuery) -> ProviderRequest:
    """Tavily; its basic depth costs one credit."""
    fixed = {"search_depth": "basic", "topic": "general", "include_raw_content": query.full_text}
    body = {**_given(query=query.text, max_results=query.k, country=_small(query.country)), **fixed}
    return ProviderRequest({"Authorization": f"Bearer {query.keys['TAVILY_API_KEY']}"}, json=body)


def brave(query: SearchQuery) -> ProviderRequest:
    """Brave's own index, without emphasis in the texts."""
    language = "zh-hans" if query.language == "zh" else query.language  # Brave has no plain "zh"
    params = _given(
        q=query.text, count=query.k, search_lang=language, country=_capital(query.country), text_decorations="false"
    )
    headers = {"X-Subscription-Token": query.keys["BRAVE_API_KEY"], "Accept": "application/json"}
    return ProviderRequest(headers, params=params)


def serpapi(query: SearchQuery) -> ProviderRequest:
    """Google through SerpAPI, whose key is a query parameter."""
    params = _given(engine="google", q=query.text, num=query.k, gl=_small(query.country), hl=_google_language(query))
    return ProviderRequest(params={**params, "api_key": query.keys["SERPAPI_API_KEY"]})


def serpapi_reply(data: Any) -> Any:
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


def exa(query: SearchQuery) -> ProviderRequest:
    """Exa, with the passages that match the query."""
    contents: dict[str, Any] = {"highlights": True, **({"text": True} if query.full_text else {})}
    body = _given(
        query=query.text, numResults=query.k, type="auto", contents=contents, userLocation=_capital(query.country)
    )
    return ProviderRequest({"x-api-key": query.keys["EXA_API_KEY"]}, json=body)


def perplexity(query: SearchQuery) -> ProviderRequest:
    """Perplexity's search without its model; a snippet is up to 512 tokens of the page."""
    languages = [query.language] if query.chosen else None  # a filter: pages in other languages are left out
    body = _given(
        query=query.text, max_results=query.k, country=_capital(query.country), search_language_filter=languages
    )
    key = query.keys["PERPLEXITY_API_KEY"]
    return ProviderRequest({"Authorization": f"Bearer {key}"}, json={**body, "max_tokens_per_page": 512})


def searxng(query: SearchQuery) -> ProviderRequest:
    """A SearXNG server, which decides itself how many results it returns."""
    return ProviderRequest(params={"q": query.text, "format": "json", "language": query.language, "pageno": 1})


def searxng_reply(data: Any) -> Any:
    """Refuse an empty result if engines failed.

    Raises:
        ValueError: it is empty, and engines failed.
    """
    if isinstance(data, dict) and data.get("results") == [] and data.get("unresponsive_engines"):
        raise ValueError(f"found nothing, and these engines failed: {str(data['unresponsive_engines'])[:200]}")
    return data


def bing(query: SearchQuery) -> ProviderRequest:
    """Bing through Bright Data, as in the papers' search tool."""
    # Without a market Bing chooses one by the address of the proxy, and results change from call to call.
    market, language, country = ("zh-CN", "zh-CN", "cn") if query.language == "zh" else ("en-US", "en", "us")
    if query.language not in ("en", "zh"):
        market = language = query.language
    parameters = {
        "q": query.text,
        "mkt": market,
        "setLang": language,
        "count": query.k,
        "cc": _small(query.country) or country,
    }
    url = f"https://www.bing.com/search?{urllib.parse.urlencode(parameters)}"
    return _brightdata(query, {"url": url, "format": "json", "data_format": "parsed_bing"})


def google(query: SearchQuery) -> ProviderRequest:
    """Google through Bright Data."""
    parameters = _given(q=query.text, num=query.k, hl=_google_language(query), gl=_small(query.country), brd_json=1)
    return _brightdata(
        query, {"url": f"https://www.google.com/search?{urllib.parse.urlencode(parameters)}", "format": "raw"}
    )


def _brightdata(query: SearchQuery, body: dict[str, Any]) -> ProviderRequest:
    headers = {"Authorization": f"Bearer {query.keys['BRIGHTDATA_API_KEY']}"}
    return ProviderRequest(headers, json={"zone": query.keys["BRIGHTDATA_ZONE"], **body})


def brightdata_reply(data: Any) -> Any:
    """Return the result page that `format: json` wraps; `raw` does not wrap it.

    Raises:
        ValueError: the search engine failed, or its page was not parsed.
    """
    # An error of the search engine comes inside an answer with status 200.
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
