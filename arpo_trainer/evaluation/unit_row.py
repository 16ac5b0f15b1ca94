"""`UnitRow`: the short record of one unit of an evaluation, which is what metrics, tables and views read.

A *unit* is what is played and stored as a whole: one sample of one task by one model, or one tree of samples. Its full
record is a `RolloutTree`; the row has the task, the scores, what was used, and the place of the tree in traces.jsonl.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from arpo_env.episode import FOLD
from arpo_trainer.timeline import Event
from arpo_trainer.tree import FAILED, WORKED, RolloutTree, Span

HELPER_TOKENS = ("context", "cached", "tokens")
# by the name of the error's class; what is not listed has its own name as its cause
_CAUSES = {
    **dict.fromkeys(("SandboxError", "SandboxUnavailable", "SandboxFull", "PythonExiting"), "sandbox"),
    **dict.fromkeys(("SessionLost", "ForkError", "SessionEnded", "ReplayError"), "sandbox"),
    **dict.fromkeys(("ServiceError", "CacheMiss", "CacheError", "ConnectionLost"), "search"),
    "GradingError": "judge",
    "GenerationError": "model",
}


@dataclass(frozen=True, order=True)
class UnitKey:
    """What identifies a unit.

    Attributes:
        model: the model's label in the run.
        env: the environment's label in the run.
        task: the task's id.
        sample: the number of the sample.
    """

    model: str
    env: str
    task: str
    sample: int = 0


@dataclass
class EpisodeEntry:
    """One trajectory of a unit.

    Attributes:
        reward: of the environment; None if the episode broke, so that it has no score.
        components: the reward's named parts, such as accuracy, em and f1.
        outcome: "answered", "no answer", "truncated" or "failed".
        error: what broke, or None.
        answer: the answer it gave, or None.
        calls: executed calls by tool.
        turns: turns of the model.
        tokens: tokens that the model generated along the path.
        context: tokens of context that its requests had, those from a cache included.
        cached: of them, tokens that came from a cache.
        seconds: from its start to its end.
        inference: uses of tools at inference time by name, and failures of them, as in "debugger failed".
        helper: of the model that helps these tools: "requests", and tokens as "context", "cached" (of it) and "tokens".
        counted: whether it is an independent sample (`RolloutTree.samples`). Branches and top-ups of a tree are in no
            score and no mean.
    """

    reward: float | None
    components: dict[str, float] = field(default_factory=dict)
    outcome: str = ""
    error: str | None = None
    answer: str | None = None
    calls: dict[str, int] = field(default_factory=dict)
    turns: int = 0
    tokens: int = 0
    context: int = 0
    cached: int = 0
    seconds: float = 0.0
    inference: dict[str, int] = field(default_factory=dict)
    helper: dict[str, int] = field(default_factory=dict)
    counted: bool = True

    @property
    def cause(self) -> str:
        """What broke it: "sandbox", "search", "judge", "model" or the name of the error; "" if nothing did."""
        return "" if self.reward is not None else failure_cause(self.error)


@dataclass
class UnitRow:
    """One line of episodes.jsonl.

    Attributes:
        model, env, task, sample: the key, see `UnitKey`.
        index: the task's position in its environment.
        attempt: 1 for the first; a unit that broke may be played again, and the last attempt counts.
        question: of the task.
        answers: the accepted answers.
        level: of the task, or "".
        episodes: one entry for each trajectory.
        generated: tokens that the model generated for the unit, shared ones once.
        category: of the task, or "".
        trace: offset and length of the tree's line in traces.jsonl, in bytes.
    """

    model: str
    env: str
    task: str
    sample: int
    index: int
    attempt: int
    question: str
    answers: list[str]
    level: str
    episodes: list[EpisodeEntry]
    generated: int = 0
    category: str = ""
    trace: tuple[int, int] = (0, 0)

    @property
    def key(self) -> UnitKey:
        """The unit's key."""
        return UnitKey(self.model, self.env, self.task, self.sample)

    @property
    def broken(self) -> bool:
        """Whether an episode of the unit has no score."""
        return any(episode.reward is None for episode in self.episodes)

    @property
    def scored(self) -> list[EpisodeEntry]:
        """Its independent samples that have a score: all that scores and means are of."""
        return [episode for episode in self.episodes if episode.counted and episode.reward is not None]

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {**asdict(self), "trace": list(self.trace)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> UnitRow:
        """Read back what `as_dict` wrote.

        Raises:
            TypeError: a field is missing or unknown.
        """
        episodes = [EpisodeEntry(**entry) for entry in data["episodes"]]
        offset, length = data["trace"]
        return cls(**{**data, "episodes": episodes, "trace": (offset, length)})


def unit_row(key: UnitKey, index: int, attempt: int, tree: RolloutTree) -> UnitRow:
    """Return the row of a unit that was played, without its place in traces.jsonl."""
    task = tree.task
    return UnitRow(
        **asdict(key),
        index=index,
        attempt=attempt,
        question=task.get("question", ""),
        answers=list(task.get("answers", ())),
        level=task.get("level", ""),
        episodes=[_entry(tree, number) for number in range(len(tree.trajectories))],
        category=task.get("category", ""),
        # what a turn was opened with was not generated
        generated=sum(len(span.ids) for span in tree.spans if span.sampled) - tree.meta.get("opening", 0),
    )


def failure_cause(error: str | None) -> str:
    """Return what failed, from an error's text as it is stored: "ClassName: message"."""
    name = match[0] if (match := re.match(r"\w{1,40}(?=:)", error or "")) else "unscored"
    return _CAUSES.get(name, name)


def broken_causes(rows: Sequence[UnitRow]) -> Counter[str]:
    """Count the episodes without a score by what failed."""
    return Counter(episode.cause for row in rows for episode in row.episodes if episode.reward is None)


def _entry(tree: RolloutTree, number: int) -> EpisodeEntry:
    trajectory, path = tree.trajectories[number], tree.path(number)
    turns = [span for span in path if span.kind == "model"]
    tools = [span.tool for span in path if span.tool and span.tool.get("status") != "refused"]
    calls = Counter(tool["name"] for tool in tools if tool["name"] != FOLD)  # a fold is no call of a tool
    # the requests of shared turns were made by the trajectory that it was forked from
    events = [event for event in tree.timeline if event.trajectory == number]
    requests = [event for event in events if event.kind == "generate"]
    return EpisodeEntry(
        trajectory.reward,
        dict(trajectory.components),
        trajectory.outcome,
        trajectory.error,
        trajectory.answer,
        dict(sorted(calls.items())),
        len(turns),
        sum(len(span.ids) for span in turns),
        sum(event.context for event in requests),
        sum(event.cached for event in requests),
        round(max((e.end for e in events), default=0.0) - min((e.start for e in events), default=0.0), 3),
        _interventions(path),
        _helper([event for event in events if event.kind == "helper"]),
        number in tree.samples(),
    )


def _helper(events: Sequence[Event]) -> dict[str, int]:
    if not events:
        return {}
    return {"requests": len(events), **{name: sum(getattr(e, name) for e in events) for name in HELPER_TOKENS}}


def _interventions(path: Sequence[Span]) -> dict[str, int]:
    """Count what tools at inference time did along a path."""
    counts = Counter[str]()
    for mark in (mark for span in path for mark in span.interventions or ()):
        counts[mark["tool"]] += mark["outcome"] in (WORKED, FAILED)
        counts[f"{mark['tool']} failed"] += mark["outcome"] == FAILED
    return {name: count for name, count in sorted(counts.items()) if count}
