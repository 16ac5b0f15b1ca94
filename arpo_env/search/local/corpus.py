r"""Reads a corpus: JSON Lines, one passage per line, plain or gzipped, never the whole file in memory.

Rows are {"id", "title", "text"}, {"title", "contents"}, or, as in Search-R1 and wiki-18,
{"id", "contents": "\"Title\"\ntext"}; they may have "url" and "date". Other fields are ignored.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

SUFFIXES = (".jsonl", ".jsonl.gz")
_TEXTS = ("text", "contents", "content")


class CorpusError(ValueError):
    """Raised when a corpus cannot be read; the message names file and line."""


@dataclass(frozen=True)
class Passage:
    """One passage of a corpus.

    Attributes:
        id: its name in the corpus; the number of the line, from 0, if the row has none.
        title: of the page that it is from, or "".
        text: without the title.
        url: its address, or "".
        date: as in the corpus, or "".
    """

    id: str
    title: str
    text: str
    url: str = ""
    date: str = ""


def is_corpus(path: str | Path) -> bool:
    """Return whether a path has the suffix of a corpus."""
    return Path(path).name.endswith(SUFFIXES)


def read_corpus(path: str | Path) -> Iterator[Passage]:
    """Yield the passages of a file in order.

    Raises:
        CorpusError: the file or a line of it is not valid.
        FileNotFoundError: the file does not exist.
    """
    path = Path(path)
    if not is_corpus(path):
        raise CorpusError(f"{path} is no corpus: give JSON Lines, a file that ends in {' or '.join(SUFFIXES)}")
    number = 0
    with _open(path) as file:
        lines = enumerate(file)
        while True:
            try:
                number, line = next(lines)
                if line.strip():
                    yield _passage(json.loads(line), number)
            except StopIteration:
                return
            except (EOFError, gzip.BadGzipFile) as error:
                # A download that broke off ends within gzip's stream.
                raise CorpusError(f"{path}: {error} after line {number + 1}; the file is damaged or cut off") from error
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{path}, line {number + 1}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.name.endswith(".gz"):
        return gzip.open(path)  # type: ignore[return-value]
    return open(path, "rb")


def _passage(row: Any, number: int) -> Passage:
    if not isinstance(row, dict):
        raise ValueError(f"a row has to be an object such as {{'id', 'title', 'text'}}, not {type(row).__name__}")
    title = _text(row, "title")
    # The first field that is present counts, even if it is empty.
    key = next((key for key in _TEXTS if row.get(key) is not None), None)
    if key is None and not title:
        raise ValueError(f"a row needs one of 'text', 'contents', 'content' or 'title'; it has {sorted(row)[:8]}")
    text = _text(row, key) if key else ""
    if key == "contents":
        title, text = _split(title, text)
    # `_id` is the name in the corpora of BEIR.
    name = row.get("id", row.get("_id"))
    return Passage(
        str(number) if name is None else _clean(str(name)), title, text, _text(row, "url"), _text(row, "date")
    )


def _split(title: str, contents: str) -> tuple[str, str]:
    """Split the title from `contents`; in Search-R1's corpora it is the first line."""
    first, newline, rest = contents.partition("\n")
    heading = first.strip()
    if len(heading) > 1 and heading[0] == heading[-1] == '"':
        heading = heading[1:-1].strip()
    # A first line that differs from the given title belongs to the text.
    if not newline or (title and heading != title):
        return title, contents.strip()
    return heading, rest.strip()


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key!r} has to be a string, not {type(value).__name__}")
    return _clean(value).strip()


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and UTF-8 cannot."""
    try:
        # Almost every text passes this test and is not copied.
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
