"""robots.txt (RFC 9309): which addresses of a site may be read, and how fast. Protego reads the files."""

from __future__ import annotations

import functools
import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arpo_env.pages.fetch import FetchResult
from arpo_env.pages.page import PageError
from arpo_env.pages.url_safety import Address, parse_address

if TYPE_CHECKING:
    import protego

MAX_BYTES = 500_000
_MOST_LINES = 5_000
_KEPT = 3600.0  # seconds; RFC 9309 allows at most a day
_KEPT_FAULT = 60.0
_MANY = 5_000
_REDIRECTS = 5
_PRODUCT = re.compile(r"[a-z_-]+(?:/[\w.]*)?", re.IGNORECASE)
_VERSION = re.compile(r"^(\s*user-?\s?agent\s*:\s*[^\s/#]+)/\S*", re.IGNORECASE)
_GENERIC = frozenset({"mozilla", "compatible", "http", "https"})


@dataclass(frozen=True)
class RobotsRules:
    """What a site allows one reader.

    Attributes:
        file: the parsed file, or None if the site has none.
        user_agent: names of the reader, which are looked up in the file.
        fault: why nothing may be read at all, or "".
    """

    file: protego.Protego | None = None
    user_agent: str = ""
    fault: str = ""

    def allows(self, url: str) -> bool:
        """Return whether an address of the site may be read."""
        return self.file is None or self.file.can_fetch(url, self.user_agent)

    @property
    def delay(self) -> float:
        """Seconds between two requests that the site asks for, or 0."""
        return (self.file.crawl_delay(self.user_agent) or 0.0) if self.file is not None else 0.0


def parse_robots(text: str, user_agent: str) -> RobotsRules:
    """Read the rules for a user agent.

    Args:
        text: of the file.
        user_agent: as it is sent. Names that every browser sends are left out, so that a group for "Mozilla" is not
            taken for ours.
    """
    from protego import Protego

    names = (name.partition("/")[0] for name in _PRODUCT.findall(user_agent))
    products = [name for name in names if name.lower() not in _GENERIC]
    lines = (line for line in text.removeprefix("\ufeff").splitlines() if line.partition("#")[0].strip())
    # RFC 9309 compares product tokens only: a group for another version of a product binds it as well.
    lines = (_VERSION.sub(r"\1", line) for line in lines)
    # Looking an address up takes time in proportion to the rules, and happens on the event loop.
    file = Protego.parse("\n".join(itertools.islice(lines, _MOST_LINES)))
    return RobotsRules(file, " ".join(products))


class RobotsCache:
    """The rules of many sites. Each file is fetched once an hour, by whoever comes first.

    Args:
        fetch: requests one address, in a thread; raises `PageError`.
        ports: the allowed ports; None allows all.
        user_agent: whose rules are wanted.
        threads: where files are fetched.
    """

    def __init__(
        self,
        fetch: Callable[[Address], FetchResult],
        ports: Sequence[int] | None,
        user_agent: str,
        threads: Executor,
    ) -> None:
        self._fetch, self._ports, self._user_agent, self._threads = fetch, ports, user_agent, threads
        self._known: OrderedDict[str, tuple[float, Future[RobotsRules]]] = OrderedDict()
        self._lock = threading.Lock()

    def rules(self, address: Address) -> Future[RobotsRules]:
        """Return a future with the rules of an address's site."""
        with self._lock:
            until, known = self._known.get(address.origin, (0.0, None))
            # A file that is still being fetched is shared by all who wait for it.
            if known is not None and (not known.done() or (time.monotonic() < until and not known.cancelled())):
                return known
            future = self._threads.submit(self._load, address)
            self._known[address.origin] = (time.monotonic() + _KEPT, future)
            while len(self._known) > _MANY:
                self._known.popitem(last=False)
        future.add_done_callback(functools.partial(self._keep_shorter, address.origin))
        return future

    def _keep_shorter(self, origin: str, future: Future[RobotsRules]) -> None:
        """Keep a fault for a shorter time, since the site may come back."""
        if future.cancelled() or (future.exception() is None and not future.result().fault):
            return
        with self._lock:
            if origin in self._known:
                self._known[origin] = (time.monotonic() + _KEPT_FAULT, future)

    def _load(self, address: Address) -> RobotsRules:
        try:
            return self._read(parse_address(address.origin + "/robots.txt", self._ports))
        except PageError as error:
            return RobotsRules(fault=error.reason)

    def _read(self, address: Address) -> RobotsRules:
        for _ in range(_REDIRECTS + 1):
            fetched = self._fetch(address)
            if fetched.location is None:
                break
            address = parse_address(fetched.location, self._ports)
        # RFC 9309: a site that fails is not read at all; one without the file may be read.
        if fetched.status >= 500:
            return RobotsRules(fault=f"the site cannot say what may be read (robots.txt: status {fetched.status})")
        if fetched.status >= 300:
            return RobotsRules()
        return parse_robots(fetched.body.decode("utf-8", "replace"), self._user_agent)
