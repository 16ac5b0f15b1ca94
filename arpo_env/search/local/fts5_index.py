"""The engine without dependencies: an SQLite database with FTS5, suitable for up to about 50,000 passages.

It has the interface of `TantivyIndex`. One table holds the passages; the index holds title, text and, separately, the
characters and character pairs of Chinese, Japanese and Korean. Every term of a query is quoted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

from arpo_env.search.local.corpus import Passage
from arpo_env.search.local.query_words import ParsedQuery, divide, grams

TITLE_WEIGHT = 5.0  # of a word in the title; a word in the text weighs 1
_FILE = "passages.sqlite"
_TABLES = """
create table passages (number integer primary key, id text, title text, text text, url text, date text);
create virtual table words using fts5(
    title, text, cjk, content='', tokenize="porter unicode61 remove_diacritics 2"
);
"""
_FIND = """
select id, title, text, url, date, found.score from passages join (
    select rowid as number, -bm25(words, ?, 1, 1) as score from words where words match ?
    order by round(score, 4) desc, number limit ?
) as found using (number) order by round(found.score, 4) desc, number
"""


class Fts5Index:
    """An index that is open for searching; each thread has its own connection."""

    def __init__(self, folder: Path) -> None:
        self._address = f"{(folder / _FILE).resolve().as_uri()}?mode=ro&immutable=1"
        self._here = threading.local()
        self._connection()  # raises now if the file does not exist

    @staticmethod
    def write(folder: Path, passages: Iterable[Passage]) -> None:
        """Index passages into an empty folder."""
        folder.mkdir()
        with closing(sqlite3.connect(folder / _FILE)) as database:
            # A build that was interrupted is thrown away, so that nothing has to survive a crash.
            database.executescript("pragma journal_mode = off; pragma synchronous = off;" + _TABLES)
            for number, passage in enumerate(passages):
                database.execute("insert into passages values (?, ?, ?, ?, ?, ?)", (number, *astuple(passage)))
                database.execute(
                    "insert into words (rowid, title, text, cjk) values (?, ?, ?, ?)", _row(number, passage)
                )
            database.execute("insert into words (words) values ('optimize')")
            database.commit()

    def find(self, parsed: ParsedQuery, k: int) -> list[tuple[Passage, float]]:
        """Return the best k passages with their scores; equal scores are in the order of the corpus."""
        terms = " OR ".join(f'"{needle}"' for needle in parsed.needles)  # needles have only letters and digits
        if not terms:
            return []
        rows = self._connection().execute(_FIND, (TITLE_WEIGHT, terms, min(k, 1 << 31))).fetchall()
        return [(Passage(*fields), round(score, 4)) for *fields, score in rows]

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = sqlite3.connect(self._address, uri=True)
        return connection


def why_no_fts5() -> str:
    """Return what is wrong with this Python's SQLite, or "" if it has FTS5."""
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("create virtual table words using fts5(text)")
        except sqlite3.OperationalError as error:
            return f"this Python's SQLite {sqlite3.sqlite_version} was built without ENABLE_FTS5 ({error})"
    return ""


def _row(number: int, passage: Passage) -> tuple[int, str, str, str]:
    title, in_title = divide(passage.title)
    text, in_text = divide(passage.text)
    pieces = (piece for run in in_title + in_text for size in (1, 2) for piece in grams(run, size))
    return number, title, text, " ".join(pieces)
