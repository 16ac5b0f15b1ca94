"""The folder of a search index: `build_index` builds it under a lock beside its final place, and renames it at the end.

It holds `meta.json` and the files of one engine, including the texts, so the corpus is not needed afterwards. It never
changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import IO, Any

from envs_registry.install_line import install_line

# Reads a corpus: JSON Lines, one passage per line, plain or gzipped, never the whole file in memory.
#
# Rows are {"id", "title", "text"}, {"title", "contents"}, or, as in Search-R1 and wiki-18, {"id", "contents":
# "\"Title\"\ntext"}; they may have "url" and "date". Other fields are ignored.

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


# Splits a query into words without stop words, and into character pairs where it is Chinese, Japanese or Korean.
#
# A query has no syntax: quotes, brackets and operators only separate words. It is cut after `MOST_CHARACTERS`
# characters and `MOST_WORDS` words, so that no query is expensive.

MOST_CHARACTERS = 4000
MOST_WORDS = 64
LONGEST_NAME = 6  # words of a title that is matched as a whole
_ENGLISH = """
a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its many
me more much my no not of on or our she should so such than that the their them then there these they this those to was
we were what when where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_ENGLISH.split())
_CJK = re.compile("[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_WORD = re.compile(r"[^\W_]+")
_IN_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a query, in lower case and Unicode's compatibility form."""

    terms: tuple[str, ...]  # its words without stop words, or all words if all are stop words; each once
    pairs: tuple[str, ...]  # pairs of neighbouring CJK characters, and single ones that have no neighbour; each once
    names: tuple[tuple[str, int], ...]  # runs of words that may be the title of a passage: (text, number of words)

    @classmethod
    def read(cls, query: str) -> ParsedQuery:
        """Split a query, which may be any string."""
        text, runs = divide(query[:MOST_CHARACTERS])
        words = words_of(text)[:MOST_WORDS]
        # A query of stop words alone, such as "the who", keeps them.
        terms = [word for word in words if word not in STOP_WORDS] or words
        pairs = (pair for run in runs for pair in (grams(run, 2) if len(run) > 1 else (run,)))
        return cls(_once(terms), _once(pairs)[:MOST_WORDS], tuple(dict.fromkeys(_names(words))))

    @property
    def needles(self) -> tuple[str, ...]:
        """All strings to look for in a text."""
        return self.terms + self.pairs


def divide(text: str) -> tuple[str, list[str]]:
    """Return a text without its CJK characters, and the runs of those; in compatibility form."""
    # The most common case, without the cost of normalisation.
    if text.isascii():
        return text, []
    text = unicodedata.normalize("NFKC", text)
    runs = _CJK.findall(text)
    return (_CJK.sub(" ", text), runs) if runs else (text, [])


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def name_of(title: str) -> str:
    """Return a title in the form in which it is matched: its words, without a final part in brackets."""
    return " ".join(words_of(divide(_IN_BRACKETS.sub("", title))[0]))


def grams(run: str, size: int) -> Iterator[str]:
    """Yield the substrings of that many characters."""
    return (run[start : start + size] for start in range(len(run) - size + 1))


def _names(words: list[str]) -> Iterator[tuple[str, int]]:
    for start, first in enumerate(words):
        for end in range(start + 1, min(start + LONGEST_NAME, len(words)) + 1):
            # Hardly any title ends in a stop word, or begins with one other than "a" or "the".
            if words[end - 1] not in STOP_WORDS and (first not in STOP_WORDS or first in ("a", "the")):
                yield " ".join(words[start:end]), end - start


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


FORMAT = 1  # version of the folder's layout and of the indexed fields
ENGINES = ("tantivy", "fts5")
META = "meta.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexInfo:
    """The contents of `meta.json`; `fingerprint` is a SHA-256 over the passages, `corpus` the name of their file."""

    format: int
    engine: str
    corpus: str
    fingerprint: str
    passages: int
    characters: int

    @classmethod
    def read(cls, folder: str | Path) -> IndexInfo:
        """Read the `meta.json` of a folder; errors name the command that makes one."""
        cure = f"make one: arpo search index CORPUS{SUFFIXES[0]} {folder}"
        try:
            fields = json.loads((Path(folder) / META).read_text(encoding="utf-8"))
            info = cls(**fields)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{folder} holds no search index; {cure}") from error
        except (TypeError, ValueError, NotADirectoryError) as error:
            raise ValueError(f"{folder} holds something other than a search index ({error}); {cure}") from error
        if info.format != FORMAT or info.engine not in ENGINES:
            raise ValueError(f"{folder} has format {info.format} of {info.engine}, this is format {FORMAT}; {cure}")
        return info


def build_index(
    corpus: str | Path | Iterable[Passage], folder: str | Path, *, engine: str | None = None, replace: bool = False
) -> IndexInfo:
    """Index a corpus into a folder, which appears when it is complete.

    Args:
        corpus: a JSON Lines file, see `arpo_env.search.local_index`, or passages.
        folder: of the index. Of two processes that build it at once, the second waits and is then refused.
        engine: "tantivy" or "fts5"; None takes tantivy if it is installed.
        replace: whether to replace an existing index.

    Raises:
        CorpusError: the corpus cannot be read, or is empty.
        FileExistsError: the folder exists.
    """
    engine, folder = choose_engine(engine), Path(folder).expanduser().resolve()
    named = isinstance(corpus, str | Path)
    count = _Count(read_corpus(corpus) if isinstance(corpus, str | Path) else corpus)
    # Under the lock, so that of two builders the second sees the finished folder and is refused.
    with _building(folder) as place:
        _refuse(folder, replace)
        ENGINE_CLASSES[engine].write(place / engine, count)
        if not count.passages:
            raise CorpusError(f"{corpus if named else 'the corpus'} holds no passage")
        name = Path(str(corpus)).name if named else ""
        info = IndexInfo(FORMAT, engine, name, count.fingerprint, count.passages, count.characters)
        # Last: a folder without this file counts as no index.
        (place / META).write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
        _open_to_others(place)
        _put(place, folder)
    return info


def choose_engine(name: str | None) -> str:
    """Return the engine to build with: the named one, else the best that is installed."""
    if name is not None and name not in ENGINES:
        raise ValueError(f"no engine {name!r}; there are: {', '.join(ENGINES)}")
    if name == "tantivy" or (name is None and importlib.util.find_spec("tantivy")):
        return "tantivy"
    if why := why_no_fts5():
        raise ImportError(f"no search engine: tantivy is not installed, and {why}; {install_line('search')}")
    if name is None:
        _log.warning("tantivy is not installed, SQLite FTS5 is slow beyond 50,000 passages: %s", install_line("search"))
    return "fts5"


class _Count:
    """Passes passages on and computes their number, length and fingerprint."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._source = passages
        self._hash = hashlib.sha256()
        self.passages = self.characters = 0

    @property
    def fingerprint(self) -> str:
        return self._hash.hexdigest()

    def __iter__(self) -> Iterator[Passage]:
        for passage in self._source:
            self.passages += 1
            self.characters += len(passage.title) + len(passage.text)
            # A separator after each field, so that moving text from one field to the next changes the fingerprint.
            self._hash.update("\0".join((*astuple(passage), "\n")).encode("utf-8", "replace"))
            if not self.passages % 1_000_000:
                _log.info("%d passages", self.passages)
            yield passage


@contextlib.contextmanager
def _building(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder`, locked; the remains of a killed build are removed."""
    place = folder.with_name(f".{folder.name}.building")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, however that ends
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)  # what a failed build left; one that succeeded has renamed it


def _refuse(folder: Path, replace: bool) -> None:
    """Raise if the folder exists and may not be replaced."""
    # An empty folder may have been made for the index.
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / META).exists():
        raise FileExistsError(f"{folder} is there and no search index; give another name, or remove it")
    if not replace:
        raise FileExistsError(f"{folder} holds an index; give another name, or replace it (replace=True, --replace)")


def _open_to_others(place: Path) -> None:
    """Give all files the permissions of `meta.json`; tantivy makes some readable for the user only."""
    mode = (place / META).stat().st_mode
    for file in place.rglob("*"):
        if file.is_file():
            file.chmod(mode)


def _put(place: Path, folder: Path) -> None:
    """Move the finished index to its place."""
    # A folder that is not empty cannot be replaced in one step; readers that have it open keep their files.
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if (folder / META).exists():
        os.rename(folder, old)
    os.rename(place, folder)
    shutil.rmtree(old, ignore_errors=True)


# The engine without dependencies: an SQLite database with FTS5, suitable for up to about 50,000 passages.
#
# It has the interface of `TantivyIndex`. One table holds the passages; the index holds title, text and, separately, the
# characters and character pairs of Chinese, Japanese and Korean. Every term of a query is quoted.

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


# The default engine: a tantivy index on disk, mapped into memory by all processes that search it.
#
# A passage is indexed as `title`, as `body` (title and text), as `name` (the whole title as one term) and, if it has
# Chinese, Japanese or Korean characters, as `cjk` (each character and each pair). English words are stemmed. A query is
# built from term queries, so it has no syntax that could be wrong.

TITLE_BOOST = 0.5  # weight of BM25 over the title, added to BM25 over title and text; 0.3 to 0.75 work as well
NAME_BONUS = 3.0  # added for each word of a title that the query contains as a whole
_HEAP = 128_000_000  # bytes of memory before passages go to disk
_LONGEST_NAME = 200  # characters; a longer title is not matched as a whole


class TantivyIndex:
    """An index that is open for searching, from any number of threads."""

    def __init__(self, folder: Path) -> None:
        tantivy = _tantivy()
        self._analyzer = _analyzer()
        with _linked(folder) as links:
            index = tantivy.Index.open(links)
            index.config_reader("manual")  # the index never changes, so no thread has to watch it
            index.reload()
            self._searcher = index.searcher()  # all files are mapped now, and the links may go
            self._schema = index.schema
            del index

    @staticmethod
    def write(folder: Path, passages: Iterable[Passage]) -> None:
        """Index passages into an empty folder, on one thread, so that the same corpus gives the same index."""
        tantivy = _tantivy()
        folder.mkdir()
        index = tantivy.Index(_schema(), path=str(folder))
        index.register_tokenizer("words", _analyzer())
        index.register_tokenizer("pairs", _pair_analyzer())
        writer = index.writer(_HEAP, 1)
        try:
            for number, passage in enumerate(passages):
                writer.add_document(_document(number, passage))
            writer.commit()
        finally:
            writer.wait_merging_threads()  # after that no thread writes, also if something failed

    def find(self, parsed: ParsedQuery, k: int) -> list[tuple[Passage, float]]:
        """Return the best k passages with their scores; equal scores are in the order of the corpus."""
        query = self._query(parsed)
        if query is None:
            return []
        found = self._search(query, k + 1)
        if len(found) > k and _equal(found[k - 1], found[k]):  # find all with an equal score, to choose by order
            found = self._search(query, 4 * k + 64)
        rows = [(round(score, 4), *self._row(address)) for score, address in found]
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [(Passage(*fields), score) for score, _, *fields in rows[:k]]

    def _search(self, query: Any, limit: int) -> list[Any]:
        hits: list[Any] = self._searcher.search(query, min(limit, self._searcher.num_docs), count=False).hits
        return hits

    def _row(self, address: Any) -> list[Any]:
        row: list[Any] = json.loads(self._searcher.doc(address).get_first("row"))
        return row

    def _query(self, parsed: ParsedQuery) -> Any:
        query, schema = _tantivy().Query, self._schema
        parts = []
        for term in dict.fromkeys(self._analyzer.analyze(" ".join(parsed.terms))):
            parts.append(query.term_query(schema, "body", term, "freq"))
            parts.append(query.boost_query(query.term_query(schema, "title", term, "freq"), TITLE_BOOST))
        parts += [query.term_query(schema, "cjk", pair, "freq") for pair in parsed.pairs]
        if not parts:
            return None
        for name, words in parsed.names:
            if not self._searcher.doc_freq("name", name):
                continue
            found = query.term_query(schema, "name", name, "basic")
            parts.append(query.const_score_query(found, NAME_BONUS * words))
        return query.boolean_query([(_tantivy().Occur.Should, part) for part in parts])


@contextlib.contextmanager
def _linked(folder: Path) -> Iterator[str]:
    """Yield a folder of links to the files: tantivy writes a lock where it opens, and the index may be read-only."""
    links = tempfile.mkdtemp(prefix="arpo-index-")
    try:
        for file in folder.iterdir():
            if file.suffix != ".lock":
                os.symlink(file.resolve(), Path(links, file.name))
        yield links
    finally:
        for _ in range(2):  # a thread of tantivy may create the lock once more
            shutil.rmtree(links, ignore_errors=True)


def _equal(hit: Any, other: Any) -> bool:
    return bool(round(hit[0], 4) == round(other[0], 4))


def _document(number: int, passage: Passage) -> Any:
    document = _tantivy().Document()
    document.add_bytes("row", json.dumps((number, *astuple(passage)), ensure_ascii=False).encode())
    body, runs = divide(f"{passage.title}\n{passage.text}")
    document.add_text("title", divide(passage.title)[0])
    document.add_text("body", body)
    for run in runs:
        document.add_text("cjk", run)
    name = name_of(passage.title)
    if 0 < len(name) <= _LONGEST_NAME:
        document.add_text("name", name)
    return document


def _schema() -> Any:
    builder = _tantivy().SchemaBuilder()
    builder.add_bytes_field("row", stored=True)
    builder.add_text_field("title", tokenizer_name="words", index_option="freq")
    builder.add_text_field("body", tokenizer_name="words", index_option="freq")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("cjk", tokenizer_name="pairs", index_option="freq")
    return builder.build()


def _analyzer() -> Any:
    tantivy = _tantivy()
    filters = tantivy.Filter
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for one in (filters.remove_long(64), filters.lowercase(), filters.ascii_fold(), filters.stemmer("english")):
        builder = builder.filter(one)
    return builder.build()


def _pair_analyzer() -> Any:
    tantivy = _tantivy()
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(1, 2, False)).filter(tantivy.Filter.lowercase()).build()


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise ImportError(f"this index needs tantivy: {install_line('search')}") from error
    return tantivy


ENGINE_CLASSES: dict[str, type[TantivyIndex | Fts5Index]] = {"tantivy": TantivyIndex, "fts5": Fts5Index}
