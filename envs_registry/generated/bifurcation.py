"""Bifurcation: endless, seeded tasks in which a few decisions among many calls are known to matter (see the world).

    source = load_source("bifurcation", level="long-critical", choices=4)
    source.task(0), source.world(0), source.solution(0)

A level is a set of knobs; knobs that are given replace its own. Train and test tasks differ in rooms and keys and share
what a cue means, which is what can be learned; another seed gives cues another meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envs_registry.generated.bifurcation_world import (
    DoorWorld,
    WorldSettings,
    knob_names,
    make_world,
    right_doors,
    world_setup,
)
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import UnknownOptionError, register_source
from envs_registry.task import Task

SPLITS = ("train", "test")
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

    Raises:
        ValueError: there is no such split, level or knob, or a knob is out of range.
    """

    size = None
    solution_tool = "go"

    def __init__(self, split: str = "train", level: str = "short", seed: int = 0, **knobs: Any) -> None:
        if split not in SPLITS:
            hint = nearest_hint(split, SPLITS)
            raise ValueError(f"Bifurcation has the splits {' and '.join(SPLITS)}, not {split!r}{hint}")
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
            setup=world_setup(self.settings, self.seed, name),
        )

    def solution(self, index: int) -> tuple[str, ...]:
        """Return doors that lead to the right key if nothing slips."""
        return tuple(right_doors(self.world(index)))


def load(
    *, split: str = "train", data: str | None = None, level: str = "short", seed: int = 0, **knobs: Any
) -> BifurcationSource:
    """Return the generated tasks. `data` raises an error, since there is no file to read."""
    if data is not None:
        raise ValueError("Bifurcation is generated and takes no `data`; use `level`, `seed`, `split` and the knobs")
    return BifurcationSource(split, level, seed, **knobs)


register_source("bifurcation", load)
