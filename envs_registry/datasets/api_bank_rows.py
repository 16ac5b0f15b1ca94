"""API-Bank as the Hugging Face hub has it: rows of a prompt and the request that comes next, and whole tasks.

    level-1-api.json, level-2-api.json            file, id, instruction, input, expected_output
    level-1-response.json, level-2-response.json  the same columns; they tell what requests returned
    level-3.json                                  requirement, response, apis (api_name, input, output)

`instruction` has the documents of the APIs, one JSON object per line, `input` the dialogue with the requests so far,
and `expected_output` the next request, as "API-Request: [Name(key='value')]".
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs_registry.datasets.api_bank_calls import (
    SEARCHER,
    ApiBankSource,
    Calls,
    GoldCall,
    api_document,
    dialogue_task,
    fits,
    whole_task,
)
from envs_registry.datasets.data_files import Row, read_rows
from envs_registry.task import Task

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
