"""The reader as a whole: what its pages depend on, its time limits, forks, robots.txt, the cache, Jina's service."""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache, CacheMiss
from arpo_env.net import ServiceError
from arpo_env.pages import PageReader
from arpo_env.pages.page import Page, PageError
from arpo_env.pages.reader import CachedPages, parse_robots
from tests.arpo_env.forks import holds_in_a_child
from tests.arpo_env.pages.conftest import ARTICLE, Site, answer, read, reason


@pytest.mark.parametrize("option", [{"max_bytes": 7}, {"max_characters": 7}, {"robots": False}, {"jina": True}])
def test_what_decides_a_page_is_part_of_its_key(option: dict[str, object]) -> None:
    assert PageReader().parameters != PageReader(**option).parameters  # type: ignore[arg-type]


def test_a_page_that_leads_from_pause_to_pause_ends_on_time(site: Site) -> None:
    site.pages["/robots.txt"] = b"User-agent: *\nCrawl-delay: 0.9"
    for number in range(5):
        site.pages[f"/{number}"] = lambda handler, to=number + 1: answer(handler, b"", status=302, Location=f"/{to}")
    site.pages["/5"] = b"text"
    started = time.monotonic()
    assert "time limit" in reason(f"{site.url}/0", timeout=1.0)
    assert time.monotonic() - started < 15


def test_a_reader_goes_on_in_the_child_of_a_fork(site: Site) -> None:
    markup = "<html><body><p>{}</p></body></html>".format
    for name in ("parent", "child", "later"):
        text = markup(name * 100).encode()
        site.pages[f"/{name}"] = lambda handler, text=text: answer(handler, text, "text/html")
    reader = PageReader(allow_private=True, ports=None, per_host_per_second=1000, timeout=5.0)
    assert "parent" in asyncio.run(reader.read(f"{site.url}/parent")).text
    assert holds_in_a_child(lambda: "child" in asyncio.run(reader.read(f"{site.url}/child")).text)
    assert "later" in asyncio.run(reader.read(f"{site.url}/later")).text
    asyncio.run(reader.close())


def test_a_page_that_others_keep_from_the_parser_ends_on_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/"] = lambda handler: answer(handler, ARTICLE.encode(), "text/html")
    monkeypatch.setattr("arpo_env.pages.reader._PARSER_PATIENCE", 0.1)
    monkeypatch.setattr("arpo_env.pages.reader._PARSE_SECONDS", 0.1)
    monkeypatch.setattr("arpo_env.pages.reader.PageParser.parse", lambda *_: asyncio.sleep(10))
    with pytest.raises(ServiceError, match="too many pages wait"):
        read(f"{site.url}/")


def test_a_group_of_our_own_replaces_the_general_one() -> None:
    text = "User-agent: other\nUser-agent: ARPO-gym\nDisallow: /a\n\nUser-agent: *\nDisallow: /\nCrawl-delay: 9\n"
    rules = parse_robots(text)
    assert (rules.allows("/b"), rules.allows("/a"), rules.delay) == (True, False, 0.0)
    assert parse_robots("<html>not found</html>\x00\nDisallow: /").allows("/")


def test_a_page_that_is_not_allowed_is_not_asked_for_also_after_a_redirect(site: Site) -> None:
    site.pages["/robots.txt"] = b"User-agent: *\nDisallow: /private"
    site.pages["/"] = lambda handler: answer(handler, b"", status=302, Location="/private")
    for path in ("/private/a", "/"):
        assert "robots.txt does not allow" in reason(f"{site.url}{path}")
    assert site.paths() == ["/"]
    site.pages["/robots.txt"] = b"User-agent: *\nDisallow: /private\n" + b"# comment\n" * 100_000  # it is cut
    assert "robots.txt does not allow" in reason(f"{site.url}/private")


def test_the_status_of_robots(site: Site) -> None:
    site.pages["/"], rules = b"words of a page", b"User-agent: *\nDisallow: /"
    for status in (404, 403):
        site.pages["/robots.txt"] = lambda handler, status=status: answer(handler, rules, status=status)
        assert read(f"{site.url}/").text
    site.pages["/robots.txt"] = lambda handler: answer(handler, rules, status=503)
    assert "robots.txt: status 503" in reason(f"{site.url}/")


def test_robots_is_fetched_once_and_a_turn_that_comes_too_late_is_told_at_once(site: Site) -> None:
    site.pages["/robots.txt"] = b"User-agent: *\nCrawl-delay: 1000"
    site.pages["/0"] = b"words of a page"
    reader, started = PageReader(allow_private=True, ports=None), time.monotonic()
    asyncio.run(reader.read(f"{site.url}/0"))
    with pytest.raises(PageError, match="asked again in"):
        asyncio.run(reader.read(f"{site.url}/0"))
    asyncio.run(reader.close())
    assert [path for path, _, _ in site.requests] == ["/robots.txt", "/0"]
    assert time.monotonic() - started < 15


def test_requests_to_a_host_keep_their_distance_and_order(site: Site) -> None:
    for number in range(5):
        site.pages[f"/{number}"] = b"words of a page"
    reader = PageReader(allow_private=True, ports=None, per_host_per_second=10)

    async def all_of_them() -> None:
        await asyncio.gather(*(reader.read(f"{site.url}/{number}") for number in range(5)))
        await reader.close()

    asyncio.run(all_of_them())
    times = [when for path, _, when in site.requests if path != "/robots.txt"]
    assert site.paths() == [f"/{number}" for number in range(5)]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.05
    assert times[-1] - times[0] > 0.35


class Shelf:
    """A reader of invented pages."""

    name, version = "shelf", 1

    def __init__(self, **faults: tuple[str, bool]) -> None:
        self.faults, self.asked, self.parameters = faults, list[str](), dict[str, Any]()

    async def read(self, url: str) -> Page:
        self.asked.append(url)
        if url in self.faults:
            raise PageError(url, *self.faults[url])
        return Page(url, "A title", "二 text")


def test_a_page_is_read_once_and_replayed_and_with_other_settings_anew(tmp_path: Path) -> None:
    shelf, file = Shelf(), tmp_path / "cache.sqlite"
    pages = CachedPages(shelf, Cache(file))
    first = asyncio.run(pages.read("http://a/x#part"))
    assert asyncio.run(CachedPages(shelf, Cache(file, mode="replay")).read(" http://a/x")) == first
    assert shelf.asked == ["http://a/x"]
    shelf.parameters = {"max_characters": 5}
    asyncio.run(pages.read("http://a/x"))
    assert len(shelf.asked) == 2


def test_a_lasting_fault_is_kept_for_an_hour_and_a_passing_one_asked_for_again(tmp_path: Path) -> None:
    shelf, file = Shelf(gone=("status 404", False), busy=("status 503", True)), tmp_path / "cache.sqlite"
    pages, replay = (CachedPages(shelf, Cache(file, mode=mode)) for mode in ("record", "replay"))
    for reader in (pages, pages, replay):
        for url, (why, _) in shelf.faults.items():
            with pytest.raises(PageError, match=why):
                asyncio.run(reader.read(url))
    assert shelf.asked == ["gone", "busy", "busy"]
    lasting = {json.loads(record.request)["url"]: record.expires for record in Cache(file).store.records()}
    assert lasting["gone"] == pytest.approx(time.time() + 3600, abs=60)
    shelf.faults = {}
    assert asyncio.run(pages.read("busy")) == asyncio.run(replay.read("busy"))
    with pytest.raises(CacheMiss, match=r"no page of shelf .* for url 'other'"):
        asyncio.run(replay.read("other"))


JINA_PATH = "/https://example.com/a?b=c"
MARKDOWN = "# Head\n\nSee [the list](https://example.com/list_(1)) and ![Image 1: a map](https://x.test/m.png)."


@pytest.fixture
def jina(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Jina's reader service, played by a local server with answers of its documented form."""
    monkeypatch.setattr("arpo_env.pages.reader.JINA_ADDRESS", site.url)
    return site


def test_a_page_comes_through_jina_s_service(jina: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "key")
    body = json.dumps({"code": 200, "status": 20000, "data": {"title": "A title", "content": MARKDOWN}}).encode()
    jina.pages[JINA_PATH] = lambda handler: answer(handler, body, "application/json; charset=utf-8")
    page = read("https://example.com/a?b=c", jina=True)
    assert page.title == "A title"
    assert page.text == "# Head\n\nSee the list and Image 1: a map."
    path, headers, _ = jina.requests[0]
    assert (path, headers["Authorization"], headers["X-Return-Format"]) == (JINA_PATH, "Bearer key", "markdown")


@pytest.mark.parametrize("body", [b"garbage", b"[]", b'{"data": 1}'])
def test_garbage_is_a_fault_of_jina_s_service(jina: Site, body: bytes) -> None:
    jina.pages[JINA_PATH] = lambda handler: answer(handler, body, "application/json")
    with pytest.raises(ServiceError, match="answered"):
        read("https://example.com/a?b=c", jina=True)
    jina.pages[JINA_PATH] = lambda handler: answer(handler, b'{"code": 422}', "application/json", 422)
    assert "could not be read" in reason("https://example.com/a?b=c", jina=True)  # a fault of the page


def test_jina_s_key_is_in_no_error(jina: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "jina_secret")
    body = b'{"detail": "no such key: jina_secret"}'
    jina.pages[JINA_PATH] = lambda handler: answer(handler, body, "application/json", 401)
    with pytest.raises(ServiceError, match="JINA_API_KEY") as caught:
        read("https://example.com/a?b=c", jina=True)
    assert "jina_secret" not in str(caught.value)
