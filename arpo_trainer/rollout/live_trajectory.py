"""`Path`: a trajectory under way, with its own copy of the world, and how that world is made again when it breaks.

A copy of the world that is lost (its container died) can be made again by playing the same turns in a fresh one, if
the tools that were called may be called twice (`Tool.repeatable`). Each result is compared with what the model was
shown; if one differs, the world that comes out is not the one the model was in, and the sample is void.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from arpo_env import ServiceError, ToolEnv
from arpo_env.protocols.protocol import ToolCalls
from arpo_trainer.tree import Span
from envs_registry import Task
from sandbox import SandboxError

BREAKDOWNS = (SandboxError, ServiceError, TimeoutError, OSError)


@dataclass(frozen=True)
class Step:
    """A turn that was played: its text, the room that was left before it, and whether its result was withheld."""

    text: str
    room: int
    result: str
    withheld: bool = False


@dataclass
class Path:
    """A trajectory under way.

    Attributes:
        name: where it began: "3" is the fourth root, "3.1.0" the first branch that left it after its turn 1.
        number: of its trajectory in the tree.
        env: its copy of the world.
        node: the span it stands at.
        ids: of everything so far, the prompt included.
        clock: the round it is in (see `ledger`).
        turn: turns played.
        baseline: entropy that its points are compared with; None before its first turn.
        chain: of its points so far, whether each was a high-entropy step.
        branches: whether it may branch.
        point: the tool result whose branching is not decided yet.
        forking: makes copies of `env`; it has to be done before the episode goes on.
        history: turns played.
        retries: how often its world may still be made again.
        begun: whether its episode has been started.
    """

    name: str
    number: int
    env: ToolEnv
    node: int | None
    ids: list[int]
    clock: int = 1
    turn: int = 0
    baseline: float | None = None
    chain: list[bool] = field(default_factory=list)
    branches: bool = True
    point: Span | None = None
    forking: asyncio.Task[list[ToolEnv]] | None = None
    history: list[Step] = field(default_factory=list)
    retries: int = 0
    begun: bool = False

    @property
    def points(self) -> int:
        """How many more tool results it can get to: a result needs a call, and a turn that may follow it."""
        budget, episode = self.env.budget, self.env.episode
        return max(0, min(budget.calls - len(episode.tools_used), budget.turns - 1 - len(episode.turns)))

    def note(self, withheld: bool) -> None:
        """Write the last turn down, so that it can be played again."""
        turn = self.env.episode.turns[-1]
        self.history.append(Step(turn.text, self.env.episode.tokens_left or 0, turn.result, withheld))

    def twin(self) -> Path:
        """Return a path that stands where this one stands; name, number and world are still this one's."""
        return replace(self, ids=list(self.ids), point=None, forking=None, chain=list(self.chain),
                       history=list(self.history))  # fmt: skip


class NotRepeatableError(RuntimeError):
    """Raised when an episode that is played again does not show the same."""


def may_repeat(path: Path, error: BaseException) -> bool:
    """Say whether the world may be made again after this error."""
    tools = path.env.tools
    safe = all(tools[name].repeatable for name in _called(path) if name in tools)
    return isinstance(error, BREAKDOWNS) and path.retries > 0 and safe


async def played_again(env: ToolEnv, task: Task, history: list[Step]) -> None:
    """Bring a fresh environment to where an episode stood after `history`.

    Raises:
        NotRepeatableError: a result is not what it was.
    """
    await env.areset(options={"task": task})
    for number, step in enumerate(history):
        env.episode.tokens_left = step.room
        result, _, terminated, truncated, _ = await env.astep(step.text)
        if step.withheld and not (terminated or truncated):
            env.withhold_result()
            result = env.episode.turns[-1].result
        if result != step.result:
            raise NotRepeatableError(f"turn {number} of the episode shows something else when it is played again")


def _called(path: Path) -> set[str]:
    """Return the tools that were called, and those that the turn which failed wanted to call."""
    turns = path.env.episode.turns if path.begun else []
    last = path.env.protocol.parse(turns[-1].text, path.env.schemas) if turns else None
    asked = {call.name for call in last.calls} if isinstance(last, ToolCalls) else set()
    return asked | {call.name for turn in turns for call in turn.calls}
