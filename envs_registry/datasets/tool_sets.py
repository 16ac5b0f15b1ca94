"""Sets whose tools have to be found: ToolHop, RestBench (TMDB, Spotify) and ToolBench.

ToolHop comes with Python functions, which run in the sandbox. The APIs of RestBench and ToolBench cost keys, change and
break, so a model plays them (`tool_model`). Their questions have no gold answers but gold calls, which are checked
without a judge: RestBench's "correct path" (the gold calls are a subsequence of those that were made), and for
ToolBench whether all APIs that are named as relevant were called.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import READERS, DataFileError, Rows, read_rows
from envs_registry.datasets.hub import HubError
from envs_registry.datasets.local_files import ROOT_VARIABLE, place_of, variable
from envs_registry.datasets.tool_formats import openapi_functions, rapid_function, rapid_name
from envs_registry.sources import ListSource, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

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


def read_toolhop(rows: Rows) -> ToolSetSource:
    """Return the tasks of rows with the columns question, answer, tools and functions.

    `tools` maps sub-questions to documents, `functions` lists Python sources. Many tools of different rows share a
    name; from the second on they get a number, so that each can be called.
    """
    tasks, documents, left_out = [], [], 0
    functions: dict[str, tuple[tuple[str, ...], str]] = {}
    for number, (_, row) in enumerate(rows):
        tools, sources = row.get("tools"), row.get("functions")
        question, answer = str(row.get("question") or "").strip(), str(row.get("answer") or "").strip()
        if not question or not answer or not isinstance(tools, Mapping) or not isinstance(sources, list):
            left_out += 1
            continue
        for document in filter(_is_document, tools.values()):
            name = _free_name(document["name"], functions)
            functions[name] = (tuple(map(str, sources)), document["name"])
            documents.append({**document, "name": name})
        tasks.append(Task(f"toolhop-{row.get('id', number)}", question, (answer,), source="toolhop"))
    return ToolSetSource(tasks, documents, left_out, functions)


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
    """Return the tasks of rows with the columns query, api_list and "relevant APIs" (pairs of tool and API)."""
    documents: dict[str, dict[str, Any]] = {}
    tasks, left_out = [], 0
    for number, (_, row) in enumerate(rows):
        for document in _rapid_functions(row.get("api_list") or []):
            documents.setdefault(document["name"], document)
        pairs = [pair for pair in row.get("relevant APIs") or [] if isinstance(pair, list) and len(pair) == 2]
        names = [rapid_name(str(api), str(tool)) for tool, api in pairs]
        query = str(row.get("query") or "").strip()
        if not query or not names or not all(name in documents for name in names):
            left_out += 1
            continue
        tasks.append(_by_calls(f"toolbench-{row.get('query_id', number)}-{number}", query, names, "toolbench"))
    return ToolSetSource(tasks, list(documents.values()), left_out)


def load_toolhop(*, data: str | Path | None = None) -> ToolSetSource:
    """Return ToolHop, from `data` (ToolHop.json), the variables of local files, or the hub."""
    return _some(read_toolhop(read_rows(_file("toolhop", ("toolhop",), data) or _toolhop_from_hub())), "toolhop")


def load_restbench(name: str, *, data: str | Path | None = None) -> ToolSetSource:
    """Return a scenario of RestBench from a folder with `NAME.json` and `NAME_oas.json`."""
    folder = place_of(name, (name, "restbench"), data)
    if folder is None:
        raise HubError(_no_hub(name, f"a folder with {name}.json and {name}_oas.json", "RestBench"))
    folder = folder.parent if folder.is_file() else folder
    rows, spec = _within(folder, f"{name}.json"), _within(folder, f"{name}_oas.json")
    try:
        document = json.loads(spec.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFileError(f"{spec}: is not JSON ({error})") from error
    return _some(read_restbench(read_rows(rows), document, name), name)


def load_toolbench(*, data: str | Path | None = None) -> ToolSetSource:
    """Return instructions of ToolBench from a file such as G1_instruction.json, or a folder of such."""
    place = place_of("toolbench", ("toolbench",), data)
    if place is None:
        raise HubError(_no_hub("toolbench", "a file such as G1_instruction.json, or a folder of such", "ToolBench"))
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.suffix in READERS)
    return _some(read_toolbench([row for file in files for row in read_rows(file)]), "toolbench")


def _by_calls(name: str, query: str, calls: Iterable[str], source: str) -> Task:
    return Task(name, query, (_BETWEEN.join(calls),), source=source)


def _wanted(episode: Any) -> list[str]:
    names: list[str] = episode.task.answers[0].split(_BETWEEN)
    return names


def _made(episode: Any) -> list[str]:
    return [call.name for turn in episode.turns for call in turn.calls if call.status == "ok"]


def _is_document(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("name"), str) and bool(value["name"])


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with the first free number behind it if it is taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _rapid_functions(rows: Any) -> list[dict[str, Any]]:
    found = []
    for row in rows if isinstance(rows, list) else []:
        try:
            found.append(rapid_function(row))
        except (ValueError, AttributeError):
            continue  # a document that cannot be read; a task that needs it is left out
    return found


def _some(source: ToolSetSource, name: str) -> ToolSetSource:
    if not source.tasks:
        raise DataFileError(f"{name}: none of {source.left_out} rows has a question, a gold answer or path, and tools")
    return source


def _file(source: str, names: tuple[str, ...], data: str | Path | None) -> Path | None:
    place = place_of(source, names, data)
    if place is None or place.is_file():
        return place
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS and path.stem.casefold() in names)
    if not files:
        raise DataFileError(f"{place}: no file named {names[0]} ({', '.join(READERS)})")
    return files[0]


def _within(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise DataFileError(f"{folder}: no file {name}")
    return found[0]


def _toolhop_from_hub() -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download("bytedance-research/ToolHop", "data/ToolHop.json", repo_type="dataset"))
    except Exception as error:  # the hub client raises many types
        raise HubError(
            f"could not load bytedance-research/ToolHop from the hub ({type(error).__name__}: {error}). Without the "
            f"hub: give data='ToolHop.json', or set {variable('toolhop')} to its path"
        ) from error


def _no_hub(source: str, what: str, folder: str) -> str:
    return (
        f"{source} is not loaded from the hub: give data=, {what} (as in data/{folder} of github.com/RUC-NLPIR/"
        f"DeepAgent), or set {variable(source)}, or {ROOT_VARIABLE} to a folder that holds it"
    )


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
        "see its repository",
        scorer="qa",
        tool_timeout=10.0,
    ),
    _spec("TMDB", "RestBench: instructions for a movie database, by gold paths of calls", "100", "MIT", reward=_PATH),
    _spec("Spotify", "RestBench: instructions for a music player, by gold paths of calls", "57", "MIT", reward=_PATH),
    _spec(
        "ToolBench", "instructions for APIs of RapidAPI, by the relevant ones", "a file", "Apache-2.0", reward=_TOOLS
    ),
)
COLUMNS: dict[str, tuple[str, str]] = {
    "ToolHop": ("bytedance-research/ToolHop", "question, answer, id, tools, functions"),
    "TMDB": ("", "query, solution; beside it tmdb_oas.json"),
    "Spotify": ("", "query, solution; beside it spotify_oas.json"),
    "ToolBench": ("", 'query, query_id, api_list, "relevant APIs"'),
    "APIBank": ("", "role, text, api_name, param_dict, result; beside the dialogues the Python files of the APIs"),
}
"""For tables: the id on the hub, and the columns that are read, of each set."""

_LOADERS: dict[str, Callable[..., ToolSetSource]] = {
    "toolhop": load_toolhop,
    "tmdb": functools.partial(load_restbench, "tmdb"),
    "spotify": functools.partial(load_restbench, "spotify"),
    "toolbench": load_toolbench,
}


def register_tool_sets() -> None:
    """Register an environment and a task source for each set."""
    register(TOOL_SETS)
    for source, loader in _LOADERS.items():
        register_source(source, loader)
