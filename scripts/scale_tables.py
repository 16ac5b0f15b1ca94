"""Writes the tables of the pages about scale from benchmarks/results/scale.json.

python -m scripts.scale_tables
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "how-to" / "scale.md", ROOT / "benchmarks" / "README.md")
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
END = "<!-- end of table -->\n"
LIFTED = {
    "servers": "twice the servers",
    "searches": "no limit of searches",
    "sandboxes": "64 sandboxes per worker",
    "CPU": "workers and driver cost nothing",
}
Row = list[str]


def page_with_tables(page: str) -> str:
    """Return the text of a page with the tables that it names written anew."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, rows in TABLES.items():
        begin = f"<!-- scale-{name}: written by scripts/scale_tables.py -->\n"
        before, there, rest = page.partition(begin)
        if there:
            page = before + begin + _table(list(rows(found))) + END + rest.partition(END)[2]
    return page


def _table(rows: list[Row]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def _sizing(found: dict[str, Any]) -> Iterator[Row]:
    yield [
        "task",
        "model",
        "GPUs of a server",
        "trajectories in flight",
        "trajectories per hour",
        "GPU hours for 1,000",
        "searches per second",
        "sandboxes",
        "worker's CPU seconds per trajectory",
    ]
    for row in found["sizing"]:
        hourly = row["trajectories_per_hour"]
        yield [
            row["kind"],
            row["model"],
            str(row["gpus"]),
            str(row["in_flight"]),
            f"{hourly:,.0f}",
            f"{1000 * row['gpus'] / hourly:.2f}",
            f"{row['searches_per_second']:.1f}",
            f"{row['sandboxes']:.0f}",
            f"{row['core_seconds']:.3f}",
        ]


def _steps(found: dict[str, Any]) -> Iterator[Row]:
    yield [
        "task",
        "model",
        "servers",
        "GPUs",
        "workers",
        "sandboxes",
        "searches per second",
        "minutes",
        "driver's link",
    ]
    for row in found["steps"]:
        yield [
            row["kind"],
            row["model"],
            str(row["servers"]),
            str(row["gpus"]),
            str(row["workers"]),
            f"{row['sandboxes']:.0f}",
            f"{row['searches_per_second']:.0f}",
            f"{row['seconds'] / 60:.1f}",
            f"{row['megabytes_a_tree'] * row['groups']:.0f} MB",
        ]


def _workers(found: dict[str, Any]) -> Iterator[Row]:
    yield [
        "",
        "workers",
        "servers",
        "groups",
        "seconds",
        "trajectories per second",
        "servers idle",
        "wait of a search, s",
        "void",
        "sandboxes",
        "a worker's CPU",
        "driver's CPU",
        "driver's link",
    ]
    for name in ("search, servers grow", "search, 50 per second", "math, servers grow"):
        for row in found["workers"][name]:
            yield [
                name if row["workers"] == 8 else "",
                f"{row['workers']:,}",
                str(row["servers"]),
                f"{row['groups']:,}",
                f"{row['seconds']:.0f}",
                f"{row['groups'] * row['generations'] / row['seconds']:.3g}",
                f"{row['servers_idle']:.1%}",
                f"{row['search_wait']:.1f}",
                f"{row['void']:.1%}",
                f"{row['sandboxes']:,.0f}",
                f"{row['workers_cpu']:.1%}",
                f"{row['driver']:.1%}",
                f"{row['link']:.1%}",
            ]


def _limits(found: dict[str, Any]) -> Iterator[Row]:
    yield ["", *found["limits"]]
    for name, words in LIFTED.items():
        yield [words, *(_gain(rows, name) for rows in found["limits"].values())]


def _gain(rows: dict[str, Any], name: str) -> str:
    if name not in rows:
        return ""
    return f"{rows['all']['seconds'] / rows[name]['seconds']:.2f}"


def _check(found: dict[str, Any]) -> Iterator[Row]:
    yield ["", "seconds: virtual, real", "tokens per second", "servers idle", "wait of a search, s", "sandboxes"]
    for name, pair in found["check"].items():
        both = (pair["virtual"], pair["real"])
        yield [
            name,
            ", ".join(f"{one['seconds']:.1f}" for one in both),
            ", ".join(f"{one['tokens_per_second']:.0f}" for one in both),
            ", ".join(f"{one['servers_idle']:.1%}" for one in both),
            ", ".join(f"{one['search_wait']:.1f}" for one in both),
            ", ".join(f"{one['sandboxes']:.0f}" for one in both),
        ]


def _costs(found: dict[str, Any]) -> Iterator[Row]:
    costs = found["costs"]
    yield ["CPU of one core", "milliseconds"]
    yield ["worker: a turn without its tokens (engine, environment, parsing)", f"{1e3 * costs['turn_seconds']:.2f}"]
    yield ["worker: an HTTP request to a server, context of 4,000 tokens", f"{1e3 * costs['request_seconds']:.2f}"]
    yield ["worker: 100 tokens of a stream with 20 log-probabilities each", f"{1e5 * costs['token_seconds']:.2f}"]
    size = f"{costs['ray_tree_bytes'] / 1e3:.0f} kB"
    yield [f"worker: a tree of {size} through Ray", f"{1e3 * costs['ray_tree_actor_seconds']:.2f}"]
    yield [f"driver: a tree of {size} through Ray", f"{1e3 * costs['ray_tree_driver_seconds']:.2f}"]
    for number in ("128", "1024"):
        seconds = costs["dispatch_seconds"][number]
        yield [f"driver: to give out and collect a group, {int(number):,} under way", f"{1e3 * seconds:.2f}"]
    taken = costs["ray_tree_driver_seconds"] + costs["dispatch_seconds"]["1024"]
    yield [f"trees of {size} per second that the driver could take, 1,024 under way", f"{1 / taken:.0f}"]
    yield ["bytes of a tree per token: pickled", f"{costs['tree_bytes_a_token']:.0f}"]
    yield ["bytes of a tree per token: in memory", f"{costs['memory_bytes_a_token']:.0f}"]


def _servers(found: dict[str, Any]) -> Iterator[Row]:
    yield ["", "simulated", "published"]
    for name, pair in found["servers"].items():
        yield [name, *(f"{value:,}" for value in pair)]


TABLES: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "sizing": _sizing,
    "steps": _steps,
    "workers": _workers,
    "limits": _limits,
    "check": _check,
    "costs": _costs,
    "servers": _servers,
}


def main() -> int:
    """Write the tables."""
    for page in PAGES:
        page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
