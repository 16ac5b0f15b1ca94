"""API-Bank: dialogues with calls of APIs, each call a task of its own, and tasks that take several calls.

A task shows a dialogue up to a call, with the calls before it and what they returned, and asks for the next one. It is
solved if the gold call is made, with equal arguments. A call that a dialogue has recorded returns what is recorded
there; any other call is an error that is told, since the databases behind the APIs are not here. Calls of API-Bank's
own `ToolSearcher` are no tasks: that is what `tool_search` does.

The hub has rows (`read_api_bank_rows`). The paper's repository has dialogues and Python files, which are read here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import DataFileError, Row, read_rows
from envs_registry.datasets.hub import hub_files, place_of
from envs_registry.datasets.tool_sets import ToolSetSource
from envs_registry.sources import register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

# Calls, documents and tasks of API-Bank, in the form that both of its releases are read into.
#
# The releases are dialogues with Python files and rows on the hub.

SEARCHER = "ToolSearcher"
"""API-Bank's own search of its APIs. Its calls are no tasks: that is what `tool_search` does."""
_TYPES = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "list(str)": "array",
}
_ASKED = (
    "Here is a dialogue of a user and an assistant. The current year is 2023. Make the API call that comes next, and "
    "then answer \\boxed{done}."
)
_DO = "Do this with API calls, in their order, and then answer \\boxed{done}."
Calls = dict[tuple[str, str], str]


@dataclass(frozen=True)
class GoldCall:
    """A call of an API with its arguments, as JSON has them."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """The name and the arguments, in the form in which calls are compared."""
        return self.name, plain(self.arguments)


@dataclass(frozen=True)
class ApiBankSource(ToolSetSource):
    """The tasks of API-Bank.

    Attributes:
        recorded: what calls returned, by name and arguments.
    """

    recorded: Calls = field(default_factory=dict)

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what is recorded for a call.

        Raises:
            ValueError: nothing is.
        """
        found = self.recorded.get((name, plain(arguments)))
        if found is None:
            raise ValueError("the API has nothing for these arguments")
        return found


def right_call(episode: Any) -> float:
    """Return 1 if the gold calls of the task were made, in order, else 0; arguments are compared as text."""
    made = iter(_made(episode))
    return float(all(wanted in made for wanted in _wanted(episode)))


def right_calls(episode: Any) -> float:
    """Return how many of the gold calls were made."""
    made = _made(episode)
    return float(sum(wanted in made for wanted in set(_wanted(episode))))


def plain(arguments: Mapping[str, Any]) -> str:
    """Return arguments in the form in which they are compared."""
    return json.dumps({key: str(value).strip() for key, value in sorted(arguments.items())}, ensure_ascii=False)


def fits(call: GoldCall, documents: Mapping[str, Any]) -> bool:
    """Return whether there is a document of the API, with these parameters."""
    document = documents.get(call.name)
    return document is not None and call.arguments.keys() <= document["parameters"]["properties"].keys()


def dialogue_task(name: str, shown: str, gold: GoldCall, level: str = "") -> Task:
    """Return the task of the next call of a dialogue."""
    return _task(name, f"{_ASKED}\n\n{shown}", [gold], level)


def whole_task(name: str, requirement: str, gold: Sequence[GoldCall], level: str) -> Task:
    """Return the task of doing what a user requires, by several calls."""
    return _task(name, f"{requirement}\n\n{_DO}", gold, level)


def api_document(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of an API from API-Bank's own: parameters by name, each with a type and a description."""
    properties = {
        key: {
            # the dialogues write numbers as text as well
            "type": list(dict.fromkeys([_TYPES.get(str(one.get("type")), "string"), "string"])),
            "description": str(one.get("description", "")),
        }
        for key, one in parameters.items()
        if isinstance(one, Mapping)
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return {"name": name, "description": description, "parameters": schema}


def _task(name: str, question: str, gold: Sequence[GoldCall], level: str) -> Task:
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in gold]
    answer = json.dumps(calls if len(calls) > 1 else calls[0], ensure_ascii=False)
    return Task(name, question, (answer,), source="apibank", level=level)


def _wanted(episode: Any) -> list[tuple[str, str]]:
    gold = json.loads(episode.task.answers[0])
    return [GoldCall(**call).key for call in (gold if isinstance(gold, list) else [gold])]


def _made(episode: Any) -> list[tuple[str, str]]:
    return [(call.name, plain(call.arguments)) for turn in episode.turns for call in turn.calls if call.status == "ok"]


# API-Bank as the Hugging Face hub has it: rows of a prompt and the request that comes next, and whole tasks.
#
#     level-1-api.json, level-2-api.json            file, id, instruction, input, expected_output
#     level-1-response.json, level-2-response.json  the same columns; they tell what requests returned
#     level-3.json                                  requirement, response, apis (api_name, input, output)
#
# `instruction` has the documents of the APIs, one JSON object per line, `input` the dialogue with the requests so far,
# and `expected_output` the next request, as "API-Request: [Name(key='value')]".

HUB, REVISION = "liminghao1630/API-Bank", "12e8158b7628c168f07e8f31fbbe3445e99f44cf"
FILES = tuple(f"level-{name}.json" for name in ("1-api", "1-response", "2-api", "2-response", "3"))
LEVELS = ("1", "2", "3")
_REQUEST, _ASKS = "API-Request:", "Generate API Request:"
_CALL = re.compile(r"\[?(\w+)\((.*)\)\]?", re.DOTALL)
# a value may hold quotes of its own, so that it ends where the next key begins or at the end
_ARGUMENT = re.compile(r"(\w+)='(.*?)'(?=, \w+='|$)", re.DOTALL)


@dataclass
class _Reading:
    """What the files hold: documents by name, results, and rows that may become tasks."""

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    recorded: Calls = field(default_factory=dict)
    asked: list[tuple[str, str, Row]] = field(default_factory=list)  # name of the task, level, row


def read_api_bank_rows(files: Collection[Path], levels: Collection[str] = LEVELS) -> ApiBankSource:
    """Return the tasks of the files, of these levels.

    Rows whose request cannot be read, or whose API has no document, are counted in `left_out`. Requests of API-Bank's
    own search are no tasks and are not counted.
    """
    reading = _Reading()
    for file in files:
        level = next(iter(re.findall(r"level-(\d)", file.name)), "")
        for number, (_, row) in enumerate(read_rows(file)):
            _note(reading, row)
            if (not level or level in levels) and "response" not in file.stem:
                reading.asked.append((f"apibank-{file.stem}-{number}", level, row))
    made = [_tasks(reading, name, level, row) for name, level, row in reading.asked]
    tasks = [task for task in made if isinstance(task, Task)]
    left_out = sum(task is None for task in made)
    return ApiBankSource(tasks, list(reading.documents.values()), left_out, recorded=reading.recorded)


def request(text: str) -> GoldCall | None:
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
        return GoldCall(name, arguments)
    except (SyntaxError, TypeError, ValueError, RecursionError):
        pairs = _ARGUMENT.findall(inner)
        whole = ", ".join(f"{key}='{value}'" for key, value in pairs) == inner
        return GoldCall(name, dict(pairs)) if pairs and whole else None


def _note(reading: _Reading, row: Row) -> None:
    """Take up the documents of a row, and what requests in it returned."""
    for document in (*_described(row), *_searched(row)):
        if document["name"] != SEARCHER:
            reading.documents.setdefault(document["name"], document)
    for line in str(row.get("input") or "").splitlines():
        call, arrow, result = line.partition("]->")
        if arrow and line.startswith(_REQUEST) and (gold := request(call + "]")):
            reading.recorded.setdefault(gold.key, result)
    for gold, output in _steps(row):
        reading.recorded.setdefault(gold.key, json.dumps(output, ensure_ascii=False))


def _described(row: Row) -> Iterator[dict[str, Any]]:
    for line in str(row.get("instruction") or "").splitlines():
        try:
            found = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            continue
        yield from _document(found)


def _searched(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the documents that API-Bank's search returned in the steps of a task."""
    for step in _listed(row):
        output = step.get("output")
        if step.get("api_name") == SEARCHER and isinstance(output, Mapping):
            yield from _document(output.get("output"))


def _document(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, Mapping) and value.get("name") and isinstance(value.get("input_parameters"), Mapping):
        yield api_document(str(value["name"]), str(value.get("description", "")), value["input_parameters"])


def _steps(row: Row) -> Iterator[tuple[GoldCall, Any]]:
    for step in _listed(row):
        name, given, output = step.get("api_name"), step.get("input"), step.get("output")
        if isinstance(name, str) and name != SEARCHER and isinstance(given, Mapping):
            yield GoldCall(name, given), output.get("output") if isinstance(output, Mapping) else output


def _listed(row: Row) -> list[Mapping[str, Any]]:
    apis = row.get("apis")
    return [step for step in apis if isinstance(step, Mapping)] if isinstance(apis, list) else []


def _tasks(reading: _Reading, name: str, level: str, row: Row) -> Task | bool | None:
    """Return the task of a row, None if it cannot be played, False if it is a search."""
    if "apis" in row:
        calls = [call for call, _ in _steps(row)]
        asked = str(row.get("requirement") or "").strip()
        playable = asked and calls and all(fits(call, reading.documents) for call in calls)
        return whole_task(name, asked, calls, level) if playable else None
    gold = request(str(row.get("expected_output") or ""))
    if gold and gold.name == SEARCHER:
        return False
    shown = str(row.get("input") or "").strip().removesuffix(_ASKS).strip()
    playable = gold is not None and shown and fits(gold, reading.documents)
    return dialogue_task(name, shown, gold, level) if gold and playable else None


def read_dialogues(folder: Path) -> ApiBankSource:
    """Return the tasks of all dialogues (*.jsonl) of a folder; documents are those of its Python files (`apis`).

    Raises:
        DataFileError: the folder has no dialogue with a call, or no document.
    """
    documents: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.rglob("*.py")):
        for document in _documents(file):
            documents.setdefault(document["name"], document)  # of two versions of an API the first: `apis`, `lv3_apis`
    recorded: Calls = {}
    tasks: dict[tuple[str, str], Task] = {}  # once each: some dialogues stand in two folders
    left_out = 0
    for file in sorted(folder.rglob("*.jsonl")):
        turns = _turns(file)
        if turns is None:
            left_out += 1
            continue
        for number, turn in enumerate(turns):
            if turn.get("role") != "API" or turn["api_name"] == SEARCHER:
                continue
            gold = GoldCall(turn["api_name"], turn["param_dict"])
            if not number or not fits(gold, documents):
                left_out += 1
                continue
            recorded.setdefault(gold.key, _result(turn))
            before = "\n".join(map(_shown, turns[:number]))
            task = dialogue_task(f"apibank-{file.parent.name}-{file.stem}-{number}", before, gold)
            tasks.setdefault((task.question, task.answers[0]), task)
    if not tasks:
        raise DataFileError(f"{folder}: no dialogue with a call of an API whose Python file is there")
    return ApiBankSource(list(tasks.values()), list(documents.values()), left_out, recorded=recorded)


def load(*, data: str | Path | None = None, level: int | str | None = None) -> ApiBankSource:
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
        paths = [f"test-data/{name}" for name in FILES]
        place = hub_files(HUB, paths, "apibank", revision=REVISION)
    if place.is_dir() and any(place.rglob("*.jsonl")):
        if level is not None:
            raise ValueError(f"{place}: dialogues have no levels; leave `level` out, or give the folder of {FILES[0]}")
        return read_dialogues(place)
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*.json") if file.name in FILES)
    source = read_api_bank_rows(files, levels)
    if not source.tasks:
        raise DataFileError(
            f"{place}: no dialogue and no row of level {', '.join(levels)} that can be played ({source.left_out} "
            f"cannot). Give a folder with {', '.join(FILES)}, or with dialogues (*.jsonl) and the APIs' Python files"
        )
    return source


def _shown(turn: Mapping[str, Any]) -> str:
    if turn.get("role") != "API":
        return f"{turn.get('role')}: {turn.get('text')}"
    name, arguments = turn["api_name"], json.dumps(turn["param_dict"], ensure_ascii=False)
    return f"API: {name}({arguments})" + (f" returned {_result(turn)}" if name != SEARCHER else "")


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


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of the classes of a Python file, which is parsed and never run."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name != SEARCHER:
            values = dict(_assigned(node))
            if isinstance(values.get("description"), str) and isinstance(values.get("input_parameters"), dict):
                yield api_document(node.name, values["description"], values["input_parameters"])


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                yield statement.targets[0].id, ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                continue


API_BANK = EnvSpec(
    id="arpo/APIBank-v0",
    source="apibank",
    description="the next API call of a dialogue (level 3: all calls of a task), compared with the gold calls",
    tools=("tool_search",),
    protocol="deepagent",
    reward={"accuracy": (right_call, 1.0), "right_calls": (right_calls, 0.0)},
    scorer="em",
    max_turns=11,
    max_tool_calls=10,
    splits=(),
    levels=LEVELS,
    size="526",
    licence="MIT",
)


def register_api_bank() -> None:
    """Register the environment and its task source."""
    register([API_BANK])
    register_source("apibank", load)
