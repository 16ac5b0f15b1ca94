"""Pages that are recorded and replayed: `CachedPages` around a reader.

That a page is gone, refused, or not text is kept for a short time (forever in a replay). Time-outs and failures of the
site are not kept; the page is fetched again. They are only noted for a replay, where the episode went on without it.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from arpo_env.cache.cache import Cache
from arpo_env.pages.page import Page, PageError

# The words are those of the reasons in this package. Statuses 408, 425 and 429 pass with time.
_LASTING = re.compile(
    r"\(status 4(?!08|25|29)\d\d\)|holds no text|is no page of text|is larger than|robots\.txt does not allow"
)


class PageSource(Protocol):
    """Anything that reads pages, such as `PageReader`."""

    @property
    def name(self) -> str:
        """Names the reader in the cache."""

    @property
    def version(self) -> int:
        """Recorded pages of another version are not used."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the text besides the address, as JSON."""

    async def read(self, url: str) -> Page:
        """Return a page, or raise `PageError`."""

    async def close(self) -> None:
        """Release connections and processes."""


class CachedPages:
    """A reader whose pages go through a cache.

    Args:
        reader: is closed together with this one; the cache is not, since others may use it.
        cache: its mode decides whether the page is fetched.
    """

    def __init__(self, reader: PageSource, cache: Cache) -> None:
        self.reader, self.cache = reader, cache

    async def read(self, url: str) -> Page:
        """Return the recorded page, or read it. The fragment of the address is ignored.

        Raises:
            PageError: the page cannot be read, or could not when it was recorded; the reason is for the model.
            CacheMiss: the page was not recorded, and the cache is in replay mode.
            ServiceError: a failure on our side.
        """
        address = url.strip().partition("#")[0]
        request = {"url": address, "parameters": self.reader.parameters}
        what = ("page", self.reader.name, self.reader.version, request)
        try:
            found = await self.cache.through(*what, lambda: self._read(address), negative=_failed)
        except PageError as error:
            # A replay has to fail here as well, or its episode would go another way.
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
