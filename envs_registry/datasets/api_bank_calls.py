"""Calls, documents and tasks of API-Bank, in the form that both of its releases are read into.

The releases are dialogues with Python files (`api_bank`) and rows on the hub (`api_bank_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs_registry.datasets.tool_sets import ToolSetSource
from envs_registry.task import Task

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
