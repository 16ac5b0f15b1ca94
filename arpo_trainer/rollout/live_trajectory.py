"""Trajectories under way: `LiveTrajectory`, its `LiveEpisode`, and the replay of an episode whose environment was lost.

Each part of the state has one owner that writes it: the group writes a `LiveTrajectory`, the environment pool its
`LiveEpisode`, and the branch scheduler keeps its own `BranchState` of each trajectory.

An environment that is lost (its container died) can be made again by playing the same turns in a fresh one, if the
tools that were called may be called twice (`Tool.repeatable`). Every result is compared with the one that the model was
shown. If one differs, the new environment is not in the state that the model was in, and the sample is invalid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env import ServiceError, ToolEnv
from arpo_env.chat_messages import conversation
from arpo_env.protocols.protocol import ToolCalls
from arpo_env.tools.toolbox import usable_schemas, usable_tools
from arpo_trainer.backends.base import Generation
from arpo_trainer.inference_tools.inference_settings import BACKTRACER
from arpo_trainer.rollout.corrected_code import Correction, running_instead
from arpo_trainer.rollout.rendering import Renderer
from envs_registry import Task
from sandbox import SandboxError

REPLAYED_ERRORS = (SandboxError, ServiceError, TimeoutError, OSError)


@dataclass(frozen=True)
class PlayedTurn:
    """A turn that was played: its text, the tokens left before it, its result, and whether the result was withheld.

    `correction` is what ran in the place of the turn's own code, and `images` are the pictures with the result.
    """

    text: str
    room: int
    result: str
    withheld: bool = False
    correction: Correction | None = None
    images: tuple[str, ...] = ()


@dataclass
class LiveEpisode:
    """One episode of an environment, and what is needed to play it again.

    Attributes:
        env: its environment.
        retries: how often the environment may still be made again.
        seed: of tools with noise.
        begun: whether the episode has been started.
        history: the turns that were played.
        correction: what runs in the place of the code of the turn that is played now.
    """

    env: ToolEnv
    retries: int = 0
    seed: int | None = None
    begun: bool = False
    history: list[PlayedTurn] = field(default_factory=list)
    correction: Correction | None = None

    def record(self, withheld: bool) -> None:
        """Add the last turn to the history."""
        turn, room = self.env.episode.turns[-1], self.env.episode.tokens_left or 0
        self.history.append(PlayedTurn(turn.text, room, turn.result, withheld, self.correction, tuple(turn.images)))
        self.correction = None

    def may_replay(self, error: BaseException) -> bool:
        """Return whether the environment may be made again after this error."""
        tools = usable_tools(self.env.tools)
        # a call of an unknown name has run nothing, so it can be repeated
        safe = all(tools[name].repeatable for name in self._called() if name in tools)
        return isinstance(error, REPLAYED_ERRORS) and self.retries > 0 and safe

    def _called(self) -> set[str]:
        """Return the tools that were called, and those that the failed turn wanted to call."""
        turns = self.env.episode.turns if self.begun else []
        last = self.env.protocol.parse(turns[-1].text, usable_schemas(self.env.tools)) if turns else None
        asked = {call.name for call in last.calls} if isinstance(last, ToolCalls) else set()
        return asked | {call.name for turn in turns for call in turn.calls}


@dataclass
class LiveTrajectory:
    """A trajectory under way.

    Attributes:
        name: where it began: "3" is the fourth root, "3.1.0" is the first branch that left it after its turn 1.
        episode: its episode.
        ids: token ids so far, the prompt included.
        node: index of the last span, None at the prompt.
        number: of its trajectory in the tree.
        turn: number of turns played.
        used: tools at inference time that were used, one entry for each use.
        notes: marks of these tools for the turn that it generates next, see `Span.interventions`; for its last span if
            it ends before.
        opening: ids that its next turn begins with; the model goes on from there.
    """

    name: str
    episode: LiveEpisode
    ids: list[int]
    node: int | None = None
    number: int = -1
    turn: int = 0
    used: tuple[str, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    opening: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """Where its next turn begins, for seeds; a turn that is generated again has another."""
        again = self.used.count(BACKTRACER)
        return f"{self.name}/{self.turn}" + (f"/{again}" if again else "")

    @property
    def env(self) -> ToolEnv:
        """The environment of its episode."""
        return self.episode.env

    @property
    def results_left(self) -> int:
        """How many more tool results it can reach: a result needs a call, and a turn that may follow it."""
        episode = self.env.episode
        return self.env.budget.results_left(len(episode.tools_used), len(episode.turns))

    def messages(self, renderer: Renderer) -> tuple[dict[str, Any], ...]:
        """Return what the model goes on from as chat messages; pictures are parts of a content, as OpenAI has them."""
        messages = conversation(self.env)
        if self.opening:
            messages.append({"role": "assistant", "content": renderer.turn_text(self.opening, first=True)})
        return tuple(messages)

    def opened(self, made: Generation) -> Generation:
        """Return a turn with the opening before it, which is used up; its tokens were not sampled and have zeros."""
        opening, self.opening = self.opening, ()
        zeros = [0.0] * len(opening)
        numbers = [*zeros, *made.logprobs], [*zeros, *made.entropies]
        return replace(made, ids=[*opening, *made.ids], logprobs=numbers[0], entropies=numbers[1]) if opening else made

    def snapshot(self) -> LiveTrajectory:
        """Return a copy that stays where this trajectory stands now; it shares the environment itself."""
        return replace(self, ids=list(self.ids), episode=replace(self.episode, history=list(self.episode.history)))

    def branch(self, name: str, env: ToolEnv, retries: int) -> LiveTrajectory:
        """Return a new trajectory that continues from here in `env`, a fork of this one's environment."""
        episode = LiveEpisode(env, retries, self.episode.seed, begun=True, history=list(self.episode.history))
        return LiveTrajectory(
            name, episode, list(self.ids), self.node, turn=self.turn, used=self.used, notes=self.notes
        )


class ReplayError(RuntimeError):
    """Raised when an episode that is replayed does not give the same results."""


async def replay(env: ToolEnv, task: Task, history: list[PlayedTurn], seed: int | None = None) -> None:
    """Bring a fresh environment to where an episode with this seed stood after `history`.

    Raises:
        ReplayError: a result differs from the recorded one.
    """
    await env.areset(seed=seed, options={"task": task})
    for number, turn in enumerate(history):
        env.episode.tokens_left = turn.room  # tools see how much room is left, so results may depend on it
        with running_instead(env, turn.correction):
            result, _, terminated, truncated, _ = await env.astep(turn.text)
        if turn.withheld and not (terminated or truncated):
            env.withhold_result()
            # of memories that did not fit, what the model was told instead may not have fitted, either
            if env.episode.turns[-1].result != turn.result:
                env.withhold_result()
            result = env.episode.turns[-1].result
        if (result, tuple(env.episode.turns[-1].images)) != (turn.result, turn.images):
            raise ReplayError(f"turn {number} of the episode gave another result when it was replayed")


def error_message(error: BaseException) -> str:
    """Return what a failed trajectory says of its error: the class, the message, and its notes."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f"; {notes}" if notes else "")
