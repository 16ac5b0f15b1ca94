"""Bifurcation: endless, seeded tasks in which a few decisions among many calls are known to matter (see the world).

    source = load_source("bifurcation", level="long-critical", choices=4)
    source.task(0), source.world(0), source.solution(0)

A level is a set of knobs; knobs that are given replace its own. Train and test tasks differ in rooms and keys and share
what a cue means, which is what can be learned; another seed gives cues another meaning.
"""

from __future__ import annotations

import functools
import json
import random
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from envs_registry.generated import check_split
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import UnknownOptionError, register_source
from envs_registry.task import Task

# A world is a row of rooms, after controlled bifurcation tasks. A *routine* room has one open door, which its
# description names. A *decision* room has several open doors, of which one is right. Behind the last room is a key, and
# the key is the answer of the task; after a wrong door where it matters, another key is there. The survey of credit
# assignment (arXiv 2604.09459) asks for tasks of this kind: where the decisions are, how many there are and what they
# are worth is known, so that the value of every state can be computed.
#
# `DoorWorld.enter` maps a state, a door and a random generator to the next state and a text, and `DoorWorld.outcomes`
# lists all that may come of it.

DOORS = tuple("abcdefghijklmnopqrstuvwx")
CUES = ("red", "blue", "green", "gold", "grey", "pink", "brown", "black")
KEYS = tuple(f"k{number}" for number in range(20))
DETAILS = ("dusty", "cold", "narrow", "quiet", "old", "dim", "wide", "damp", "bright", "tall")
NO_DOOR, DEAD_END = "no such door", "dead end"
Rule = Literal["fixed", "cue", "chance"]
DeadEnds = Literal["silent", "shown", "forgiving"]
Layout = Literal["first", "spread"]


@dataclass(frozen=True)
class WorldSettings:
    """The knobs of a family of worlds.

    Attributes:
        decisions: number of rooms with several open doors.
        choices: open doors of such a room.
        routine: number of rooms with one open door.
        layout: "first" puts all routine rooms before the decisions, "spread" distributes them between the decisions.
        critical: number of the only decision that matters, from 1; 0 means that all of them do.
        rule: how the right door can be learned: "fixed" (the same in every task), "cue" (it follows from the cue shown
            in the room), or "chance" (drawn for each task: nothing can be learned).
        cues: number of different cues.
        shared_doors: whether all decisions have the same doors. The policy then has to tell rooms apart to learn that
            another door is right in each; otherwise a door is right wherever it is.
        dead_ends: behind a wrong door the corridor goes on as if it were right ("silent"), a dead end is shown and
            nothing can be mended ("shown"), or a dead end is shown and one stands in the same room again ("forgiving").
        noise: probability that the cue shown in a room is drawn at random; the cue of the first room never is.
        slip: probability that a door of a decision leads to where an open door leads that is drawn at random; this may
            be the same door.
        uneven: maximum number of extra words in the description of a room; results have different lengths then.
        dense: whether the reward is the share of the decisions that matter and were right, instead of 1 if all were;
            there is a key for each number of right decisions then.

    Raises:
        ValueError: a knob is out of range or not of its type.
    """

    decisions: int = 2
    choices: int = 3
    routine: int = 0
    layout: Layout = "first"
    critical: int = 0
    rule: Rule = "cue"
    cues: int = 2
    shared_doors: bool = False
    dead_ends: DeadEnds = "silent"
    noise: float = 0.0
    slip: float = 0.0
    uneven: int = 0
    dense: bool = False

    def __post_init__(self) -> None:
        ranges: dict[str, tuple[float, float]] = {"decisions": (1, 12), "choices": (2, 8), "cues": (1, len(CUES))}
        ranges |= {"routine": (0, 40), "uneven": (0, 10), "critical": (0, self.decisions)}
        ranges |= {"noise": (0.0, 1.0), "slip": (0.0, 1.0)}
        for name, (low, high) in ranges.items():
            value, whole = getattr(self, name), isinstance(high, int)
            if not isinstance(value, int if whole else (int, float)) or not low <= value <= high:
                raise ValueError(f"{name} must be a {'whole ' * whole}number between {low} and {high}, got {value!r}")
        if not self.shared_doors and self.decisions * self.choices > len(DOORS):
            raise ValueError(
                f"{self.decisions} decisions of {self.choices} choices need more than {len(DOORS)} doors; lower one of "
                "them, or set shared_doors=True"
            )
        for name, kinds in (("layout", Layout), ("rule", Rule), ("dead_ends", DeadEnds)):
            given, known = getattr(self, name), get_args(kinds)
            if given not in known:
                hint = nearest_hint(given, known)
                raise ValueError(f"{name} must be one of {', '.join(known)}; not {given!r}{hint}")

    @property
    def rooms(self) -> int:
        """Number of rooms: the least number of calls that reaches a key."""
        return self.decisions + self.routine

    @property
    def mattering(self) -> int:
        """Number of decisions that matter."""
        return 1 if self.critical else self.decisions


def knob_names() -> list[str]:
    """Return the names of the knobs."""
    return [one.name for one in fields(WorldSettings)]


@dataclass(frozen=True)
class Room:
    """One room."""

    doors: str  # that are open
    right: str = ""  # the right one; "" if it does not matter which one is taken
    cue: str = ""  # shown in the room; "" in a routine room
    details: tuple[str, ...] = ()  # further words of its description


@dataclass(frozen=True)
class State:
    """Where an episode stands."""

    room: int = 0  # its number; the number of rooms once the key was found
    right: int = 0  # number of decisions that matter and were right
    cue: str = ""  # shown in this room, after noise


@dataclass(frozen=True)
class DoorWorld:
    """One task's rooms in order, and its keys by the number of right decisions; the last key is the answer."""

    settings: WorldSettings
    rooms: tuple[Room, ...]
    keys: tuple[str, ...]

    @property
    def start(self) -> State:
        """The state at the beginning; its cue is never noisy."""
        return State(cue=self.rooms[0].cue)

    def enter(self, state: State, door: str, rng: random.Random) -> tuple[State, str]:
        """Return the state behind a door, and what is seen there; a door that is not open leads nowhere."""
        if not self._is_open(state, door):
            return state, NO_DOOR
        room = self.rooms[state.room]
        if len(room.doors) > 1 and rng.random() < self.settings.slip:
            door = rng.choice(room.doors)
        return self._behind(state, door, self._shown_cue(state.room + 1, rng))

    def outcomes(self, state: State, door: str) -> list[tuple[float, State, str]]:
        """Return everything that `enter` may return: (probability, state, what is seen); probabilities add up to 1."""
        if not self._is_open(state, door):
            return [(1.0, state, NO_DOOR)]
        doors, slip = self.rooms[state.room].doors, self.settings.slip
        cues = self._shown_cues(state.room + 1)
        found: dict[tuple[State, str], float] = {}
        for taken in doors:
            # a door that slips may still lead where it should
            share = (1.0 - slip) * (taken == door) + slip / len(doors)
            for cue, shown in cues.items() if share else ():
                after = self._behind(state, taken, cue)
                found[after] = found.get(after, 0.0) + share * shown
        return [(probability, *after) for after, probability in found.items()]

    def _is_open(self, state: State, door: str) -> bool:
        return state.room < len(self.rooms) and len(door) == 1 and door in self.rooms[state.room].doors

    def _behind(self, state: State, door: str, cue: str) -> tuple[State, str]:
        """Return where a door leads when nothing slips any more and the next room shows `cue`."""
        room = self.rooms[state.room]
        wrong = bool(room.right) and door != room.right
        if wrong and self.settings.dead_ends == "forgiving":
            return state, DEAD_END
        after = State(state.room + 1, state.right + int(door == room.right), cue)
        shown = f"{DEAD_END} " if wrong and self.settings.dead_ends == "shown" else ""
        return after, shown + self.describe(after)

    def describe(self, state: State) -> str:
        """Return what is seen in a room, or the key behind the last one."""
        if state.room == len(self.rooms):
            return f"key {self.key_of(state)}"
        room = self.rooms[state.room]
        return " ".join(["room", str(state.room + 1), *room.details, *filter(None, [state.cue]), "doors", *room.doors])

    def key_of(self, state: State) -> str:
        """Return the key behind the last room after so many right decisions."""
        every = self.settings.mattering
        return self.keys[state.right] if self.settings.dense else self.keys[int(state.right == every)]

    def reward(self, answer: str | None) -> float:
        """Return the reward of an answer: 1 for the last key, and with dense rewards shares of 1 for the others."""
        if answer is None or answer.strip() not in self.keys:
            return 0.0
        return self.keys.index(answer.strip()) / (len(self.keys) - 1)

    def _shown_cue(self, number: int, rng: random.Random) -> str:
        cue = self.rooms[number].cue if number < len(self.rooms) else ""
        noisy = cue and rng.random() < self.settings.noise
        return rng.choice(CUES[: self.settings.cues]) if noisy else cue

    def _shown_cues(self, number: int) -> dict[str, float]:
        """Return the cues that a room may show, with their probabilities."""
        cue, noise = self.rooms[number].cue if number < len(self.rooms) else "", self.settings.noise
        if not cue or not noise:
            return {cue: 1.0}
        cues = CUES[: self.settings.cues]
        return {one: (1.0 - noise) * (one == cue) + noise / len(cues) for one in cues}


def make_world(settings: WorldSettings, seed: int, name: str) -> DoorWorld:
    """Return the world of a task by its name in the family; `seed` is of the family: which door a cue means."""
    rng = random.Random(f"bifurcation/{seed}/{name}")
    rule = random.Random(f"bifurcation/{seed}/{settings.choices}/{settings.cues}")
    first = [0 if settings.shared_doors else number * settings.choices for number in range(settings.decisions)]
    doors = ["".join(DOORS[number : number + settings.choices]) for number in first]
    # one row for each decision, so that decisions have to be learned one by one
    meaning = [[rule.choice(own) for _ in range(settings.cues)] for own in doors]
    rooms = []
    for kind in _order(settings):
        details = tuple(rng.choice(DETAILS) for _ in range(rng.randint(0, settings.uneven)))
        if kind is None:
            rooms.append(Room(rng.choice(DOORS), details=details))
            continue
        number = rng.randrange(settings.cues)
        by_rule = {"fixed": meaning[kind][0], "cue": meaning[kind][number], "chance": rng.choice(doors[kind])}
        right = by_rule[settings.rule]
        matters = settings.critical in (0, kind + 1)
        rooms.append(Room(doors[kind], right if matters else "", CUES[number], details))
    keys = rng.sample(KEYS, settings.mattering + 1 if settings.dense else 2)
    return DoorWorld(settings, tuple(rooms), tuple(keys))


def _order(settings: WorldSettings) -> list[int | None]:
    """Return the kinds of the rooms: the number of the decision, or None for a routine room."""
    if settings.layout == "first":
        return [None] * settings.routine + list(range(settings.decisions))
    order: list[int | None] = []
    for decision in range(settings.decisions):
        before = (
            settings.routine * (decision + 1) // settings.decisions - settings.routine * decision // settings.decisions
        )
        order += [None] * before + [decision]
    return order


@functools.lru_cache(maxsize=1024)
def world_of(setup: str) -> DoorWorld:
    """Return the world that a task's `setup` describes; the setup does not hold the key."""
    try:
        facts: dict[str, Any] = json.loads(setup)
        return make_world(WorldSettings(**facts["bifurcation"]), facts["seed"], facts["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("the tool `go` plays the tasks of arpo/Bifurcation-v0 only; this task has no world") from error


def key_quality(episode: Any) -> float:
    """Return the reward of an episode of `arpo/Bifurcation-v0`: what its answer is worth in the world of its task."""
    return world_of(episode.task.setup).reward(episode.answer)


LEVELS: dict[str, WorldSettings] = {
    "short": WorldSettings(decisions=2, choices=3, rule="fixed"),
    "long-critical": WorldSettings(decisions=3, choices=5, routine=6, layout="spread", critical=2, rule="fixed"),
    "long-many": WorldSettings(decisions=4, choices=2, routine=5, layout="spread", rule="fixed"),
    "stochastic": WorldSettings(decisions=2, choices=3, routine=4, layout="spread", rule="fixed", slip=0.15),
}


class BifurcationSource:
    """The tasks of one split, level and choice of knobs.

    Args:
        split: "train" or "test".
        level: one of `LEVELS`.
        seed: of the family of worlds.
        knobs: fields of `WorldSettings` that replace those of the level.
    """

    size = None
    solution_tool = "go"

    def __init__(self, split: str = "train", level: str = "short", seed: int = 0, **knobs: Any) -> None:
        check_split("Bifurcation", split)
        if level not in LEVELS:
            hint = nearest_hint(level, LEVELS)
            raise ValueError(f"Bifurcation has the levels {', '.join(LEVELS)}; not {level!r}{hint}")
        if unknown := [name for name in knobs if name not in knob_names()]:
            raise UnknownOptionError("bifurcation", unknown[0], ["level", *knob_names()])
        self.split, self.level, self.seed = split, level, seed
        self.settings = replace(LEVELS[level], **knobs)

    def world(self, index: int) -> DoorWorld:
        """Return the world of task number `index`."""
        return make_world(self.settings, self.seed, f"{self.split}/{index}")

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        name, world = f"{self.split}/{index}", self.world(index)
        return Task(
            f"bifurcation-{self.seed}-{self.level}-{self.split}-{index}",
            f"Find the key. {world.describe(world.start)}",
            (world.keys[-1],),
            source="bifurcation",
            level=self.level,
            setup=json.dumps({"bifurcation": asdict(self.settings), "seed": self.seed, "name": name}),
        )

    def solution(self, index: int) -> tuple[str, ...]:
        """Return doors that lead to the right key if nothing slips."""
        return tuple(room.right or room.doors[0] for room in self.world(index).rooms)


register_source("bifurcation", BifurcationSource)
