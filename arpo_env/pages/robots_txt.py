"""robots.txt (RFC 9309): which paths of a site may be read, and how fast.

`urllib.robotparser` takes the first rule that fits and knows no wildcards; the standard asks for the longest rule and
for both. No sitemaps.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from arpo_env.pages.fetch import Fetched
from arpo_env.pages.page import PageError
from arpo_env.pages.url_safety import Address, parse_address

MAX_BYTES = 500_000
_MOST_RULES = 5_000
_KEPT = 3600.0  # seconds; RFC 9309 says at most a day
_KEPT_FAULT = 60.0
_MANY = 5_000
_REDIRECTS = 5
_WORD = re.compile(r"[a-z_-]+")
_GENERIC = frozenset({"mozilla", "compatible", "http", "https"})


@dataclass
class Rules:
    """What a site allows one reader.

    Attributes:
        paths: (pattern, allowed); the longest pattern that fits decides.
        delay: seconds between two requests that the site asks for, or 0.
        fault: why nothing may be read at all, or "".
    """

    paths: list[tuple[str, bool]] = field(default_factory=list)
    delay: float = 0.0
    fault: str = ""

    def allows(self, target: str) -> bool:
        """Say whether a path with its query may be read."""
        plain = _plain(target)
        fitting = [(len(pattern), allowed) for pattern, allowed in self.paths if fits(pattern, plain)]
        return max(fitting, default=(0, True))[1]  # of two equally long ones, the one that allows


def fits(pattern: str, target: str) -> bool:
    """Say whether a rule's pattern, with `*` for anything and `$` for the end, fits the start of a path."""
    pieces = pattern.removesuffix("$").split("*")
    if not target.startswith(pieces[0]):
        return False
    place = len(pieces[0])
    for piece in pieces[1:-1]:
        found = target.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    if not pattern.endswith("$"):
        return len(pieces) == 1 or target.find(pieces[-1], place) >= 0
    if len(pieces) == 1:
        return len(target) == place
    return target.endswith(pieces[-1]) and len(target) - len(pieces[-1]) >= place


def parse_robots(text: str, user_agent: str) -> Rules:
    """Read the rules for a user agent: of the groups that name one of its products, else of those for `*`."""
    products = set(_WORD.findall(user_agent.lower())) - _GENERIC
    own, general = Rules(), Rules()
    named = False
    chosen: list[Rules] = []
    heading = False
    for line in text.removeprefix("\ufeff").splitlines():
        key, _, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "user-agent":
            chosen = chosen if heading else []
            heading = True
            product = _WORD.match(value.lower())
            if value.startswith("*"):
                chosen = [*chosen, general]
            elif product and product.group() in products:
                named, chosen = True, [*chosen, own]
        elif key in ("allow", "disallow", "crawl-delay"):
            heading = False
            for rules in chosen:
                _add(rules, key, value)
    return own if named else general


def _add(rules: Rules, key: str, value: str) -> None:
    if key == "crawl-delay":
        if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", value):
            rules.delay = max(rules.delay, float(value))
    elif value and len(rules.paths) < _MOST_RULES:
        rules.paths.append((_plain(value), key == "allow"))


def _plain(target: str) -> str:
    """Write a path in the one spelling in which paths can be compared."""
    from requests.utils import requote_uri

    return re.sub(r"%[0-9a-fA-F]{2}", lambda found: found.group().upper(), requote_uri(target))


class Robots:
    """The rules of many sites; each file is fetched once an hour, by whoever comes first.

    Args:
        fetch: asks one address, in a thread; raises `PageError`.
        ports: that may be asked, or None.
        user_agent: whose rules are wanted.
        threads: where files are fetched.
    """

    def __init__(
        self,
        fetch: Callable[[Address], Fetched],
        ports: Sequence[int] | None,
        user_agent: str,
        threads: Executor,
    ) -> None:
        self._fetch, self._ports, self._user_agent, self._threads = fetch, ports, user_agent, threads
        self._known: OrderedDict[str, tuple[float, Future[Rules]]] = OrderedDict()
        self._lock = threading.Lock()

    def rules(self, address: Address) -> Future[Rules]:
        """Return the rules of an address's site, soon."""
        with self._lock:
            until, known = self._known.get(address.origin, (0.0, None))
            if known is not None and (not known.done() or (time.monotonic() < until and not known.cancelled())):
                return known
            future = self._threads.submit(self._load, address)
            self._known[address.origin] = (time.monotonic() + _KEPT, future)
            while len(self._known) > _MANY:
                self._known.popitem(last=False)
        future.add_done_callback(functools.partial(self._keep_shorter, address.origin))
        return future

    def _keep_shorter(self, origin: str, future: Future[Rules]) -> None:
        """Forget a fault soon: the site may be back."""
        if future.cancelled() or (future.exception() is None and not future.result().fault):
            return
        with self._lock:
            if origin in self._known:
                self._known[origin] = (time.monotonic() + _KEPT_FAULT, future)

    def _load(self, address: Address) -> Rules:
        try:
            return self._read(parse_address(address.origin + "/robots.txt", self._ports))
        except PageError as error:
            return Rules(fault=error.reason)

    def _read(self, address: Address) -> Rules:
        for _ in range(_REDIRECTS + 1):
            fetched = self._fetch(address)
            if fetched.location is None:
                break
            address = parse_address(fetched.location, self._ports)
        if fetched.status >= 500:
            return Rules(fault=f"the site cannot say what may be read (robots.txt: status {fetched.status})")
        if fetched.status >= 300:
            return Rules()
        return parse_robots(fetched.body.decode("utf-8", "replace"), self._user_agent)
