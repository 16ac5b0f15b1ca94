"""The reader as a whole: what its pages depend on, its time limits, what a fork leaves of it, robots.txt, the cache."""

import asyncio
import itertools
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


def test_what_is_no_robots_file_allows() -> None:
    assert parse_robots("<html>not found</html>\x00\nDisallow: /").allows("/")


def test_a_page_that_is_not_allowed_is_not_asked_for(site: Site) -> None:
    _robots(site, "User-agent: *\nDisallow: /private")
    assert "robots.txt does not allow" in reason(f"{site.url}/private/a")
    assert site.paths() == []


def test_a_redirect_into_what_is_not_allowed_is_refused(site: Site) -> None:
    _robots(site, "User-agent: *\nDisallow: /private")
    site.pages["/"] = lambda handler: answer(handler, b"", status=302, Location="/private")
    assert "robots.txt does not allow" in reason(f"{site.url}/")
    assert site.paths() == ["/"]


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (401, True), (403, True), (500, False), (503, False)])
def test_the_status_of_robots(site: Site, status: int, allowed: bool) -> None:
    site.pages["/robots.txt"] = lambda handler: answer(handler, b"User-agent: *\nDisallow: /", status=status)
    _text(site, "/")
    if allowed:
        assert read(f"{site.url}/").text
    else:
        assert f"robots.txt: status {status}" in reason(f"{site.url}/")


def test_a_robots_file_without_end_is_cut(site: Site) -> None:
    _robots(site, "User-agent: *\nDisallow: /private\n" + "# comment\n" * 100_000)
    assert "robots.txt does not allow" in reason(f"{site.url}/private")


def test_robots_is_fetched_once(site: Site) -> None:
    _text(site, "/")

    async def thrice(reader: PageReader) -> None:
        for _ in range(3):
            await reader.read(f"{site.url}/")
        await reader.close()

    asyncio.run(thrice(PageReader(allow_private=True, ports=None, per_host_per_second=1000)))
    assert [path for path, _, _ in site.requests].count("/robots.txt") == 1


def test_requests_to_a_host_keep_their_distance_and_order(site: Site) -> None:
    for number in range(5):
        _text(site, f"/{number}")
    asyncio.run(_all(site, 5, PageReader(allow_private=True, ports=None, per_host_per_second=10)))
    times = [when for path, _, when in site.requests if path != "/robots.txt"]
    assert site.paths() == [f"/{number}" for number in range(5)]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.05
    assert times[-1] - times[0] > 0.35


def test_a_crawl_delay_slows_us_down(site: Site) -> None:
    _robots(site, "User-agent: *\nCrawl-delay: 0.3")
    for number in range(3):
        _text(site, f"/{number}")
    asyncio.run(_all(site, 3, PageReader(allow_private=True, ports=None, per_host_per_second=1000)))
    times = [when for path, _, when in site.requests if path != "/robots.txt"]
    assert times[-1] - times[0] > 0.5


def test_a_turn_that_comes_too_late_is_told_at_once(site: Site) -> None:
    _robots(site, "User-agent: *\nCrawl-delay: 1000")
    _text(site, "/0")

    async def twice(reader: PageReader) -> None:
        await reader.read(f"{site.url}/0")
        with pytest.raises(PageError, match="asked again in"):
            await reader.read(f"{site.url}/0")
        await reader.close()

    started = time.monotonic()
    asyncio.run(twice(PageReader(allow_private=True, ports=None)))
    assert time.monotonic() - started < 15


async def _all(site: Site, count: int, reader: PageReader) -> None:
    await asyncio.gather(*(reader.read(f"{site.url}/{number}") for number in range(count)))
    await reader.close()


def _robots(site: Site, text: str) -> None:
    site.pages["/robots.txt"] = lambda handler: answer(handler, text.encode(), "text/plain")


def _text(site: Site, path: str) -> None:
    def page(handler: Any) -> None:
        answer(handler, b"words of a page", "text/plain")

    site.pages[path] = page


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

    async def close(self) -> None:
        pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def test_a_page_is_read_once_and_replayed(file: Path) -> None:
    shelf = Shelf()
    pages = CachedPages(shelf, Cache(file))
    first = asyncio.run(pages.read("http://a/x#part"))
    assert asyncio.run(CachedPages(shelf, Cache(file, mode="replay")).read(" http://a/x")) == first
    assert shelf.asked == ["http://a/x"]


def test_a_reader_with_other_settings_reads_anew(file: Path) -> None:
    shelf = Shelf()
    pages = CachedPages(shelf, Cache(file))
    asyncio.run(pages.read("u"))
    shelf.parameters = {"max_characters": 5}
    asyncio.run(pages.read("u"))
    assert len(shelf.asked) == 2


def test_that_a_page_is_gone_is_kept_for_an_hour(file: Path) -> None:
    reason = "there is no such page (status 404)"
    shelf, cache = Shelf(u=(reason, False)), Cache(file)
    for mode in ("record", "record", "replay"):
        with pytest.raises(PageError) as caught:
            asyncio.run(CachedPages(shelf, Cache(file, mode=mode)).read("u"))
        assert caught.value.reason == reason
    assert len(shelf.asked) == 1
    (record,) = cache.store.records()
    assert record.expires
    assert round(record.expires - record.created) == 3600


def test_a_passing_fault_is_asked_for_again_and_a_replay_repeats_it(file: Path) -> None:
    shelf = Shelf(u=("the site failed (status 503)", True))
    pages = CachedPages(shelf, Cache(file))
    with pytest.raises(PageError, match="u: "):
        asyncio.run(pages.read("u"))
    replay = CachedPages(shelf, Cache(file, mode="replay"))
    with pytest.raises(PageError, match="u: "):
        asyncio.run(replay.read("u"))
    assert len(shelf.asked) == 1
    shelf.faults = {}
    assert asyncio.run(pages.read("u")).title == "A title"
    assert asyncio.run(replay.read("u")).title == "A title"
    with pytest.raises(CacheMiss, match=r"no page of shelf .* for url 'other'"):
        asyncio.run(replay.read("other"))
