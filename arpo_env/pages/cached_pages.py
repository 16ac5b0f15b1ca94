"""Pages that are recorded and replayed: `CachedPages` around a reader.

That a page is gone, refused, or no text is kept for a short time (for ever in a replay). Time-outs and failures of the
site are never kept, and asked for again: they are noted for a replay alone, whose episode went on without that page.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from arpo_env.cache.cache import Cache
from arpo_env.pages.page import Page, PageError

_LASTING = re.compile(
    r"\(status 4(?!08|25|29)\d\d\)|holds no text|is no page of text|is larger than|robots\.txt does not allow"
)


class Reader(Protocol):
    """What reads pages, such as `PageReader`."""

    @property
    def name(self) -> str:
        """Says in the cache who read."""

    @property
    def version(self) -> int:
        """Pages that another version read do not count."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What besides the address decides the text, as JSON."""

    async def read(self, url: str) -> Page:
        """Return a page, or raise PageError."""

    async def close(self) -> None:
        """Give back what it holds."""


class CachedPages:
    """A reader whose pages go through a cache.

    Args:
        reader: is closed with this one; the cache, which others may use, is not.
        cache: whose mode decides whether the web is asked.
    """

    def __init__(self, reader: Reader, cache: Cache) -> None:
        self.reader, self.cache = reader, cache

    async def read(self, url: str) -> Page:
        """Return the recorded page, or that of the reader; what follows "#" in the address does not matter.

        Raises:
            PageError: it can not be read, now or when it was recorded; the reason is for the model.
            CacheMiss: it is a replay, and the page was not recorded.
            ServiceError: the machinery failed.
        """
        address = url.strip().partition("#")[0]
        request = {"url": address, "parameters": self.reader.parameters}
        what = ("page", self.reader.name, self.reader.version, request)
        try:
            found = await self.cache.through(*what, lambda: self._read(address), negative=_failed)
        except PageError as error:
            await self.cache.note(*what, {"reason": error.reason})
            raise
        if _failed(found):
            raise PageError(url, found["reason"])
        return Page.from_dict(found)

    async def _read(self, url: str) -> dict[str, Any]:
        try:
            return (await self.reader.read(url)).as_dict()
        except PageError as error:
            if _LASTING.search(error.reason):
                return {"reason": error.reason}
            raise

    async def close(self) -> None:
        """Close the reader."""
        await self.reader.close()


def _failed(value: dict[str, Any]) -> bool:
    return "reason" in value
