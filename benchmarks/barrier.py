"""The engine that ours is measured against: all prompts advance in rounds, and everybody waits for the slowest.

It schedules and branches as the published ARPO and AEPO do (A-roll and its AEPO twin in the specification):

1. one generation call for all active rollouts, with one `max_tokens`: what the one with most room has left;
2. then all tool calls, 64 at a time, and all of them are awaited;
3. each rollout that goes on may be copied after its tool result: by lot, in the order of the indices, judged by the
   entropy of the segment *before* that result, as a sum, against the first segment seen under the same index;
4. a prompt of which nothing goes on gets one fresh rollout a round, until it has all.

It plays the same environments with the same backends as ours and makes the same trees. What is published and is no
matter of scheduling is left out: retries of empty results, the end token put in at the limit of calls, entropies of ten
tokens only. With `algorithm="grpo"` all rollouts start at the prompt, and the two engines differ in scheduling alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.algorithms.branching import segment_entropy
from arpo_trainer.algorithms.registry import split_budget
from arpo_trainer.backends.base import Backend, Generation, Request
from arpo_trainer.rollout.rendering import Renderer, as_published
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import Decision, Origin, RolloutTree, Stopwatch, Trajectory
from envs_registry import Task

TOOL_WORKERS = 64


def next_streaks(streaks: Sequence[int], gained: Sequence[bool]) -> list[int]:
    """Count rounds in a row in which a prompt got a rollout; a round in which no prompt did counts for none."""
    if not any(gained):
        return list(streaks)
    return [streak + 1 if got else 0 for streak, got in zip(streaks, gained, strict=True)]


@dataclass
class _Rollout:
    """One trajectory under way; `first` and `last` are entropies of segments, `env` its copy of the world."""

    number: int
    name: str
    env: ToolEnv
    ids: list[int]
    node: int | None = None
    turn: int = 0
    first: float | None = None
    last: float = 0.0


@dataclass
class _Prompt:
    """One prompt of the batch: its active rollouts in the order of their numbers, and what the last round did."""

    task: Task
    tree: RolloutTree
    seed_name: str
    active: list[_Rollout] = field(default_factory=list)
    streak: int = 0
    note: dict[str, Any] = field(default_factory=dict)


@dataclass
class BarrierEngine:
    """Plays tasks in rounds; the arguments are those of `arpo_trainer.rollout.engine.Engine`.

    The rule is the library's own row of the published one, so `algorithm` is "arpo-reference", "aepo-reference"
    (without its pre-monitoring, which the published scripts switch off) or "grpo".

    Attributes:
        backend: generates.
        tokenizer: of the model.
        env: the environment to play.
        settings: `branch_alpha` is p_b here and `branch_beta` is w; `branch_threshold` is not used.
        draw: gives the lots, one a candidate; by default seeded with the settings' seed.
        tool_time: runs while a tool does.
        rounds: so many were needed for the last rollout.

    Raises:
        ValueError: another algorithm.
    """

    backend: Backend
    tokenizer: Any
    env: ToolEnv
    settings: RolloutSettings
    draw: Callable[[], float] | None = None
    tool_time: Stopwatch = field(default_factory=Stopwatch)
    rounds: int = 0

    def __post_init__(self) -> None:
        parts = self.settings.parts
        if parts.branch not in (None, "arpo-reference", "aepo-reference") or parts.budget not in ("grpo", "arpo"):
            raise ValueError(f"rounds are played with the published rules or with grpo, not with {parts}")
        self._lot = self.draw or random.Random(self.settings.seed).random
        self.env = as_published(self.env, parts)
        self.renderer = Renderer(self.tokenizer, self.env.protocol)
        self.workers = asyncio.Semaphore(TOOL_WORKERS)

    async def rollout(self, tasks: Sequence[Task], step: int = 0) -> list[RolloutTree]:
        """Play each task as a tree with `num_generations` trajectories.

        What each round did is written to `tree.meta["rounds"]`: the active ones, the survivors, (parent, branch) and
        the fresh ones.
        """
        prompts = [self._prompt(task, step, number) for number, task in enumerate(tasks)]
        self.rounds = 0
        await self.backend.begin()
        try:
            settings = self.settings
            count, _ = split_budget(settings.parts.budget, settings.num_generations, settings.initial_rollouts)
            await asyncio.gather(*(self._start(prompt, "root") for prompt in prompts for _ in range(count)))
            while any(prompt.active for prompt in prompts):
                await self._round(prompts)
                self.rounds += 1
        finally:
            await self._close([rollout for prompt in prompts for rollout in prompt.active])
            await self.backend.end()
        return [prompt.tree for prompt in prompts]

    def _prompt(self, task: Task, step: int, number: int) -> _Prompt:
        ids = self.renderer.prompt_ids(self.env.messages(task), self.env.schemas)
        meta = {"step": step, "group": number, "seed": self.settings.seed, "rounds": []}
        return _Prompt(
            task, RolloutTree(ids, task=task.as_dict(), meta=meta), f"{self.settings.seed}/{step}/{number}/{task.id}"
        )

    async def _start(self, prompt: _Prompt, origin: Origin) -> int:
        number = self._new_trajectory(prompt, origin)
        rollout = _Rollout(number, f"{number}", self.env.spawn(), list(prompt.tree.prompt_ids))
        prompt.active.append(rollout)
        await rollout.env.areset(options={"task": prompt.task})
        return number

    def _new_trajectory(
        self, prompt: _Prompt, origin: Origin, parent: int | None = None, fork: int | None = None
    ) -> int:
        prompt.tree.trajectories.append(Trajectory(-1 if fork is None else fork, origin, parent, fork))
        return len(prompt.tree.trajectories) - 1

    async def _round(self, prompts: Sequence[_Prompt]) -> None:
        for prompt in prompts:
            prompt.note = {"active": [rollout.number for rollout in prompt.active]}
        everybody = [(prompt, rollout) for prompt in prompts for rollout in prompt.active]
        await self._generate(everybody)
        goes_on = await asyncio.gather(*(self._act(prompt, rollout) for prompt, rollout in everybody))
        await self._close([rollout for (_, rollout), more in zip(everybody, goes_on, strict=True) if not more])
        alive = {id(rollout) for (_, rollout), more in zip(everybody, goes_on, strict=True) if more}
        for prompt in prompts:
            prompt.active = [rollout for rollout in prompt.active if id(rollout) in alive]
            prompt.note["survivors"] = [rollout.number for rollout in prompt.active]
        await asyncio.gather(*(fork for prompt in prompts for fork in self._branch(prompt)))
        await asyncio.gather(*(self._top_up(prompt) for prompt in prompts))
        gained = [bool(prompt.note["branches"] or prompt.note["fresh"]) for prompt in prompts]
        for prompt, streak in zip(prompts, next_streaks([p.streak for p in prompts], gained), strict=True):
            prompt.streak = streak
            if prompt.note["active"]:
                prompt.tree.meta["rounds"].append(prompt.note)

    # 1. generate, all at once

    async def _generate(self, everybody: Sequence[tuple[_Prompt, _Rollout]]) -> None:
        most = max(self._room(prompt, rollout) for prompt, rollout in everybody)
        shared = max(1, min(most, self.settings.max_turn_length or most))
        requests = [self._request(prompt, rollout, shared) for prompt, rollout in everybody]
        generations = await asyncio.gather(*map(self.backend.generate, requests))
        for (prompt, rollout), generation in zip(everybody, generations, strict=True):
            self._append(prompt, rollout, generation)

    def _request(self, prompt: _Prompt, rollout: _Rollout, max_tokens: int) -> Request:
        name = f"{prompt.seed_name}/{rollout.name}/{rollout.turn}"
        seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
        stop = tuple(rollout.env.protocol.stop_strings(rollout.env.schemas))
        return Request(tuple(rollout.ids), max_tokens, stop, seed, self.settings.temperature, group=prompt.seed_name)

    def _room(self, prompt: _Prompt, rollout: _Rollout) -> int:
        limits = (self.settings.max_completion_length, rollout.env.budget.tokens)
        used = len(rollout.ids) - len(prompt.tree.prompt_ids)
        return min(limit for limit in limits if limit is not None) - used

    def _append(self, prompt: _Prompt, rollout: _Rollout, generation: Generation) -> None:
        """Add a segment, cut at the rollout's own limit: the shared one lets it go beyond."""
        room = self._room(prompt, rollout)
        ids = generation.ids[:room]
        span = prompt.tree.add_span(
            rollout.node,
            "model",
            ids,
            logprobs=generation.logprobs[:room],
            entropies=generation.entropies[:room],
            text=self.tokenizer.decode(ids),
            finish=generation.finish if len(ids) == len(generation.ids) else "length",
        )
        rollout.node = prompt.tree.trajectories[rollout.number].leaf = span.index
        rollout.ids += ids
        rollout.last = segment_entropy(span.entropies, len(self.tokenizer), self.settings.entropy_window)
        rollout.first = rollout.last if rollout.first is None else rollout.first

    # 2. act, all of them, and wait for all

    async def _act(self, prompt: _Prompt, rollout: _Rollout) -> bool:
        """Take the turn in the environment; say whether the rollout goes on."""
        span = prompt.tree.spans[rollout.node or 0]
        text = self.renderer.turn_text(span.ids, first=rollout.turn == 0)
        rollout.env.episode.tokens_left = self._room(prompt, rollout)
        rollout.turn += 1
        async with self.workers:
            with self.tool_time.running():
                _, reward, terminated, truncated, info = await rollout.env.astep(text)
        if not (terminated or truncated):
            ids = self.renderer.result_ids(info["results"], span.finish == "eos", rollout.env.schemas)
            if len(ids) < self._room(prompt, rollout):
                result = prompt.tree.add_span(
                    rollout.node, "environment", ids, text="".join(info["results"]), tool=info.get("tool")
                )
                rollout.node = prompt.tree.trajectories[rollout.number].leaf = result.index
                rollout.ids += ids
                return True
            _, reward, _, _, info = await rollout.env.atruncate()
        trajectory = prompt.tree.trajectories[rollout.number]
        trajectory.outcome, trajectory.reward, trajectory.answer = info["outcome"], reward, info.get("answer")
        trajectory.components, trajectory.tool_calls = info.get("reward_components", {}), info["tool_calls"]
        return False

    # 3. copy, 4. top up

    def _branch(self, prompt: _Prompt) -> list[Coroutine[Any, Any, None]]:
        """Decide on copies in the order of the numbers, while the prompt may have more; return the forks to do."""
        made: list[list[int]] = []
        forks = []
        for rollout in list(prompt.active):
            twins = [self._twin(prompt, rollout) for _ in range(self._copies(prompt, rollout))]
            prompt.active += twins
            made += [[rollout.number, twin.number] for twin in twins]
            forks += [_fork(rollout.env, twins)] if twins else []
        prompt.note["branches"] = made
        return forks

    def _copies(self, prompt: _Prompt, rollout: _Rollout) -> int:
        settings = self.settings
        missing = settings.num_generations - len(prompt.tree.trajectories)
        method, copies = settings.parts.method, 0
        for _ in range(min(settings.branch_width - 1, missing) if method else 0):
            rise = rollout.last - (rollout.first or 0.0)
            point = Decision(rollout.last, rise, consecutive=prompt.streak, uniform=self._lot())
            copies += method.score(point, settings).branch
        return copies

    def _twin(self, prompt: _Prompt, rollout: _Rollout) -> _Rollout:
        number = self._new_trajectory(prompt, "branch", rollout.number, rollout.node)
        return _Rollout(number, f"{number}", rollout.env, list(rollout.ids), rollout.node, rollout.turn)

    async def _top_up(self, prompt: _Prompt) -> None:
        """Start one rollout at the prompt if nothing of it goes on and some are missing."""
        missing = self.settings.num_generations - len(prompt.tree.trajectories)
        fresh = missing > 0 and not prompt.note["survivors"]
        prompt.note["fresh"] = [await self._start(prompt, "top-up")] if fresh else []

    async def _close(self, rollouts: Sequence[_Rollout]) -> None:
        await asyncio.gather(*(rollout.env.aclose() for rollout in rollouts))


async def _fork(env: ToolEnv, twins: Sequence[_Rollout]) -> None:
    for twin, copy in zip(twins, await env.afork(len(twins)), strict=True):
        twin.env = copy
