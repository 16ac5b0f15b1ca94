"""Pages through the cache: pages and lasting faults are kept, passing ones never."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache, CacheMiss
from arpo_env.pages.page import Page, PageError
from arpo_env.pages.reader import CachedPages


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
