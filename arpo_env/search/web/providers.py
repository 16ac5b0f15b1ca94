"""Web search services as backends: `make_provider("serper")`, and a table of what there is.

    backend = make_provider("serper")          # SERPER_API_KEY is set
    hits = await backend.search("who wrote Solaris", 5)

`provider_table` has one row for each service; ddgs has a module of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from arpo_env.net.http import Http
from arpo_env.net.service_urls import checked_address, with_path, without_login
from arpo_env.search.backend_registry import register_backend
from arpo_env.search.search_backend import Hit, SearchBackend
from arpo_env.search.web import ddgs_search as duckduckgo
from arpo_env.search.web.provider_table import ROWS, ProviderRow
from arpo_env.search.web.request_formats import SearchQuery, clean_query, query_language
from envs_registry.nearest_name import nearest_hint

_BY_NAME = {row.name: row for row in ROWS}
PROVIDERS = tuple(sorted([*_BY_NAME, duckduckgo.NAME]))


@dataclass(frozen=True)
class ProviderInfo:
    """One provider, for lists.

    Attributes:
        name: for `make_provider`.
        variables: environment variables that it needs.
        ready: whether all of them are set.
        most: most results per request.
        per_second: default rate limit; None is no limit.
        page: where to get a key, or what to install.
    """

    name: str
    variables: tuple[str, ...]
    ready: bool
    most: int
    per_second: float | None
    page: str


def provider_table() -> list[ProviderInfo]:
    """Return the providers by name and whether each is set up; no service is asked."""
    rows = [_info(row) for row in _BY_NAME.values()]
    rows.append(ProviderInfo(duckduckgo.NAME, (), duckduckgo.installed(), 50, duckduckgo.PER_SECOND, duckduckgo.PAGE))
    return sorted(rows, key=lambda info: info.name)


def _info(row: ProviderRow) -> ProviderInfo:
    variables = (*row.variables, row.base) if row.base else row.variables
    ready = all(os.environ.get(name, "").strip() for name in variables)
    return ProviderInfo(row.name, variables, ready, row.most, row.per_second, row.page)


def register_provider(row: ProviderRow) -> None:
    """Make a web search service of your own available by its name, for `search=` and the list of providers."""
    _BY_NAME[row.name] = row
    make = functools.partial(make_provider, row.name)
    # Two factories, since for a replay the backend is made without its key.
    register_backend(row.name, make, functools.partial(make_provider, row.name, asked=False))


def make_provider(
    name: str,
    address: str | None = None,
    *,
    http: Http | None = None,
    country: str | None = None,
    language: str | None = None,
    full_text: bool = False,
    per_second: float | None = None,
    asked: bool = True,
) -> SearchBackend:
    """Return a search backend for a web search service.

    Args:
        name: one of `PROVIDERS`, or one that was added by `register_provider`.
        address: asked instead of the official one (a proxy, a self-hosted service); the endpoint's path is appended
            unless it is there already.
        http: limits of time, size and retries; cures and keys are added to it.
        country: two letters; Tavily expects its English name.
        language: two letters; None is Chinese for a query with Chinese characters, else English.
        full_text: hits carry page texts; Tavily and Exa have them.
        per_second: most requests per second; None is what the smallest plan allows, math.inf no limit.
        asked: False for a service whose recorded answers are replayed only; it needs no key.

    Raises:
        ValueError: unknown name, missing key or address, or an option that the service does not have.
        ModuleNotFoundError: ddgs is not installed.
    """
    known = sorted([*_BY_NAME, duckduckgo.NAME])
    if name not in known:
        hint = nearest_hint(name, known, "did you mean {!r}?", f"there are {', '.join(known)}")
        raise ValueError(f"no search provider is called {name!r}; {hint}")
    # `full_text` is off for every service anyway, so False is not counted as an option.
    options = {"country": country, "language": language, "full_text": full_text or None}
    given = {option: value for option, value in options.items() if value is not None}
    takes = duckduckgo.TAKES if name == duckduckgo.NAME else _BY_NAME[name].takes
    if unknown := sorted(set(given) - takes):
        raise ValueError(f"{name} has no {' or '.join(unknown)}; it takes {', '.join(sorted(takes))}")
    if name == duckduckgo.NAME:
        if address is not None or http is not None:
            raise ValueError("ddgs has no address and makes its own requests; leave address and http out")
        return duckduckgo.Ddgs(country=country, language=language, per_second=per_second)
    return Provider(_BY_NAME[name], address, http, given, per_second, asked)


class Provider(SearchBackend):
    """A service of the provider table. Made by `make_provider`."""

    def __init__(
        self,
        row: ProviderRow,
        address: str | None,
        http: Http | None,
        options: Mapping[str, Any],
        per_second: float | None,
        asked: bool = True,
    ) -> None:
        self.name = row.name
        self._row, self._options = row, options
        self._keys = {variable: _key(row, variable) if asked else "" for variable in row.variables}
        if row.base and address is None:  # a service that users run themselves has no official address
            address = _base(row)
        self._own = None if address is None else checked_address(row.name, address)
        self._url = row.endpoint if self._own is None else with_path(self._own, row.endpoint)
        http = http or Http(row.name, timeout=row.timeout)
        # The most specific value wins: the argument, the caller's Http, the provider's row.
        pace = per_second if per_second is not None else http.per_second or row.per_second
        secrets = (*http.secrets, *self._keys.values())
        cures = {**_cures(row), **row.cures, **http.cures}
        self._http = replace(http, per_second=pace, secrets=secrets, cures=cures)

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k."""
        # Without the login, as parameters are written into the cache.
        own = {} if self._own is None else {"address": without_login(self._own)}
        return {"language": "by query", **self._options, **own}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, with a direct answer of the service first."""
        line = clean_query(query, self._row.characters, self._row.words)  # each service has its own limits
        if not line or k < 1:
            return []
        request = self._row.request(self._ask(line, k))
        reply = await self._http.request(
            request.method, self._url, params=request.params, json=request.json, headers=request.headers
        )
        try:
            # Some services report a failure inside a reply with status 200.
            data = self._row.unpack(reply.json())
        except ValueError as error:
            raise reply.fault(str(error)) from None
        return self._row.shape.hits(reply, data)[:k]

    async def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, line: str, k: int) -> SearchQuery:
        return SearchQuery(
            text=line,
            k=min(k, self._row.most),
            language=self._options.get("language") or query_language(line),
            chosen="language" in self._options,
            country=self._options.get("country"),
            full_text="full_text" in self._options,
            keys=self._keys,
        )


def _key(row: ProviderRow, variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(f"{row.name} needs {variable}, which is not set; get one at {row.page}")
    # A header cannot carry such a key, for example one with a typographic dash.
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{variable} holds characters that no key has; copy it again from {row.page}")
    return key


def _base(row: ProviderRow) -> str:
    address = os.environ.get(row.base, "").strip()
    if not address:
        example = f'"{row.name}:http://127.0.0.1:8080"'
        raise ValueError(f"{row.name} needs an address, as in {example} or in {row.base}; to set one up: {row.page}")
    return address


def _cures(row: ProviderRow) -> dict[int, str]:
    key = row.variables[0] if row.variables else "the login in the address"
    return {
        401: f"Is {key} right? See {row.page}.",
        402: f"The plan is used up: see {row.page}.",
        403: f"{key} may not do this: is it right, and does the plan include search? See {row.page}.",
        429: f"Too many requests, or the plan is used up: lower per_second, or see {row.page}.",
    }
