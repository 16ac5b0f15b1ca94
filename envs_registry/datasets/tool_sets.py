"""Sets whose tools have to be found: RestBench (TMDB, Spotify) and ToolBench, and the specs of these and of ToolHop.

The APIs of RestBench and ToolBench cost keys, change and break, so a model plays them (`tool_model`). Their questions
have no gold answers but gold calls, which are checked without a judge: RestBench's "correct path" (the gold calls are a
subsequence of those that were made), and for ToolBench whether all APIs that are named as relevant were called.
ToolHop's tools are Python functions (`toolhop`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import READERS, DataFileError, Rows, read_rows
from envs_registry.datasets.hub import ROOT_VARIABLE, HubError, hub_files, hub_rows, place_of, variable
from envs_registry.sources import ListSource, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

# Documents of tools in the formats of data sets, as functions with a JSON schema: RapidAPI (ToolBench) and OpenAPI.
#
#     rapid_function({"tool_name": ..., "api_name": ..., "required_parameters": [...]})
#     openapi_functions(json.load(open("tmdb_oas.json")))["GET /search/person"]
#
# A function is {"name", "description", "parameters", "category"}.

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_RAPID_TYPES = {"NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object"}
_METHODS = ("get", "post", "put", "patch", "delete")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 128, 1000  # characters


def rapid_name(api: str, tool: str) -> str:
    """Return the name of one API of a tool of RapidAPI; "" if no character of the API's name can be in one."""
    return _name(f"{api}_for_{tool}" if _name(tool) else api) if _name(api) else ""


def rapid_function(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of a RapidAPI document: one API of a tool, with two lists of parameters.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    tool, api = _as_text(row, "tool_name"), _as_text(row, "api_name")
    properties: dict[str, Any] = {}
    required = []
    for key in ("required_parameters", "optional_parameters"):
        given = row.get(key) or []
        for one in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(one, Mapping) or not _as_text(one, "name"):
                raise ValueError(f"{key} is a list of objects with a name")
            kind = _RAPID_TYPES.get(_as_text(one, "type").upper(), "string")
            properties[_as_text(one, "name")] = {"type": kind, "description": _as_text(one, "description")}
            if key == "required_parameters":
                required.append(_as_text(one, "name"))
    if not rapid_name(api, tool):
        raise ValueError(f"its name {api[:80]!r} has no letter or digit that names can have")
    description = " ".join(filter(None, [_as_text(row, "api_description"), _as_text(row, "tool_description")]))
    return {
        "name": rapid_name(api, tool),
        "description": description[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": required},
        "category": _as_text(row, "category_name"),
    }


def openapi_functions(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the function of each operation of an OpenAPI document, by method and path as in "GET /search/person".

    Parameters of paths, queries and JSON bodies become arguments; references within the document are followed.
    """
    found = {}
    for path, item in _inner(spec, "paths").items():
        for method in _METHODS:
            operation = item.get(method) if isinstance(item, Mapping) else None
            if isinstance(operation, Mapping):
                found[f"{method.upper()} {path}"] = _operation(spec, method, path, item, operation)
    return found


def _operation(
    spec: Mapping[str, Any], method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for given in [*_as_list(item, "parameters"), *_as_list(operation, "parameters")]:
        one = _followed(spec, given)
        name = _as_text(one, "name")
        if one.get("in") not in ("path", "query") or not name:
            continue
        properties[name] = _argument(spec, {**_inner(one, "schema"), "description": one.get("description")})
        required += [name] if one.get("required") else []
    body = _followed(spec, operation.get("requestBody") or {})
    schema = _followed(spec, _inner(_inner(_inner(body, "content"), "application/json"), "schema"))
    for name, one in _inner(schema, "properties").items():
        properties.setdefault(name, _argument(spec, _followed(spec, one)))
    required += [name for name in properties if name in _as_list(schema, "required") and name not in required]
    told = [_as_text(operation, "summary"), _as_text(operation, "description")]
    return {
        "name": _name(f"{method} {path.strip('/')}"),
        "description": ". ".join(filter(None, told))[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))},
        "category": "",
    }


def _argument(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    kind = _followed(spec, schema).get("type")
    return {
        "type": kind if kind in _TYPES else "string",
        "description": _as_text(schema, "description")[:_LONGEST_DESCRIPTION],
    }


def _followed(spec: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Follow a reference such as {"$ref": "#/components/parameters/PathId"}."""
    for _ in range(8):
        if not isinstance(value, Mapping):
            return {}
        if "$ref" not in value:
            return value
        target: Any = spec
        for part in str(value["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        value = target
    return {}


def _inner(value: Any, key: str) -> Mapping[str, Any]:
    """Return the object at a key; an empty one for anything else, as a document may hold what it should not."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _as_list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text).strip("_.-").lower()[:_LONGEST_NAME]


def _as_text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return " ".join(value.split()) if isinstance(value, str) else ""


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


# ToolHop: questions of three to seven hops over tools that are Python functions, which run in the sandbox.
#
# A row has question, answer, sub_task, tools, functions, domain, answer_type and previous_answer_type. `tools` maps
# sub-questions to documents of tools, `functions` lists Python sources, each with a function and often an example of
# its use. `SandboxedTools` runs them.

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
