"""Sets whose tools have to be found: RestBench (TMDB, Spotify) and ToolBench, and the specs of these and of ToolHop.

The APIs of RestBench and ToolBench cost keys, change and break, so a model plays them (`tool_model`). Their questions
have no gold answers but gold calls, which are checked without a judge: RestBench's "correct path" (the gold calls are a
subsequence of those that were made), and for ToolBench whether all APIs that are named as relevant were called.
ToolHop's tools are Python functions (`toolhop`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import READERS, DataFileError, Rows, read_rows
from envs_registry.datasets.hub import HubError, hub_rows
from envs_registry.datasets.local_files import ROOT_VARIABLE, place_of, variable
from envs_registry.datasets.tool_formats import openapi_functions, rapid_function, rapid_name
from envs_registry.sources import ListSource, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

RESTBENCH = "https://github.com/Yifan-Song793/RestGPT"
TOOLBENCH_HUB = "tuandunghcmut/toolbench-v1"  # a copy; ToolBench itself is on a drive
TOOLBENCH_SPLITS = ("g1_instruction", "g1_category", "g1_tool", "g2_instruction", "g2_category", "g3_instruction")
_BETWEEN = ", "  # of the names of gold calls in the answer of a task


@dataclass(frozen=True)
class ToolSetSource(ListSource):
    """The tasks of a set and its tools.

    Attributes:
        tool_documents: documents of all tools.
        left_out: number of rows without a usable question, answer or tool.
        functions: Python functions by the name of a tool: its source, with what it needs, and its name there.
    """

    tool_documents: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    functions: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)

    @property
    def tool_code(self) -> Callable[[str], tuple[tuple[str, ...], str]] | None:
        """Returns the source and the function of a tool; None if the tools of this set are not Python."""
        return self.functions.__getitem__ if self.functions else None


def right_path(episode: Any) -> float:
    """Return 1 if the gold calls are a subsequence of the calls that ran, else 0 (RestBench's correct path)."""
    made = iter(_made(episode))
    return float(all(name in made for name in _wanted(episode)))


def right_tools(episode: Any) -> float:
    """Return 1 if all gold tools were called, in any order, else 0."""
    return float(set(_wanted(episode)) <= set(_made(episode)))


def gold_calls(episode: Any) -> float:
    """Return how many of the gold tools were called (sum of C in ToolPO's action reward)."""
    made = _made(episode)
    return float(sum(name in made for name in set(_wanted(episode))))


def read_restbench(rows: Rows, spec: Mapping[str, Any], source: str) -> ToolSetSource:
    """Return the tasks of rows with the columns query and solution; the calls are operations of an OpenAPI document."""
    functions = openapi_functions(spec)
    tasks, left_out = [], 0
    for number, (_, row) in enumerate(rows):
        query, path = str(row.get("query") or "").strip(), row.get("solution")
        calls = [functions.get(" ".join(str(call).split())) for call in path] if isinstance(path, list) else []
        if not query or not calls or None in calls:
            left_out += 1
            continue
        names = [call["name"] for call in calls if call]
        tasks.append(_by_calls(f"{source}-{number}", query, names, source))
    return ToolSetSource(tasks, list(functions.values()), left_out)


def read_toolbench(rows: Rows) -> ToolSetSource:
    """Return the tasks of rows with the columns query, api_list and "relevant APIs" (pairs of tool and API).

    The copy on the hub calls the last one `relevant_apis`, and has both lists as JSON texts.
    """
    documents: dict[str, dict[str, Any]] = {}
    tasks, left_out = [], 0
    for number, (_, row) in enumerate(rows):
        for document in _rapid_functions(_listed(row.get("api_list"))):
            documents.setdefault(document["name"], document)
        pairs = filter(None, map(_pair, _listed(row.get("relevant APIs") or row.get("relevant_apis"))))
        names = [rapid_name(api, tool) for tool, api in pairs]
        query = str(row.get("query") or "").strip()
        if not query or not names or not all(name in documents for name in names):
            left_out += 1
            continue
        tasks.append(_by_calls(f"toolbench-{row.get('query_id', number)}-{number}", query, names, "toolbench"))
    return ToolSetSource(tasks, list(documents.values()), left_out)


def load_restbench(name: str, *, data: str | Path | None = None) -> ToolSetSource:
    """Return a scenario of RestBench from a folder with `NAME.json` and `NAME_oas.json`."""
    folder = place_of(name, (name, "restbench"), data)
    if folder is None:
        raise HubError(
            f"{name} is not on the hub: `git clone {RESTBENCH}` (MIT) and give data='RestGPT', or any folder with "
            f"{name}.json and {name}_oas.json; or set {variable(name)} to it, or {ROOT_VARIABLE} to a folder with it"
        )
    folder = folder.parent if folder.is_file() else folder
    rows, spec = _within(folder, f"{name}.json"), _within(folder, f"{name}_oas.json")
    try:
        document = json.loads(spec.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFileError(f"{spec}: is not JSON ({error})") from error
    return some_tasks(read_restbench(read_rows(rows), document, name), name)


def load_toolbench(*, data: str | Path | None = None) -> ToolSetSource:
    """Return instructions of ToolBench from a file such as G1_instruction.json, a folder of such, or the hub."""
    place = place_of("toolbench", ("toolbench",), data)
    if place is None:
        columns = ("query", "query_id", "api_list", "relevant_apis")
        rows, _ = hub_rows(TOOLBENCH_HUB, ("benchmark",), "+".join(TOOLBENCH_SPLITS), columns, "toolbench")
        return some_tasks(read_toolbench(rows), "toolbench")
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.suffix in READERS)
    return some_tasks(read_toolbench([row for file in files for row in read_rows(file)]), "toolbench")


def _by_calls(name: str, query: str, calls: Iterable[str], source: str) -> Task:
    return Task(name, query, (_BETWEEN.join(calls),), source=source)


def _wanted(episode: Any) -> list[str]:
    names: list[str] = episode.task.answers[0].split(_BETWEEN)
    return names


def _made(episode: Any) -> list[str]:
    return [call.name for turn in episode.turns for call in turn.calls if call.status == "ok"]


def _listed(value: Any) -> list[Any]:
    """Return a list, or the list that a JSON text holds; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []


def _pair(value: Any) -> tuple[str, str] | None:
    """Return the names of a tool and of one of its APIs; None if it has another form."""
    if isinstance(value, Mapping):
        value = [value.get("tool_name"), value.get("api_name")]
    return (str(value[0]), str(value[1])) if isinstance(value, list) and len(value) == 2 else None


def _rapid_functions(rows: list[Any]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        try:
            found.append(rapid_function(row))
        except (ValueError, AttributeError):
            continue  # a document that cannot be read; a task that needs it is left out
    return found


def some_tasks(source: ToolSetSource, name: str) -> ToolSetSource:
    """Return the source, or raise `DataFileError` if it has no task."""
    if not source.tasks:
        raise DataFileError(f"{name}: none of {source.left_out} rows has a question, a gold answer or path, and tools")
    return source


def _within(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise DataFileError(f"{folder}: no file {name}")
    return found[0]


def _spec(name: str, description: str, size: str, licence: str, **fields: Any) -> EnvSpec:
    return EnvSpec(
        id=f"arpo/{name}-v0",
        source=name.lower(),
        description=description,
        tools=("tool_search",),
        protocol="deepagent",
        max_turns=51,  # DeepAgent's 50 actions, and the answer
        max_tool_calls=50,
        splits=(),
        size=size,
        licence=licence,
        **{"scorer": "em", "tool_timeout": 60.0, **fields},
    )


_PATH = {"accuracy": (right_path, 1.0), "right_calls": (gold_calls, 0.0)}
_TOOLS = {"accuracy": (right_tools, 1.0), "right_calls": (gold_calls, 0.0)}
TOOL_SETS = (
    _spec(
        "ToolHop",
        "questions of three to seven hops over Python tools",
        "995",
        "CC BY 4.0",
        scorer="qa",
        tool_timeout=10.0,
    ),
    _spec("TMDB", "RestBench: instructions for a movie database, by gold paths of calls", "100", "MIT", reward=_PATH),
    _spec("Spotify", "RestBench: instructions for a music player, by gold paths of calls", "57", "MIT", reward=_PATH),
    _spec("ToolBench", "instructions for APIs of RapidAPI, by the relevant ones", "1,100", "Apache-2.0", reward=_TOOLS),
)
_LOADERS: dict[str, Callable[..., ToolSetSource]] = {
    "tmdb": functools.partial(load_restbench, "tmdb"),
    "spotify": functools.partial(load_restbench, "spotify"),
    "toolbench": load_toolbench,
}


def register_tool_sets() -> None:
    """Register an environment and a task source for each set."""
    register(TOOL_SETS)
    for source, loader in _LOADERS.items():
        register_source(source, loader)
