"""Sets whose tools have to be found: ToolHop, RestBench (TMDB, Spotify), ToolBench and API-Bank.

The APIs of RestBench and ToolBench cost keys, change and break, so a model plays them (`tool_model`). Their questions
have no gold answers but gold calls, which are checked without a judge: RestBench's "correct path" (the gold calls are a
subsequence of those that were made), and for ToolBench whether all APIs that are named as relevant were called.
ToolHop's tools are Python functions, which run in the sandbox.

API-Bank has dialogues with calls of APIs. A task shows a dialogue up to a call, with the calls before it and what they
returned, and asks for the next one; tasks of level 3 take several calls. A call that is recorded returns what is
recorded; any other is an error that is told, since the databases behind the APIs are not here. Calls of API-Bank's own
`ToolSearcher` are no tasks: that is what `tool_search` does.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.hub import HubError, hub_files, hub_rows
from envs_registry.datasets.rows import READERS, ROOT_VARIABLE, DataFileError, Row, Rows, place_of, read_rows, variable
from envs_registry.sources import ListSource, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

Document = dict[str, Any]  # of a tool: "name", "description", "parameters", "category"

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
    kind, told = _followed(spec, schema).get("type"), _as_text(schema, "description")
    return {"type": kind if kind in _TYPES else "string", "description": told[:_LONGEST_DESCRIPTION]}


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


@dataclass(frozen=True)
class ToolSetSource(ListSource):
    """The tasks of a set and its tools.

    Attributes:
        tool_documents: documents of all tools.
        left_out: number of rows without a usable question, answer or tool.
        functions: Python functions by the name of a tool: its source, with what it needs, and its name there.
    """

    tool_documents: list[Document] = field(default_factory=list)
    left_out: int = 0
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


def _converted(rows: Rows, convert: Callable[[int, Row], Task | None]) -> tuple[list[Task], int]:
    """Return the tasks of rows, and how many have none."""
    made = [convert(number, row) for number, (_, row) in enumerate(rows)]
    return [task for task in made if task], made.count(None)


def _some(source: ToolSetSource, name: str) -> ToolSetSource:
    if not source.tasks:
        raise DataFileError(f"{name}: none of {source.left_out} rows has a question, a gold answer or path, and tools")
    return source


RESTBENCH = "https://github.com/Yifan-Song793/RestGPT"
TOOLBENCH_HUB = "tuandunghcmut/toolbench-v1"  # a copy; ToolBench itself is on a drive
TOOLBENCH_SPLITS = ("g1_instruction", "g1_category", "g1_tool", "g2_instruction", "g2_category", "g3_instruction")


def load_restbench(name: str, *, data: str | Path | None = None) -> ToolSetSource:
    """Return a scenario of RestBench from a folder with `NAME.json` and `NAME_oas.json`.

    Rows have the columns query and solution; the calls are operations of an OpenAPI document.
    """
    folder = place_of(name, (name, "restbench"), data)
    if folder is None:
        raise HubError(
            f"{name} is not on the hub: `git clone {RESTBENCH}` (MIT) and give data='RestGPT', or any folder with "
            f"{name}.json and {name}_oas.json; or set {variable(name)} to it, or {ROOT_VARIABLE} to a folder with it"
        )
    rows, spec = (_within(folder if folder.is_dir() else folder.parent, f"{name}{end}.json") for end in ("", "_oas"))
    try:
        functions = openapi_functions(json.loads(spec.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DataFileError(f"{spec}: is not JSON ({error})") from error

    def task(number: int, row: Row) -> Task | None:
        query, path = _text(row.get("query")), row.get("solution")
        calls = [functions.get(" ".join(str(call).split())) for call in path] if isinstance(path, list) else []
        if not query or not calls or None in calls:
            return None
        return Task(f"{name}-{number}", query, (_BETWEEN.join(call["name"] for call in calls if call),), source=name)

    tasks, left_out = _converted(read_rows(rows), task)
    return _some(ToolSetSource(tasks, list(functions.values()), left_out), name)


def load_toolbench(*, data: str | Path | None = None) -> ToolSetSource:
    """Return instructions of ToolBench from a file such as G1_instruction.json, a folder of such, or the hub.

    Rows have the columns query, api_list and "relevant APIs" (pairs of tool and API). The copy on the hub calls the
    last one `relevant_apis`, and has both lists as JSON texts.
    """
    place = place_of("toolbench", ("toolbench",), data)
    if place is None:
        columns = ("query", "query_id", "api_list", "relevant_apis")
        rows, _ = hub_rows(TOOLBENCH_HUB, ("benchmark",), "+".join(TOOLBENCH_SPLITS), columns, "toolbench")
    else:
        files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.suffix in READERS)
        rows = [row for file in files for row in read_rows(file)]
    documents: dict[str, Document] = {}

    def task(number: int, row: Row) -> Task | None:
        for document in _rapid_functions(_listed(row.get("api_list"))):
            documents.setdefault(document["name"], document)
        pairs = filter(None, map(_pair, _listed(row.get("relevant APIs") or row.get("relevant_apis"))))
        names = [rapid_name(api, tool) for tool, api in pairs]
        query = _text(row.get("query"))
        if not query or not names or not all(name in documents for name in names):
            return None
        name = f"toolbench-{row.get('query_id', number)}-{number}"
        return Task(name, query, (_BETWEEN.join(names),), source="toolbench")

    tasks, left_out = _converted(rows, task)
    return _some(ToolSetSource(tasks, list(documents.values()), left_out), "toolbench")


def _listed(value: Any) -> list[Any]:
    """Return a list, or the list that a JSON text holds; an empty one for anything else."""
    value = _json(value) if isinstance(value, str) else value
    return value if isinstance(value, list) else []


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _pair(value: Any) -> tuple[str, str] | None:
    """Return the names of a tool and of one of its APIs; None if it has another form."""
    if isinstance(value, Mapping):
        value = [value.get("tool_name"), value.get("api_name")]
    return (str(value[0]), str(value[1])) if isinstance(value, list) and len(value) == 2 else None


def _rapid_functions(rows: list[Any]) -> Iterator[Document]:
    for row in rows:
        try:
            yield rapid_function(row)
        except (ValueError, AttributeError):
            continue  # a document that cannot be read; a task that needs it is left out


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
    """Return ToolHop from `data` (ToolHop.json, or a folder with it), the variables of local files, or the hub.

    A row has question, answer, tools (sub-questions to documents of tools), functions (Python sources, each with a
    function and often an example of its use) and domain. Many tools of different rows share a name; from the second on
    they get a number, so that each can be called.

    Raises:
        DataFileError: the file is broken, or no row can be played.
        HubError: the hub cannot be reached; the message says how to do without.
    """
    place = place_of("toolhop", ("toolhop",), data)
    if place is None:
        place = hub_files(TOOLHOP, ["data/ToolHop.json"], "toolhop", revision=TOOLHOP_REVISION)
    if place.is_dir():
        files = [path for path in place.rglob("*") if path.suffix in READERS and path.stem.casefold() == "toolhop"]
        if not files:
            raise DataFileError(f"{place}: no file named toolhop ({', '.join(READERS)})")
        place = min(files)
    documents: list[Document] = []
    functions: dict[str, tuple[tuple[str, ...], str]] = {}

    def task(number: int, row: Row) -> Task | None:
        tools, sources = row.get("tools"), row.get("functions")
        usable = list(filter(_is_document, tools.values())) if isinstance(tools, Mapping) else []
        question, answer = _text(row.get("question")), _text(row.get("answer"))
        if not question or not answer or not usable or not isinstance(sources, list):
            return None
        for document in usable:
            name = _free_name(document["name"], functions)
            functions[name] = (tuple(map(str, sources)), document["name"])
            documents.append({**document, "name": name})
        name, subject = f"toolhop-{row.get('id', number)}", _text(row.get("domain"))
        return Task(name, f"{question}\n{_FORM}", (answer,), source="toolhop", category=subject)

    tasks, left_out = _converted(read_rows(place), task)
    return _some(ToolSetSource(tasks, documents, left_out, functions), "toolhop")


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


# API-Bank. The hub has rows:
#
#     level-1-api.json, level-2-api.json            file, id, instruction, input, expected_output
#     level-1-response.json, level-2-response.json  the same columns; they tell what requests returned
#     level-3.json                                  requirement, response, apis (api_name, input, output)
#
# `instruction` has the documents of the APIs, one JSON object per line, `input` the dialogue with the requests so far,
# and `expected_output` the next request, as "API-Request: [Name(key='value')]". The paper's repository has dialogues
# (*.jsonl) and Python files.

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
    """The tasks of API-Bank.

    Attributes:
        recorded: what calls returned, by name and arguments (`_key`).
    """

    recorded: dict[str, str] = field(default_factory=dict)

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what is recorded for a call.

        Raises:
            ValueError: nothing is.
        """
        found = self.recorded.get(_key(name, arguments))
        if found is None:
            raise ValueError("the API has nothing for these arguments")
        return found

    def document(self, value: Any) -> None:
        """Take up a document of an API, in API-Bank's form; of two versions the first counts."""
        if not isinstance(value, Mapping) or not value.get("name") or value["name"] == _SEARCHER:
            return
        given, name = value.get("input_parameters"), str(value["name"])
        if not isinstance(given, Mapping) or any(known["name"] == name for known in self.tool_documents):
            return
        properties = {
            key: {
                # the dialogues write numbers as text as well
                "type": list(dict.fromkeys([_API_TYPES.get(str(one.get("type")), "string"), "string"])),
                "description": str(one.get("description", "")),
            }
            for key, one in given.items()
            if isinstance(one, Mapping)
        }
        schema = {"type": "object", "properties": properties, "required": []}
        told = str(value.get("description", ""))
        self.tool_documents.append({"name": name, "description": told, "parameters": schema})

    def has(self, call: GoldCall) -> bool:
        """Return whether there is a document of the API, with these parameters."""
        schemas = (known["parameters"] for known in self.tool_documents if known["name"] == call[0])
        return any(call[1].keys() <= schema["properties"].keys() for schema in schemas)

    def record(self, call: GoldCall, result: str) -> None:
        """Take up what a call returned; of two results the first counts."""
        self.recorded.setdefault(_key(*call), result)


def load_api_bank(*, data: str | Path | None = None, level: int | str | None = None) -> ApiBankSource:
    """Return API-Bank from the hub, or from a local file or folder.

    Args:
        data: a folder with files of the hub such as `level-1-api.json`, one such file, or a folder with dialogues
            (*.jsonl) and the Python files of the APIs.
        level: 1, 2 or 3, or several as in "1,2"; None means all. Dialogues have no levels.

    Raises:
        ValueError: there is no such level.
        DataFileError: there is no task in the files; the message says what is missing.
        HubError: the hub cannot be reached; the message says how to do without.
    """
    levels = [part.strip() for part in str(level).split(",")] if level is not None else list(LEVELS)
    if unknown := [one for one in levels if one not in LEVELS]:
        raise ValueError(f"API-Bank has the levels {', '.join(LEVELS)}; not {unknown[0]!r}")
    place = place_of("apibank", ("apibank", "api-bank"), data)
    if place is None:
        paths = [f"test-data/{name}" for name in API_BANK_FILES]
        place = hub_files(API_BANK, paths, "apibank", revision=API_BANK_REVISION)
    if place.is_dir() and any(place.rglob("*.jsonl")):
        if level is not None:
            first = API_BANK_FILES[0]
            raise ValueError(f"{place}: dialogues have no levels; leave `level` out, or give the folder of {first}")
        source = _read_dialogues(place)
    else:
        every = [place] if place.is_file() else sorted(place.rglob("*.json"))
        source = _read_requests([file for file in every if file == place or file.name in API_BANK_FILES], levels)
    if not source.tasks:
        raise DataFileError(
            f"{place}: no dialogue and no row of level {', '.join(levels)} that can be played ({source.left_out} "
            f"cannot). Give a folder with {', '.join(API_BANK_FILES)}, or with dialogues (*.jsonl) and the APIs' "
            "Python files"
        )
    return source


def _api_task(name: str, question: str, gold: Sequence[GoldCall], level: str = "") -> Task:
    calls = [{"name": call, "arguments": dict(arguments)} for call, arguments in gold]
    answer = json.dumps(calls if len(calls) > 1 else calls[0], ensure_ascii=False)
    return Task(name, question, (answer,), source="apibank", level=level)


def _read_requests(files: Sequence[Path], levels: Sequence[str]) -> ApiBankSource:
    """Return the tasks of the hub's files, of these levels.

    Rows whose request cannot be read, or whose API has no document, are counted in `left_out`. Requests of API-Bank's
    own search are no tasks and are not counted.
    """
    source, asked = ApiBankSource([]), []
    for file in files:
        level = next(iter(re.findall(r"level-(\d)", file.name)), "")
        for number, (_, row) in enumerate(read_rows(file)):
            _note(source, row)
            if (not level or level in levels) and "response" not in file.stem:
                asked.append((f"apibank-{file.stem}-{number}", level, row))
    made = [_request_task(source, *one) for one in asked if not _is_search(one[2])]
    tasks = [task for task in made if task]
    return ApiBankSource(tasks, source.tool_documents, len(made) - len(tasks), recorded=source.recorded)


def _note(source: ApiBankSource, row: Row) -> None:
    """Take up the documents of a row, and what requests in it returned."""
    for line in str(row.get("instruction") or "").splitlines():
        source.document(_json(line) if line.startswith("{") else None)
    for line in str(row.get("input") or "").splitlines():
        call, arrow, result = line.partition("]->")
        if arrow and line.startswith(_REQUEST) and (gold := _request(call + "]")):
            source.record(gold, result)
    for step in _steps(row):
        output = step.get("output")
        output = output.get("output") if isinstance(output, Mapping) else output
        if step.get("api_name") == _SEARCHER:
            source.document(output)
        elif gold := _step_call(step):
            source.record(gold, json.dumps(output, ensure_ascii=False))


def _steps(row: Row) -> list[Mapping[str, Any]]:
    apis = row.get("apis")
    return [step for step in apis if isinstance(step, Mapping)] if isinstance(apis, list) else []


def _step_call(step: Mapping[str, Any]) -> GoldCall | None:
    name, given = step.get("api_name"), step.get("input")
    return (name, given) if isinstance(name, str) and name != _SEARCHER and isinstance(given, Mapping) else None


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


def _request_task(source: ApiBankSource, name: str, level: str, row: Row) -> Task | None:
    if "apis" in row:
        calls = [call for step in _steps(row) if (call := _step_call(step))]
        asked = str(row.get("requirement") or "").strip()
        playable = asked and calls and all(map(source.has, calls))
        return _api_task(name, f"{asked}\n\n{_DO}", calls, level) if playable else None
    gold = _request(str(row.get("expected_output") or ""))
    shown = str(row.get("input") or "").strip().removesuffix(_ASKS).strip()
    return _api_task(name, f"{_ASKED}\n\n{shown}", [gold], level) if gold and shown and source.has(gold) else None


def _read_dialogues(folder: Path) -> ApiBankSource:
    """Return the tasks of all dialogues (*.jsonl) of a folder; documents are those of its Python files."""
    source = ApiBankSource([])
    for file in sorted(folder.rglob("*.py")):
        for document in _class_documents(file):
            source.document(document)
    tasks: dict[tuple[str, str], Task] = {}  # once each: some dialogues stand in two folders
    left_out = 0
    for file in sorted(folder.rglob("*.jsonl")):
        turns = _turns(file)
        if turns is None:
            left_out += 1
            continue
        for number, turn in enumerate(turns):
            if turn.get("role") != "API" or turn["api_name"] == _SEARCHER:
                continue
            gold = turn["api_name"], turn["param_dict"]
            if not number or not source.has(gold):
                left_out += 1
                continue
            source.record(gold, _result(turn))
            before = "\n".join(map(_shown, turns[:number]))
            name = f"apibank-{file.parent.name}-{file.stem}-{number}"
            task = _api_task(name, f"{_ASKED}\n\n{before}", [gold])
            tasks.setdefault((task.question, task.answers[0]), task)
    return ApiBankSource(list(tasks.values()), source.tool_documents, left_out, recorded=source.recorded)


def _shown(turn: Mapping[str, Any]) -> str:
    if turn.get("role") != "API":
        return f"{turn.get('role')}: {turn.get('text')}"
    name, arguments = turn["api_name"], json.dumps(turn["param_dict"], ensure_ascii=False)
    return f"API: {name}({arguments})" + (f" returned {_result(turn)}" if name != _SEARCHER else "")


def _result(turn: Mapping[str, Any]) -> str:
    result = turn.get("result")
    shown = result.get("exception") or result.get("output") if isinstance(result, Mapping) else result
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _turns(file: Path) -> list[dict[str, Any]] | None:
    """Return the turns of a dialogue, or None if one of them cannot be read."""
    turns = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            turn = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            return None
        if turn is None:
            continue
        if not isinstance(turn, dict) or (turn.get("role") == "API" and not _is_call(turn)):
            return None
        turns.append(turn)
    return turns


def _is_call(turn: Mapping[str, Any]) -> bool:
    return isinstance(turn.get("api_name"), str) and isinstance(turn.get("param_dict"), dict)


def _class_documents(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of the classes of a Python file, which is parsed and never run."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            values = dict(_assigned(node))
            if isinstance(values.get("description"), str):
                yield {**values, "name": node.name}


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                yield statement.targets[0].id, ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                continue


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
