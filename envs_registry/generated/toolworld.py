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

from envs_registry.generated import check_split
from envs_registry.sources import register_source
from envs_registry.task import Task

# The words: 50 kinds of places, and 25 facts that a tool can tell about a place. Every fact has a description, for the
# documents of tools, and two phrases, for questions. A phrase shares some words with the description and none with the
# name of the tool. Half of the time a question calls a place by its second noun, which stands in the documents once.

SEASONS = ("spring", "summer", "autumn", "winter")

_PLACES = """
lighthouse/beacon bakery/breadhouse library/bookhall observatory/starhouse ferry/riverboat monastery/abbey
theatre/playhouse hospital/infirmary shipyard/slipway vineyard/winery brewery/alehouse museum/gallery school/academy
mill/gristmill quarry/stonepit orchard/fruitgrove tavern/inn courthouse/tribunal prison/jail fortress/citadel
aqueduct/conduit bridge/viaduct market/bazaar mint/coinery pharmacy/apothecary printworks/press stable/livery
tannery/leatherworks weavery/loomhouse glassworks/glasshut pottery/kiln smithy/forge sawmill/timberworks harbour/port
bathhouse/thermae cemetery/graveyard greenhouse/hothouse menagerie/zoo circus/bigtop orchestra/philharmonic
newspaper/gazette bank/countinghouse embassy/legation watchtower/lookout saltworks/saltern apiary/beeyard
fishery/trawlery dairy/creamery granary/barn foundry/ironworks
"""
PLACES: tuple[tuple[str, str], ...] = tuple(
    (noun, other) for noun, _, other in (pair.partition("/") for pair in _PLACES.split())
)
"""The two nouns of each kind of place."""


@dataclass(frozen=True)
class PlaceFact:
    """One fact about a place, which one tool of each kind of place tells."""

    name: str  # the last part of the tool's name
    description: str  # {noun} is the kind of place, {target} the kind of the place that is told
    phrases: tuple[str, str]  # for questions; {it} is the place, {season} a season
    low: int = 0  # smallest value of a number; 0 for a fact that names another place
    high: int = 0  # greatest value

    @property
    def is_link(self) -> bool:
        """Whether it names another place."""
        return self.high == 0

    @property
    def by_season(self) -> bool:
        """Whether the tool needs a season as well."""
        return "{season}" in self.phrases[0]


# name, range and description; two phrases
_FACTS = """
sponsor: Names the {target} whose patronage pays for the {noun}; each {noun} has exactly one patron.
    the {target} that acts as patron of {it}
    the {target} whose patronage keeps {it} going
supplier: Looks up which {target} delivers goods and provisions to the {noun}.
    the {target} that delivers provisions to {it}
    the {target} that brings {it} its goods
nearest: Finds the {target} that lies closest to the {noun}, measured along the road.
    the {target} that lies closest to {it}
    the {target} one reaches first from {it} along the road
twin: Gives the partner of the {noun}: the {target} with which it has a treaty of friendship.
    the {target} bound to {it} by a treaty
    the {target} that swore friendship with {it}
origin: Tells in which {target} the plans of the {noun} were drawn, according to its builders.
    the {target} in which the plans of {it} were drawn
    the {target} where the builders of {it} got the plans
rival: Returns the {target} that competes with the {noun} for the same customers.
    the {target} that competes with {it}
    the {target} after the same customers as {it}
established 1100-1899: Calendar year in which the {noun} first opened its doors, from the founding charter.
    the year in which {it} first opened
    the year in the founding charter of {it}
headcount 1000-9999: How many people the {noun} employs, all workers and apprentices on the payroll together.
    the number of workers on the payroll of {it}
    the number of people that {it} employs
expenditure 20000-99999: Money the {noun} spends in a year, in crowns: wages, purchases and upkeep.
    the money in crowns that {it} spends in a year
    the crowns that wages and upkeep take from {it} in a year
footfall 1000-49999: Visitors that came to the {noun} in one season of last year, counted at the gate.
    the number of visitors counted at the gate of {it} in {season}
    the number of visitors that {it} had in {season}
elevation 1000-8999: Height of the roof of the {noun} above the sea, in spans.
    the height in spans of the roof of {it}
    the number of spans from the sea up to the roof of {it}
extent 1000-9999: Ground that belongs to the {noun}, in acres, gardens and yards included.
    the number of acres of ground that belong to {it}
    the acres of {it} with its gardens and yards
remoteness 1000-4999: Leagues that a traveller has to go from the {noun} to the capital city.
    the number of leagues from {it} to the capital
    the leagues that a traveller from the capital goes to {it}
admission 1000-6999: Price in pennies that a guest pays to enter the {noun} for a day.
    the price in pennies to enter {it}
    the pennies that a guest pays for a day at {it}
timetable 100000-799999: Hours in a century during which the {noun} is open to the public.
    the number of hours in a century that {it} is open
    the hours of a century in which the public may use {it}
liabilities 10000-99999: Amount that the {noun} still owes to its creditors, loans with interest, in crowns.
    the amount in crowns that {it} still owes
    the loans in crowns that the creditors of {it} wait for
coverage 50000-999999: Sum in crowns that the insurance would pay if the {noun} burned down.
    the crowns that the insurance pays if {it} burned down
    the insurance sum of {it} in crowns
grievances 1000-5999: Complaints about the {noun} that citizens handed in during the last year.
    the number of complaints about {it}
    the number of times that citizens handed in complaints against {it}
intake 1000-29999: Barrels of water that the {noun} draws from the public well in one season.
    the barrels of water that {it} draws in {season}
    the number of barrels that {it} takes from the well in {season}
illumination 1000-7999: Jars of lamp oil burned by the {noun} in a month for its lights.
    the jars of lamp oil burned by {it} in a month
    the jars of oil that the lights of {it} need in a month
maintenance 1000-3999: How often craftsmen had to mend the {noun} since it was built: the number of repairs on record.
    the number of repairs on record for {it}
    the number of times craftsmen had to mend {it}
membership 1000-69999: Subscribers of the society of friends of the {noun}, those who paid their fee.
    the number of subscribers in the society of friends of {it}
    the number of friends of {it} who paid the fee
holdings 10000-89999: Documents kept in the archive of the {noun}, letters, maps and ledgers together.
    the number of documents in the archive of {it}
    the number of letters, maps and ledgers kept at {it}
endowment 10000-99999: Gifts in crowns that donors gave to the {noun} in the last ten years.
    the gifts in crowns that donors gave to {it}
    the crowns that {it} got from donors in ten years
tenancy 1000-8999: Rent in pennies that the {noun} pays each month to the owner of the land.
    the rent of {it} in pennies each month
    the pennies that the owner of the land of {it} gets each month
"""


def _fact(said: str, one: str, other: str) -> PlaceFact:
    head, _, description = said.partition(": ")
    name, _, values = head.partition(" ")
    low, _, high = values.partition("-")
    return PlaceFact(name, description, (one, other), int(low or 0), int(high or 0))


_rows = iter(map(str.strip, _FACTS.strip().split("\n")))
FACTS = tuple(map(_fact, _rows, _rows, _rows))
LINKS = tuple(number for number, fact in enumerate(FACTS) if fact.is_link)
NUMBERS = tuple(number for number, fact in enumerate(FACTS) if not fact.is_link)


# The world: named places of 50 kinds, and the tools that tell facts about them. Everything follows from the seed: the
# places' names, what the tools are called (an invented word for each kind of place, so that no name says which kind it
# is), which kind of place a link leads to, and all values. Nothing is stored but the names.

PLACES_OF_A_KIND = 24
_STARTS = ("Ar", "Bel", "Cor", "Dor", "El", "Far", "Gal", "Hol", "Ist", "Jor", "Kel", "Lor", "Mar", "Nor", "Os", "Pel")
_MIDDLES = ("ba", "de", "fi", "go", "ka", "le", "mi", "no", "ra", "se", "ti", "vo")
_ENDS = ("dan", "fell", "gar", "heim", "lund", "mere", "nor", "rath", "sted", "tova", "vik", "wen")


@dataclass(frozen=True)
class WorldTool:
    """One tool: the fact that it tells about places of a kind."""

    name: str  # for calls
    kind: int  # number of the kind of place, in `PLACES`
    fact: int  # number of the fact, in `FACTS`
    target: int  # number of the kind of place that a link leads to; the own kind for numbers

    @property
    def told(self) -> PlaceFact:
        """The fact."""
        return FACTS[self.fact]

    @property
    def document(self) -> dict[str, Any]:
        """Name, description and JSON schema of the parameters."""
        noun, other = PLACES[self.kind]
        properties: dict[str, Any] = {noun: {"type": "string", "description": f"Full name of the {other}."}}
        if self.told.by_season:
            properties["season"] = {"type": "string", "enum": list(SEASONS), "description": "Season of the year."}
        return {
            "name": self.name,
            "description": self.told.description.format(noun=noun, target=PLACES[self.target][0]),
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        }


class ToolWorld:
    """The world of a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        rng = random.Random(f"toolworld/{seed}")
        words = _words(rng, len(PLACES))
        names = iter(_names(rng, len(PLACES) * PLACES_OF_A_KIND))
        self.places: list[list[str]] = [[next(names) for _ in range(PLACES_OF_A_KIND)] for _ in PLACES]
        self.tools = [
            WorldTool(f"{words[kind]}_{fact.name}", kind, number, self._target(kind, number))
            for kind in range(len(PLACES))
            for number, fact in enumerate(FACTS)
        ]
        self._by_name = {tool.name: tool for tool in self.tools}

    @functools.cached_property
    def documents(self) -> Sequence[dict[str, Any]]:
        """The documents of all tools, in an order that does not tell what belongs together."""
        order = random.Random(f"toolworld/{self.seed}/order").sample(self.tools, len(self.tools))
        return [tool.document for tool in order]

    def tool(self, kind: int, fact: int) -> WorldTool:
        """Return the tool that tells a fact about places of a kind."""
        return self.tools[kind * len(FACTS) + fact]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a tool says; a ValueError, for the model, if a tool, a place or an argument is not there."""
        tool = self._by_name.get(name)
        if tool is None:
            raise ValueError(f"there is no tool {name!r}")
        noun = PLACES[tool.kind][0]
        season = arguments.get("season", "") if tool.told.by_season else ""
        if tool.told.by_season and season not in SEASONS:
            raise ValueError(f"season must be one of {', '.join(SEASONS)}")
        known = {place.casefold(): number for number, place in enumerate(self.places[tool.kind])}
        number = known.get(plain_text(arguments.get(noun, "")))
        if number is None:
            raise ValueError(f"no {noun} is called {str(arguments.get(noun, ''))[:80]!r}")
        return self.value(tool, number, str(season))

    def value(self, tool: WorldTool, place: int, season: str = "") -> str:
        """Return the fact about a place, by the number of the place: a number, or the name of another place."""
        rng = random.Random(f"toolworld/{self.seed}/{tool.kind}/{tool.fact}/{place}/{season}")
        if tool.told.is_link:
            return self.places[tool.target][rng.randrange(PLACES_OF_A_KIND)]
        return str(rng.randint(tool.told.low, tool.told.high))

    def _target(self, kind: int, fact: int) -> int:
        if not FACTS[fact].is_link:
            return kind
        others = [other for other in range(len(PLACES)) if other != kind]
        return random.Random(f"toolworld/{self.seed}/target/{kind}/{fact}").choice(others)


tool_world = functools.lru_cache(maxsize=16)(ToolWorld)
"""Returns the world of a seed; the same object for the same seed."""


def plain_text(value: Any) -> str:
    """Return an argument in the form in which it is compared."""
    return " ".join(str(value).split()).casefold()


def _words(rng: random.Random, count: int) -> list[str]:
    """Return different invented words in lower case."""
    every = [start + middle + end for start in _STARTS for middle in _MIDDLES for end in _ENDS]
    return [word.lower() for word in rng.sample(every, count)]


def _names(rng: random.Random, count: int) -> list[str]:
    """Return different names of two words."""
    made: dict[str, None] = {}
    while len(made) < count:
        first = rng.choice(_STARTS) + rng.choice(_ENDS)
        made[f"{first} {rng.choice(_STARTS)}{rng.choice(_MIDDLES)}{rng.choice(_ENDS)}"] = None
    return list(made)


LEVELS = ("1", "2", "3")
_SETUP = re.compile(r'"toolworld-s(-?\d+)-(train|test)-l(\d)-n(\d+)"')


@dataclass(frozen=True)
class ToolStep:
    """One call that the question needs."""

    query: str  # what a tool is searched for, in the words of the question, without the name of the place
    tool: str
    arguments: dict[str, str]
    result: str  # what the tool says


@dataclass
class _Draft:
    """A question while it is made."""

    world: ToolWorld
    rng: random.Random
    steps: list[ToolStep] = field(default_factory=list)

    def ask(self, kind: int, place: int, fact: int, subject: str = "") -> tuple[str, str]:
        """Add a step: a fact about a place of a kind; return the phrase for the question, and what the tool says.

        The question speaks of the place as of its `subject`, or by its name.
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
    """The questions of one split and level (the number of tools that a question takes), about the world of a seed."""

    size = None
    solution_protocol = "deepagent"

    def __init__(self, split: str = "train", level: str = "3", seed: int = 0) -> None:
        check_split("ToolWorld", split)
        if str(level) not in LEVELS:
            raise ValueError(f"ToolWorld has the levels {', '.join(LEVELS)}; not {level!r}")
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
    """Return the calls that answer a task of this environment, from its `setup`."""
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


register_source("toolworld", ToolWorldSource)
