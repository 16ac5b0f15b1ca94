"""`LocalSearch`: search in the user's own corpus, on this machine, in a folder made by `build_index`.

Any number of processes may have it open. A child of `os.fork` opens it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arpo_env.errors import ServiceError
from arpo_env.search.local.corpus import SUFFIXES, CorpusError, Passage, is_corpus
from arpo_env.search.local.index_folder import FORMAT, META, Engine, IndexInfo, build_index, choose_engine, engine_class
from arpo_env.search.local.query_words import ParsedQuery
from arpo_env.search.local.snippet import best_window
from arpo_env.search.search_backend import Hit, SearchBackend
from sandbox.cache_directory import cache_directory

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
        self._engines: dict[int, Engine] = {}
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

    def _engine(self) -> Engine:
        pid = os.getpid()  # a child of a fork leaves the parent's engine alone: its locks may be held forever
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(pid, engine_class(self.name)(self.folder / self.name))
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

    Raises:
        FileNotFoundError: the path does not exist.
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
