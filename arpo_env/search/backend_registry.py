"""Search backends by name: `open_search("serper")`, `open_search("search-r1:http://host:8000")`, `open_search(path)`.

A backend is one row of the table: its name, and the function that makes it, which is imported when it is needed.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arpo_env.net import printable_address
from arpo_env.search.local_index import SUFFIXES
from arpo_env.search.search_backend import SearchBackend
from envs_registry.nearest_name import nearest_hint

VARIABLE = "ARPO_SEARCH"
Factory = Callable[[str | None], SearchBackend]
# The names are repeated here, so that they can be listed without importing the modules of the backends.
_PROVIDERS = tuple(
    ["brave", "brightdata", "brightdata-google", "ddgs", "exa", "perplexity", "searxng", "serpapi", "serper", "tavily"]
)
_RETRIEVERS = ("search-r1", "flashrag", "elasticsearch", "opensearch")


def open_search(where: SearchBackend | str | Path, *, asked: bool = True) -> SearchBackend:
    """Return a search backend.

    Args:
        where: a backend, which is returned; a name, such as "serper"; a name and an address, such as
            "search-r1:http://host:8000"; the folder of an index; or a corpus, a .jsonl file that is indexed into the
            user's cache at first use.
        asked: False for a provider whose recorded answers are replayed only; it needs no key.

    Raises:
        ValueError: the name is not known, or a key is missing.
        FileNotFoundError: the path does not exist.
    """
    if isinstance(where, SearchBackend):
        return where
    name, _, address = str(where).partition(":")
    if isinstance(where, str) and name in _factories:  # a registered name has precedence over a file of that name
        factory = _factories[name]
        return factory(address or None) if asked else _unasked.get(factory, factory)(address or None)
    # Paths come last, and a `Path` is never taken for a name.
    path = os.path.expanduser(where)
    if os.path.exists(path) or isinstance(where, Path):
        return _local(path)
    raise _unknown(where, name)


def default_search(*, asked: bool = True) -> SearchBackend:
    """Return the backend that the variable ARPO_SEARCH names; `asked` is as for `open_search`.

    Raises:
        RuntimeError: the variable is not set.
    """
    if where := os.environ.get(VARIABLE):
        return open_search(where, asked=asked)
    raise RuntimeError(
        f"no search is configured: set {VARIABLE}, or give the search option, one of: a corpus (FILE{SUFFIXES[0]}, "
        "indexed at first use); the folder of an index (arpo search index CORPUS FOLDER); a server, as in "
        f"search-r1:http://host:8000 ({', '.join(_RETRIEVERS)}); or a provider with its key in the environment "
        f"({', '.join(_PROVIDERS)})"
    )


def register_backend(name: str, factory: Factory, unasked: Factory | None = None) -> None:
    """Register a backend under a name. A known name gets the new factory.

    Args:
        name: without a colon.
        factory: called with the text after the colon, or None.
        unasked: the factory for a replay, which sends no request and needs no key; None takes `factory`.

    Raises:
        ValueError: the name is empty or has a colon or a slash.
    """
    if not name or set(name) & set(":/"):
        raise ValueError(f"{name!r} cannot be a backend's name: it must not be empty or contain ':' or '/'")
    _factories[name] = factory
    if unasked is not None:
        _unasked[factory] = unasked


def backend_names() -> list[str]:
    """Return the names that `open_search` knows."""
    return sorted(_factories)


def _unknown(where: str, name: str) -> Exception:
    shown = printable_address(where)
    if name in ("http", "https"):  # an address alone does not tell the protocol of the server
        return ValueError(f"put the protocol of the search service before the address, as in search-r1:{shown}")
    # It was meant as a path; a list of backends would not help.
    if "/" in name or where.endswith(SUFFIXES):
        return FileNotFoundError(f"there is no index and no corpus at {where}")
    hint = nearest_hint(name.lower(), _factories, "did you mean {!r}? ")
    return ValueError(
        f"no search backend and no path {shown!r}; {hint}There are: {', '.join(backend_names())}, "
        f"the folder of an index, and a corpus (FILE{SUFFIXES[0]})"
    )


def _local(address: str | None) -> SearchBackend:
    from arpo_env.search.local_search import open_local

    if address is None:
        raise ValueError("'local' needs the folder of an index or a corpus, as in local:FOLDER")
    return open_local(address)


def _make(maker: str, name: str, address: str | None, **options: Any) -> SearchBackend:
    """Call a function "module:function" with a name, an address and options."""
    module, _, function = maker.partition(":")
    backend: SearchBackend = getattr(importlib.import_module(module), function)(name, address, **options)
    return backend


def _recorded(provider: str | None) -> SearchBackend:
    from arpo_env.search.search_backend import RecordedSearch

    return RecordedSearch(provider or "bing-arpo")


_factories: dict[str, Factory] = {
    "local": _local,
    "recorded": _recorded,
    **{name: functools.partial(_make, "arpo_env.search.web:make_provider", name) for name in _PROVIDERS},
    **{name: functools.partial(_make, "arpo_env.search.http_retrievers:make_retriever", name) for name in _RETRIEVERS},
}
_unasked: dict[Factory, Factory] = {
    factory: functools.partial(factory, asked=False)  # type: ignore[call-arg]  # the providers' factories accept it
    for name, factory in _factories.items()
    if name in _PROVIDERS
}
