"""The `arpo search` command: indexes a corpus, searches it, and serves it over HTTP.

arpo search index corpus.jsonl my-index
arpo search query my-index "who wrote it"
arpo search serve my-index --port 8000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_command_group, write_table

_WHERE = "the folder of an index, a corpus (.jsonl), or a backend such as serper or search-r1:http://host:8000"
_SHOWN = 100  # characters of a text in the table


def add_search_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    actions = add_command_group(commands, "search", "index a corpus, search it, or serve it over HTTP")

    index = add_command(actions, "index", _index, "index a corpus of JSON Lines with title and text, or with contents")
    index.add_argument("corpus", type=Path, metavar="CORPUS", help="a .jsonl or .jsonl.gz file")
    index.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the index")
    engines = "default: tantivy if it is installed, else fts5"
    index.add_argument("--engine", choices=("tantivy", "fts5"), help=engines)
    index.add_argument("--replace", action="store_true", help="replace an existing index")

    query = add_command(actions, "query", _query, "search, and print the results")
    query.add_argument("where", metavar="WHERE", help=_WHERE)
    query.add_argument("text", metavar="TEXT", help="the query")
    query.add_argument("-k", "--results", dest="k", type=int, default=5, metavar="N", help="most results (default 5)")

    served = "serve search over HTTP with the API of Search-R1's retrieval server (POST /retrieve)"
    serve = add_command(actions, "serve", _serve, served)
    serve.add_argument("where", metavar="WHERE", help=_WHERE)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, metavar="N", help="port to listen on (default 8000)")


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
    # only the search is timed: opening a corpus indexes it at first use
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
    # titles and texts come from the web, and escape sequences in them would reach the terminal
    text = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _serve(arguments: argparse.Namespace) -> int:
    from arpo_env.search import open_search
    from arpo_env.search.search_server import serve

    serve(open_search(arguments.where), arguments.host, arguments.port)
    return 0
