"""`Ddgs`: web search through the `ddgs` package, which needs no key and asks several engines itself.

It is good for trying things out. The engines soon refuse a machine that asks often, so do not train with it.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

from arpo_env.daemon_threads import run_in_daemon_thread
from arpo_env.net.http import ServiceError
from arpo_env.net.rate_limit import RateLimited, RateLimiter
from arpo_env.search.search_backend import Hit, SearchBackend
from arpo_env.search.web.request_formats import clean_query, query_language
from arpo_env.search.web.response_parsing import HitFields, with_text

NAME = "ddgs"
PAGE = "pip install ddgs"
PER_SECOND = 1.0
TAKES = frozenset({"country", "language"})
_COLUMNS = HitFields(url=("href",), snippet=("body",))
_COUNTRY = {"en": "us", "zh": "cn"}


class Ddgs(SearchBackend):
    """Web search through `ddgs`. Made by `make_provider`.

    Args:
        country: two letters; None is the usual one of the language.
        language: two letters; None is the language of the query.
        per_second: most searches per second; None is 1.
        timeout: seconds for a search, without the wait for its turn.
        patience: longest wait for a turn in seconds.

    Raises:
        ModuleNotFoundError: `ddgs` is not installed.
    """

    name = NAME

    def __init__(
        self,
        country: str | None = None,
        language: str | None = None,
        per_second: float | None = None,
        timeout: float = 20.0,
        patience: float = 60.0,
    ) -> None:
        if not installed():
            raise ModuleNotFoundError("ddgs is not installed: pip install ddgs")
        self._country, self._language = country, language
        self._timeout, self._patience = timeout, patience
        self._limiter = RateLimiter(PER_SECOND if per_second is None else per_second)

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k."""
        return {"language": self._language or "by query", "country": self._country or "by language"}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits."""
        line = clean_query(query, 500)
        if not line or k < 1:
            return []
        try:
            await self._limiter.acquire(self._patience)
        except RateLimited:
            rate = f"{self._limiter.per_second:g} per second"
            raise ServiceError(NAME, f"too many searches are waiting for their turn at {rate}") from None
        # Nothing can interrupt ddgs, and an ordinary thread would keep the interpreter from exiting.
        work = run_in_daemon_thread(lambda: self._found(line, k), "arpo-ddgs")
        try:
            found = await asyncio.wait_for(asyncio.wrap_future(work), self._timeout)
        except TimeoutError:
            raise ServiceError(NAME, f"found nothing within {self._timeout:g} s") from None
        return with_text(_COLUMNS.hit(result) for result in found if isinstance(result, dict))[:k]

    def _found(self, line: str, k: int) -> list[Any]:
        import ddgs
        from ddgs.exceptions import RatelimitException

        language = self._language or query_language(line)
        country = self._country or _COUNTRY.get(language, language)
        engines = ddgs.DDGS(timeout=max(1, int(self._timeout / 2)))  # per engine; time for a second one remains
        try:
            found = engines.text(line, region=f"{country.lower()}-{language.lower()}", max_results=k)
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
        raise ServiceError(NAME, message)


def installed() -> bool:
    """Return whether the package is installed."""
    return importlib.util.find_spec("ddgs") is not None
