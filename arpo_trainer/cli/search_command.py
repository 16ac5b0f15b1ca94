"""The `arpo search` command: index a corpus, ask a backend, serve one over HTTP.

Such as `arpo search index corpus.jsonl my-index`, `arpo search query my-index "who wrote it"`,
`arpo search serve my-index --port 8000`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from arpo_trainer.cli.text_table import write_table

_WHERE = "the folder of an index, a corpus (.jsonl), or a backend such as serper or search-r1:http://host:8000"
_SHOWN = 100  # characters of a text in the table


def add_search_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    search = commands.add_parser("search", help="index a corpus, search it, serve it")
    actions = search.add_subparsers(required=True, metavar="ACTION")

    purpose = "index a corpus: JSON Lines with title and text, or with contents"
    index = actions.add_parser("index", help=purpose, description=purpose)
    index.add_argument("corpus", type=Path, help="a .jsonl or .jsonl.gz file")
    index.add_argument("folder", type=Path, help="where the index goes")
    index.add_argument("--engine", choices=("tantivy", "fts5"), help="default: tantivy where it is installed")
    index.add_argument("--replace", action="store_true", help="put it in the place of an index that is there")
    index.set_defaults(run=_index)

    purpose = "search, and show what is found"
    query = actions.add_parser("query", help=purpose, description=purpose)
    query.add_argument("where", help=_WHERE)
    query.add_argument("text", help="what to look for")
    query.add_argument("-k", type=int, default=5, help="most results (default 5)")
    query.set_defaults(run=_query)

    purpose = "offer search to others over HTTP, as Search-R1's retrieval server does (POST /retrieve)"
    serve = actions.add_parser("serve", help=purpose, description=purpose)
    serve.add_argument("where", help=_WHERE)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    serve.set_defaults(run=_serve)


def _index(arguments: argparse.Namespace) -> int:
    from arpo_env.search import build_index

    started = time.perf_counter()
    info = build_index(arguments.corpus, arguments.folder, engine=arguments.engine, replace=arguments.replace)
    seconds = time.perf_counter() - started
    size = sum(file.stat().st_size for file in arguments.folder.rglob("*") if file.is_file()) / 1e6
    sys.stdout.write(f"{arguments.folder}: {info.passages:,} passages, {size:.1f} MB, {info.engine}, {seconds:.1f} s\n")
    return 0


def _query(arguments: argparse.Namespace) -> int:
    from arpo_env.search import open_search

    if arguments.k < 1:
        raise ValueError(f"-k must be at least 1, got {arguments.k}")
    backend = open_search(arguments.where)
    started = time.perf_counter()
    hits = asyncio.run(backend.search(arguments.text, arguments.k))
    milliseconds = 1000 * (time.perf_counter() - started)
    rows = [("", "SCORE", "TITLE", "WHERE", "TEXT")]
    for number, hit in enumerate(hits, 1):
        score = "-" if hit.score is None else f"{hit.score:.2f}"
        rows.append((str(number), score, _line(hit.title, 40), _line(hit.url, 60), _line(hit.snippet, _SHOWN)))
    if hits:
        write_table(rows)
    sys.stdout.write(f"{len(hits) or 'no'} results from {backend.name} in {milliseconds:.1f} ms\n")
    return 0


def _line(text: str, most: int) -> str:
    """Return a text on one line, without control characters, cut to a length."""
    text = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _serve(arguments: argparse.Namespace) -> int:
    from arpo_env.search import open_search
    from arpo_env.search.search_server import serve

    serve(open_search(arguments.where), arguments.host, arguments.port)
    return 0
