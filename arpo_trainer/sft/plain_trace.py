"""`Trace`: one solved task as plain text, turn by turn, and `DroppedRow`: why a row is not trained on.

Every reader of `trace_formats` yields traces. Each piece of text is known to be the model's or the environment's.

    Trace("You are ...", "What is 2 + 2?", (ModelTurn("<python>print(2 + 2)</python>"), ToolResults(("4",)), ...))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_env.tools.tool import JsonSchema

CAUSES = {
    "not a row": "the line is no JSON object, or its fields have other types than the format says",
    "unknown role": "a message of a role that the format does not have",
    "no question": "no message of the user before the model's first turn",
    "second question": "the user speaks again; an episode has one question",
    "no model turn": "the model says nothing",
    "tags do not balance": "a tag is closed without being opened, or opened and not closed",
    "call cannot be parsed": "the protocol cannot read a call, or the tool or an argument does not exist",
    "call without result": "the model goes on after a call, and no result is shown",
    "result without call": "a result stands where nothing was called; the model may have written it itself",
    "cut off": "the last turn ends in the middle, or with a call",
    "no answer": "the last turn holds no answer",
    "answer before the end": "a turn that is not the last one answers",
    "too long": "more tokens than max_length",
    "other protocol": "the turns cannot be written in the protocol without changing their calls or the answer",
    "pictures seen": "an answer that needed pictures cannot be learnt from text alone",
    "reward too low": "a trajectory that scored less than min_reward, or that failed",
    "duplicate": "the same turns for the same task as in a row before",
    "enough of this task": "more than max_per_task trajectories of a task",
}


class DroppedRow(ValueError):
    """Raised for a row that is not trained on.

    Args:
        cause: a key of `CAUSES`.
        detail: what was found.
    """

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail or CAUSES[cause]}")
        self.cause = cause


@dataclass(frozen=True)
class ModelTurn:
    """What the model wrote up to a result or to the end.

    Attributes:
        text: the text; it contains the calls where the format writes them as text.
        calls: calls that the format holds apart from the text: name, and arguments as an object or as JSON text.
    """

    text: str
    calls: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class ToolResults:
    """The results of one turn's calls, one text per call, without tags."""

    texts: tuple[str, ...]


Turn = ModelTurn | ToolResults


@dataclass(frozen=True)
class SampledIds:
    """The token ids of a trace that was sampled here.

    Attributes:
        prompt: ids of the prompt.
        turns: ids of each turn, in the order of `Trace.turns`.
        texts: what the ids of each turn decoded to; another tokenizer is recognised by it.
    """

    prompt: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...]
    texts: tuple[str | None, ...]


@dataclass(frozen=True)
class Trace:
    """One solved task, or the part of it between two folds of the history.

    Attributes:
        system: the system prompt, or None if the row has none.
        question: the question; after a fold, with the memories behind it.
        turns: the turns of the model and the results, in order.
        protocol: the protocol that the texts of the turns are written in; "" if nothing in them tells.
        tools: schemas of the tools, if the row has them.
        ids: the sampled ids, if the trace comes from a rollout.
        reward: what the trajectory earned, if the trace comes from a rollout; None if it failed.
        cut: whether the last turn of a rollout ended at its limit of tokens.
        pictures: whether the model was shown pictures on the way.
        actions: schemas of the environment's own actions that a rollout used: `tool_search`, `fold_thought`.
        found: schemas of tools that were found before the history was folded; nothing in the turns shows them.
        task: id and question of the task, if the trace comes from a rollout: several tasks may have one question.
        trajectory: what the parts of one trajectory share, and no other one has.
    """

    system: str | None
    question: str
    turns: tuple[Turn, ...]
    protocol: str = ""
    tools: tuple[JsonSchema, ...] | None = None
    ids: SampledIds | None = None
    reward: float | None = None
    cut: bool = False
    pictures: bool = False
    actions: tuple[JsonSchema, ...] = ()
    found: tuple[JsonSchema, ...] = ()
    task: str = field(default="", compare=False)
    trajectory: object = field(default=None, compare=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages that open the episode."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": self.question}]


def text_of(row: Mapping[str, Any], name: str) -> str:
    """Return a text field of a row; "" if it is missing or null.

    Raises:
        DroppedRow: it holds something else.
    """
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DroppedRow("not a row", f"{name!r} holds {type(value).__name__}, not text")
    return value
