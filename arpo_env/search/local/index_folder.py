"""The folder of a search index: `build_index` builds it under a lock beside its final place, and renames it at the end.

It holds `meta.json` and the files of one engine, including the texts, so the corpus is not needed afterwards. It never
changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

from arpo_env.search.local.corpus import SUFFIXES, CorpusError, Passage, read_corpus
from arpo_env.search.local.query_words import ParsedQuery
from envs_registry.install_line import install_line

FORMAT = 1  # version of the folder's layout and of the indexed fields
ENGINES = ("tantivy", "fts5")
META = "meta.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexInfo:
    """The contents of `meta.json`.

    Attributes:
        format: version of the folder's layout.
        engine: "tantivy" or "fts5".
        corpus: name of the file that it was built from.
        fingerprint: SHA-256 over the passages.
        passages: number of passages.
        characters: number of characters in all titles and texts.
    """

    format: int
    engine: str
    corpus: str
    fingerprint: str
    passages: int
    characters: int

    @classmethod
    def read(cls, folder: str | Path) -> IndexInfo:
        """Read the `meta.json` of a folder.

        Raises:
            FileNotFoundError: the folder holds no index.
            ValueError: the index was built by another version of this library.
        """
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


class Engine(Protocol):
    """An open index of any engine."""

    def find(self, parsed: ParsedQuery, k: int) -> list[tuple[Passage, float]]:
        """Return the best k passages with their scores."""


def build_index(
    corpus: str | Path | Iterable[Passage], folder: str | Path, *, engine: str | None = None, replace: bool = False
) -> IndexInfo:
    """Index a corpus into a folder, which appears when it is complete.

    Args:
        corpus: a JSON Lines file, see `arpo_env.search.local.corpus`, or passages.
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
        engine_class(engine).write(place / engine, count)
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
    """Return the engine to build with: the named one, else the best that is installed.

    Raises:
        ImportError: no engine is installed.
    """
    from arpo_env.search.local.fts5_index import why_no_fts5

    if name is not None and name not in ENGINES:
        raise ValueError(f"no engine {name!r}; there are: {', '.join(ENGINES)}")
    if name == "tantivy" or (name is None and importlib.util.find_spec("tantivy")):
        return "tantivy"
    if why := why_no_fts5():
        raise ImportError(f"no search engine: tantivy is not installed, and {why}; {install_line('search')}")
    if name is None:
        _log.warning("tantivy is not installed, SQLite FTS5 is slow beyond 50,000 passages: %s", install_line("search"))
    return "fts5"


def engine_class(engine: str) -> Any:
    """Return the class that writes and opens the indexes of an engine."""
    if engine == "tantivy":
        from arpo_env.search.local.tantivy_index import TantivyIndex

        return TantivyIndex
    from arpo_env.search.local.fts5_index import Fts5Index

    return Fts5Index


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
    """Yield an empty, locked folder beside `folder`; the remains of a killed build are removed.

    The holder of the lock may rename the folder; a process that waited for the lock then starts over with a new one.
    """
    place = folder.with_name(f".{folder.name}.building")
    while True:
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDONLY)
        try:
            # The lock is on the folder itself and ends with the process, however that ends.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _same(place, handle):
                _empty(place)
                try:
                    yield place
                finally:
                    # A build that succeeded has renamed the folder; only what a failed one left is removed.
                    if _same(place, handle):
                        shutil.rmtree(place)
                return
        finally:
            os.close(handle)


def _same(place: Path, handle: int) -> bool:
    try:
        return os.path.samestat(place.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _empty(place: Path) -> None:
    for left in place.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


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
