"""Markup and PDFs to text: good ones, foreign ones, and ones made to harm."""

import asyncio
import contextlib
import io
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpo_env.pages import parser_process as parsing
from arpo_env.pages.fetch import decode
from arpo_env.pages.parser_process import MAX_TAGS
from arpo_env.pages.reader import PageParser, ParsingFailed
from envs_registry.install_line import install_line
from tests.arpo_env.pages.conftest import ARTICLE, Site, answer, read
from tests.arpo_env.pdf_file import pdf

CHINESE = "<html><body><p>北京是中国的首都，人口超过两千万。</p></body></html>"
JAPANESE = "<html><body><p>東京は日本の首都です。人口は約千四百万人。</p></body></html>"
RUSSIAN = "<html><body><p>Москва является столицей России, крупный город.</p></body></html>"

NEWS = f"""<!doctype html><html><head><title>Long rivers | The Daily</title>
<meta property="article:published_time" content="2021-03-04T10:00:00Z"></head><body>
<div id="cookie-consent" class="cookie-banner"><p>We use cookies. Accept all cookies to continue.</p></div>
<nav><ul><li><a href="/">Home</a></li><li><a href="/sport">Sport and leisure</a></li></ul></nav>
<article><h1>Long rivers</h1><p>{ARTICLE}</p><h2>In numbers</h2>
<table><tr><th>River</th><th>Length</th></tr><tr><td>Nile</td><td>6650 km</td></tr></table>
<p>The Amazon carries more water than any other river, and its basin is the largest of all.</p></article>
<aside class="sidebar"><p>Subscribe to our newsletter</p></aside>
<footer><p>Copyright 2021 The Daily. All rights reserved.</p></footer></body></html>"""


@pytest.fixture(scope="module")
def parser() -> Iterator[PageParser]:
    made = PageParser(1, seconds=2.0)
    yield made
    made.close()


def parse(parser: PageParser, kind: str, body: bytes) -> dict[str, str]:
    return asyncio.run(parser.parse(kind, body, 20_000))


def test_the_article_is_kept_in_order_and_without_one_all_of_the_text(parser: PageParser) -> None:
    found = parse(parser, "html", NEWS.encode())
    places = [found["text"].find(part) for part in ("The river Nile", "In numbers", "River | Length", "The Amazon")]
    assert -1 not in places
    assert places == sorted(places)
    for noise in ("cookies", "Sport and leisure", "newsletter", "rights reserved"):
        assert noise not in found["text"]
    markup = "<title>T</title><body><nav>menu</nav><div>one <b>bo</b>ld</div>two<table><tr><td>a<td>b</table></body>"
    assert parse(parser, "html", markup.encode()) == {"title": "T", "text": "one bold\ntwo\na | b |"}


def test_a_page_may_name_no_charset_or_its_own() -> None:
    unnamed = ((CHINESE, "utf-8-sig"), (CHINESE, "utf-16-be"), (JAPANESE, "shift_jis"), (RUSSIAN, "cp1251"))
    assert all(decode(text.encode(charset)) == text for text, charset in unnamed)
    for charset in ("gb2312", "GBK", "gb18030"):
        text = f'<meta http-equiv="Content-Type" content="text/html; charset={charset}"><p>café 東京 中</p>'
        assert decode(text.encode("gb18030")) == text


def test_the_charset_of_the_header_is_taken_and_a_wrong_one_does_no_harm() -> None:
    for header, charset in (("x-sjis", "cp932"), ("EUC-JP", "euc-jp"), ("UTF-16LE", "utf-16-le")):
        assert decode("日本の首都".encode(charset), header) == "日本の首都"
    text = '<meta charset="utf-8">' + CHINESE
    for header in ("utf-8", "iso-8859-1", "ascii", "nonsense", "zip", "idna", "unicode_escape", ""):
        assert decode(text.encode(), header) == text


def test_a_pdf_is_read_and_a_broken_one_told(site: Site, parser: PageParser) -> None:
    site.pages["/"] = lambda handler: answer(
        handler, pdf("First page.", "Second page.", title="A title"), "application/pdf"
    )
    page = read(f"{site.url}/")
    assert (page.title, page.text) == ("A title", "First page.\n\nSecond page.")
    for body in (b"%PDF-1.4 nothing else", b"%PDF-1.4\n" + os.urandom(5000), b"%PDF-"):
        with pytest.raises(ParsingFailed, match="broken"):
            parse(parser, "pdf", body)


def test_a_slow_pdf_gives_what_was_read_in_time(parser: PageParser) -> None:
    """The second page takes minutes; the first is not lost."""
    started = time.monotonic()
    found = parse(parser, "pdf", pdf("First page.", "x) Tj (" * 3_000_000))
    assert found["text"].startswith("First page.")
    assert time.monotonic() - started < 30


def test_a_pdf_that_is_a_bomb_ends(parser: PageParser) -> None:
    started = time.monotonic()
    with contextlib.suppress(ParsingFailed):
        assert len(parse(parser, "pdf", pdf_bomb())["text"]) <= 40_000
    assert time.monotonic() - started < 30
    assert parse(parser, "html", NEWS.encode())["text"]


HOSTILE = {
    "nested": "<div>" * 100_000 + "deep" + "</div>" * 100_000,
    "attributes": "<p " + " ".join(f"a{i}=1" for i in range(500_000)) + ">x",
    "unclosed": "<a>" * 1_600_000,
    "brackets": "<" * 5_000_000,
    "entities": "&lt;" * 1_200_000,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_markup_ends_within_the_limit(name: str, parser: PageParser) -> None:
    parse(parser, "html", b"<p>started")
    started = time.monotonic()
    with contextlib.suppress(ParsingFailed):
        parse(parser, "html", HOSTILE[name].encode())
    assert time.monotonic() - started < 10
    assert parse(parser, "html", b"<p>another page")["text"] == "another page"


def test_a_page_of_links_costs_what_its_start_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of reading see the first tags alone, whatever the page."""
    seen: list[int] = []
    nothing = {"title": "", "text": ""}
    monkeypatch.setattr(parsing, "_main_text", lambda markup: seen.append(markup.count("<")) or nothing)
    items = [f'<li><a href="/p/{number}">Link number {number}</a></li>' for number in range(80_000)]
    texts = [parsing.parse_html(f"<ul>{''.join(items[:count])}</ul>")["text"] for count in (10_000, 80_000)]
    assert seen == [MAX_TAGS] * 2
    assert texts[0] == texts[1]
    assert texts[0].startswith("Link number 0\nLink number 1\n")


def test_memory_is_limited() -> None:
    parser = PageParser(1, seconds=20.0, memory=120 << 20)
    with pytest.raises(ParsingFailed, match="memory"):
        parse(parser, "html", (f"<p>{'words ' * 350}</p>" * 14_000).encode())  # 29 MB
    parser.close()


def test_the_process_holds_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    parser = PageParser(1)
    parse(parser, "html", b"<p>started")
    (pid,) = parser._pool.pids
    assert b"SOME_API_KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
    parser.close()


def test_a_missing_library_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trafilatura.py").write_text("raise ImportError('No module named trafilatura')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    parser = PageParser(1)
    with pytest.raises(ImportError, match=re.escape(install_line("search"))):
        parse(parser, "html", b"<p>x")
    parser.close()


def pdf_bomb() -> bytes:
    """Write a PDF of less than 5 MB whose page is packed thrice and unpacks to 512 MB."""
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, EncodedStreamObject, NameObject

    pack = zlib.compressobj(9)
    data = b"".join(pack.compress(bytes(1 << 22)) for _ in range(128)) + pack.flush()
    for _ in range(2):
        data = zlib.compress(data, 9)
    writer = PdfWriter()
    page = writer.add_blank_page(600, 800)
    content = EncodedStreamObject()
    content._data = data
    content[NameObject("/Filter")] = ArrayObject([NameObject("/FlateDecode")] * 3)
    page[NameObject("/Contents")] = writer._add_object(content)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
