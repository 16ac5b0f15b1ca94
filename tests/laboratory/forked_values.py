"""Values of a state by Monte Carlo: many live forks of a running episode, each played to its end by the policy.

This is the check of `exact_values`, and takes its place where a world is too large to be enumerated. The forks are
those of the environment (`ToolEnv.afork`), with the real state of its tools, and what is random is drawn anew in each.

    estimate = await forked_value(env, ids, player, count=200)
    estimate.mean, estimate.error
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Backend, Request
from arpo_trainer.rollout.rendering import Renderer


@dataclass(frozen=True)
class SampledValue:
    """A mean reward.

    Attributes:
        mean: of the forks.
        error: standard error; 0 if all forks earned the same.
        count: number of forks.
    """

    mean: float
    error: float
    count: int


@dataclass
class ForkPlayer:
    """Plays episodes on from where they stand.

    Attributes:
        backend: generates the turns.
        renderer: between texts and ids.
        temperature: of sampling.
        max_turn_length: most new tokens in one turn.
        at_once: most forks that are alive at the same time.
        seed: of everything that is drawn.
    """

    backend: Backend
    renderer: Renderer
    temperature: float = 1.0
    max_turn_length: int = 8
    at_once: int = 64
    seed: int = 0

    async def play_on(self, env: ToolEnv, ids: Sequence[int], name: str, turn: Sequence[int] = ()) -> float:
        """Play an episode to its end, and return its reward.

        Args:
            env: the running episode; it is closed at the end.
            ids: what the policy has seen so far.
            name: tells the draws of this fork from those of others.
            turn: ids of the next turn, if it is given and not sampled.
        """
        seen, number = tuple(ids), len(env.episode.turns)
        try:
            while True:
                ended = False
                if not turn:
                    generation = await self.backend.generate(self._request(env, seen, f"{name}/{number}"))
                    turn, ended = generation.ids, generation.finish == "eos"
                text = self.renderer.turn_text(turn, first=number == 0)
                _, reward, terminated, truncated, info = await env.astep(text)
                if terminated or truncated:
                    return reward
                results = self.renderer.result_ids(info["results"], ended, env.schemas)
                seen, turn, number = (*seen, *turn, *results), (), number + 1
        finally:
            await env.aclose()

    def _request(self, env: ToolEnv, ids: tuple[int, ...], place: str) -> Request:
        seed = int.from_bytes(hashlib.blake2b(f"{self.seed}/{place}".encode(), digest_size=8).digest())
        stops = tuple(env.protocol.stop_strings(env.schemas))
        return Request(ids, self.max_turn_length, stops, seed, self.temperature)


async def forked_value(
    env: ToolEnv, ids: Sequence[int], player: ForkPlayer, count: int, turn: Sequence[int] = (), name: str = ""
) -> SampledValue:
    """Return the value of the state of a running episode, or of a turn in that state.

    Args:
        env: the running episode; it is left as it is.
        ids: what the policy has seen so far, the prompt included.
        player: plays the forks.
        count: number of forks.
        turn: ids of a turn that all forks begin with; the result is Q then, else V.
        name: of the state; other names draw other samples.

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    await player.backend.begin()
    try:
        rewards = list[float]()
        for first in range(0, count, player.at_once):
            copies = await env.afork(min(player.at_once, count - first))
            names = [f"{name}/{first + number}" for number in range(len(copies))]
            pairs = zip(copies, names, strict=True)
            rewards += await asyncio.gather(*(player.play_on(copy, ids, each, turn) for copy, each in pairs))
    finally:
        await player.backend.end()
    error = statistics.stdev(rewards) / math.sqrt(count) if count > 1 else math.inf
    return SampledValue(statistics.fmean(rewards), error, count)
