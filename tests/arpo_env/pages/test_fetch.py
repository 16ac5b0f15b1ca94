"""Fetching from real servers that behave badly."""

import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from arpo_env.pages import Page
from tests.arpo_env.pages.conftest import ARTICLE, Site, answer, read, reason

PAGE = ARTICLE.strip().encode()
MARKUP = b"<html><head><title>Nile</title></head><body><p>" + PAGE + b"</p></body></html>"


def _redirect(to: str, status: int = 302) -> Any:
    return lambda handler: answer(handler, b"", status=status, Location=to)


def test_statuses_are_told(site: Site) -> None:
    for status, why in {404: "no such page", 403: "refuses", 429: "fewer", 503: "failed", 418: "refused"}.items():
        site.pages["/"] = lambda handler, status=status: answer(handler, PAGE, status=status)
        assert why in reason(f"{site.url}/")


def test_five_redirects_are_followed_and_no_more(site: Site) -> None:
    statuses = (301, 302, 303, 307, 308, 301)
    site.pages |= {f"/{i}": _redirect(f"{i + 1}", status) for i, status in enumerate(statuses)}
    site.pages["/6"] = PAGE
    assert read(f"{site.url}/1").url == f"{site.url}/6"
    assert "more than 5 times" in reason(f"{site.url}/0")


def test_an_endless_body_and_a_slow_drip_end(site: Site) -> None:
    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"word " * 10_000)

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b"x")
            time.sleep(0.1)

    site.pages["/"] = endless
    assert "larger than" in reason(f"{site.url}/", max_bytes=1_000_000)
    site.pages["/"] = drip
    started = time.monotonic()
    assert "no complete answer within" in reason(f"{site.url}/", timeout=0.5)
    assert time.monotonic() - started < 10


def test_tls_checks_the_name_not_the_address(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    site = Site(certificate=str(certificate))
    site.pages["/"] = lambda handler: answer(handler, MARKUP, "text/html; charset=utf-8")
    page = read(f"https://localhost:{site.port}/#part")
    assert page == Page(f"https://localhost:{site.port}/", "Nile", PAGE.decode())
    assert "no secure connection" in reason(f"https://127.0.0.1:{site.port}/", robots=False)
    site.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate"])
def test_compressed_pages_are_read_and_other_codings_told(site: Site, coding: str) -> None:
    pack = zlib.compressobj(wbits={"gzip": 31, "deflate": 15, "raw deflate": -15}[coding])
    body = pack.compress(PAGE) + pack.flush()
    site.pages["/"] = lambda handler: answer(handler, body, Content_Encoding=coding.split()[-1])
    assert read(f"{site.url}/").text.encode() == PAGE
    for other in ("br", "zstd", "gzip, gzip", "gzip"):
        site.pages["/"] = lambda handler, other=other: answer(handler, b"\x8b\x00garbage", Content_Encoding=other)
        assert "compression" in reason(f"{site.url}/")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_not_unpacked(site: Site, coding: str) -> None:
    pack = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(300)) + pack.flush()
    site.pages["/"] = lambda handler: answer(handler, bomb, Content_Encoding=coding)
    started = time.process_time()
    assert "larger than" in reason(f"{site.url}/")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("kind", "body", "found"),
    [
        *((None, MARKUP, PAGE.decode()), ("application/octet-stream", b"just words of a text", "just words of a text")),
        ("text/plain; charset=utf-8", b"<p>not markup here</p>", "<p>not markup here</p>"),
        ("application/json", b'{"a": "words"}', '{"a": "words"}'),
        ("application/rss+xml", b"<rss><item><title>News</title></item></rss>", "News"),
        ("text/html", b"<p>A file that begins with %PDF-1.4 is a PDF.", "A file that begins with %PDF-1.4 is a PDF."),
        *(("image/png", b"\x89PNG\r\n\x1a\n", ""), ("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "")),
        *(("application/octet-stream", bytes(range(32)) * 30, ""), ("made/up", b"words", "")),
        ("application/vnd.ms-excel", b"x", ""),
    ],
)
def test_kinds_of_text_are_read_and_others_refused(site: Site, kind: str | None, body: bytes, found: str) -> None:
    site.pages["/"] = lambda handler: answer(handler, body, kind)
    if found:
        assert read(f"{site.url}/").text == found
    else:
        assert "no page of text" in reason(f"{site.url}/")


def test_an_empty_page_and_a_broken_answer_are_told(site: Site) -> None:
    body = b"<html><body><script>render()</script></body></html>"
    site.pages["/"] = lambda handler: answer(handler, body, "text/html")
    assert "holds no text" in reason(f"{site.url}/")
    site.pages["/"] = lambda handler: answer(handler, b"short", Content_Length="1000")
    assert "broke off" in reason(f"{site.url}/")
