"""ToolHop: questions of three to seven hops over tools that are Python functions, which run in the sandbox.

A row has question, answer, sub_task, tools, functions, domain, answer_type and previous_answer_type. `tools` maps
sub-questions to documents of tools, `functions` lists Python sources, each with a function and often an example of its
use. `SandboxedTools` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import READERS, DataFileError, Rows, read_rows
from envs_registry.datasets.hub import hub_files
from envs_registry.datasets.local_files import place_of
from envs_registry.datasets.tool_sets import ToolSetSource, some_tasks
from envs_registry.sources import register_source
from envs_registry.task import Task

HUB, REVISION, FILE = "bytedance-research/ToolHop", "b439d7279af359fda46e8117ae4f0245b75f5c6b", "data/ToolHop.json"
_FORM = (
    "Answer briefly: a date as YYYY-MM-DD, a name as first name and last name, and a number in digits without leading "
    "zeros."
)
"""The form of the gold answers, which the prompt of ToolHop's own evaluation asks for."""


def read_toolhop(rows: Rows) -> ToolSetSource:
    """Return the tasks of rows with the columns question, answer, tools and functions, and domain if there is one.

    Many tools of different rows share a name; from the second on they get a number, so that each can be called.
    """
    tasks, documents, left_out = [], [], 0
    functions: dict[str, tuple[tuple[str, ...], str]] = {}
    for number, (_, row) in enumerate(rows):
        tools, sources = row.get("tools"), row.get("functions")
        usable = list(filter(_is_document, tools.values())) if isinstance(tools, Mapping) else []
        question, answer = (_text(row.get(name)) for name in ("question", "answer"))
        if not question or not answer or not usable or not isinstance(sources, list):
            left_out += 1
            continue
        for document in usable:
            name = _free_name(document["name"], functions)
            functions[name] = (tuple(map(str, sources)), document["name"])
            documents.append({**document, "name": name})
        name, subject = f"toolhop-{row.get('id', number)}", str(row.get("domain") or "").strip()
        tasks.append(Task(name, f"{question}\n{_FORM}", (answer,), source="toolhop", category=subject))
    return ToolSetSource(tasks, documents, left_out, functions)


def load(*, data: str | Path | None = None) -> ToolSetSource:
    """Return ToolHop from `data` (ToolHop.json, or a folder with it), the variables of local files, or the hub.

    Raises:
        DataFileError: the file is broken, or no row can be played.
        HubError: the hub cannot be reached; the message says how to do without.
    """
    place = place_of("toolhop", ("toolhop",), data)
    if place is None:
        place = hub_files(HUB, [FILE], "toolhop", revision=REVISION)
    return some_tasks(read_toolhop(read_rows(_file(place))), "toolhop")


def _file(place: Path) -> Path:
    if place.is_file():
        return place
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS and path.stem.casefold() == "toolhop")
    if not files:
        raise DataFileError(f"{place}: no file named toolhop ({', '.join(READERS)})")
    return files[0]


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()  # an answer may be the number 0


def _is_document(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("name"), str) and bool(value["name"])


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with the first free number behind it if it is taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def register_toolhop() -> None:
    """Register the task source; its spec is one of `TOOL_SETS`."""
    register_source("toolhop", load)
