"""Jina's reader service, played by a local server with answers of its documented form."""

import json
from typing import Any

import pytest

from arpo_env.net import ServiceError
from arpo_env.pages.reader import strip_targets
from tests.arpo_env.pages.conftest import Site, answer, read, reason

PATH = "/https://example.com/a?b=c"
DATA = {
    "title": "A title",
    "url": "https://example.com/a",
    "content": "# Head\n\nSee [the list](https://example.com/list_(1)) and ![Image 1: a map](https://x.test/m.png).",
    "publishedTime": "2024-06-16T00:00:00Z",
}


@pytest.fixture(autouse=True)
def _service(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arpo_env.pages.reader.JINA_ADDRESS", site.url)


def test_a_page_comes_through_the_service(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "key")
    _json(site, {"code": 200, "status": 20000, "data": DATA})
    page = read("https://example.com/a?b=c", jina=True)
    assert page.title == "A title"
    assert page.text == "# Head\n\nSee the list and Image 1: a map."
    path, headers, _ = site.requests[0]
    assert (path, headers["Authorization"], headers["X-Return-Format"]) == (PATH, "Bearer key", "markdown")


def test_a_fault_of_the_page_is_a_page_error(site: Site) -> None:
    site.pages[PATH] = lambda handler: answer(handler, b'{"code": 422}', "application/json", 422)
    assert "could not be read" in reason("https://example.com/a?b=c", jina=True)


@pytest.mark.parametrize("body", [b"garbage", b"[]", b'{"data": 1}'])
def test_garbage_is_a_fault_of_the_service(site: Site, body: bytes) -> None:
    site.pages[PATH] = lambda handler: answer(handler, body, "application/json")
    with pytest.raises(ServiceError, match="answered"):
        read("https://example.com/a?b=c", jina=True)


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("[a](b)", "a"),
        ('[a](b "title")', "a"),
        ("[![pic](p.png)](target)", "pic"),
        ("no [link] (here)", "no [link] (here)"),
        ("[a](b_(c)_d) e", "a e"),
        ("[](x)", ""),
    ],
)
def test_targets_are_stripped(markdown: str, text: str) -> None:
    assert strip_targets(markdown) == text


def _json(site: Site, data: Any, status: int = 200) -> None:
    body = json.dumps(data).encode()
    site.pages[PATH] = lambda handler: answer(handler, body, "application/json; charset=utf-8", status)


def test_the_key_is_in_no_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "jina_secret")
    _json(site, {"detail": "no such key: jina_secret"}, status=401)
    with pytest.raises(ServiceError, match="JINA_API_KEY") as caught:
        read("https://example.com/a?b=c", jina=True)
    assert "jina_secret" not in str(caught.value)
