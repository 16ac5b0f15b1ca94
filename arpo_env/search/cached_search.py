"""Searches that are recorded and replayed: `CachedSearch` wraps any backend, `RecordedSearch` stands in for one."""

from __future__ import annotations

from typing import Any

from arpo_env.cache.cache import Cache, normalise_query
from arpo_env.errors import ServiceError
from arpo_env.search.search_backend import Hit, SearchBackend


class RecordedSearch(SearchBackend):
    """Stands in for a provider whose answers were recorded, so that no key and no network is needed.

    Wrap it in `CachedSearch`; without a cache it finds nothing.

    Args:
        provider: the name that the records have, such as "bing-arpo" or "serper".
        version: of the recording backend.
        k: number of hits that were requested when it was recorded. Fewer may be requested now.
        parameters: of the recording backend.
    """

    def __init__(
        self, provider: str = "bing-arpo", version: int = 1, k: int = 10, parameters: dict[str, Any] | None = None
    ) -> None:
        self.name, self.version = f"recorded:{provider}", version
        self.provider, self.k, self._parameters = provider, k, dict(parameters or {})

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the recording backend."""
        return self._parameters

    async def search(self, query: str, k: int) -> list[Hit]:
        """Fail, since there is no live backend.

        Raises:
            ServiceError: always.
        """
        raise ServiceError(
            self.name,
            f"{query[:300]!r} was not recorded, and there is no live backend to ask: give the cache that has it "
            "(cache=FILE, or CachedSearch), or record it with a live backend",
        )


class CachedSearch(SearchBackend):
    """A backend whose answers go through a cache.

    Queries that are equal after `normalise_query` share the answer to the first of them. A blank query finds nothing.

    Args:
        backend: is closed together with this one; the cache is not, since others may use it.
        cache: its mode decides whether the backend is asked.
    """

    def __init__(self, backend: SearchBackend, cache: Cache) -> None:
        self.backend, self.cache = backend, cache
        self.name, self.version = backend.name, backend.version

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the backend."""
        return self.backend.parameters

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the recorded hits, or those of the backend.

        Raises:
            CacheMiss: the query was not recorded, and the cache is in replay mode.
            ServiceError: the backend failed, or the cache's file cannot be used.
        """
        normal = normalise_query(query)
        if not normal:
            return []
        # A recording is found under the name and k of the backend that made it, whoever replays it.
        recorded = self.backend if isinstance(self.backend, RecordedSearch) else None
        provider = recorded.provider if recorded else self.name
        asked = recorded.k if recorded else k
        found = await self.cache.through(
            "search",
            provider,
            self.version,
            search_request(normal, asked, self.parameters),
            lambda: self._ask(query, k),
            negative=lambda hits: not hits,  # "nothing found" is kept for a shorter time
        )
        # A recording may hold more hits than are asked for now.
        return [Hit.from_dict(hit) for hit in found[:k]]

    async def _ask(self, query: str, k: int) -> list[dict[str, Any]]:
        return [hit.as_dict() for hit in await self.backend.search(query, k)]

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()


def search_request(query: str, k: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what determines the answer to a search with a normalised query."""
    return {"query": query, "k": k, "parameters": parameters}
