"""`WorldSearch`: search over the passages of a generated world, with an index in memory.

The index is built at the first search (about 0.2 CPU s for 3,000 passages) and shared by all episodes. The engine is
tantivy if it is installed, else SQLite's FTS5; both rank by BM25, and a word in the title counts half. Words are runs
of letters and digits, which is enough for invented names; Chinese text and large corpora need an index on disk.
"""

from __future__ import annotations

import functools
import importlib.util
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from arpo_env.search.local.query_words import ParsedQuery
from arpo_env.search.search_backend import Hit, SearchBackend

TITLE_WEIGHT = 0.5
_Engine = Callable[[list[str], int], list[tuple[int, float]]]  # words and k -> passage numbers and scores, best first


class PassageLike(Protocol):
    """A passage of a world."""

    @property
    def id(self) -> str:
        """Unique in the corpus."""

    @property
    def title(self) -> str:
        """Its subject."""

    @property
    def text(self) -> str:
        """The whole text."""


class WorldSearch(SearchBackend):
    """Searches the passages of one world.

    Args:
        passages: of the world, as `MultiHopSource.passages`.
        seed: of the world; seed and number of passages identify it.
        engine: "tantivy" or "fts5"; None takes tantivy if it is installed.
    """

    name = "multihop"

    def __init__(
        self, passages: Sequence[PassageLike], seed: int = 0, engine: Literal["tantivy", "fts5"] | None = None
    ) -> None:
        self._passages, self._seed = passages, seed
        self._name = engine or ("tantivy" if importlib.util.find_spec("tantivy") else "fts5")
        self._lock = threading.Lock()

    @property
    def parameters(self) -> dict[str, Any]:
        """World and engine, since the engines rank slightly differently."""
        return {"seed": self._seed, "size": len(self._passages), "engine": self._name}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the k best passages; a query without a word finds none."""
        wanted = list(ParsedQuery.read(query).terms)
        if not wanted or k < 1:
            return []
        with self._lock:  # the first search builds the index, once
            engine = self._engine
        return [self._hit(number, score) for number, score in engine(wanted, k)]

    @functools.cached_property
    def _engine(self) -> _Engine:
        return {"tantivy": _tantivy, "fts5": _fts5}[self._name](self._passages)

    def _hit(self, number: int, score: float) -> Hit:
        passage = self._passages[number]
        return Hit(passage.title, passage.id, passage.text, text=passage.text, score=score)


def _tantivy(passages: Sequence[PassageLike]) -> _Engine:
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("number", stored=True)
    schema.add_text_field("title")
    schema.add_text_field("text")
    schema = schema.build()
    index = tantivy.Index(schema)
    writer = index.writer(num_threads=1)  # one segment, so that the order of equal scores is the same in every run
    for number, passage in enumerate(passages):
        writer.add_document(tantivy.Document(number=number, title=passage.title, text=passage.text))
    writer.commit()
    writer.wait_merging_threads()
    # Until then a searcher sees the empty index.
    index.reload()
    searcher = index.searcher()

    def search(wanted: list[str], k: int) -> list[tuple[int, float]]:
        parts = []
        for word in wanted:
            title = tantivy.Query.boost_query(tantivy.Query.term_query(schema, "title", word), TITLE_WEIGHT)
            parts += [(tantivy.Occur.Should, title)]
            parts += [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", word))]
        hits = searcher.search(tantivy.Query.boolean_query(parts), k).hits
        return [(searcher.doc(address)["number"][0], score) for score, address in hits]

    return search


def _fts5(passages: Sequence[PassageLike]) -> _Engine:
    # One connection for all threads, since a second one to ":memory:" would be an empty database.
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE VIRTUAL TABLE passages USING fts5(title, text)")
    rows = ((number, passage.title, passage.text) for number, passage in enumerate(passages))
    database.executemany("INSERT INTO passages(rowid, title, text) VALUES (?, ?, ?)", rows)
    lock = threading.Lock()
    statement = (
        # SQLite's bm25 is lower for better passages.
        f"SELECT rowid, -bm25(passages, {TITLE_WEIGHT}, 1.0) AS score FROM passages "
        "WHERE passages MATCH ? ORDER BY score DESC, rowid LIMIT ?"
    )

    def search(wanted: list[str], k: int) -> list[tuple[int, float]]:
        any_of = " OR ".join(f'"{word}"' for word in wanted)
        with lock:
            return database.execute(statement, (any_of, k)).fetchall()

    return search
