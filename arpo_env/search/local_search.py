"""Search in a corpus on this machine: `build_index` makes a folder that `LocalSearch` searches.

The folder holds `meta.json` and a tantivy index with the texts, so the corpus is not needed afterwards. It never
changes; any number of processes may have it open, and a child of `os.fork` opens it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gzip
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import unicodedata
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from arpo_env.errors import ServiceError
from arpo_env.search.search_backend import Hit, SearchBackend
from sandbox.images.profiles import cache_directory

# Reads a corpus: JSON Lines, one passage per line, plain or gzipped, never the whole file in memory.
#
# Rows are {"id", "title", "text"}, {"title", "contents"}, or, as in Search-R1 and wiki-18, {"id", "contents":
# "\"Title\"\ntext"}; they may have "url" and "date". Other fields are ignored.

SUFFIXES = (".jsonl", ".jsonl.gz")
_TEXTS = ("text", "contents", "content")
_log = logging.getLogger(__name__)


class CorpusError(ValueError):
    """Raised when a corpus cannot be read; the message names file and line."""


@dataclass(frozen=True)
class Passage:
    """One passage of a corpus. `id` is the number of the line, from 0, if its row has none."""

    id: str
    title: str
    text: str  # without the title
    url: str = ""
    date: str = ""  # as in the corpus


def read_corpus(path: str | Path) -> Iterator[Passage]:
    """Yield the passages of a file in order.

    Raises:
        CorpusError: the file or a line of it is not valid.
        FileNotFoundError: the file does not exist.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise CorpusError(f"{path} is no corpus: give JSON Lines, a file that ends in {' or '.join(SUFFIXES)}")
    number = 0
    with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _passage(json.loads(line), number - 1)
        except (EOFError, gzip.BadGzipFile) as error:  # a download that broke off ends within gzip's stream
            raise CorpusError(f"{path}: {error} after line {number}; the file is damaged or cut off") from error
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{path}, line {number}: {error}") from error


def _passage(row: Any, number: int) -> Passage:
    if not isinstance(row, dict):
        raise ValueError(f"a row has to be an object such as {{'id', 'title', 'text'}}, not {type(row).__name__}")
    title = _text(row, "title")
    # The first field that is present counts, even if it is empty.
    key = next((key for key in _TEXTS if row.get(key) is not None), "")
    if not key and not title:
        raise ValueError(f"a row needs one of 'text', 'contents', 'content' or 'title'; it has {sorted(row)[:8]}")
    text = _text(row, key)
    if key == "contents":
        title, text = split_title(title, text)
    name = row.get("id", row.get("_id"))  # `_id` in the corpora of BEIR
    return Passage(str(number if name is None else name), title, text, _text(row, "url"), _text(row, "date"))


def split_title(title: str, contents: str) -> tuple[str, str]:
    """Split the title from `contents`; in Search-R1's corpora it is the first line, often quoted."""
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
    return value.encode("utf-8", "replace").decode().strip()  # JSON can hold lone surrogates, UTF-8 cannot


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
_IN_BRACKETS = re.compile(r"(?<!\s)\s*\([^()]*\)\s*$")


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a query, in lower case and Unicode's compatibility form."""

    terms: tuple[str, ...]  # its words without stop words, or all words if all are stop words; each once
    pairs: tuple[str, ...]  # pairs of neighbouring CJK characters, and single ones that have no neighbour; each once
    names: tuple[tuple[str, int], ...]  # runs of words that may be the title of a passage: (text, number of words)

    @classmethod
    def read(cls, query: str) -> ParsedQuery:
        """Split a query."""
        text, runs = divide(query[:MOST_CHARACTERS])
        words = words_of(text)[:MOST_WORDS]
        # A query of stop words alone, such as "the who", keeps them.
        terms = [word for word in words if word not in STOP_WORDS] or words
        pairs = [pair for run in runs for pair in list(map("".join, itertools.pairwise(run))) or [run]]
        return cls(
            tuple(dict.fromkeys(terms)), tuple(dict.fromkeys(pairs))[:MOST_WORDS], tuple(dict.fromkeys(_names(words)))
        )


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


def _names(words: list[str]) -> Iterator[tuple[str, int]]:
    for start, first in enumerate(words):
        for end in range(start + 1, min(start + LONGEST_NAME, len(words)) + 1):
            # Hardly any title ends in a stop word, or begins with one other than "a" or "the".
            if words[end - 1] not in STOP_WORDS and (first not in STOP_WORDS or first in ("a", "the")):
                yield " ".join(words[start:end]), end - start


FORMAT = 1  # version of the folder's layout and of the indexed fields
ENGINE = "tantivy"
META = "meta.json"


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
            info = cls(**json.loads((Path(folder) / META).read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{folder} holds no search index; {cure}") from error
        except (TypeError, ValueError, NotADirectoryError) as error:
            raise ValueError(f"{folder} holds something other than a search index ({error}); {cure}") from error
        if (info.format, info.engine) != (FORMAT, ENGINE):
            raise ValueError(
                f"{folder} has format {info.format} of {info.engine}, this is {FORMAT} of {ENGINE}; {cure}"
            )
        return info


def build_index(corpus: str | Path | Iterable[Passage], folder: str | Path, *, replace: bool = False) -> IndexInfo:
    """Index a corpus into a folder, which appears when it is complete.

    Args:
        corpus: a JSON Lines file (see `read_corpus`), or passages.
        folder: of the index. Of two processes that build it at once, the second waits and is then refused.
        replace: whether to replace an existing index.

    Raises:
        CorpusError: the corpus cannot be read, or is empty.
        FileExistsError: the folder exists.
    """
    folder, name = Path(folder).expanduser().resolve(), ""
    if isinstance(corpus, str | Path):
        name, corpus = Path(corpus).name, read_corpus(corpus)
    count = _Count(corpus)
    # Under the lock, so that of two builders the second sees the finished folder and is refused.
    with _building(folder) as place:
        _refuse(folder, replace)
        write_index(place / ENGINE, count)
        if not count.passages:
            raise CorpusError(f"{name or 'the corpus'} holds no passage")
        info = IndexInfo(FORMAT, ENGINE, name, count.hash.hexdigest(), count.passages, count.characters)
        # Last: a folder without this file counts as no index.
        (place / META).write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
        _open_to_others(place)
        _put(place, folder)
    return info


class _Count:
    """Passes passages on and computes their number, length and fingerprint."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._source, self.hash = passages, hashlib.sha256()
        self.passages = self.characters = 0

    def __iter__(self) -> Iterator[Passage]:
        for passage in self._source:
            self.passages += 1
            self.characters += len(passage.title) + len(passage.text)
            # A separator after each field, so that moving text from one field to the next changes the fingerprint.
            self.hash.update("\0".join((*astuple(passage), "\n")).encode("utf-8", "replace"))
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


# The index on disk, which tantivy maps into the memory of each process that searches it.
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
        import tantivy

        self._analyzer = _analyzer()
        with _linked(folder) as links:
            index = tantivy.Index.open(links)
            index.config_reader("manual")  # the index never changes, so no thread has to watch it
            index.reload()
            self._searcher = index.searcher()  # all files are mapped now, and the links may go
            self._schema = index.schema
            del index

    def find(self, parsed: ParsedQuery, k: int) -> list[tuple[Passage, float]]:
        """Return the best k passages with their scores; equal scores are in the order of the corpus."""
        query = self._query(parsed)
        if query is None:
            return []
        found = self._search(query, k + 1)
        if len(found) > k and round(found[k - 1][0], 4) == round(found[k][0], 4):
            found = self._search(query, 4 * k + 64)  # find all with an equal score, to choose by order
        rows = [
            (round(score, 4), *json.loads(self._searcher.doc(address).get_first("row"))) for score, address in found
        ]
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [(Passage(*fields), score) for score, _, *fields in rows[:k]]

    def _search(self, query: Any, limit: int) -> list[Any]:
        hits: list[Any] = self._searcher.search(query, min(limit, self._searcher.num_docs), count=False).hits
        return hits

    def _query(self, parsed: ParsedQuery) -> Any:
        import tantivy

        query, schema = tantivy.Query, self._schema
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
        return query.boolean_query([(tantivy.Occur.Should, part) for part in parts])


def write_index(folder: Path, passages: Iterable[Passage]) -> None:
    """Index passages into an empty folder, on one thread, so that the same corpus gives the same index."""
    import tantivy

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


def _document(number: int, passage: Passage) -> Any:
    import tantivy

    document = tantivy.Document()
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
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_bytes_field("row", stored=True)
    builder.add_text_field("title", tokenizer_name="words", index_option="freq")
    builder.add_text_field("body", tokenizer_name="words", index_option="freq")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("cjk", tokenizer_name="pairs", index_option="freq")
    return builder.build()


def _analyzer() -> Any:
    import tantivy

    filters = tantivy.Filter
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for one in (filters.remove_long(64), filters.lowercase(), filters.ascii_fold(), filters.stemmer("english")):
        builder = builder.filter(one)
    return builder.build()


def _pair_analyzer() -> Any:
    import tantivy

    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(1, 2, False)).filter(tantivy.Filter.lowercase()).build()


# `best_window`: the part of a long text that matches a query best.

_MARK = "..."
_STEP = 40  # characters by which a cut may move to fall between words


def best_window(text: str, needles: Sequence[str], characters: int) -> str:
    """Return the part of a text with the most different needles; a short text is returned whole.

    Needles are in lower case, and a word that begins with one counts. `characters` bounds the result, marks for omitted
    text included.
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


SNIPPET = 1000  # characters of a hit's snippet, the part of the text around the query's words


class LocalSearch(SearchBackend):
    """Searches an index folder. It may be shared by threads and event loops, and be pickled.

    Args:
        folder: made by `build_index`.

    Raises:
        FileNotFoundError: the folder holds no index.
        ServiceError: the index is damaged.
    """

    name = ENGINE
    version = FORMAT

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self.info = IndexInfo.read(self.folder)
        self._engines: dict[int, TantivyIndex] = {}
        # Opened at once, so that a damaged index shows before an episode begins.
        with self._damage_told():
            self._engine()

    @property
    def parameters(self) -> dict[str, Any]:
        """What determines the result besides query and k."""
        return {"corpus": self.info.fingerprint, "snippet": SNIPPET}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Search on a thread. As many searches run at once as there are processors: more would take turns only."""
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
        snippet = best_window(passage.text, parsed.terms + parsed.pairs, SNIPPET)
        return Hit(passage.title, passage.url or passage.id, snippet, passage.date, passage.text, score)

    def _engine(self) -> TantivyIndex:
        pid = os.getpid()  # a child of a fork leaves the parent's engine alone: its locks may be held forever
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(pid, TantivyIndex(self.folder / ENGINE))
        return engine

    @contextlib.contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, OSError) as error:
            raise ServiceError(self.name, f"{self.folder} cannot be searched ({error}); build it again") from error

    def __reduce__(self) -> tuple[Any, ...]:
        # Open files and locks cannot be pickled; the other process opens the index itself.
        return LocalSearch, (self.folder,)


@functools.cache
def _threads(pid: int) -> ThreadPoolExecutor:
    """Return the search threads of a process; a child of a fork has none of its parent's."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix=f"arpo-search-{pid}")


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
    if not corpus.name.endswith(SUFFIXES):
        raise CorpusError(f"{corpus} is neither a folder with an index nor a corpus ({' or '.join(SUFFIXES)})")
    state = corpus.stat()
    # Size and time stand for the content, since hashing a large corpus takes long.
    facts = json.dumps([str(corpus.resolve()), state.st_size, state.st_mtime_ns, FORMAT, ENGINE])
    name = f"{corpus.name.split('.')[0]}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    folder = cache_directory() / "search" / name
    if not (folder / META).exists():
        _log.info("indexing %s into %s", corpus, folder)
        try:
            build_index(corpus, folder)
        except FileExistsError:
            _log.debug("%s was built by another process meanwhile", folder)
        except PermissionError as error:
            raise PermissionError(f"{error}; set ARPO_CACHE to a writable folder") from error
    return folder


# `WorldSearch`: search over the passages of a generated world, with an index in memory.
#
# The index is built at the first search (about 0.2 CPU s for 3,000 passages) and shared by all episodes. It ranks by
# BM25, and a word in the title counts half. Words are runs of letters and digits, which is enough for invented names;
# Chinese text and large corpora need an index on disk.


class WorldSearch(SearchBackend):
    """Searches the passages of one world.

    Args:
        passages: with `id`, `title` and `text`, as `MultiHopSource.passages`.
        seed: of the world; seed and number of passages identify it.
    """

    name = "multihop"

    def __init__(self, passages: Sequence[Any], seed: int = 0) -> None:
        self._passages, self._seed = passages, seed
        self._lock = threading.Lock()

    @property
    def parameters(self) -> dict[str, Any]:
        """What identifies the world."""
        return {"seed": self._seed, "size": len(self._passages), "engine": ENGINE}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the k best passages; a query without a word finds none."""
        import tantivy

        words = ParsedQuery.read(query).terms
        if not words or k < 1:
            return []
        with self._lock:  # the first search builds the index, once
            searcher, schema = self._index
        parts = []
        for word in words:
            title = tantivy.Query.boost_query(tantivy.Query.term_query(schema, "title", word), TITLE_BOOST)
            parts += [(tantivy.Occur.Should, title)]
            parts += [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", word))]
        hits = searcher.search(tantivy.Query.boolean_query(parts), k).hits
        return [self._hit(searcher.doc(address)["number"][0], score) for score, address in hits]

    @functools.cached_property
    def _index(self) -> tuple[Any, Any]:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field("number", stored=True)
        schema.add_text_field("title")
        schema.add_text_field("text")
        schema = schema.build()
        index = tantivy.Index(schema)
        writer = index.writer(num_threads=1)  # one segment, so that the order of equal scores is the same in every run
        for number, passage in enumerate(self._passages):
            writer.add_document(tantivy.Document(number=number, title=passage.title, text=passage.text))
        writer.commit()
        writer.wait_merging_threads()
        # Until then a searcher sees the empty index.
        index.reload()
        return index.searcher(), schema

    def _hit(self, number: int, score: float) -> Hit:
        passage = self._passages[number]
        return Hit(passage.title, passage.id, passage.text, text=passage.text, score=score)
