"""The child process that parses pages: a script with limits that the kernel enforces.

Markup and PDFs from the web can be made so that a parser never ends, takes all memory or crashes. Here only a process
is lost that has no keys, uses no network and parses one page at a time. `parser_pool` starts it. It imports nothing of
this project, so that it starts fast.

Jobs arrive as `arpo_env.worker_pool` sends them. A job is four bytes (length of the head), a JSON head
{kind, max_characters, base}, and the body. A reply is JSON {title, text}, with links if there is a base, or
{fault}.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urldefrag, urljoin

SHORT = 200  # characters; less than that is not taken for the main text
MAX_PAGES = 100
MAX_TAGS = 30_000  # of a page; the rest is not read
MAX_LINKS = 500
_LONGEST_LABEL = 100  # characters of a link's text
_LINE_BREAKING = re.compile(
    "address|article|aside|blockquote|body|br|caption|d[dlt]|div|figcaption|figure|form|h[1-6]|header|hr|li|main|ol"
    "|option|p|pre|section|summary|table|tbody|thead|tr|ul"
)
_BREAK = "\0"
_NO_TEXT = ["script", "style", "template", "svg", "iframe", "noscript", "nav", "footer", "head", "button", "select"]


class SlowParser(BaseException):
    """Raised after a quarter of the time. It is a BaseException, so that no parser catches it with other errors."""


def parse_html(markup: str) -> dict[str, str]:
    """Return title and main text of a page's first MAX_TAGS tags; if there is hardly any main text, all text."""
    markup = _start(markup)
    try:
        found = _main_text(markup)
    except (SlowParser, Exception):  # the simpler way may work where trafilatura fails
        found = {"title": "", "text": ""}
    _calm()
    if len(found["text"]) < SHORT:
        title, text = strip_tags(markup)
        found["title"] = found["title"] or title
        found["text"] = text or found["text"]
    return found


def _start(markup: str) -> str:
    """Return the markup up to the tag after MAX_TAGS others: the parsers take 50 to 100 microseconds per tag."""
    for last in itertools.islice(re.finditer("<", markup), MAX_TAGS, MAX_TAGS + 1):
        return markup[: last.start()]
    return markup


def _main_text(markup: str) -> dict[str, str]:
    from trafilatura import bare_extraction

    document = bare_extraction(markup, favor_recall=True, include_tables=True, with_metadata=True)
    if document is None:
        return {"title": "", "text": ""}
    text = "\n\n".join(part for part in (document.text, document.comments) if part)
    return {"title": document.title or "", "text": text}


def strip_tags(markup: str) -> tuple[str, str]:
    """Return the title and the visible text of a page, a line for each block and a bar between table cells."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(markup, "lxml")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    lines = (" ".join(line.split()) for line in "".join(_pieces(soup)).split(_BREAK))
    return title, "\n".join(line for line in lines if line.strip("| "))


def _pieces(soup: Any) -> Iterator[str]:
    """Yield the texts of a tree in order, with marks where lines and cells end.

    The tree is walked by hand, since inserting marks into it takes time that grows with the square of its size.
    """
    from bs4.element import CData, NavigableString, Tag

    waiting: list[Any] = [soup]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Tag) and node.name not in _NO_TEXT:
            mark = _BREAK if _LINE_BREAKING.fullmatch(node.name) else " | " if node.name in ("td", "th") else ""
            yield _BREAK if mark == _BREAK else ""
            waiting += [mark, *reversed(node.contents)]
        elif type(node) in (str, NavigableString, CData):  # comments are strings too, of another type
            yield str(node)


def page_links(markup: str, base: str) -> list[tuple[str, str]]:
    """Return text and address of the links of a page in order, each once; those within the page are left out."""
    from lxml import html

    try:
        # As bytes, since lxml refuses a str with an XML declaration, as XHTML has it.
        tree = html.fromstring(_start(markup).encode(), parser=html.HTMLParser(encoding="utf-8"))
    except Exception:  # the text may still be found by the other parsers
        return []
    start = next((each.get("href") for each in tree.iter("base") if each.get("href")), "")
    base_url = _joined(base, start) or base
    found: dict[str, str] = {}
    for anchor in tree.iter("a", "area"):
        address = _joined(base_url, (anchor.get("href") or "").strip())
        if not address or address == base.partition("#")[0]:
            continue
        images = " ".join(image.get("alt") or "" for image in anchor.iter("img"))
        label = anchor.text_content().strip() or images.strip() or anchor.get("title") or anchor.get("alt") or ""
        found[address] = found.get(address) or " ".join(label.split())[:_LONGEST_LABEL]
        if len(found) == MAX_LINKS:
            break
    return [(label or address[:_LONGEST_LABEL], address) for address, label in found.items()]


def _joined(base: str, address: str) -> str:
    """Return an address relative to another one, without its fragment; "" if it leads to no page."""
    try:
        joined = urldefrag(urljoin(base, address)).url
    except ValueError:
        return ""
    return joined if joined.startswith(("http://", "https://")) and len(joined) <= 2000 else ""


def parse_pdf(body: bytes, max_characters: int) -> dict[str, str]:
    """Return the text of the first pages of a PDF: as many as fit into the time and the characters."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(body), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is locked with a password")
    text: list[str] = []
    try:
        for page in _pages(reader):
            text.append(page)
            if sum(map(len, text)) > max_characters:
                break
    except SlowParser:
        pass
    _calm()
    try:
        title = str(reader.metadata["/Title"]) if reader.metadata else ""
    except Exception:  # broken metadata is no reason to lose the text
        title = ""
    return {"title": title, "text": "\n\n".join(text)}


def _pages(reader: Any) -> Iterator[str]:
    for number in range(min(MAX_PAGES, len(reader.pages))):
        try:
            yield reader.pages[number].extract_text()
        except Exception:  # a broken page; the others may be whole. There is no common class of pypdf's faults
            continue


def parse(kind: str, body: bytes, max_characters: int, base: str = "") -> dict[str, Any]:
    """Parse one page; a fault of the page becomes {"fault": reason}."""
    links: list[tuple[str, str]] = []
    try:
        # before the text, whose parsers may use up the time
        links = page_links(body.decode("utf-8"), base) if base and kind == "html" else []
        found = parse_pdf(body, max_characters) if kind == "pdf" else parse_html(body.decode("utf-8"))
    except MemoryError:
        return {"fault": "reading it needs too much memory"}
    except SlowParser:
        return {"fault": "reading it takes too long"}
    except Exception as error:  # parsers raise anything about a broken page
        locked = str(error) if "password" in str(error) else f"it is broken ({type(error).__name__})"
        return {"fault": locked[:100]}
    reply = {"title": found["title"][:300], "text": found["text"][: 2 * max_characters]}
    return {**reply, "links": links} if links else reply


def _alarm(seconds: float) -> None:
    """Let the kernel end this process after the time, and raise `SlowParser` after a quarter of it as CPU time."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds / 4, 1.0)  # repeated, since some C code swallows an exception


def _calm() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _slow(*_: object) -> None:
    raise SlowParser


def _lock(memory: int) -> None:
    """Import the parsers, then give up the memory and rights that parsing does not need."""
    import bs4
    import pypdf  # noqa: F401  (its memory is taken before there is a limit)
    import trafilatura

    bs4.BeautifulSoup("<p>", "lxml")
    trafilatura.bare_extraction("<p>warm", with_metadata=True)
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))
    signal.signal(signal.SIGVTALRM, _slow)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business


def _send(replies: BinaryIO, reply: bytes) -> None:
    replies.write(struct.pack("!I", len(reply)) + reply)
    replies.flush()


def main(seconds: float, memory: int) -> None:
    """Serve jobs until standard input ends.

    The kernel ends this process after `seconds` of one job; `memory` is the most bytes of address space.
    """
    jobs, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the replies
    try:
        _lock(memory)
    except ImportError as error:
        _send(replies, str(error).encode())
        return
    _send(replies, b"")
    while len(lengths := jobs.read(8)) == 8:
        length, head_length = struct.unpack("!II", lengths)
        head, body = json.loads(jobs.read(head_length)), jobs.read(length - 4 - head_length)
        _alarm(seconds)
        try:
            reply = parse(head["kind"], body, head["max_characters"], head["base"])
        except SlowParser:
            reply = {"fault": "reading it takes too long"}
        _calm()
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(replies, json.dumps(reply).encode())


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
