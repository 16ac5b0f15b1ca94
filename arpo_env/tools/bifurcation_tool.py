"""The tool of `arpo/Bifurcation-v0`: `go` opens a door and shows what is behind it.

Its noise is that of the world and not of the episode: it depends on the seed of the episode, on the number of calls so
far, and on the fork. The copies of forks see noise of their own from then on, as they would of a search engine.
"""

from __future__ import annotations

import random

from arpo_env.tools.tool import SharedTool, Tool, ToolResult, function_schema
from envs_registry.generated.bifurcation import NO_DOOR, DoorWorld, State, world_of


def go(door: str) -> str:
    """Go through a door.

    Args:
        door: The letter of an open door.
    """
    raise NotImplementedError(door)  # only the schema is used; `BifurcationTool.call` opens the door


class BifurcationTool(SharedTool):
    """Walks through the world of the task."""

    name = "go"
    noisy = True

    def __init__(self) -> None:
        self.schema = function_schema(go)
        self._world: DoorWorld | None = None
        self._state, self._noise = State(), ""
        self._calls, self._copies = 0, 0

    async def call(self, *, door: str = "", **arguments: object) -> ToolResult:
        """Go through a door, and return what is seen behind it."""
        if self._world is None:
            raise RuntimeError("the tool `go` has no world before `reset`")
        self._calls += 1
        rng = random.Random(f"{self._noise}/{self._calls}")
        self._state, seen = self._world.enter(self._state, door.strip(), rng)
        return ToolResult(seen, "error" if seen == NO_DOOR else "ok")

    async def reset(self, setup: str) -> None:
        """Begin in the first room of the task's world."""
        self._world = world_of(setup)
        self._state, self._noise = self._world.start, str(self.seed)
        self._calls, self._copies = 0, 0

    async def fork(self, n: int) -> list[Tool]:
        """Return n tools that stand in the same room; what is random from here on is drawn anew for each."""
        self._copies += n
        return [self._copy(number) for number in range(self._copies - n, self._copies)]

    def _copy(self, number: int) -> BifurcationTool:
        twin = BifurcationTool()
        twin._world, twin._state, twin._calls = self._world, self._state, self._calls
        twin.seed, twin._noise = self.seed, f"{self._noise}/{self._calls}.{number}"
        return twin
