"""Pages through Jina's reader service, which fetches and renders them: with JINA_API_KEY, or 20 pages per minute.

The service has its own rules for robots.txt and for where an address may lead; our checks of the address still apply.
"""

from __future__ import annotations

import os
import re

from arpo_env.errors import ServiceError
from arpo_env.net.http import Http, Reply
from arpo_env.net.rate_limit import RateLimited, RateLimiter
from arpo_env.pages.page import Page, PageError
from arpo_env.pages.url_safety import Address

ADDRESS = "https://r.jina.ai"
_PER_MINUTE = {False: 20, True: 500}  # without and with a key (Jina's documentation of 2026)
_PATIENCE = 120.0  # seconds
_FAULTS_OF_THE_PAGE = frozenset({400, 404, 409, 410, 422, 451})
_CURES = {
    401: "Set JINA_API_KEY to a valid key.",
    402: "The key's credit is used up.",
    429: "Set JINA_API_KEY for a higher limit.",
}
_IMAGE = re.compile(r"!\[([^\[\]]{0,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)")
_LINK = re.compile(r"\[([^\[\]]{0,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)")
_HEADING = re.compile(r"Title: (?P<title>[^\n]*)\n.*?Markdown Content:\n(?P<text>.*)", re.DOTALL)


class JinaReader:
    """Client of the service.

    Args:
        address: of the service, or of a copy that the user runs.
        timeout: seconds for one page.
        max_bytes: of an answer.
    """

    def __init__(self, address: str = ADDRESS, timeout: float = 20.0, max_bytes: int = 5_000_000) -> None:
        key = os.environ.get("JINA_API_KEY", "").strip()
        self.address = address.rstrip("/")
        self._headers = {"X-Return-Format": "markdown", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._limiter = RateLimiter(_PER_MINUTE[bool(key)] / 60)
        self._http = Http(
            "jina", timeout=timeout, max_bytes=max_bytes, retries=2, cures=_CURES, secrets=(key,) if key else ()
        )

    async def read(self, address: Address, max_characters: int) -> Page:
        """Return a page.

        Raises:
            PageError: the service could not read it.
            ServiceError: the service failed.
        """
        try:
            await self._limiter.acquire(_PATIENCE)
            reply = await self._http.request("GET", f"{self.address}/{address.url}", headers=self._headers)
        except RateLimited as error:
            raise ServiceError("jina", f"too many pages are waiting for it ({error}). {_CURES[429]}", 429) from error
        except ServiceError as error:
            if error.status in _FAULTS_OF_THE_PAGE:
                raise PageError(address.url, f"the page could not be read (status {error.status})") from error
            raise
        title, date, text = _content(reply)
        # Addresses of links are removed, so more is taken first; four times as much bounds the work of the patterns.
        text = strip_targets(text[: 4 * max_characters])[:max_characters].strip()
        if not text:
            raise PageError(address.url, "the page holds no text")
        return Page(address.url, title[:300], text, date[:10], "html")


def _content(reply: Reply) -> tuple[str, str, str]:
    """Return title, date and markdown of an answer, which is JSON, or text with or without a heading."""
    if reply.headers.get("Content-Type", "").startswith("application/json"):
        answer = reply.json()
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict):
            raise ServiceError("jina", "answered JSON without the field 'data'", reply.status)
        return tuple(str(data.get(name) or "") for name in ("title", "publishedTime", "content"))  # type: ignore[return-value]
    text = reply.body.decode("utf-8", "replace")
    headed = _HEADING.match(text)
    return (headed["title"], "", headed["text"]) if headed else ("", "", text)


def strip_targets(markdown: str) -> str:
    """Replace links and images of markdown by their texts."""
    return _LINK.sub(r"\1", _IMAGE.sub(r"\1", markdown))
