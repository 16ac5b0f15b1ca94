"""`PageReader`: fetches an address from the web and returns the text of the page, within limits.

A fault of the page is a `PageError`, whose reason the model reads. A failure on our side (a missing library, no process
for the parser, Jina's service) is another exception, which voids the sample.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_env.daemon_threads import DaemonThreads
from arpo_env.net.http import ServiceError
from arpo_env.net.rate_limit import RateLimited, RateLimiter
from arpo_env.net.service_urls import without_login
from arpo_env.pages import jina_reader as jina_service
from arpo_env.pages.charset import decode
from arpo_env.pages.deadline import TooSlow
from arpo_env.pages.fetch import FetchLimits, FetchResult, explain_status, fetch
from arpo_env.pages.page import Kind, Page, PageError, shown
from arpo_env.pages.parser_pool import PageParser, ParsingFailed
from arpo_env.pages.robots_txt import MAX_BYTES, RobotsCache
from arpo_env.pages.url_safety import PORTS, Address, AddressRefused, parse_address, resolve

USER_AGENT = "Mozilla/5.0 (compatible; arpo-gym/0.1)"
_REDIRECTS = 5
_ROBOTS_SECONDS = 10.0
_PARSER_PATIENCE = 60.0  # seconds that a page waits for others to be parsed
_PDF = re.compile(rb"%PDF-\d")
_MARKUP = re.compile(rb"\s*(<!--|<!doctype|<html|<head|<body|<title|<meta|<script|<div|<p\b|<h1|<\?xml)", re.IGNORECASE)
_MARKUP_TYPES = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_TEXT_TYPES = ("text/", "application/json", "application/ld+json", "application/x-ndjson", "application/javascript")
_UNSAID = ("", "application/octet-stream", "binary/octet-stream", "application/force-download")
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ufffe\uffff\ud800-\udfff]")


class PageReader:
    """Reads web pages. Many episodes may share one, on any event loops.

    The wait for a turn is not part of `timeout` and is at most as long; parsing has a limit of its own. A child of
    `os.fork` starts threads and processes of its own.

    Args:
        timeout: seconds for all connections of one page: robots.txt, redirects and body.
        max_bytes: of a page, decompressed.
        max_characters: of a page's text; the rest is cut off.
        per_host_per_second: most requests per host and second; a Crawl-delay can make it slower.
        concurrency: most connections at a time.
        robots: whether to obey robots.txt.
        user_agent: as servers see it; robots.txt is read for the products that it names.
        allow_private: read also addresses that are not public. For tests and for the user's own sites: with it, any
            page that is found can reach what this machine can reach.
        ports: allowed ports; None allows all.
        proxy: address of an HTTP proxy. It looks names up, so it must refuse private addresses itself. Proxies of the
            environment are not used.
        jina: read through Jina's reader service.
        jina_address: of the service, or of a copy that the user runs.
        parse_seconds: for parsing one page.
        links: collect the links of pages in HTML (`Page.links`), as the tool `browse` needs them; not with `jina`.

    Raises:
        ValueError: `links` and `jina` are given together.
    """

    name = "web"
    version = 1

    def __init__(
        self,
        timeout: float = 20.0,
        max_bytes: int = 5_000_000,
        max_characters: int = 20_000,
        *,
        per_host_per_second: float = 2.0,
        concurrency: int = 32,
        robots: bool = True,
        user_agent: str = USER_AGENT,
        allow_private: bool = False,
        ports: Sequence[int] | None = PORTS,
        proxy: str | None = None,
        jina: bool = False,
        jina_address: str = jina_service.ADDRESS,
        parse_seconds: float = 15.0,
        links: bool = False,
    ) -> None:
        if links and jina:
            raise ValueError("links=True reads pages itself: leave out jina=True, whose service tells no links")
        self.links = links
        self.timeout, self.max_characters = timeout, max_characters
        self._ports, self._concurrency, self._obeys_robots = ports, concurrency, robots
        self._per_host_per_second, self._parse_seconds = per_host_per_second, parse_seconds
        self._limits = FetchLimits(max_bytes, allow_private, proxy, user_agent)
        self._jina = jina_service.JinaReader(jina_address, timeout, max_bytes) if jina else None
        self._begin()
        _readers.add(self)

    def _begin(self) -> None:
        self._threads = DaemonThreads(self._concurrency, "arpo-page")
        self._parser = PageParser(min(4, os.cpu_count() or 1), self._parse_seconds)
        self._limiter = RateLimiter(self._per_host_per_second)
        agent = self._limits.user_agent
        self._robots = (
            RobotsCache(self._fetch_robots, self._ports, agent, self._threads) if self._obeys_robots else None
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; the threads and processes stay here (a factory carries a reader to another process)."""
        running = ("_threads", "_parser", "_limiter", "_robots")
        return {name: value for name, value in self.__dict__.items() if name not in running}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over the settings, and start with threads and processes of its own."""
        self.__dict__.update(state)
        self._begin()
        _readers.add(self)

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the text besides the address, as JSON; part of a cache's key."""
        sizes = {"max_characters": self.max_characters, "max_bytes": self._limits.max_bytes}
        if self._jina is not None:
            return {**sizes, "jina": without_login(self._jina.address)}
        # Named only where it is on, so that records of readers without it stay valid.
        links = {"links": True} if self.links else {}
        return {**sizes, "robots": self._obeys_robots, "user_agent": self._limits.user_agent, **links}

    async def read(self, url: str) -> Page:
        """Fetch a page and return its text.

        Raises:
            PageError: the page cannot be read; the reason is for the model.
            ImportError: a library is missing; the message says how to install it.
            ServiceError: a failure on our side.
        """
        address = parse_address(url, self._ports)
        if self._jina is not None:
            await self._check_for_jina(address)
            return await self._jina.read(address, self.max_characters)
        fetched = await self._follow(address)
        kind = _kind(url, fetched)
        found = await self._parse(url, kind, fetched)
        text = _clean(found["text"])[: self.max_characters].rstrip()
        links = tuple((_clean(label), address) for label, address in found.get("links", ()))
        if not text and not links:
            raise PageError(url, "the page holds no text (it may be pictures, or be written by scripts)")
        return Page(fetched.url, " ".join(_clean(found["title"]).split()), text, found["date"], kind, links)

    async def close(self) -> None:
        """End threads and processes; may be called twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._parser.close()

    async def _check_for_jina(self, address: Address) -> None:
        """Refuse private addresses for a copy of Jina's service that runs in the user's own network."""
        if self._limits.allow_private or (self._jina and self._jina.address == jina_service.ADDRESS):
            return
        look_up = functools.partial(resolve, address.host, address.port, self.timeout, False)
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        except AddressRefused as error:
            raise PageError(address.url, str(error)) from error
        except TooSlow as error:
            raise PageError(address.url, "no complete answer within the time limit") from error

    async def _follow(self, address: Address) -> FetchResult:
        """Fetch a page and follow its redirects, each of which is checked like the first address."""
        from requests.cookies import RequestsCookieJar

        visit = _Visit(address.url, self.timeout, RequestsCookieJar())  # some sites redirect until a cookie comes back
        try:
            # Twice as long, since the wait for a turn is not part of the time limit and may take as long.
            async with asyncio.timeout(2 * self.timeout) as limit:
                for _ in range(_REDIRECTS + 1):
                    try:
                        fetched = await self._visit(address, visit)
                        if fetched.location is None:
                            return fetched
                        address = parse_address(fetched.location, self._ports)
                    except PageError as error:
                        raise visit.fault(error) from error
        except TimeoutError as error:
            # A TimeoutError of something else is no fault of the page.
            if not limit.expired():
                raise
            raise PageError(visit.url, "no complete answer within the time limit") from error
        raise PageError(visit.url, f"it redirects more than {_REDIRECTS} times")

    async def _visit(self, address: Address, visit: _Visit) -> FetchResult:
        delay = await self._permission(address, visit)
        try:
            await self._limiter.acquire(self.timeout, address.host, delay)
        except RateLimited as error:
            raise PageError(address.url, f"the site may be asked again in {error.seconds:.0f} s only") from error
        fetched = await asyncio.get_running_loop().run_in_executor(
            self._threads, fetch, address, visit.left(), self._limits, visit.cookies
        )
        # Only the request itself counts, not the wait for a turn or a thread.
        visit.seconds -= fetched.seconds
        if fetched.location is None and not 200 <= fetched.status < 300:
            raise PageError(address.url, explain_status(fetched.status))
        return fetched

    async def _permission(self, address: Address, visit: _Visit) -> float:
        """Return the pause in seconds that the site asks for.

        Raises:
            PageError: the site does not allow programs to read the page.
        """
        if self._robots is None:
            return 0.0
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:  # shielded: others may wait for the same file
            rules = await asyncio.wait_for(
                asyncio.shield(asyncio.wrap_future(self._robots.rules(address))), visit.left()
            )
        except TimeoutError as error:
            raise PageError(address.url, "no complete answer within the time limit") from error
        visit.seconds -= loop.time() - started
        if rules.fault:
            raise PageError(address.url, rules.fault)
        if not rules.allows(address.url):
            raise PageError(address.url, "the site's robots.txt does not allow programs to read it")
        return rules.delay

    def _fetch_robots(self, address: Address) -> FetchResult:
        return fetch(
            address, min(self.timeout, _ROBOTS_SECONDS), replace(self._limits, max_bytes=MAX_BYTES, any_body=True)
        )

    async def _parse(self, url: str, kind: Kind, fetched: FetchResult) -> dict[str, Any]:
        body = fetched.body
        if kind != "pdf":
            loop = asyncio.get_running_loop()
            markup = await loop.run_in_executor(self._threads, decode, body, fetched.charset)
            if kind == "text":
                # Cleaning removes characters, so more than the limit is kept until then.
                return {"title": "", "date": "", "text": markup[: 2 * self.max_characters]}
            body = markup.encode("utf-8", "replace")
        try:
            async with asyncio.timeout(_PARSER_PATIENCE + self._parse_seconds) as limit:
                base = fetched.url if self.links else ""
                return await self._parser.parse(kind, body, self.max_characters, base)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServiceError("page parser", "too many pages wait for it; read fewer at once") from error
        except ParsingFailed as error:
            raise PageError(url, str(error)) from error


_readers: weakref.WeakSet[PageReader] = weakref.WeakSet()


def _after_fork() -> None:
    for reader in list(_readers):
        reader._begin()  # the threads do not exist here, and the parser processes belong to the parent


os.register_at_fork(after_in_child=_after_fork)


@dataclass
class _Visit:
    """One read of one page: its first address, and the time that is left."""

    url: str
    seconds: float
    cookies: Any

    def left(self) -> float:
        if self.seconds <= 0:
            raise PageError(self.url, "no complete answer within the time limit")
        return self.seconds

    def fault(self, error: PageError) -> PageError:
        if error.url == self.url:
            return error
        return PageError(self.url, f"it redirects to {shown(error.url)}: {error.reason}")


def _kind(url: str, fetched: FetchResult) -> Kind:
    """Return the kind of a body, from its header and its first bytes.

    Raises:
        PageError: it is not text.
    """
    start, said = fetched.body[:1024], fetched.media_type
    # A PDF is recognised by its first bytes, since many servers send it with another type.
    if _PDF.search(start) and (said not in _MARKUP_TYPES or _PDF.match(start.lstrip())):
        return "pdf"
    if not fetched.charset.lower().startswith("utf-16") and _binary(start):
        raise PageError(url, f"it is no page of text, but {said[:60]!r}" if said else "it is no page of text")
    if said in _MARKUP_TYPES or said.endswith("+xml"):
        return "html"
    if said in _UNSAID:
        # UTF-16 without its zeros and marks looks like ASCII.
        wide = start[:200].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
        return "html" if _MARKUP.match(wide) else "text"
    if said.startswith(_TEXT_TYPES) or said.endswith("+json"):
        return "text"
    raise PageError(url, f"it is no page of text, but {said[:60]!r}")


def _binary(start: bytes) -> bool:
    """Return whether a body is binary data: it has zeros and is not UTF-16, or has many control characters."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    zeros = start.count(0)
    if zeros:
        return not (0.2 * len(start) < zeros <= len(start) / 2 + 1 and b"<\0" in start + b"\0")
    # Tab, line breaks and escape (ISO-2022 charsets) are text.
    control = sum(1 for byte in start if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    return control > 0.05 * len(start)


def _clean(text: str) -> str:
    """Remove control characters, spaces at line ends, and repeated empty lines."""
    text = _NOT_TEXT.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n"))
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()
