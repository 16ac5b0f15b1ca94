"""A real web server in a thread, whose pages are functions."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from arpo_env.pages import Page, PageError, PageReader
from arpo_env.pages.reader import PageParser
from tests.arpo_env.local_server import Call, LocalServer

PARSER = PageParser(1)  # shared, since a process takes a second to start
ARTICLE = "The river Nile flows north through eleven countries of Africa. " * 8


class Site(LocalServer):
    """Pages by path: bytes (of plain text, which needs no parser), or a function that answers itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(self.show, **options)
        self.pages: dict[str, bytes | Callable[[Any], None]] = {}
        self.requests: list[tuple[str, dict[str, str], float]] = []
        self.__enter__()

    def close(self) -> None:
        self.__exit__()

    def show(self, call: Call) -> None:
        handler = call.handler
        self.requests.append((handler.path, dict(handler.headers.items()), time.monotonic()))
        page = self.pages.get(handler.path)
        if callable(page):
            page(handler)
        elif page is None:
            answer(handler, b"nothing", status=404)
        else:
            answer(handler, page)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def paths(self) -> list[str]:
        """Return what was asked for, but for robots.txt."""
        return [path for path, _, _ in self.requests if path != "/robots.txt"]


def answer(handler: Any, body: bytes, kind: str | None = "text/plain", status: int = 200, **headers: str) -> None:
    """Answer a request; an underscore in a header's name stands for a dash."""
    handler.send_response(status)
    if kind is not None:
        handler.send_header("Content-Type", kind)
    for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def read(url: str, **options: Any) -> Page:
    """Read one page with a reader of its own, which may read from this machine."""
    reader = PageReader(**{"allow_private": True, "ports": None, "per_host_per_second": 1000, **options})
    reader._begin()
    reader._parser = PARSER
    return asyncio.run(reader.read(url))


def reason(url: str, **options: Any) -> str:
    """Return why a page cannot be read."""
    with pytest.raises(PageError) as error:
        read(url, **options)
    return error.value.reason


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def second_site() -> Iterator[Site]:
    made = Site(host="127.0.0.2")
    yield made
    made.close()
