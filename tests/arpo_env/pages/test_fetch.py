"""Fetching from real servers that behave badly."""

import asyncio
import gzip
import ssl
import subprocess
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from arpo_env.pages import PageReader
from tests.arpo_env.pages.conftest import ARTICLE, Site, answer, read, reason

PAGE = ARTICLE.strip().encode()
MARKUP = b"<html><head><title>Nile</title></head><body><p>" + PAGE + b"</p></body></html>"


def _redirect(to: str, status: int = 302) -> Any:
    return lambda handler: answer(handler, b"", status=status, Location=to)


def test_a_page_is_read(site: Site) -> None:
    site.pages["/a"] = lambda handler: answer(handler, MARKUP, "text/html; charset=utf-8")
    page = read(f"{site.url}/a#part")
    assert (page.url, page.title) == (f"{site.url}/a", "Nile")
    assert page.text.startswith("The river Nile")


@pytest.mark.parametrize(
    ("status", "why"), [(404, "no such page"), (403, "refuses"), (429, "fewer"), (503, "failed"), (418, "refused")]
)
def test_statuses_are_told(site: Site, status: int, why: str) -> None:
    site.pages["/"] = lambda handler: answer(handler, PAGE, status=status)
    assert why in reason(f"{site.url}/")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(site: Site, status: int) -> None:
    site.pages |= {"/a": _redirect("b/c?d", status), "/b/c?d": PAGE}
    assert read(f"{site.url}/a").url == f"{site.url}/b/c?d"


def test_five_redirects_and_no_more(site: Site) -> None:
    site.pages |= {f"/{i}": _redirect(f"/{i + 1}") for i in range(6)}
    site.pages["/6"] = PAGE
    assert read(f"{site.url}/1").text
    assert "more than 5 times" in reason(f"{site.url}/0")


def test_a_cookie_comes_back_after_a_redirect(site: Site) -> None:
    def gate(handler: Any) -> None:
        if "seen=1" in (handler.headers.get("Cookie") or ""):
            answer(handler, PAGE)
        else:
            answer(handler, b"", status=302, Location="/", Set_Cookie="seen=1")

    site.pages["/"] = gate
    assert read(f"{site.url}/").text


def test_an_endless_body_ends(site: Site) -> None:
    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"word " * 10_000)

    site.pages["/"] = endless
    assert "larger than" in reason(f"{site.url}/", max_bytes=1_000_000)


def test_a_slow_drip_ends_on_time(site: Site) -> None:
    site.pages["/"] = _drip
    started = time.monotonic()
    assert "no complete answer within" in reason(f"{site.url}/", timeout=0.5)
    assert time.monotonic() - started < 10


def test_time_counts_over_redirects(site: Site) -> None:
    def slow(handler: Any) -> None:
        time.sleep(0.3)
        answer(handler, b"", status=302, Location=handler.path + "1")

    site.pages |= {"/" + "1" * i: slow for i in range(6)}
    assert "no complete answer within" in reason(f"{site.url}/", timeout=0.7, robots=False)


def test_tls_checks_the_name_not_the_address(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _secure(site, tmp_path, monkeypatch)
    site.pages["/"] = PAGE
    assert read(f"https://localhost:{site.port}/").text
    assert "no secure connection" in reason(f"https://127.0.0.1:{site.port}/", robots=False)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate"])
def test_compressed_pages(site: Site, coding: str) -> None:
    raw = zlib.compressobj(wbits=-15)
    body = {
        "gzip": gzip.compress(PAGE),
        "deflate": zlib.compress(PAGE),
        "raw deflate": raw.compress(PAGE) + raw.flush(),
    }[coding]
    name = "deflate" if "deflate" in coding else "gzip"
    site.pages["/"] = lambda handler: answer(handler, body, Content_Encoding=name)
    assert read(f"{site.url}/").text.encode() == PAGE


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_not_unpacked(site: Site, coding: str) -> None:
    pack = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(300)) + pack.flush()
    site.pages["/"] = lambda handler: answer(handler, bomb, Content_Encoding=coding)
    started = time.process_time()
    assert "larger than" in reason(f"{site.url}/")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip"])
def test_compression_that_cannot_be_read(site: Site, coding: str) -> None:
    site.pages["/"] = lambda handler: answer(handler, b"\x8b\x00garbage", Content_Encoding=coding)
    assert "compression" in reason(f"{site.url}/")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n"),
        ("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("application/zip", b"PK\x03\x04"),
        ("application/octet-stream", bytes(range(32)) * 30),
        ("video/mp4", b"x"),
        ("application/vnd.ms-excel", b"x"),
        ("made/up", b"words"),
    ],
)
def test_what_is_no_text_is_refused(site: Site, kind: str, body: bytes) -> None:
    site.pages["/"] = lambda handler: answer(handler, body, kind)
    assert "no page of text" in reason(f"{site.url}/")


@pytest.mark.parametrize(
    ("kind", "body", "found"),
    [
        (None, MARKUP, PAGE.decode()),
        ("html", MARKUP, PAGE.decode()),
        ("application/octet-stream", b"just words of a text", "just words of a text"),
        ("text/plain; charset=utf-8", b"<p>not markup here</p>", "<p>not markup here</p>"),
        ("application/json", b'{"a": "words"}', '{"a": "words"}'),
        ("application/rss+xml", b"<rss><item><title>News</title></item></rss>", "News"),
        ("text/html", b"<p>A file that begins with %PDF-1.4 is a PDF.", "A file that begins with %PDF-1.4 is a PDF."),
    ],
)
def test_kinds(site: Site, kind: str | None, body: bytes, found: str) -> None:
    site.pages["/"] = lambda handler: answer(handler, body, kind)
    assert read(f"{site.url}/").text == found


def test_an_empty_page_is_told(site: Site) -> None:
    body = b"<html><body><script>render()</script></body></html>"
    site.pages["/"] = lambda handler: answer(handler, body, "text/html")
    assert "holds no text" in reason(f"{site.url}/")


def test_a_broken_answer_is_told(site: Site) -> None:
    site.pages["/"] = lambda handler: answer(handler, b"short", Content_Length="1000")
    assert "broke off" in reason(f"{site.url}/")


def test_concurrency_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arpo_env.pages.reader._CONNECTIONS", 3)
    now, most, lock = [0], [0], threading.Lock()

    def busy(handler: Any) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        answer(handler, b"words", "text/plain")

    site.pages["/"] = busy

    async def many() -> None:
        reader = PageReader(allow_private=True, ports=None, per_host_per_second=1000, robots=False)
        await asyncio.gather(*(reader.read(f"{site.url}/") for _ in range(12)))
        await reader.close()

    asyncio.run(many())
    assert most[0] == 3


def _drip(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b"x")
        time.sleep(0.1)


def _secure(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    site.server.socket = context.wrap_socket(site.server.socket, server_side=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
