"""Search: one interface, many backends.

    from arpo_env.search import open_search
    hits = await open_search("corpus.jsonl").search("who wrote the novel", k=5)

All backends share `Hit` and `SearchBackend`; `open_search` finds one by name or path. The tool of an episode is
`arpo_env.SearchTool`.
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names

if TYPE_CHECKING:
    from arpo_env.search.backend_registry import backend_names, default_search, open_search, register_backend
    from arpo_env.search.local.corpus import CorpusError, Passage, read_corpus
    from arpo_env.search.local.index_folder import build_index
    from arpo_env.search.local.local_search import LocalSearch
    from arpo_env.search.search_backend import Hit, SearchBackend

__all__ = [
    "CorpusError",
    "Hit",
    "LocalSearch",
    "Passage",
    "SearchBackend",
    "backend_names",
    "build_index",
    "default_search",
    "open_search",
    "read_corpus",
    "register_backend",
]

_HOMES = {
    "CorpusError": "local.corpus",
    "Hit": "search_backend",
    "LocalSearch": "local.local_search",
    "Passage": "local.corpus",
    "SearchBackend": "search_backend",
    "backend_names": "backend_registry",
    "build_index": "local.index_folder",
    "default_search": "backend_registry",
    "open_search": "backend_registry",
    "read_corpus": "local.corpus",
    "register_backend": "backend_registry",
}

__getattr__ = lazy_names("arpo_env.search", _HOMES)
