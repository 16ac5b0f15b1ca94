"""The rollout engine: plays a prompt as a tree of live episodes.

Each trajectory is a coroutine: generate a turn, look at the entropy of its first tokens, perhaps fork the episode
as it stood after the last tool result, act, go on. There are no rounds; the backend batches whatever is ready, and
tools run meanwhile. Every group ends with exactly `num_generations` trajectories: planned roots, branches, and, if
branches did not use up their share, more roots.

Where it branches (ARPO, sec. 3.1, Alg. 1): after a tool result, the entropy of the next k tokens is compared with
that of the first k tokens of the tree's root; a branch inherits the root's baseline. The tokens that were measured
stay in the trajectory that wrote them. Environment errors are contained: that sample is invalid, not wrong.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.branching import branch_score, split_budget
from arpo_trainer.entropy import segment_entropy
from arpo_trainer.generation import Backend, Generation, GenerationError, Request
from arpo_trainer.rendering import Renderer
from arpo_trainer.stopwatch import Stopwatch
from arpo_trainer.tree import Decision, Origin, RolloutTree, Span, Trajectory
from envs_registry import Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RolloutSettings:
    """How trees are grown; ARPO's defaults.

    Attributes:
        algorithm: "arpo" or "grpo".
        num_generations: M, trajectories a group.
        initial_rollouts: N, how many start at the prompt.
        branch_width: Z, paths that leave a branching point, the original included.
        alpha: base of the branch score.
        beta: weight of the entropy rise.
        tau: threshold; a score above it branches.
        entropy_window: k, tokens whose entropy is looked at.
        temperature: of sampling; 0 is greedy.
        max_turn_tokens: new tokens in one turn.
        max_completion_length: tokens after the prompt, the environment's included; fewer if its `max_tokens` is less.
        max_invalid: share of a rollout's trajectories that may fail. A dead sandbox fails those that call the tool
            and spares the others: learning from what is left would teach not to call it.
        seed: of everything that is drawn.
    """

    algorithm: str = "arpo"
    num_generations: int = 16
    initial_rollouts: int = 8
    branch_width: int = 2
    alpha: float = 0.5
    beta: float = 0.2
    tau: float = 0.5
    entropy_window: int = 20
    temperature: float = 1.0
    max_turn_tokens: int = 256
    max_completion_length: int = 1024
    max_invalid: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        split_budget(self.algorithm, self.num_generations, self.initial_rollouts)
        for name in ("branch_width", "entropy_window", "max_turn_tokens", "max_completion_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.temperature < 0:
            raise ValueError(f"temperature must not be negative, got {self.temperature}")


@dataclass
class Engine:
    """Grows trees.

    Attributes:
        backend: generates.
        tokenizer: of the model: renders prompts, decodes turns, encodes tool results.
        env: the environment to play; trajectories run on copies of it.
        settings: how to grow.
        chat_template_kwargs: given to the tokenizer's chat template.
        on_trajectory: called when a trajectory has ended, for progress bars.
    """

    backend: Backend
    tokenizer: Any
    env: ToolEnv
    settings: RolloutSettings
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    on_trajectory: Callable[[], object] | None = None
    tool_time: Stopwatch = field(default_factory=Stopwatch)

    async def rollout(self, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> list[RolloutTree]:
        """Play each task as a tree.

        Args:
            tasks: one a tree.
            step: of the training; part of the trees' seeds.
            first_group: number of the first tree, where other processes play others of the same step.

        Returns:
            One tree a task, in order, each with exactly `num_generations` trajectories.

        Raises:
            GenerationError: the model failed.
            RuntimeError: more than `max_invalid` of the trajectories failed; holds the first failure.
        """
        await self.backend.begin()
        groups = [_Group(self, task, step, number) for number, task in enumerate(tasks, first_group)]
        try:
            async with asyncio.TaskGroup() as running:
                for group in groups:
                    running.create_task(group.grow())
        except BaseExceptionGroup as several:
            raise _first(several) from None
        finally:
            await self.backend.end()
        trees = [group.tree for group in groups]
        self._check_failures([trajectory for tree in trees for trajectory in tree.trajectories])
        return trees

    def _check_failures(self, trajectories: list[Trajectory]) -> None:
        errors = [trajectory.error for trajectory in trajectories if trajectory.error]
        allowed = self.settings.max_invalid
        if len(errors) > allowed * len(trajectories):
            raise RuntimeError(
                f"{len(errors)} of {len(trajectories)} trajectories failed, more than max_invalid = {allowed:g} "
                f"allows; the first said: {errors[0]}"
            )

    @functools.cached_property
    def renderer(self) -> Renderer:
        """Renders for this tokenizer and the environment's protocol."""
        return Renderer(self.tokenizer, self.env.protocol, self.chat_template_kwargs)

    def prompt_ids(self, task: Task) -> list[int]:
        """Render and tokenise a task's opening messages."""
        return self.renderer.prompt_ids(self.env.messages(task), self.env.schemas)


@dataclass
class _Path:
    """A trajectory under way: where it is in the tree, and its own copy of the world."""

    number: int
    name: str
    env: ToolEnv
    node: int | None
    ids: list[int]
    baseline: list[float] | None
    turn: int = 0


class _Group:
    """One prompt: grows its tree."""

    def __init__(self, engine: Engine, task: Task, step: int, number: int) -> None:
        self.engine, self.task, self.settings = engine, task, engine.settings
        self.seed_name = f"{self.settings.seed}/{step}/{number}/{task.id}"
        roots, self.reserve = split_budget(
            self.settings.algorithm, self.settings.num_generations, self.settings.initial_rollouts
        )
        self.roots = roots
        meta = {"step": step, "group": number, "seed": self.settings.seed, "algorithm": self.settings.algorithm}
        self.tree = RolloutTree(engine.prompt_ids(task), task=task.as_dict(), meta=meta)
        self.tree.prompt = engine.tokenizer.decode(self.tree.prompt_ids)
        self.running: asyncio.TaskGroup

    async def grow(self) -> None:
        await self._start_roots("root", self.roots)
        missing = self.settings.num_generations - len(self.tree.trajectories)
        if missing:
            self.reserve = 0
            await self._start_roots("top-up", missing)

    async def _start_roots(self, origin: Origin, count: int) -> None:
        async with asyncio.TaskGroup() as self.running:
            for _ in range(count):
                number = self._new_trajectory(origin)
                env = self.engine.env.spawn()
                path = _Path(number, f"{number}", env, None, list(self.tree.prompt_ids), None)
                self.running.create_task(self._play(path, fresh=True))

    def _new_trajectory(self, origin: Origin, parent: int | None = None, fork_span: int | None = None) -> int:
        self.tree.trajectories.append(Trajectory(-1, origin, parent, fork_span))
        return len(self.tree.trajectories) - 1

    async def _play(self, path: _Path, fresh: bool = False) -> None:
        try:
            if fresh:
                await path.env.areset(options={"task": self.task})
            while await self._turn(path):
                path.turn += 1
        except GenerationError:
            raise
        except Exception as error:  # whatever breaks in an environment voids this sample and no other
            logger.warning("trajectory %d of %s failed: %r", path.number, self.task.id, error)
            self._end(path, "failed", error=f"{type(error).__name__}: {error}")
        finally:
            await self._close(path.env)
        if self.engine.on_trajectory:
            self.engine.on_trajectory()

    async def _turn(self, path: _Path) -> bool:
        """Play one turn; say whether there is another."""
        generation = await self.engine.backend.generate(self._request(path))
        span = self._add_model_span(path, generation)
        if path.baseline is None:
            path.baseline = generation.entropies
        await self._maybe_branch(path, span)
        with self.engine.tool_time.running():
            _, reward, terminated, truncated, info = await self._step(path, generation)
        if terminated or truncated:
            cut = generation.finish == "length" and info["outcome"] == "no answer"
            return self._end(path, "truncated" if cut else info["outcome"], reward, info)
        return await self._append_result(path, generation.finish == "eos", info)

    async def _step(self, path: _Path, generation: Generation) -> tuple[str, float, bool, bool, dict[str, Any]]:
        path.env.episode.tokens_left = self._room(path)
        text = self.engine.renderer.turn_text(generation.ids, first=path.turn == 0)
        if generation.finish == "length" and path.env.protocol.native:  # half a turn reads like a whole answer there
            return await path.env.atruncate(text)
        return await path.env.astep(text)

    def _room(self, path: _Path) -> int:
        limits = (self.settings.max_completion_length, path.env.budget.tokens)
        return min(limit for limit in limits if limit is not None) - (len(path.ids) - len(self.tree.prompt_ids))

    def _request(self, path: _Path) -> Request:
        digest = hashlib.blake2b(f"{self.seed_name}/{path.name}/{path.turn}".encode(), digest_size=8).digest()
        return Request(
            tuple(path.ids),
            min(self.settings.max_turn_tokens, self._room(path)),
            tuple(path.env.protocol.stop_strings(path.env.schemas)),
            int.from_bytes(digest),
            self.settings.temperature,
        )

    def _add_model_span(self, path: _Path, generation: Generation) -> Span:
        span = self.tree.add_span(
            path.node,
            "model",
            generation.ids,
            logprobs=generation.logprobs,
            entropies=generation.entropies,
            text=self.engine.tokenizer.decode(generation.ids),
            finish=generation.finish,
        )
        path.node = self.tree.trajectories[path.number].leaf = span.index
        path.ids += generation.ids
        return span

    async def _maybe_branch(self, path: _Path, probe: Span) -> None:
        """Decide at the tool result that `probe` follows; the episode still stands as it did after that result."""
        fork = None if probe.parent is None else self.tree.spans[probe.parent]
        if fork is None or fork.decision is not None or self.settings.algorithm == "grpo":
            return
        if fork.tool is None or fork.tool["status"] == "refused":  # a message of the environment, no tool's result
            return
        fork.decision = self._decide(probe.entropies, path.baseline or probe.entropies)
        envs = await self._fork(path.env, fork.decision)
        before = len(path.ids) - len(probe.ids)
        for copy, env in enumerate(envs):
            number = self._new_trajectory("branch", path.number, fork.index)
            self.tree.trajectories[number].leaf = fork.index
            name = f"{path.name}.{path.turn}.{copy}"
            twin = _Path(number, name, env, fork.index, path.ids[:before], path.baseline, path.turn)
            self.running.create_task(self._play(twin))

    async def _fork(self, env: ToolEnv, decision: Decision) -> list[ToolEnv]:
        wanted = decision.branches
        if wanted == 0:
            return []
        self.reserve -= wanted
        try:
            with self.engine.tool_time.running():
                return await env.afork(wanted)
        except Exception as error:  # no copy, no branch: the original goes on, the budget goes to fresh roots
            logger.warning("could not fork an episode of %s: %r", self.task.id, error)
            self.reserve += wanted
            decision.branches, decision.reason = 0, f"fork failed: {error}"
            return []

    def _decide(self, entropies: Sequence[float], baseline: Sequence[float]) -> Decision:
        settings, vocabulary = self.settings, len(self.engine.tokenizer)
        now = segment_entropy(entropies, vocabulary, settings.entropy_window)
        delta = now - segment_entropy(baseline, vocabulary, settings.entropy_window)
        score = branch_score(delta, settings.alpha, settings.beta)
        if score <= settings.tau:
            return Decision(now, delta, score, settings.tau, 0, "score not above threshold")
        branches = min(settings.branch_width - 1, self.reserve)
        reason = "entropy rose" if branches else "budget spent"
        return Decision(now, delta, score, settings.tau, branches, reason)

    async def _append_result(self, path: _Path, ended: bool, info: dict[str, Any]) -> bool:
        """Append what the environment says; if it does not fit, a word that it does not; if even that, truncate."""
        ids, room = self._result_ids(path, ended, info["results"]), self._room(path)
        if len(ids) + path.env.budget.answer_tokens >= room:
            short = self._result_ids(path, ended, path.env.withhold_result())
            ids = short if len(short) < len(ids) else ids
        if len(ids) >= room:
            _, reward, _, _, info = await path.env.atruncate()
            return self._end(path, "truncated", reward, info)
        text = path.env.episode.turns[-1].result
        span = self.tree.add_span(path.node, "environment", ids, text=text, tool=info.get("tool"))
        path.node = self.tree.trajectories[path.number].leaf = span.index
        path.ids += ids
        return True

    def _result_ids(self, path: _Path, ended: bool, results: Sequence[str]) -> list[int]:
        return self.engine.renderer.result_ids(results, ended, path.env.schemas)

    def _end(
        self,
        path: _Path,
        outcome: str,
        reward: float | None = None,
        info: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> bool:
        trajectory = self.tree.trajectories[path.number]
        if trajectory.leaf < 0:  # it broke before its first token; a row needs one, masked like all of the environment
            trajectory.leaf = self.tree.add_span(None, "environment", [self.engine.tokenizer.eos_token_id]).index
        trajectory.outcome, trajectory.reward, trajectory.error = outcome, reward, error
        if info:
            trajectory.components = info.get("reward_components", {})
            trajectory.answer, trajectory.tool_calls = info.get("answer"), info["tool_calls"]
        return False

    async def _close(self, env: ToolEnv) -> None:
        try:
            await env.aclose()
        except Exception as error:  # the episode is over; a sandbox that is gone has nothing left to give back
            logger.warning("closing an environment of %s failed: %r", self.task.id, error)


def _first(error: BaseException) -> BaseException:
    """Return one of the errors in a nest of groups: they all have the same cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
