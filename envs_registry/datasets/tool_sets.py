"""Sets whose tools have to be found: ToolHop, RestBench (TMDB, Spotify), ToolBench and API-Bank.

The APIs of RestBench and ToolBench cost keys, change and break, so a model plays them (`tool_model`). Their questions
have no gold answers but gold calls, which are checked without a judge: RestBench's "correct path" (the gold calls are a
subsequence of those that were made), and for ToolBench whether all APIs that are named as relevant were called.
ToolHop's tools are Python functions, which run in the sandbox. A task of API-Bank shows a dialogue up to a call and
asks for that call; what API-Bank has recorded is returned, as the databases behind its APIs are not here.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.hub import HubError, hub_files, hub_rows
from envs_registry.datasets.rows import READERS, ROOT_VARIABLE, DataFileError, Row, Rows, place_of, read_rows
from envs_registry.sources import ListSource, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

Document = dict[str, Any]  # of a tool: "name", "description", "parameters", "category"

# Documents of tools as RapidAPI (ToolBench) and OpenAPI have them become {"name", "description", "parameters" (a JSON
# schema), "category"}.

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_RAPID_TYPES = {"NUMBER": "number", "INTEGER": "integer", "BOOLEAN": "boolean", "ARRAY": "array", "OBJECT": "object"}
_METHODS = ("get", "post", "put", "patch", "delete")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 128, 1000  # characters


def rapid_name(api: str, tool: str) -> str:
    """Return the name of one API of a tool of RapidAPI; "" if no character of the API's name can be in one."""
    return _name(f"{api}_for_{tool}" if _name(tool) else api) if _name(api) else ""


def rapid_function(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of a RapidAPI document: one API of a tool, with two lists of parameters."""
    tool, api = as_text(row, "tool_name"), as_text(row, "api_name")
    properties: dict[str, Any] = {}
    required = []
    for key in ("required_parameters", "optional_parameters"):
        given = row.get(key) or []
        for one in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(one, Mapping) or not as_text(one, "name"):
                raise ValueError(f"{key} is a list of objects with a name")
            kind = _RAPID_TYPES.get(as_text(one, "type").upper(), "string")
            properties[as_text(one, "name")] = {"type": kind, "description": as_text(one, "description")}
            if key == "required_parameters":
                required.append(as_text(one, "name"))
    if not rapid_name(api, tool):
        raise ValueError(f"its name {api[:80]!r} has no letter or digit that names can have")
    description = " ".join(filter(None, [as_text(row, "api_description"), as_text(row, "tool_description")]))
    return {
        "name": rapid_name(api, tool),
        "description": description[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": required},
        "category": as_text(row, "category_name"),
    }


def openapi_functions(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the function of each operation of an OpenAPI document, by method and path as in "GET /search/person".

    Parameters of paths, queries and JSON bodies become arguments; references within the document are followed.
    """
    return {
        f"{method.upper()} {path}": _operation(spec, method, path, item)
        for path, item in spec["paths"].items()
        for method in _METHODS
        if method in item
    }


def _operation(spec: Mapping[str, Any], method: str, path: str, item: Mapping[str, Any]) -> dict[str, Any]:
    operation, properties, required = item[method], dict[str, Any](), list[str]()
    for given in [*item.get("parameters", ()), *operation.get("parameters", ())]:
        one = _followed(spec, given)
        if one.get("in") in ("path", "query"):
            properties[one["name"]] = _argument(spec, {**one.get("schema", {}), "description": one.get("description")})
            required += [one["name"]] if one.get("required") else []
    content = _followed(spec, operation.get("requestBody", {})).get("content", {})
    schema = _followed(spec, content.get("application/json", {}).get("schema", {}))
    for name, one in schema.get("properties", {}).items():
        properties.setdefault(name, _argument(spec, _followed(spec, one)))
    required += [name for name in properties if name in schema.get("required", ())]
    told = [as_text(operation, "summary"), as_text(operation, "description")]
    return {
        "name": _name(f"{method} {path.strip('/')}"),
        "description": ". ".join(filter(None, told))[:_LONGEST_DESCRIPTION],
        "parameters": {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))},
        "category": "",
    }


def _argument(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    kind, told = _followed(spec, schema).get("type"), as_text(schema, "description")
    return {"type": kind if kind in _TYPES else "string", "description": told[:_LONGEST_DESCRIPTION]}


def _followed(spec: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference such as {"$ref": "#/components/parameters/PathId"}."""
    while "$ref" in value:
        target = spec
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text).strip("_.-").lower()[:_LONGEST_NAME]


def as_text(row: Any, key: str) -> str:
    """Return a text of a document on one line; "" for anything else."""
    value = row.get(key) if isinstance(row, Mapping) else None
    return " ".join(value.split()) if isinstance(value, str) else ""


@dataclass(frozen=True)
class ToolSetSource(ListSource):
    """The tasks of a set and its tools."""

    tool_documents: list[Document] = field(default_factory=list)
    left_out: int = 0  # rows without a usable question, answer or tool
    # of Python tools, by name: the source with what it needs, and the function's name there
    functions: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)

    @property
    def tool_code(self) -> Callable[[str], tuple[tuple[str, ...], str]] | None:
        """Returns the source and the function of a tool; None if the tools of this set are not Python."""
        return self.functions.__getitem__ if self.functions else None


_BETWEEN = ", "  # of the names of gold calls in the answer of a task


def right_path(episode: Any) -> float:
    """Return 1 if the gold calls are a subsequence of the calls that ran, else 0 (RestBench's correct path)."""
    wanted, made = _calls(episode)
    rest = iter(made)
    return float(all(call in rest for call in wanted))


def right_tools(episode: Any) -> float:
    """Return 1 if all gold tools were called, in any order, else 0."""
    wanted, made = _calls(episode)
    return float(set(wanted) <= set(made))


def gold_calls(episode: Any) -> float:
    """Return how many of the gold calls were made (sum of C in ToolPO's action reward)."""
    wanted, made = _calls(episode)
    return float(sum(call in made for call in set(wanted)))


def _calls(episode: Any) -> tuple[list[str], list[str]]:
    """Return the gold calls and those that ran: names, and arguments as well where the task has them, as API-Bank's."""
    answer: str = episode.task.answers[0]
    ran = [call for turn in episode.turns for call in turn.calls if call.status == "ok"]
    if answer[0] not in "[{":
        return answer.split(_BETWEEN), [call.name for call in ran]
    gold = json.loads(answer)
    keys = [_key(call["name"], call["arguments"]) for call in (gold if isinstance(gold, list) else [gold])]
    return keys, [_key(call.name, call.arguments) for call in ran]


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in the form in which calls are compared: arguments as text."""
    return json.dumps([name, {key: str(value).strip() for key, value in sorted(arguments.items())}], ensure_ascii=False)


def _tool_set(
    name: str,
    rows: Rows,
    convert: Callable[[int, Row], Task | None],
    documents: Mapping[str, Document],
    functions: Mapping[str, tuple[tuple[str, ...], str]] | None = None,
) -> ToolSetSource:
    """Return the tasks of rows, and the tools, which the conversion may add to."""
    made = [convert(number, row) for number, (_, row) in enumerate(rows)]
    if not (tasks := [task for task in made if task]):
        raise DataFileError(f"{name}: none of {len(made)} rows has a question, a gold answer or path, and tools")
    return ToolSetSource(tasks, list(documents.values()), made.count(None), dict(functions or {}))


RESTBENCH = "https://github.com/Yifan-Song793/RestGPT"
TOOLBENCH_HUB = "tuandunghcmut/toolbench-v1"  # a copy; ToolBench itself is on a drive
TOOLBENCH_SPLITS = ("g1_instruction", "g1_category", "g1_tool", "g2_instruction", "g2_category", "g3_instruction")


def load_restbench(name: str, *, data: str | Path | None = None) -> ToolSetSource:
    """Return a scenario of RestBench from a folder with `NAME.json` and `NAME_oas.json`.

    Rows have the columns query and solution; the calls are operations of an OpenAPI document.
    """
    folder = place_of(name, data)
    if folder is None:
        raise HubError(
            f"{name} is not on the hub: `git clone {RESTBENCH}` (MIT) and give data='RestGPT', or any folder with "
            f"{name}.json and {name}_oas.json; or name it {name} in the folder {ROOT_VARIABLE}"
        )
    rows, spec = (_within(folder if folder.is_dir() else folder.parent, f"{name}{end}.json") for end in ("", "_oas"))
    functions = openapi_functions(json.loads(spec.read_text(encoding="utf-8")))

    def task(number: int, row: Row) -> Task | None:
        query, path = _text(row.get("query")), row.get("solution")
        calls = [functions.get(" ".join(str(call).split())) for call in path] if isinstance(path, list) else []
        if not query or not calls or None in calls:
            return None
        return Task(f"{name}-{number}", query, (_BETWEEN.join(call["name"] for call in calls if call),), source=name)

    return _tool_set(name, read_rows(rows), task, functions)


def load_toolbench(*, data: str | Path | None = None) -> ToolSetSource:
    """Return instructions of ToolBench from a file such as G1_instruction.json, a folder of such, or the hub.

    Rows have the columns query, api_list and "relevant APIs" (pairs of tool and API). The copy on the hub calls the
    last one `relevant_apis`, and has both lists as JSON texts.
    """
    place = place_of("toolbench", data)
    if place is None:
        columns = ("query", "query_id", "api_list", "relevant_apis")
        rows, _ = hub_rows(TOOLBENCH_HUB, ("benchmark",), "+".join(TOOLBENCH_SPLITS), columns, "toolbench")
    else:
        files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.suffix in READERS)
        rows = [row for file in files for row in read_rows(file)]
    documents: dict[str, Document] = {}

    def task(number: int, row: Row) -> Task | None:
        for one in _listed(row.get("api_list")):
            with contextlib.suppress(ValueError, AttributeError):  # it cannot be read; a task that needs it is left out
                document = rapid_function(one)
                documents.setdefault(document["name"], document)
        names = [rapid_name(api, tool) for tool, api in _listed(row.get("relevant APIs") or row.get("relevant_apis"))]
        query = _text(row.get("query"))
        if not query or not names or not all(name in documents for name in names):
            return None
        name = f"toolbench-{row.get('query_id', number)}-{number}"
        return Task(name, query, (_BETWEEN.join(names),), source="toolbench")

    return _tool_set("toolbench", rows, task, documents)


def _listed(value: Any) -> list[Any]:
    """Return a list, or the list that a JSON text holds; an empty one for anything else."""
    value = _json(value) if isinstance(value, str) else value
    return value if isinstance(value, list) else []


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _within(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise DataFileError(f"{folder}: no file {name}")
    return found[0]


TOOLHOP, TOOLHOP_REVISION = "bytedance-research/ToolHop", "b439d7279af359fda46e8117ae4f0245b75f5c6b"
# the form of the gold answers, which the prompt of ToolHop's own evaluation asks for
_FORM = (
    "Answer briefly: a date as YYYY-MM-DD, a name as first name and last name, and a number in digits without leading "
    "zeros."
)


def load_toolhop(*, data: str | Path | None = None) -> ToolSetSource:
    """Return ToolHop from `data` (ToolHop.json, or a folder with it), or the hub.

    A row has question, answer, tools (sub-questions to documents of tools), functions (Python sources, each with a
    function and often an example of its use) and domain. Many tools of different rows share a name; from the second on
    they get a number, so that each can be called.
    """
    place = place_of("toolhop", data)
    if place is None:
        place = hub_files(TOOLHOP, ["data/ToolHop.json"], "toolhop", revision=TOOLHOP_REVISION)
    if place.is_dir():
        place = _within(place, "ToolHop.json")
    documents: dict[str, Document] = {}
    functions: dict[str, tuple[tuple[str, ...], str]] = {}

    def task(number: int, row: Row) -> Task | None:
        tools, sources = row.get("tools"), row.get("functions")
        question, answer = _text(row.get("question")), _text(row.get("answer"))
        if not question or not answer or not tools or not sources:
            return None
        for document in tools.values():
            name = _free_name(document["name"], functions)
            functions[name] = (tuple(map(str, sources)), document["name"])
            documents[name] = {**document, "name": name}
        name, subject = f"toolhop-{row.get('id', number)}", _text(row.get("domain"))
        return Task(name, f"{question}\n{_FORM}", (answer,), source="toolhop", category=subject)

    return _tool_set("toolhop", read_rows(place), task, documents, functions)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()  # an answer may be the number 0


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with the first free number behind it if it is taken."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


# API-Bank. The hub has rows:
#
#     level-1-api.json, level-2-api.json            file, id, instruction, input, expected_output
#     level-1-response.json, level-2-response.json  the same columns; they tell what requests returned
#     level-3.json                                  requirement, response, apis (api_name, input, output)
#
# `instruction` has the documents of the APIs, one JSON object per line, `input` the dialogue with the requests so far,
# and `expected_output` the next request, as "API-Request: [Name(key='value')]".

API_BANK, API_BANK_REVISION = "liminghao1630/API-Bank", "12e8158b7628c168f07e8f31fbbe3445e99f44cf"
API_BANK_FILES = tuple(f"level-{name}.json" for name in ("1-api", "1-response", "2-api", "2-response", "3"))
LEVELS = ("1", "2", "3")
_SEARCHER = "ToolSearcher"  # API-Bank's own search of its APIs
_API_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}
_API_TYPES["list(str)"] = "array"
_ASKED = (
    "Here is a dialogue of a user and an assistant. The current year is 2023. Make the API call that comes next, and "
    "then answer \\boxed{done}."
)
_DO = "Do this with API calls, in their order, and then answer \\boxed{done}."
_REQUEST, _ASKS = "API-Request:", "Generate API Request:"
_CALL = re.compile(r"\[?(\w+)\((.*)\)\]?", re.DOTALL)
# a value may hold quotes of its own, so that it ends where the next key begins or at the end
_ARGUMENT = re.compile(r"(\w+)='(.*?)'(?=, \w+='|$)", re.DOTALL)
GoldCall = tuple[str, Mapping[str, Any]]  # name and arguments, as JSON has them


@dataclass(frozen=True)
class ApiBankSource(ToolSetSource):
    """The tasks of API-Bank, with what calls returned by name and arguments (`_key`)."""

    recorded: dict[str, str] = field(default_factory=dict)

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what is recorded for a call; a ValueError if nothing is."""
        found = self.recorded.get(_key(name, arguments))
        if found is None:
            raise ValueError("the API has nothing for these arguments")
        return found


def load_api_bank(*, data: str | Path | None = None, level: int | str | None = None) -> ApiBankSource:
    """Return API-Bank from the hub, or from a local folder or file of the hub's form.

    Rows whose request cannot be read, or whose API has no document, are counted in `left_out`. Requests of API-Bank's
    own search are no tasks and are not counted. `level` is 1, 2 or 3, or several as in "1,2"; None means all.

    Raises:
        ValueError: there is no such level.
        DataFileError: there is no task in the files.
        HubError: the hub cannot be reached; the message says how to do without.
    """
    levels = [part.strip() for part in str(level).split(",")] if level is not None else list(LEVELS)
    if unknown := [one for one in levels if one not in LEVELS]:
        raise ValueError(f"API-Bank has the levels {', '.join(LEVELS)}; not {unknown[0]!r}")
    place = place_of("apibank", data)
    if place is None:
        paths = [f"test-data/{name}" for name in API_BANK_FILES]
        place = hub_files(API_BANK, paths, "apibank", revision=API_BANK_REVISION)
    documents: dict[str, Document] = {}
    recorded: dict[str, str] = {}
    asked = []
    files = [place] if place.is_file() else [one for one in sorted(place.rglob("*.json")) if one.name in API_BANK_FILES]
    for file in files:
        known = next(iter(re.findall(r"level-(\d)", file.name)), "")
        for number, (_, row) in enumerate(read_rows(file)):
            _note(row, documents, recorded)
            if (not known or known in levels) and "response" not in file.stem and not _is_search(row):
                asked.append((f"apibank-{file.stem}-{number}", known, row))
    made = [_request_task(documents, *one) for one in asked]
    tasks = [task for task in made if task]
    if not tasks:
        raise DataFileError(
            f"{place}: no row of level {', '.join(levels)} that can be played ({len(made)} cannot). Give a folder with "
            f"{', '.join(API_BANK_FILES)}"
        )
    return ApiBankSource(tasks, list(documents.values()), len(made) - len(tasks), recorded=recorded)


def _note(row: Row, documents: dict[str, Document], recorded: dict[str, str]) -> None:
    """Take up the documents of a row, and what requests in it returned; of two versions the first counts."""
    told = [_json(line) for line in str(row.get("instruction") or "").splitlines() if line.startswith("{")]
    for line in str(row.get("input") or "").splitlines():
        call, arrow, result = line.partition("]->")
        if arrow and line.startswith(_REQUEST) and (gold := _request(call + "]")):
            recorded.setdefault(_key(*gold), result)
    for step in row.get("apis") or ():
        output = step.get("output")
        output = output.get("output") if isinstance(output, Mapping) else output
        if step["api_name"] == _SEARCHER:
            told.append(output)
        else:
            recorded.setdefault(_key(step["api_name"], step["input"]), json.dumps(output, ensure_ascii=False))
    for document in told:
        if isinstance(document, Mapping) and document.get("name") not in (None, _SEARCHER):
            documents.setdefault(document["name"], _api_function(document))


def _api_function(value: Mapping[str, Any]) -> Document:
    properties = {
        key: {
            # the dialogues write numbers as text as well
            "type": list(dict.fromkeys([_API_TYPES.get(str(one.get("type")), "string"), "string"])),
            "description": str(one.get("description", "")),
        }
        for key, one in value.get("input_parameters", {}).items()
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return {"name": value["name"], "description": str(value.get("description", "")), "parameters": schema}


def _request(text: str) -> GoldCall | None:
    """Return the call of "API-Request: [Name(key='value')]"; None if it cannot be read."""
    found = _CALL.fullmatch(text.strip().removeprefix(_REQUEST).strip())
    if not found:
        return None
    name, inner = found.groups()
    try:
        call = ast.parse(f"f({inner})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        arguments = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
        json.dumps(arguments)  # the form of a task's answer, which has no sets or bytes
        return name, arguments
    except (SyntaxError, TypeError, ValueError, RecursionError):
        pairs = _ARGUMENT.findall(inner)
        whole = ", ".join(f"{key}='{value}'" for key, value in pairs) == inner
        return (name, dict(pairs)) if pairs and whole else None


def _is_search(row: Row) -> bool:
    gold = None if "apis" in row else _request(str(row.get("expected_output") or ""))
    return gold is not None and gold[0] == _SEARCHER


def _request_task(documents: Mapping[str, Document], name: str, level: str, row: Row) -> Task | None:
    if "apis" in row:
        made = [(step["api_name"], step["input"]) for step in row["apis"] if step["api_name"] != _SEARCHER]
        asked = f"{str(row.get('requirement') or '').strip()}\n\n{_DO}"
    else:
        gold = _request(str(row.get("expected_output") or ""))
        made = [gold] if gold else []
        asked = f"{_ASKED}\n\n{str(row.get('input') or '').strip().removesuffix(_ASKS).strip()}"
    calls = [{"name": call, "arguments": dict(arguments)} for call, arguments in made]
    if not calls or not all(_has(documents, call["name"], call["arguments"]) for call in calls):
        return None
    answer = json.dumps(calls if len(calls) > 1 else calls[0], ensure_ascii=False)
    return Task(name, asked, (answer,), source="apibank", level=level)


def _has(documents: Mapping[str, Document], name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether there is a document of the API, with these parameters."""
    return name in documents and arguments.keys() <= documents[name]["parameters"]["properties"].keys()


# 51 turns are DeepAgent's 50 actions, and the answer
_spec = functools.partial(
    EnvSpec,
    tools=("tool_search",),
    protocol="deepagent",
    scorer="em",
    max_turns=51,
    max_tool_calls=50,
    tool_timeout=60.0,
    splits=(),
)
_PATH = {"accuracy": (right_path, 1.0), "right_calls": (gold_calls, 0.0)}
_TOOLS = {"accuracy": (right_tools, 1.0), "right_calls": (gold_calls, 0.0)}
_MOVIES = "RestBench: instructions for a movie database, by gold paths of calls"
_MUSIC = "RestBench: instructions for a music player, by gold paths of calls"
_RAPID = "instructions for APIs of RapidAPI, by the relevant ones"
_HOPS = "questions of three to seven hops over Python tools"
_NEXT = "the next API call of a dialogue (level 3: all calls of a task), compared with the gold calls"
TOOL_SETS = (
    _spec("arpo/ToolHop-v0", "toolhop", _HOPS, scorer="qa", tool_timeout=10.0, size="995", licence="CC BY 4.0"),
    _spec("arpo/TMDB-v0", "tmdb", _MOVIES, reward=_PATH, size="100", licence="MIT"),
    _spec("arpo/Spotify-v0", "spotify", _MUSIC, reward=_PATH, size="57", licence="MIT"),
    _spec("arpo/ToolBench-v0", "toolbench", _RAPID, reward=_TOOLS, size="1,100", licence="Apache-2.0"),
    _spec(
        "arpo/APIBank-v0",
        "apibank",
        _NEXT,
        reward=_PATH,
        levels=LEVELS,
        max_turns=11,
        max_tool_calls=10,
        tool_timeout=10.0,
        size="526",
        licence="MIT",
    ),
)
_LOADERS: dict[str, Callable[..., ToolSetSource]] = {
    "toolhop": load_toolhop,
    "tmdb": functools.partial(load_restbench, "tmdb"),
    "spotify": functools.partial(load_restbench, "spotify"),
    "toolbench": load_toolbench,
    "apibank": load_api_bank,
}

register(TOOL_SETS)
for _source, _load in _LOADERS.items():
    register_source(_source, _load)
