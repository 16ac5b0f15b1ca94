"""API-Bank: dialogues with calls of APIs, each call a task of its own.

A task shows a dialogue up to a call, with the calls before it and what they returned, and asks for the next one. It is
solved if the gold call is made, with equal arguments. A call that a dialogue has recorded returns what is recorded
there; any other call is an error that is told, since the databases behind the APIs are not here. Calls of API-Bank's
own `ToolSearcher` are no tasks: that is what `tool_search` does.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import DataFileError
from envs_registry.datasets.hub import HubError
from envs_registry.datasets.local_files import place_of, variable
from envs_registry.datasets.tool_sets import ToolSetSource
from envs_registry.sources import register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task

_SEARCHER = "ToolSearcher"
_TYPES = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "list(str)": "array",
}
_ASKED = (
    "Here is a dialogue of a user and an assistant. Make the API call that comes next, and then answer \\boxed{done}."
)
Calls = dict[tuple[str, str], str]


@dataclass(frozen=True)
class ApiBankSource(ToolSetSource):
    """The calls of a folder of dialogues.

    Attributes:
        recorded: what calls returned, by name and arguments.
    """

    recorded: Calls = field(default_factory=dict)

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what is recorded for a call.

        Raises:
            ValueError: nothing is.
        """
        found = self.recorded.get((name, _plain(arguments)))
        if found is None:
            raise ValueError("the API has nothing for these arguments")
        return found


def right_call(episode: Any) -> float:
    """Return 1 if the gold call of the task was made, else 0; arguments are compared as text."""
    gold = json.loads(episode.task.answers[0])
    wanted = (gold["name"], _plain(gold["arguments"]))
    made = [call for turn in episode.turns for call in turn.calls if call.status == "ok"]
    return float(any((call.name, _plain(call.arguments)) == wanted for call in made))


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
            if turn.get("role") != "API" or turn["api_name"] == _SEARCHER:
                continue
            if not number or not _fits(turn, documents):
                left_out += 1
                continue
            recorded.setdefault((turn["api_name"], _plain(turn["param_dict"])), _result(turn))
            task = _task(f"apibank-{file.parent.name}-{file.stem}-{number}", turns[:number], turn)
            tasks.setdefault((task.question, task.answers[0]), task)
    if not tasks:
        raise DataFileError(f"{folder}: no dialogue with a call of an API whose Python file is there")
    return ApiBankSource(list(tasks.values()), list(documents.values()), left_out, recorded=recorded)


def load(*, data: str | Path | None = None) -> ApiBankSource:
    """Return API-Bank from a folder with its dialogues (*.jsonl) and the Python files of its APIs."""
    folder = place_of("apibank", ("apibank", "api-bank"), data)
    if folder is None or not folder.is_dir():
        raise HubError(
            "apibank is not loaded from the hub: give data=, a folder with its dialogues (*.jsonl) and the Python "
            f"files of its APIs (as in data/API-Bank of github.com/RUC-NLPIR/DeepAgent), or set {variable('apibank')}"
        )
    return read_dialogues(folder)


def _fits(call: Mapping[str, Any], documents: Mapping[str, Any]) -> bool:
    """Return whether there is a document of the API, with these parameters."""
    document = documents.get(call["api_name"])
    return document is not None and call["param_dict"].keys() <= document["parameters"]["properties"].keys()


def _task(name: str, before: list[dict[str, Any]], gold: Mapping[str, Any]) -> Task:
    shown = "\n".join(map(_shown, before))
    answer = json.dumps({"name": gold["api_name"], "arguments": gold["param_dict"]}, ensure_ascii=False)
    return Task(name, f"{_ASKED}\n\n{shown}", (answer,), source="apibank")


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


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of the classes of a Python file, which is parsed and never run."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name != _SEARCHER:
            values = dict(_assigned(node))
            if isinstance(values.get("description"), str) and isinstance(values.get("input_parameters"), dict):
                yield _document(node.name, values["description"], values["input_parameters"])


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                yield statement.targets[0].id, ast.literal_eval(statement.value)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                continue


def _document(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
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


def _plain(arguments: Mapping[str, Any]) -> str:
    """Return arguments in the form in which they are compared."""
    return json.dumps({key: str(value).strip() for key, value in sorted(arguments.items())}, ensure_ascii=False)


API_BANK = EnvSpec(
    id="arpo/APIBank-v0",
    source="apibank",
    description="the next API call of a dialogue, compared with the gold call",
    tools=("tool_search",),
    protocol="deepagent",
    reward={"accuracy": (right_call, 1.0), "right_calls": (right_call, 0.0)},
    scorer="em",
    max_turns=11,
    max_tool_calls=10,
    splits=(),
    size="a folder",
    licence="MIT",
)


def register_api_bank() -> None:
    """Register the environment and its task source."""
    register([API_BANK])
    register_source("apibank", load)
