"""`PageReader`: fetches an address from the web and returns the text of the page, within limits.

A fault of the page is a `PageError`, whose reason the model reads. A failure on our side (a missing library, no process
for the parser, Jina's service) is another exception, which voids the sample.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_env.cache import NOTHING_SECONDS, Cache
from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_on_loop
from arpo_env.net import Http, RateLimited, RateLimiter
from arpo_env.pages.fetch import (
    PORTS,
    TOO_SLOW,
    USER_AGENT,
    Address,
    FetchLimits,
    FetchResult,
    decode,
    fetch,
    open_pages,
    parse_address,
    status_fault,
)
from arpo_env.pages.page import Page, PageError, shown
from arpo_env.worker_pool import PoolClosed, WorkerError, WorkerPool, WorkerStartError
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import httpx2
    import protego

# Pages are parsed in child processes, so that a page which crashes the parser costs only itself.

_SCRIPT = Path(__file__).with_name("parser_process.py")
# A process that reads foreign pages gets no keys from the environment.
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_MOST_JOBS = 500  # per process; lxml does not give back all its memory
_LIBRARIES = ("bs4", "lxml", "protego", "pypdf", "trafilatura")
_GRACE = 2.0  # seconds after which a process should have ended itself
_PARSER_PATIENCE = 60.0  # seconds that a page waits for others to be parsed


class ParsingFailed(Exception):
    """Raised when a page cannot be parsed; the text is the reason."""


def check_libraries() -> None:
    """Check that the libraries of the parser are installed; nothing is imported."""
    if lacking := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise ModuleNotFoundError(_how_to_install(f"without {', '.join(lacking)}"), name=lacking[0])


def _how_to_install(lack: str) -> str:
    return f"reading pages needs more packages: {install_line('search')} ({lack})"


class PageParser:
    """Parses pages in a few processes, started when they are first needed."""

    def __init__(self, processes: int = 2, seconds: float = 15.0, memory: int = 1 << 30) -> None:
        self._seconds = seconds
        self._pool = WorkerPool(
            # -P keeps the script's folder off the path, where our modules could shadow libraries.
            [sys.executable, "-P", "-B", str(_SCRIPT), str(seconds), str(memory)],
            processes=processes,
            seconds=seconds + _GRACE,
            environment={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            worn_out=lambda jobs, reply: jobs >= _MOST_JOBS or "memory" in json.loads(reply).get("fault", ""),
        )

    async def parse(self, kind: str, body: bytes, max_characters: int, base: str = "") -> dict[str, Any]:
        """Return {title, text} of a page, and its links if a base is given.

        Args:
            kind: "html" (the body is UTF-8) or "pdf".
            body: of the page.
            max_characters: number of characters after which a parser may stop.
            base: address of the page, to which its links are relative; "" does not collect links.
        """
        head = json.dumps({"kind": kind, "max_characters": max_characters, "base": base}).encode()
        try:
            reply: dict[str, Any] = json.loads(await self._pool.run(struct.pack("!I", len(head)) + head + body))
        except (WorkerStartError, PoolClosed) as error:
            if lack := getattr(error, "lacks", ""):
                raise ImportError(_how_to_install(lack)) from error
            raise ServiceError("page parser", str(error)) from error
        except WorkerError as error:
            reason = f"reading it takes longer than {self._seconds:g} s, or breaks the reader"
            raise ParsingFailed(reason) from error
        if "fault" in reply:
            raise ParsingFailed(reply["fault"])
        return reply

    def close(self) -> None:
        """End the processes; may be called twice."""
        self._pool.close()


# Pages through Jina's reader service, which fetches and renders them: with JINA_API_KEY, or 20 pages per minute.
#
# The service has its own rules for robots.txt and for where an address may lead.

JINA_ADDRESS = "https://r.jina.ai"
_PER_MINUTE = {False: 20, True: 500}  # without and with a key (Jina's documentation of 2026)
_PATIENCE = 120.0  # seconds that a page waits for its turn
_FAULTS_OF_THE_PAGE = frozenset({400, 404, 409, 410, 422, 451})
_CURES = {
    401: "Set JINA_API_KEY to a valid key.",
    402: "The key's credit is used up.",
    429: "Set JINA_API_KEY for a higher limit.",
}
_IMAGE = re.compile(r"!\[([^\[\]]{0,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)")
_LINK = re.compile(r"\[([^\[\]]{0,500})\]\((?:[^()\n]|\([^()\n]{0,500}\)){0,2000}\)")


class JinaReader:
    """Client of the service."""

    def __init__(self, timeout: float, max_bytes: int) -> None:
        key = os.environ.get("JINA_API_KEY", "").strip()
        self._headers = {"X-Return-Format": "markdown", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._limiter = RateLimiter(_PER_MINUTE[bool(key)] / 60)
        secrets = (key,) if key else ()
        self._http = Http("jina", timeout=timeout, max_bytes=max_bytes, retries=2, cures=_CURES, secrets=secrets)

    async def read(self, address: Address, max_characters: int) -> Page:
        """Return a page."""
        try:
            await self._limiter.acquire(_PATIENCE)
            reply = await self._http.request("GET", f"{JINA_ADDRESS}/{address.url}", headers=self._headers)
        except RateLimited as error:
            raise ServiceError("jina", f"too many pages are waiting for it ({error}). {_CURES[429]}", 429) from error
        except ServiceError as error:
            if error.status in _FAULTS_OF_THE_PAGE:
                raise PageError(address.url, f"the page could not be read (status {error.status})") from error
            raise
        data = reply.json()
        data = data.get("data") if isinstance(data, dict) else None
        if not isinstance(data, dict):
            raise ServiceError("jina", "answered JSON without the field 'data'", reply.status)
        title, text = (str(data.get(name) or "") for name in ("title", "content"))
        # Addresses of links are removed, so more is taken first; four times as much bounds the work of the patterns.
        text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text[: 4 * max_characters]))[:max_characters].strip()
        if not text:
            raise PageError(address.url, "the page holds no text")
        return Page(address.url, title[:300], text)


# robots.txt (RFC 9309): which addresses of a site may be read, and how fast. Protego reads the files.

MAX_BYTES = 500_000
_MOST_LINES = 5_000  # looking an address up takes time in proportion to the rules, and happens on the event loop
_KEPT = 3600.0  # seconds; RFC 9309 allows at most a day
_KEPT_FAULT = 60.0  # since the site may come back
_MANY = 5_000
_REDIRECTS = 5
_PRODUCT = "arpo-gym"


@dataclass(frozen=True)
class RobotsRules:
    """What a site allows."""

    file: protego.Protego | None = None  # the parsed file, or None if the site has none
    fault: PageError | None = None  # why nothing may be read at all

    def allows(self, url: str) -> bool:
        """Return whether an address of the site may be read."""
        return self.file is None or self.file.can_fetch(url, _PRODUCT)

    @property
    def delay(self) -> float:
        """Seconds between two requests that the site asks for, or 0."""
        return (self.file.crawl_delay(_PRODUCT) or 0.0) if self.file is not None else 0.0


def parse_robots(text: str) -> RobotsRules:
    """Read the rules."""
    from protego import Protego

    return RobotsRules(Protego.parse("\n".join(text.removeprefix("\ufeff").splitlines()[:_MOST_LINES])))


class RobotsCache:
    """The rules of many sites. Each file is fetched once an hour, by whoever comes first."""

    def __init__(self, fetch: Callable[[Address], Awaitable[FetchResult]], ports: Sequence[int] | None) -> None:
        self._fetch, self._ports = fetch, ports
        self._known: OrderedDict[str, tuple[float, asyncio.Task[RobotsRules]]] = OrderedDict()

    async def rules(self, address: Address) -> RobotsRules:
        """Return the rules of an address's site; all who ask while the file is fetched wait for it."""
        begun, task = self._known.get(address.origin, (0.0, None))
        if task is not None and task.done():
            failed = task.cancelled() or task.exception() is not None
            kept = 0.0 if failed else _KEPT_FAULT if task.result().fault else _KEPT
            task = task if time.monotonic() < begun + kept else None
        if task is None:
            task = asyncio.create_task(self._load(address))
            self._known[address.origin] = (time.monotonic(), task)
            while len(self._known) > _MANY:
                self._known.popitem(last=False)
        return await asyncio.shield(task)

    async def _load(self, address: Address) -> RobotsRules:
        try:
            address = parse_address(address.origin + "/robots.txt", self._ports)
            for _ in range(_REDIRECTS + 1):
                fetched = await self._fetch(address)
                if fetched.location is None:
                    break
                address = parse_address(fetched.location, self._ports)
        except PageError as error:
            return RobotsRules(fault=error)
        # RFC 9309: a site that fails is not read at all; one without the file may be read.
        if fetched.status >= 500:
            why = f"the site cannot say what may be read (robots.txt: status {fetched.status})"
            return RobotsRules(fault=PageError(address.url, why, passing=True))
        if fetched.status >= 300:
            return RobotsRules()
        return await asyncio.to_thread(parse_robots, fetched.body.decode("utf-8", "replace"))


_CONNECTIONS = 32  # at a time
_PARSE_SECONDS = 15.0  # for one page
_ROBOTS_SECONDS = 10.0
_PDF = re.compile(rb"%PDF-\d")
_MARKUP = re.compile(rb"\s*(<!--|<!doctype|<html|<head|<body|<title|<meta|<script|<div|<p\b|<h1|<\?xml)", re.IGNORECASE)
_MARKUP_TYPES = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_TEXT_TYPES = ("text/", "application/json", "application/ld+json", "application/x-ndjson", "application/javascript")
_UNSAID = ("", "application/octet-stream", "binary/octet-stream", "application/force-download")
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ufffe\uffff\ud800-\udfff]")


class PageReader:
    """Reads web pages. Many episodes may share one, on any event loops.

    Parsing has a limit of its own. A child of `os.fork` starts threads and processes of its own.

    Args:
        timeout: seconds for one request; twice as many for a page with its redirects and waits.
        max_bytes: of a page, decompressed.
        max_characters: of a page's text; the rest is cut off.
        per_host_per_second: maximum number of requests per host and second; a Crawl-delay can make it slower.
        robots: whether to obey robots.txt.
        allow_private: read also addresses that are not public. For tests and for the user's own sites: with it, any
            page that is found can reach what this machine can reach.
        ports: allowed ports; None allows all.
        proxy: address of an HTTP proxy. It looks names up, so it must refuse private addresses itself. Proxies of the
            environment are not used.
        jina: read through Jina's reader service.
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
        robots: bool = True,
        allow_private: bool = False,
        ports: Sequence[int] | None = PORTS,
        proxy: str | None = None,
        jina: bool = False,
        links: bool = False,
    ) -> None:
        if links and jina:
            raise ValueError("links=True reads pages itself: leave out jina=True, whose service tells no links")
        self.links = links
        self.timeout, self.max_characters = timeout, max_characters
        self._ports, self._obeys_robots, self._per_host_per_second = ports, robots, per_host_per_second
        self._limits = FetchLimits(max_bytes, allow_private, proxy)
        self._jina = JinaReader(timeout, max_bytes) if jina else None
        self._process = 0  # that the attributes of `_begin` belong to

    def _begin(self) -> None:
        self._process = os.getpid()
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._parser = PageParser(min(4, os.cpu_count() or 1), _PARSE_SECONDS)
        self._limiter = RateLimiter(self._per_host_per_second)
        self._robots = RobotsCache(self._fetch_robots, self._ports)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; what runs stays here (a factory carries a reader to another process)."""
        running = ("_slots", "_parser", "_limiter", "_robots")
        return {name: value for name, value in self.__dict__.items() if name not in running} | {"_process": 0}

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the text besides the address, as JSON; part of a cache's key."""
        sizes = {"max_characters": self.max_characters, "max_bytes": self._limits.max_bytes}
        if self._jina is not None:
            return {**sizes, "jina": JINA_ADDRESS}
        # Named only where it is on, so that records of readers without it stay valid.
        links = {"links": True} if self.links else {}
        return {**sizes, "robots": self._obeys_robots, "user_agent": USER_AGENT, **links}

    async def read(self, url: str) -> Page:
        """Fetch a page and return its text.

        Raises:
            PageError: the page cannot be read; the reason is for the model.
            ImportError: a library is missing; the message says how to install it.
            ServiceError: a failure on our side.
        """
        return await run_on_loop(self._read(url))

    async def _read(self, url: str) -> Page:
        if self._process != os.getpid():  # the processes of the parser belong to the parent of a fork
            self._begin()
        address = parse_address(url, self._ports)
        if self._jina is not None:
            return await self._jina.read(address, self.max_characters)
        fetched = await self._follow(address)
        kind = _kind(url, fetched)
        found = await self._parse(url, kind, fetched)
        text = _clean(found["text"])[: self.max_characters].rstrip()
        links = tuple((_clean(label), address) for label, address in found.get("links", ()))
        if not text and not links:
            raise PageError(url, "the page holds no text (it may be pictures, or be written by scripts)")
        return Page(fetched.url, " ".join(_clean(found["title"]).split()), text, links)

    async def close(self) -> None:
        """End the processes; may be called twice."""
        if self._process == os.getpid():
            self._parser.close()

    async def _follow(self, address: Address) -> FetchResult:
        """Fetch a page and follow its redirects, each of which is checked like the first address."""
        url = address.url
        try:
            # Twice as long as one request: for redirects, robots.txt and the wait for a turn.
            async with asyncio.timeout(2 * self.timeout) as limit, open_pages(self._limits) as client:
                for _ in range(_REDIRECTS + 1):
                    try:
                        fetched = await self._visit(address, client)
                        if fetched.location is None:
                            return fetched
                        address = parse_address(fetched.location, self._ports)
                    except PageError as error:
                        if error.url == url:
                            raise
                        why = f"it redirects to {shown(error.url)}: {error.reason}"
                        raise PageError(url, why, error.passing) from error
        except TimeoutError as error:
            # A TimeoutError of something else is no fault of the page.
            if not limit.expired():
                raise
            raise PageError(url, TOO_SLOW, passing=True) from error
        raise PageError(url, f"it redirects more than {_REDIRECTS} times")

    async def _visit(self, address: Address, client: httpx2.AsyncClient) -> FetchResult:
        delay = 0.0
        if self._obeys_robots:
            rules = await self._robots.rules(address)
            if rules.fault:
                raise PageError(address.url, rules.fault.reason, rules.fault.passing)
            if not rules.allows(address.url):
                raise PageError(address.url, "the site's robots.txt does not allow programs to read it")
            delay = rules.delay
        try:
            await self._limiter.acquire(self.timeout, address.host, delay)
        except RateLimited as error:
            raise PageError(address.url, f"the site may be asked again in {error.seconds:.0f} s only", True) from error
        async with self._slots:
            fetched = await fetch(client, address, self.timeout, self._limits)
        if fetched.location is None and not 200 <= fetched.status < 300:
            raise status_fault(address.url, fetched.status)
        return fetched

    async def _fetch_robots(self, address: Address) -> FetchResult:
        limits = replace(self._limits, max_bytes=MAX_BYTES, any_body=True)
        async with self._slots, open_pages(limits) as client:
            return await fetch(client, address, min(self.timeout, _ROBOTS_SECONDS), limits)

    async def _parse(self, url: str, kind: str, fetched: FetchResult) -> dict[str, Any]:
        body = fetched.body
        if kind != "pdf":
            markup = await asyncio.to_thread(decode, body, fetched.charset)
            if kind == "text":
                # Cleaning removes characters, so more than the limit is kept until then.
                return {"title": "", "text": markup[: 2 * self.max_characters]}
            body = markup.encode("utf-8", "replace")
        try:
            async with asyncio.timeout(_PARSER_PATIENCE + _PARSE_SECONDS) as limit:
                base = fetched.url if self.links else ""
                return await self._parser.parse(kind, body, self.max_characters, base)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServiceError("page parser", "too many pages wait for it; read fewer at once") from error
        except ParsingFailed as error:
            raise PageError(url, str(error)) from error


def _kind(url: str, fetched: FetchResult) -> str:
    """Return "html", "pdf" or "text", from a body's header and its first bytes."""
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


# Pages that are recorded and replayed: `CachedPages` around a reader.
#
# That a page is gone, refused, or not text is kept for a short time (forever in a replay). Time-outs and failures of
# the site are not kept; the page is fetched again. They are only noted for a replay, where the episode went on without
# it.


class CachedPages:
    """A reader whose pages go through a cache.

    Args:
        reader: is closed together with this one; the cache is not, since others may use it.
        cache: its mode decides whether the page is fetched.
    """

    def __init__(self, reader: PageReader, cache: Cache) -> None:
        self.reader, self.cache = reader, cache

    async def read(self, url: str) -> Page:
        """Return the recorded page, or read it. The fragment of the address is ignored."""
        address = url.strip().partition("#")[0]
        request = {"url": address, "parameters": self.reader.parameters}
        what = ("page", self.reader.name, self.reader.version, request)
        found = await self.cache.through(*what, lambda: self._read(address), lifetime=_lifetime)
        if "reason" in found:
            raise PageError(url, found["reason"], found.get("passing", False))
        return Page.from_dict(found)

    async def _read(self, url: str) -> dict[str, Any]:
        try:
            return (await self.reader.read(url)).as_dict()
        except PageError as error:
            return {"reason": error.reason, "passing": error.passing}

    async def close(self) -> None:
        """Close the reader."""
        await self.reader.close()


def _lifetime(found: dict[str, Any]) -> float | None:
    if "reason" not in found:
        return None
    # A replay has to fail here as well, or its episode would go another way.
    return 0.0 if found["passing"] else NOTHING_SECONDS
