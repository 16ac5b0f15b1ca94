"""`LocalSearch`: search in the user's own corpus, on this machine, in a folder made by `build_index`.

Any number of processes may have it open. A child of `os.fork` opens it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from arpo_env.errors import ServiceError
from arpo_env.search.local_index import (
    ENGINE_CLASSES,
    FORMAT,
    META,
    SUFFIXES,
    CorpusError,
    Fts5Index,
    IndexInfo,
    ParsedQuery,
    Passage,
    TantivyIndex,
    build_index,
    choose_engine,
    is_corpus,
)
from arpo_env.search.search_backend import Hit, SearchBackend
from sandbox.images.profiles import cache_directory

# `WorldSearch`: search over the passages of a generated world, with an index in memory.
#
# The index is built at the first search (about 0.2 CPU s for 3,000 passages) and shared by all episodes. The engine is
# tantivy if it is installed, else SQLite's FTS5; both rank by BM25, and a word in the title counts half. Words are runs
# of letters and digits, which is enough for invented names; Chinese text and large corpora need an index on disk.

TITLE_WEIGHT = 0.5
_Engine = Callable[[list[str], int], list[tuple[int, float]]]  # words and k -> passage numbers and scores, best first


class WorldSearch(SearchBackend):
    """Searches the passages of one world.

    Args:
        passages: with `id`, `title` and `text`, as `MultiHopSource.passages`.
        seed: of the world; seed and number of passages identify it.
        engine: "tantivy" or "fts5"; None takes tantivy if it is installed.
    """

    name = "multihop"

    def __init__(
        self, passages: Sequence[Any], seed: int = 0, engine: Literal["tantivy", "fts5"] | None = None
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


def _tantivy(passages: Sequence[Any]) -> _Engine:
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


def _fts5(passages: Sequence[Any]) -> _Engine:
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


# `best_window`: the part of a long text that matches a query best.

_MARK = "..."
_STEP = 40  # characters by which a cut may move to fall between words


def best_window(text: str, needles: Sequence[str], characters: int) -> str:
    """Return the part of a text with the most different needles; a short text is returned whole.

    Args:
        text: to be cut.
        needles: words in lower case; a word of the text that begins with a needle counts.
        characters: most characters of the result, including the marks for omitted text.
    """
    if len(text) <= characters:
        return text
    # Room for a mark at both ends, whether or not both are needed.
    size = max(1, characters - 2 * len(_MARK))
    first, last = _densest(text, needles, size)
    # The matches stand in the middle, so that there is context on both sides.
    start = max(0, min(first - (size - (last - first)) // 2, len(text) - size))
    end = min(len(text), start + size)
    if start:
        start = _after_space(text, start, first)
    if end < len(text):
        end = _before_space(text, max(last, start + 1), end)
    return (_MARK if start else "") + text[start:end].strip() + (_MARK if end < len(text) else "")


def _densest(text: str, needles: Sequence[str], size: int) -> tuple[int, int]:
    """Return the start of the first and the end of the last match of the best window."""
    if not needles:
        return 0, 0
    pattern = re.compile(r"\b(?=\w)(?:" + "|".join(map(re.escape, needles)) + ")|" + _cjk(needles), re.IGNORECASE)
    found = [(match.start(), match.end(), match.group().lower()) for match in pattern.finditer(text)]
    best, place, left = 0, (0, 0), 0
    inside: dict[str, int] = {}
    for right, (_, end, word) in enumerate(found):
        inside[word] = inside.get(word, 0) + 1
        # The window moves over the matches, so that the time does not grow with their number squared.
        while left < right and end - found[left][0] > size:
            gone = found[left][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            left += 1
        if len(inside) > best:
            best, place = len(inside), (found[left][0], min(end, found[left][0] + size))
    return place


def _cjk(needles: Sequence[str]) -> str:
    """Return a pattern for needles of scripts without spaces, which also match inside a word."""
    return "|".join(re.escape(needle) for needle in needles if needle[0] >= "\u3005") or r"(?!)"


def _after_space(text: str, start: int, limit: int) -> int:
    match = re.compile(r"\s+").search(text, start, min(limit, start + _STEP))
    return match.end() if match else start


def _before_space(text: str, limit: int, end: int) -> int:
    match = re.compile(r"\s\S*\Z").search(text, max(limit, end - _STEP), end)
    return match.start() if match else end


_log = logging.getLogger(__name__)


class LocalSearch(SearchBackend):
    """Searches an index folder. It may be shared by threads and event loops, and be pickled.

    Args:
        folder: made by `build_index`.
        snippet_characters: most characters of a hit's snippet, which is the part of the text around the query's words.

    Raises:
        FileNotFoundError: the folder holds no index.
        ImportError: its engine is not installed.
        ServiceError: the index is damaged.
    """

    version = FORMAT

    def __init__(self, folder: str | Path, snippet_characters: int = 1000) -> None:
        self.folder = Path(folder).resolve()
        self.info = IndexInfo.read(self.folder)
        self.name = self.info.engine
        self._snippet_characters = snippet_characters
        self._engines: dict[int, TantivyIndex | Fts5Index] = {}
        # Opened at once, so that a damaged index shows before an episode begins.
        with self._damage_told():
            self._engine()

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k."""
        return {"corpus": self.info.fingerprint, "snippet": self._snippet_characters}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Search on a thread. As many searches run at once as there are processors; others wait."""
        return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), self.search_sync, query, k)

    def search_sync(self, query: str, k: int) -> list[Hit]:
        """Return at most k hits, best first.

        Raises:
            ServiceError: the index is damaged.
        """
        parsed = ParsedQuery.read(query)
        with self._damage_told():
            found = self._engine().find(parsed, k) if k > 0 else []
        return [self._hit(passage, score, parsed) for passage, score in found]

    def _hit(self, passage: Passage, score: float, parsed: ParsedQuery) -> Hit:
        snippet = best_window(passage.text, parsed.needles, self._snippet_characters)
        return Hit(passage.title, passage.url or passage.id, snippet, passage.date, passage.text, score)

    def _engine(self) -> TantivyIndex | Fts5Index:
        pid = os.getpid()  # a child of a fork leaves the parent's engine alone: its locks may be held forever
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(pid, ENGINE_CLASSES[self.name](self.folder / self.name))
        return engine

    @contextlib.contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, OSError, sqlite3.Error) as error:
            raise ServiceError(self.name, f"{self.folder} cannot be searched ({error}); build it again") from error

    def __reduce__(self) -> tuple[Any, ...]:
        # Open files and locks cannot be pickled; the other process opens the index itself.
        return LocalSearch, (self.folder, self._snippet_characters)


def open_local(path: str | Path) -> LocalSearch:
    """Open an index folder, or a corpus, whose index is built in the user's cache at first use.

    Within a process the same index is opened once.
    """
    path = Path(path).expanduser()
    folder = _cached(path) if path.is_file() else path
    state = (folder / META).stat() if (folder / META).exists() else None
    # An index that was rebuilt in the same place is opened anew.
    key = (str(folder.resolve()), state and (state.st_ino, state.st_mtime_ns))
    found = _opened.get(key)
    if found is None:
        found = _opened.setdefault(key, LocalSearch(folder))
    return found


_opened: weakref.WeakValueDictionary[Any, LocalSearch] = weakref.WeakValueDictionary()


def _cached(corpus: Path) -> Path:
    """Return the index folder for the current state of a corpus, built if necessary."""
    if not is_corpus(corpus):
        raise CorpusError(f"{corpus} is neither a folder with an index nor a corpus ({' or '.join(SUFFIXES)})")
    state, engine = corpus.stat(), choose_engine(None)
    # Size and time stand for the content, since hashing a large corpus takes long.
    facts = json.dumps([str(corpus.resolve()), state.st_size, state.st_mtime_ns, FORMAT, engine])
    name = f"{corpus.name.split('.')[0]}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    folder = cache_directory() / "search" / name
    if not (folder / META).exists():
        _log.info("indexing %s into %s", corpus, folder)
        try:
            build_index(corpus, folder, engine=engine)
        except FileExistsError:
            _log.debug("%s was built by another process meanwhile", folder)
        except PermissionError as error:
            raise PermissionError(f"{error}; set ARPO_CACHE to a writable folder") from error
    return folder


@functools.cache
def _threads(pid: int) -> ThreadPoolExecutor:
    """Return the search threads of a process."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix=f"arpo-search-{pid}")
