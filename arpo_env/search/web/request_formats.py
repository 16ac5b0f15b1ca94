"""How each web search service is asked, and how its answer is taken out of its envelope.

Fields as in the services' own references (2026-11).
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One search, as a row's request is made of it.

    Attributes:
        query: one line, short enough for the service.
        k: results wanted, within the service's limit.
        language: "en", "zh", ...: chosen by the user, or guessed from the query.
        chosen: whether the user chose it.
        country: two letters in small or capital ones, or None; Tavily wants its name.
        full_text: page texts are wanted.
        keys: the values of the row's variables.
    """

    query: str
    k: int
    language: str
    chosen: bool
    country: str | None
    full_text: bool
    keys: Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """What is sent to the row's endpoint; parts that are None are left out."""

    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] | None = None
    json: Mapping[str, Any] | None = None

    @property
    def method(self) -> str:
        """POST with a body, GET without."""
        return "GET" if self.json is None else "POST"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _capital(country: str | None) -> str | None:
    return country.upper() if country else None


def _small(country: str | None) -> str | None:
    return country.lower() if country else None


def _google_language(ask: Ask) -> str:
    return "zh-cn" if ask.language == "zh" else ask.language


def serper(ask: Ask) -> Request:
    """Google through Serper."""
    body = _given(q=ask.query, num=ask.k, gl=_small(ask.country), hl=_google_language(ask))
    return Request({"X-API-KEY": ask.keys["SERPER_API_KEY"]}, json=body)


def tavily(ask: Ask) -> Request:
    """Tavily; its basic depth costs one credit."""
    fixed = {"search_depth": "basic", "topic": "general", "include_raw_content": ask.full_text}
    body = {**_given(query=ask.query, max_results=ask.k, country=_small(ask.country)), **fixed}
    return Request({"Authorization": f"Bearer {ask.keys['TAVILY_API_KEY']}"}, json=body)


def brave(ask: Ask) -> Request:
    """Brave's own index, without emphasis in the texts."""
    language = "zh-hans" if ask.language == "zh" else ask.language
    params = _given(
        q=ask.query, count=ask.k, search_lang=language, country=_capital(ask.country), text_decorations="false"
    )
    return Request({"X-Subscription-Token": ask.keys["BRAVE_API_KEY"], "Accept": "application/json"}, params=params)


def serpapi(ask: Ask) -> Request:
    """Google through SerpAPI, whose key is a query parameter."""
    params = _given(engine="google", q=ask.query, num=ask.k, gl=_small(ask.country), hl=_google_language(ask))
    return Request(params={**params, "api_key": ask.keys["SERPAPI_API_KEY"]})


def serpapi_reply(data: Any) -> Any:
    """Let an honest nothing pass, which SerpAPI reports as an error of a successful search."""
    if not isinstance(data, dict):
        return data
    state = data.get("search_metadata")
    status = state.get("status") if isinstance(state, dict) else None
    if status == "Success" and "hasn't returned any results" in str(data.get("error")):
        return {key: value for key, value in data.items() if key != "error"}
    if status not in ("Success", "Cached", None):
        raise ValueError(f"the search ended as {status!r}: {data.get('error', '')}")
    return data


def exa(ask: Ask) -> Request:
    """Exa, with the passages that fit the query."""
    contents: dict[str, Any] = {"highlights": True, **({"text": True} if ask.full_text else {})}
    body = _given(query=ask.query, numResults=ask.k, type="auto", contents=contents, userLocation=_capital(ask.country))
    return Request({"x-api-key": ask.keys["EXA_API_KEY"]}, json=body)


def perplexity(ask: Ask) -> Request:
    """Perplexity's search without its model; a snippet is up to 512 tokens of the page."""
    languages = [ask.language] if ask.chosen else None  # it leaves out pages in other languages
    body = _given(query=ask.query, max_results=ask.k, country=_capital(ask.country), search_language_filter=languages)
    key = ask.keys["PERPLEXITY_API_KEY"]
    return Request({"Authorization": f"Bearer {key}"}, json={**body, "max_tokens_per_page": 512})


def searxng(ask: Ask) -> Request:
    """A SearXNG server; how many results come is its own choice."""
    return Request(params={"q": ask.query, "format": "json", "language": ask.language, "pageno": 1})


def searxng_reply(data: Any) -> Any:
    """Tell an honest nothing from engines that all failed."""
    if isinstance(data, dict) and data.get("results") == [] and data.get("unresponsive_engines"):
        raise ValueError(f"found nothing, and these engines failed: {str(data['unresponsive_engines'])[:200]}")
    return data


def bing(ask: Ask) -> Request:
    """Bing through Bright Data, as in the papers' search tool."""
    market, language, country = ("zh-CN", "zh-CN", "cn") if ask.language == "zh" else ("en-US", "en", "us")
    if ask.language not in ("en", "zh"):
        market = language = ask.language
    query = {"q": ask.query, "mkt": market, "setLang": language, "count": ask.k, "cc": _small(ask.country) or country}
    url = f"https://www.bing.com/search?{urllib.parse.urlencode(query)}"
    return _brightdata(ask, {"url": url, "format": "json", "data_format": "parsed_bing"})


def google(ask: Ask) -> Request:
    """Google through Bright Data."""
    query = _given(q=ask.query, num=ask.k, hl=_google_language(ask), gl=_small(ask.country), brd_json=1)
    return _brightdata(ask, {"url": f"https://www.google.com/search?{urllib.parse.urlencode(query)}", "format": "raw"})


def _brightdata(ask: Ask, body: dict[str, Any]) -> Request:
    headers = {"Authorization": f"Bearer {ask.keys['BRIGHTDATA_API_KEY']}"}
    return Request(headers, json={"zone": ask.keys["BRIGHTDATA_ZONE"], **body})


def brightdata_reply(data: Any) -> Any:
    """Take the result page out of the envelope of `format: json`; `raw` has none."""
    if not isinstance(data, dict) or "body" not in data or "organic" in data:
        return data
    status = data.get("status_code", 200)
    if not isinstance(status, int) or status >= 400:
        raise ValueError(f"the search engine answered with status {status}")
    body = data["body"]
    try:
        return json.loads(body) if isinstance(body, str) else body
    except (ValueError, RecursionError):
        raise ValueError(f"the result page was not parsed, it begins {str(body)[:80]!r}") from None
