"""Search: one interface, many backends.

    from arpo_env.search import open_search
    hits = await open_search("corpus.jsonl").search("who wrote the novel", k=5)

All backends share `Hit` and `SearchBackend`; `open_search` finds one by name or path. The tool of an episode is
`arpo_env.SearchTool`.
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names

if TYPE_CHECKING:
    from arpo_env.search.backends import backend_names, default_search, open_search, register_backend
    from arpo_env.search.local_search import CorpusError, LocalSearch, Passage, build_index, read_corpus
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

__getattr__ = lazy_names(__name__)
