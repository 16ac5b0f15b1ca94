"""The world of `arpo/ToolWorld-v0`: named places of 50 kinds, and the tools that tell facts about them.

    world = tool_world(seed=0)
    world.documents[0]                          # {"name", "description", "parameters"} of one of 1,250 tools
    world.call("vestora_headcount", {"bakery": "Ostrand Mira"})

Everything follows from the seed: the places' names, what the tools are called (an invented word for each kind of place,
so that no name says which kind it is), which kind of place a link leads to, and all values. Nothing is stored but the
names, so a world is made in milliseconds.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs_registry.generated.toolworld_words import FACTS, PLACES, SEASONS, PlaceFact

PLACES_OF_A_KIND = 24
_STARTS = ("Ar", "Bel", "Cor", "Dor", "El", "Far", "Gal", "Hol", "Ist", "Jor", "Kel", "Lor", "Mar", "Nor", "Os", "Pel")
_MIDDLES = ("ba", "de", "fi", "go", "ka", "le", "mi", "no", "ra", "se", "ti", "vo")
_ENDS = ("dan", "fell", "gar", "heim", "lund", "mere", "nor", "rath", "sted", "tova", "vik", "wen")


@dataclass(frozen=True)
class WorldTool:
    """One tool: the fact that it tells about places of a kind.

    Attributes:
        name: name for calls.
        kind: number of the kind of place, in `PLACES`.
        fact: number of the fact, in `FACTS`.
        target: number of the kind of place that a link leads to; the own kind for numbers.
    """

    name: str
    kind: int
    fact: int
    target: int

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
    """One world.

    Args:
        seed: of the world.
    """

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
        """Return what a tool says.

        Raises:
            ValueError: there is no such tool or place, or an argument is missing; the message is for the model.
        """
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


@functools.lru_cache(maxsize=16)
def tool_world(seed: int) -> ToolWorld:
    """Return the world of a seed; the same object for the same seed."""
    return ToolWorld(seed)


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
