"""External services of an environment: search, pages, model servers, and the cache that records their answers.

Services are configured by plain strings, so that they fit into `gym.make`, a recipe or a command line. They are opened
once, at first use, and shared by all episodes of an environment.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_env.search.search_backend import SearchBackend
from envs_registry import TaskSource

if TYPE_CHECKING:
    from arpo_env.cache import Cache
    from arpo_env.chat_model import ChatModel
    from arpo_env.pages.page_summary import PageSummariser
    from arpo_env.pages.reader import CachedPages, PageReader

# Factories of tools take no arguments, so the cache reaches them through the context.
_making: ContextVar[Cache | None] = ContextVar("arpo_env_record", default=None)
PAGES = ("snippets", "passages", "summaries")
MODELS = ("page_model", "judge_model", "fold_model", "tool_model", "embedding_model", "result_model")


@dataclass
class Services:
    """Configuration of search, page reading and model servers.

    Attributes:
        search: a backend, or any argument of `open_search`; None means the corpus of the task source if it has one
            (MultiHop), else the environment variable `ARPO_SEARCH`.
        search_results: maximum number of results per search.
        result_characters: maximum number of characters of a search result (later entries are dropped), and of a part
            of a file or a browsed page (which have at most 8,000). Use less for a model with a small context.
        cache: file that records all external answers; None means no cache.
        cache_mode: "record" (the default), "replay" (no external request is made, no key is needed) or "live" (the
            cache is neither read nor written).
        pages: content of web pages in search results: "snippets" of the provider, "passages" around them, or
            "summaries" by `page_model` (the papers' browser agent).
        page_reader: reads the pages; replaces a `PageReader` with its defaults. For `browse` it needs `links=True`.
        browse: add the tool `browse`, which opens the task's start page (WebWalker), web addresses, and links.
        show_images: `read_file` shows pictures to the model, which has to see: a chat endpoint of a vision model.
        page_model: name of the model that summarises pages.
        judge_model: name of the model that judges answers.
        tool_documents: what `tool_search` finds: a file of tool documents (see `arpo_env.tools.tool_search`), or a
            `ToolRegistry`; None means the tools of the task source.
        tool_results: maximum number of tools that a `tool_search` finds.
        tool_model: name of the model that answers calls of `tool_documents` in place of the tools themselves.
        embedding_model: name of the model whose embeddings rank tools; "" means BM25.
        result_model: name of the model that condenses long results of tools that `tool_search` found; "" means that
            their middle is cut out.
        fold_model: name of the model that writes the memories of folds; "" means that the policy writes them itself.
        model_url: OpenAI-compatible server of all these models; None means `OPENAI_BASE_URL`.

    Raises:
        ValueError: a value is invalid, or options are not compatible.
    """

    search: str | Path | SearchBackend | None = field(default=None, repr=False)  # may hold a password
    search_results: int = 10
    result_characters: int = 20_000
    cache: str | Path | Cache | None = None
    cache_mode: str | None = None
    pages: str = "snippets"
    page_reader: PageReader | None = None
    browse: bool = False
    show_images: bool = False
    page_model: str = ""
    judge_model: str = ""
    tool_documents: Any = None
    tool_results: int = 10
    tool_model: str = ""
    embedding_model: str = ""
    result_model: str = ""
    fold_model: str = ""
    model_url: str | None = field(default=None, repr=False)
    record: Cache | None = field(default=None, init=False, repr=False)
    _world_search: SearchBackend | None = field(default=None, init=False, repr=False)
    _chats: dict[str, ChatModel] = field(default_factory=dict, init=False, repr=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("search_results", "result_characters", "tool_results"):  # with 0, nothing would ever be found
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.pages not in PAGES:
            raise ValueError(f"pages must be one of {', '.join(PAGES)}, not {self.pages!r}")
        if self.pages == "summaries" and not self.page_model:
            raise ValueError("pages='summaries' needs page_model=..., the name of the model that reads the pages")
        if self.page_model and self.pages != "summaries":
            raise ValueError(f"page_model={self.page_model!r} reads for pages='summaries', not for {self.pages!r}")
        if self.browse and self.page_reader is not None and not getattr(self.page_reader, "links", False):
            raise ValueError("browse=True follows links: give page_reader=PageReader(links=True, ...)")
        self.record = self._opened_cache()

    def _opened_cache(self) -> Cache | None:
        if self.cache is None:
            if self.cache_mode in (None, "live"):
                return None
            raise ValueError(f"cache_mode={self.cache_mode!r} needs cache=..., the file of the record")
        # Imported at need, here and below: an environment without external services loads none of this.
        from arpo_env.cache import Cache

        if isinstance(self.cache, Cache):
            if self.cache_mode not in (None, self.cache.mode):
                raise ValueError(f"cache_mode={self.cache_mode!r}, but the cache given is in mode {self.cache.mode!r}")
            return self.cache
        return Cache(self.cache, self.cache_mode or "record")

    @contextmanager
    def lending_record(self) -> Iterator[None]:
        """Context in which new tools use this environment's cache: see `current_record`."""
        token = _making.set(self.record)
        try:
            yield
        finally:
            _making.reset(token)

    def backend(self, source: TaskSource) -> SearchBackend:
        """Return the search backend for the tasks of a source, recorded if there is a cache.

        Raises:
            ValueError: no backend is configured, or its name is unknown; the message says how to configure one.
        """
        world: Any = source
        while hasattr(world, "tasks"):  # a LimitedSource wraps the original source
            world = world.tasks
        with self._opening:  # opened once, also if several threads ask
            if self.search is not None or not hasattr(world, "passages"):
                return self._configured
            if self._world_search is None:
                from arpo_env.search.local_search import WorldSearch

                self._world_search = WorldSearch(world.passages, world.seed)
            return self._world_search

    @functools.cached_property
    def _configured(self) -> SearchBackend:
        from arpo_env.search import default_search, open_search
        from arpo_env.search.search_backend import CachedSearch

        # A replay asks nobody, so it has to work without a key.
        asked = self.record is None or self.record.mode != "replay"
        backend = default_search(asked=asked) if self.search is None else open_search(self.search, asked=asked)
        return backend if self.record is None else CachedSearch(backend, self.record)

    @functools.cached_property
    def reader(self) -> PageReader | CachedPages | None:
        """The page reader of searches; None if only snippets are used."""
        return None if self.pages == "snippets" else self._opened_reader(links=False)

    @functools.cached_property
    def link_reader(self) -> PageReader | CachedPages:
        """The page reader of the tool `browse`, whose pages have links."""
        return self._opened_reader(links=True)

    def _opened_reader(self, links: bool) -> PageReader | CachedPages:
        from arpo_env.pages.reader import CachedPages, PageReader

        reader = self.page_reader or PageReader(links=links)
        return reader if self.record is None else CachedPages(reader, self.record)

    def check_reader(self, browses: bool) -> None:
        """Check that the libraries for reading pages are installed, if pages are read; `browses` if `browse` does."""
        # A replay reads recorded pages only, and a reader of the user's own has its own needs.
        recorded = self.record is not None and self.record.mode == "replay"
        if (browses or self.pages != "snippets") and self.page_reader is None and not recorded:
            from arpo_env.pages.reader import check_libraries

            check_libraries()

    @functools.cached_property
    def summariser(self) -> PageSummariser | None:
        """The page summariser; None unless `pages` is "summaries"."""
        chat = self.chat("page_model")
        if chat is None:
            return None
        from arpo_env.pages.page_summary import PageSummariser

        return PageSummariser(chat, self.record)

    def chat(self, option: str) -> ChatModel | None:
        """Return the chat client of one of `MODELS`, shared by all episodes; None if no model is named.

        Replies are recorded if there is a cache, except where who asks records them itself.
        """
        model = getattr(self, option)
        if model and option not in self._chats:
            from arpo_env.chat_model import ChatModel

            record = None if option in ("page_model", "judge_model", "result_model") else self.record
            self._chats[option] = ChatModel(model, base_url=self.model_url, cache=record)
        return self._chats.get(option)


def current_record() -> Cache | None:
    """Return the cache of the environment whose tools are being created, or None."""
    return _making.get()
