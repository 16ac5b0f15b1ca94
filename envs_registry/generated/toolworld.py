"""ToolWorld: endless, seeded questions that take one to three of 1,250 tools, which have to be found first.

    source = load_source("toolworld", level="3")
    source.task(0), source.steps(0), source.tool_documents, source.call_tool(name, arguments)

Level 1 asks for a number; level 2 for a number of a place that another tool names; level 3 for two places one after the
other and a number, or for one place and the sum or the difference of two numbers. No tool gives the answer of a level
above 1 by itself. Train and test questions are about the same world; another seed is another world.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs_registry.generated.toolworld_words import LINKS, NUMBERS, PLACES, SEASONS
from envs_registry.generated.toolworld_world import PLACES_OF_A_KIND, ToolWorld, plain_text, tool_world
from envs_registry.sources import register_source
from envs_registry.task import Task

SPLITS = ("train", "test")
LEVELS = ("1", "2", "3")
_SETUP = re.compile(r'"toolworld-s(-?\d+)-(train|test)-l(\d)-n(\d+)"')


@dataclass(frozen=True)
class ToolStep:
    """One call that the question needs.

    Attributes:
        query: what a tool is searched for, in the words of the question, without the name of the place.
        tool: name of the tool.
        arguments: arguments of the call.
        result: what it says.
    """

    query: str
    tool: str
    arguments: dict[str, str]
    result: str


@dataclass
class _Draft:
    """A question while it is made."""

    world: ToolWorld
    rng: random.Random
    steps: list[ToolStep] = field(default_factory=list)

    def ask(self, kind: int, place: int, fact: int, subject: str = "") -> tuple[str, str]:
        """Add a step; return the phrase for the question, and what the tool says.

        Args:
            kind: of the place.
            place: its number.
            fact: what is asked.
            subject: how the question speaks of the place; "" uses its name.
        """
        tool = self.world.tool(kind, fact)
        noun = self.rng.choice(PLACES[kind])
        phrase, season = self.rng.choice(tool.told.phrases), ""
        if tool.told.by_season:
            season = self.rng.choice(SEASONS)
        words = {"target": self.rng.choice(PLACES[tool.target]), "season": season}
        name = self.world.places[kind][place]
        arguments = {PLACES[kind][0]: name, **({"season": season} if season else {})}
        said = self.world.value(tool, place, season)
        self.steps.append(ToolStep(phrase.format(it=f"a {noun}", **words), tool.name, arguments, said))
        return phrase.format(it=subject or f"the {noun} {name}", **words), said

    def link(self, kind: int, place: int, subject: str = "") -> tuple[str, int, int]:
        """Add a step that names another place; return the phrase, and kind and number of that place."""
        fact = self.rng.choice(LINKS)
        phrase, said = self.ask(kind, place, fact, subject)
        target = self.world.tool(kind, fact).target
        return phrase, target, self.world.places[target].index(said)

    def numbers(self, count: int) -> list[int]:
        """Return different facts that are numbers."""
        return self.rng.sample(NUMBERS, count)


class ToolWorldSource:
    """The questions of one split and level.

    Args:
        split: "train" or "test".
        level: one of `LEVELS`, the number of tools that a question takes.
        seed: of the world.

    Raises:
        ValueError: there is no such split or level, or the seed is no whole number.
    """

    size = None
    solution_protocol = "deepagent"

    def __init__(self, split: str = "train", level: str = "3", seed: int = 0) -> None:
        if split not in SPLITS:
            raise ValueError(f"ToolWorld has the splits {' and '.join(SPLITS)}, not {split!r}")
        if str(level) not in LEVELS:
            raise ValueError(f"ToolWorld has the levels {', '.join(LEVELS)}; not {level!r}")
        if type(seed) is not int:
            raise ValueError(f"seed of ToolWorld must be a whole number, not {seed!r}")
        self.split, self.level, self.seed = split, str(level), seed

    @property
    def world(self) -> ToolWorld:
        """The world that the questions are about."""
        return tool_world(self.seed)

    @property
    def tool_documents(self) -> Sequence[dict[str, Any]]:
        """The documents of all tools."""
        return self.world.documents

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a tool says; raises ValueError for a mistake of the caller."""
        return self.world.call(name, arguments)

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        question, answer, _ = self._made(index)
        name = f"toolworld-s{self.seed}-{self.split}-l{self.level}-n{index}"
        return Task(name, question, (answer,), source="toolworld", level=self.level, setup=f'"{name}"')

    def steps(self, index: int) -> tuple[ToolStep, ...]:
        """Return the calls that answer task number `index`, in order."""
        return self._made(index)[2]

    def solution(self, index: int) -> tuple[str, ...]:
        """Return the searches and calls that solve task number `index`, as turns of `solution_protocol`."""
        turns = []
        for step in self.steps(index):
            call = json.dumps({"name": step.tool, "arguments": step.arguments}, ensure_ascii=False)
            turns.append(f"I need {step.query}. <tool_search>{step.query}</tool_search>")
            turns.append(f"Now I can call it. <tool_call>{call}</tool_call>")
        return tuple(turns)

    def _made(self, index: int) -> tuple[str, str, tuple[ToolStep, ...]]:
        rng = random.Random(f"toolworld/{self.seed}/{self.split}/{self.level}/{index}")
        draft = _Draft(self.world, rng)
        make = {"1": _one, "2": _two, "3": rng.choice((_chain, _sum))}[self.level]
        question, answer = make(draft, rng.randrange(len(PLACES)), rng.randrange(PLACES_OF_A_KIND))
        return question, answer, tuple(draft.steps)


def _one(draft: _Draft, kind: int, place: int) -> tuple[str, str]:
    phrase, said = draft.ask(kind, place, draft.numbers(1)[0])
    return f"Find out {phrase}.", said


def _two(draft: _Draft, kind: int, place: int) -> tuple[str, str]:
    first, kind, place = draft.link(kind, place)
    phrase, said = draft.ask(kind, place, draft.numbers(1)[0], "it")
    return f"Find {first}. Then find out {phrase}.", said


def _chain(draft: _Draft, kind: int, place: int) -> tuple[str, str]:
    first, kind, place = draft.link(kind, place)
    second, kind, place = draft.link(kind, place, "it")
    phrase, said = draft.ask(kind, place, draft.numbers(1)[0], "that place")
    return f"Find {first}. Then find {second}. Last, find out {phrase}.", said


def _sum(draft: _Draft, kind: int, place: int) -> tuple[str, str]:
    first, other, number = draft.link(kind, place)
    own, theirs = draft.numbers(2)
    one, said = draft.ask(other, number, theirs, "it")
    name = draft.world.places[kind][place]
    two, added = draft.ask(kind, place, own, name)
    if draft.rng.random() < 0.5:
        return f"Find {first}. Add up two numbers: {one}, and {two}. What is the sum?", str(int(said) + int(added))
    high, low = max(int(said), int(added)), min(int(said), int(added))
    return f"Find {first}. How far apart are these two numbers: {one}, and {two}?", str(high - low)


@functools.lru_cache(maxsize=4096)
def steps_of(setup: str) -> tuple[ToolStep, ...]:
    """Return the calls that answer a task, from its `setup`.

    Raises:
        ValueError: the task is not one of this environment.
    """
    match = _SETUP.fullmatch(setup)
    if match is None:
        raise ValueError("the reward term `right_calls` is for tasks of arpo/ToolWorld-v0 only")
    seed, split, level, index = match.groups()
    return ToolWorldSource(split, level, int(seed)).steps(int(index))


def right_calls(episode: Any) -> float:
    """Return how many of the calls that the question needs an episode has made (sum of C in ToolPO's action reward)."""
    made = [(call.name, _plain(call.arguments)) for turn in episode.turns for call in turn.calls if call.status == "ok"]
    return float(sum((step.tool, _plain(step.arguments)) in made for step in steps_of(episode.task.setup)))


def _plain(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as the tools read them: case and white space do not matter."""
    return {name: plain_text(value) for name, value in arguments.items()}


def load(*, split: str = "train", data: str | None = None, level: str = "3", seed: int = 0) -> ToolWorldSource:
    """Return the generated tasks. `data` raises an error, since there is no file to read."""
    if data is not None:
        raise ValueError("ToolWorld is generated and takes no `data`; use `level`, `seed` and `split`")
    return ToolWorldSource(split, level, seed)


register_source("toolworld", load)
