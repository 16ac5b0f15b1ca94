"""The interface of search: `SearchBackend`, which returns `Hit`s."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """One search result.

    Attributes:
        title: of the page or passage.
        url: its address, or the id of a passage from a corpus without addresses.
        snippet: a short text for the result list.
        date: as the source wrote it, or "".
        text: the whole passage or page, if the backend returns it; else "".
        score: of the backend, higher is better; None if it has none.
    """

    title: str = ""
    url: str = ""
    snippet: str = ""
    date: str = ""
    text: str = ""
    score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Hit:
        """Make a hit from the result of `as_dict`."""
        return cls(**data)


class SearchBackend(ABC):
    """Something that can be searched. Many episodes share one, so it keeps no state of an episode.

    Attributes:
        name: "tantivy", "serper", ...
        version: of the adapter; a cached result of another version is not used.
    """

    name: str
    version: int = 1

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k (index, language, ...), as JSON; part of the cache's key."""
        return {}

    @abstractmethod
    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, best first.

        Raises:
            ServiceError: the service failed.
        """

    async def close(self) -> None:  # noqa: B027  (most backends hold no resources)
        """Release connections and files; may be called twice."""
