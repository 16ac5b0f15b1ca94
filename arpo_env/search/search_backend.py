"""What search is, for everyone: a `Hit`, and the `SearchBackend` that finds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """One result.

    Attributes:
        title: of the page or passage.
        url: where it is; a passage of a corpus without addresses has its id here.
        snippet: a short text for the result list.
        date: as the source wrote it, or "".
        text: the whole passage or page text, where the backend has it; else "".
        score: of the backend, higher is better; None where it has none.
    """

    title: str = ""
    url: str = ""
    snippet: str = ""
    date: str = ""
    text: str = ""
    score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Hit:
        """Read back what `as_dict` wrote."""
        return cls(**data)


class SearchBackend(ABC):
    """Something that can be searched. Shared by many episodes at once: it keeps no state of theirs.

    Attributes:
        name: "tantivy", "serper", ...
        version: of the adapter; a cached result of another version is not used.
    """

    name: str
    version: int = 1

    @property
    def parameters(self) -> dict[str, Any]:
        """What besides query and k decides the result (index, language, ...), as JSON; part of the cache's key."""
        return {}

    @abstractmethod
    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, best first; none for a query that finds nothing.

        Raises:
            ServiceError: the service failed.
        """

    async def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Give back what it holds; may be called twice."""
