"""The reader as a whole: what its pages depend on, how long it may take, and what a fork leaves of it."""

import asyncio
import os
import time

import pytest

from arpo_env.net import ServiceError
from arpo_env.pages import PageReader
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
    child = os.fork()
    if child == 0:
        try:
            text = asyncio.run(reader.read(f"{site.url}/child")).text
            os._exit(0 if "child" in text else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert "later" in asyncio.run(reader.read(f"{site.url}/later")).text
    asyncio.run(reader.close())


def test_a_page_that_others_keep_from_the_parser_ends_on_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/"] = lambda handler: answer(handler, ARTICLE.encode(), "text/html")
    monkeypatch.setattr("arpo_env.pages.reader._PARSER_PATIENCE", 0.1)
    monkeypatch.setattr("arpo_env.pages.reader._PARSE_SECONDS", 0.1)
    monkeypatch.setattr("arpo_env.pages.reader.PageParser.parse", lambda *_: asyncio.sleep(10))
    with pytest.raises(ServiceError, match="too many pages wait"):
        read(f"{site.url}/")
