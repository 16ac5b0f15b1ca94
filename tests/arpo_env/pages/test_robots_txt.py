"""robots.txt and the pace of requests."""

import asyncio
import itertools
import time
from typing import Any

import pytest

from arpo_env.pages import PageError, PageReader
from arpo_env.pages.reader import parse_robots
from tests.arpo_env.pages.conftest import Site, answer, read, reason


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
