"""The `arpo cache` command: shows, imports and exports recorded searches, pages, summaries and verdicts.

arpo cache show run.sqlite
arpo cache import run.sqlite search_cache.json
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_command_group, write_table


def add_cache_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    actions = add_command_group(commands, "cache", "show, import or export recorded searches, pages and verdicts")

    show = add_command(actions, "show", _show, "list the records of a cache by kind and provider")
    _add_file(show)

    add = add_command(actions, "import", _import, "add the records of an export, or of a {query: text} cache of ARPO")
    _add_file(add)
    source = "a .jsonl file of `arpo cache export`, or ARPO's search_cache.json"
    add.add_argument("source", type=Path, metavar="SOURCE", help=source)
    add.add_argument("--provider", metavar="NAME", help="the provider of ARPO's searches (default bing-arpo)")
    add.add_argument("--replace", action="store_true", help="replace existing records by those of a .jsonl file")

    export = add_command(actions, "export", _export, "write all records to a .jsonl file, one per line")
    _add_file(export)
    export.add_argument("target", type=Path, metavar="TARGET", help="the .jsonl file to write")


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the cache")


def _show(arguments: argparse.Namespace) -> int:
    from arpo_env.cache import Cache

    rows: list[Sequence[str]] = [
        ("KIND", "PROVIDER", "VERSION", "RECORDS", "NOTHING", "EXPIRED", "MB", "OLDEST", "NEWEST")
    ]
    # a replay opens the file read-only: a mistyped path is an error and does not become an empty cache
    for row in Cache(arguments.file, mode="replay").store.stats():
        counts = (str(row[name]) for name in ("kind", "provider", "version", "records", "nothing", "expired"))
        rows.append((*counts, f"{row['bytes'] / 1e6:.1f}", _day(row["oldest"]), _day(row["newest"])))
    write_table(rows)
    return 0


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()


def _import(arguments: argparse.Namespace) -> int:
    from arpo_env.cache import Cache, import_jsonl
    from arpo_env.search.published_cache import ARPO_PROVIDER, import_arpo_json

    cache, exported = Cache(arguments.file), arguments.source.suffix == ".jsonl"
    if exported and arguments.provider:
        raise ValueError("--provider names the searches of an ARPO cache; the records of a .jsonl file have their own")
    if arguments.replace and not exported:
        raise ValueError("--replace is for a .jsonl file; an ARPO cache always replaces its own searches")
    if exported:
        added = import_jsonl(cache, arguments.source, arguments.replace)
        sys.stdout.write(f"added {added} records\n")
    else:
        provider = arguments.provider or ARPO_PROVIDER
        found = import_arpo_json(cache, arguments.source, provider)
        sys.stdout.write(
            f"{found.entries} searches, {found.records} records of {provider}: {found.collisions} were equal "
            f"to others once normalised, {found.prefixed} began with 'search query:', {found.leaked} hold leaked model "
            f"text, {found.nothing} found nothing\n"
        )
    cache.close()
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from arpo_env.cache import Cache, export_jsonl

    count = export_jsonl(Cache(arguments.file, mode="replay"), arguments.target)
    sys.stdout.write(f"{count} records in {arguments.target}\n")
    return 0
