"""API-Bank: dialogues with calls of APIs, each call a task of its own, and tasks that take several calls.

A task shows a dialogue up to a call, with the calls before it and what they returned, and asks for the next one. It is
solved if the gold call is made, with equal arguments. A call that a dialogue has recorded returns what is recorded
there; any other call is an error that is told, since the databases behind the APIs are not here. Calls of API-Bank's
own `ToolSearcher` are no tasks: that is what `tool_search` does.

The hub has rows (`api_bank_rows`). The paper's repository has dialogues and Python files, which are read here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envs_registry.datasets import api_bank_rows
from envs_registry.datasets.api_bank_calls import (
    SEARCHER,
    ApiBankSource,
    Calls,
    GoldCall,
    api_document,
    dialogue_task,
    fits,
    right_call,
    right_calls,
)
from envs_registry.datasets.api_bank_rows import FILES, LEVELS, read_api_bank_rows
from envs_registry.datasets.data_files import DataFileError
from envs_registry.datasets.hub import hub_files
from envs_registry.datasets.local_files import place_of
from envs_registry.sources import register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Task


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
        place = hub_files(api_bank_rows.HUB, paths, "apibank", revision=api_bank_rows.REVISION)
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
