"""The rollout engine: plays prompts as trees of live episodes, many at once, on one process or several.

Every trajectory of every group is a coroutine (see `Group`). The backend batches whatever is ready, and tools run
meanwhile. The tree of a group depends on its seed, its step and its number, and not on timing: each request has its own
seed, and branches are settled in an order that timing does not change (see `branch_scheduler`).

With several processes (ranks) each group is played whole by one of them (group g of n on rank g * P // n of P), and all
ranks get its tree. TRL splits rows over ranks without regard to groups, so a group may begin on one rank and end on the
next. Ranks play at their own speed and meet when all have finished; an error is raised on all ranks then. With one
process, or outside `torch.distributed`, nothing is exchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import hashlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from arpo_env import ToolEnv
from arpo_env.chat_messages import request_tools
from arpo_env.event_loop import BackgroundCall
from arpo_trainer.algorithms.branching import ENTROPY_UNIT, entropy_level, segment_entropy
from arpo_trainer.algorithms.registry import probed_roots, split_budget
from arpo_trainer.backends.base import Backend, Generation, GenerationError, Request
from arpo_trainer.inference_tools import LONGEST_REPLY, InferenceTools, PolicyHelper
from arpo_trainer.rollout.branch_scheduler import BranchScheduler, PublishedScheduler
from arpo_trainer.rollout.live_trajectory import (
    DEFAULT_TRAJECTORIES,
    ConcurrencyLimits,
    EnvironmentPool,
    LiveEpisode,
    LiveTrajectory,
    check_limits,
    error_message,
)
from arpo_trainer.rollout.model_protocol import with_model_protocol
from arpo_trainer.rollout.rendering import Renderer, as_published, with_model_calls
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.rollout.turn_tools import TurnTools
from arpo_trainer.tree import Event, Kind, Origin, RolloutTree, Span, Stopwatch, Trajectory
from envs_registry import Task

__all__ = ["Engine", "RolloutSettings"]
UNSEEN = (
    "show_images=True shows pictures to the model, and {model} reads token ids of text alone. Serve a model that sees, "
    "for instance with `vllm serve`, and evaluate it as a chat endpoint (--endpoint http://HOST:8000/v1 "
    "--endpoint-model NAME, or EndpointBackend), or leave show_images out"
)
T = TypeVar("T")
logger = logging.getLogger(__name__)

# One prompt. Each trajectory is a coroutine: it generates a turn, plays it in its environment, and repeats, without
# rounds. `BranchScheduler` decides where trajectories branch: after a tool's result the entropy of the next k tokens is
# compared with that of the first k tokens of the tree's root (ARPO, sec. 3.1, Alg. 1). The measured tokens stay in the
# trajectory that generated them.
#
# A group that branches is admitted as a whole: it takes a place for each of its trajectories and holds them until it
# has ended. If trajectories were admitted one by one, those that hold sandboxes could wait for those that wait for one.
#
# Every group ends with exactly `num_generations` trajectories. A failure in an environment makes that sample invalid
# and no other one. A failure of the model ends the rollout.


class Group:
    """One prompt, and the tree that grows from it.

    Args:
        engine: plays it.
        limits: on what runs at once in the rollout, over all its groups.
        task: the task of the prompt.
        step: of the training; part of the seed, as the group's `number` in its step.
        opening: token ids that the first turn of each root begins with; the model goes on from there. They have the
            log-probability and entropy 0.0, and are counted in `meta["opening"]`.

    Raises:
        ValueError: there is an opening and the algorithm branches.
    """

    def __init__(
        self,
        engine: Engine,
        limits: ConcurrencyLimits,
        task: Task,
        step: int,
        number: int,
        opening: Sequence[int] = (),
    ) -> None:
        self.engine, self.limits, self.task, self.settings = engine, limits, task, engine.settings
        self.opening = tuple(opening)
        self.seed_name = f"{self.settings.seed}/{step}/{number}/{task.id}"
        parts = self.settings.parts
        if self.opening and parts.method is not None:  # the entropies of the first tokens are compared there
            raise ValueError(f"algorithm {self.settings.algorithm!r} branches: only 'grpo' takes an opening")
        initial = self.settings.initial_rollouts or 1
        self.roots, reserve = split_budget(parts.budget, self.settings.num_generations, initial)
        prompt_ids = engine.prompt_ids(task)
        self.tree = RolloutTree(prompt_ids, task=task.as_dict(), meta=self._meta(step, number))
        self.tree.prompt = engine.tokenizer.decode(prompt_ids)
        self.environments = EnvironmentPool(
            engine.env, task, limits, self.tree.timeline, engine.tool_time, self.settings.turn_timeout
        )
        kind = PublishedScheduler if parts.published else BranchScheduler
        starts = (self._spawn, self._start_branch, self._top_up)
        self.scheduler = kind(
            self.settings, self.seed_name, len(engine.tokenizer), self.environments, self.tree, *starts
        )
        # None: the first trajectory decides the budget (AEPO), and nothing is settled before `_set_budget`
        if reserve is not None:
            self.scheduler.set_roots(self.roots)
        if not parts.published:
            self.tree.meta["entropy_unit"] = ENTROPY_UNIT
        self.admitted_whole = parts.method is not None
        self.turn_tools: TurnTools | None = None
        if tools := engine.inference_tools:
            self.turn_tools = TurnTools(tools, self.environments, self.tree, engine.renderer, self._seed)
        self._started = 0
        self._orders: list[tuple[float, ...]] = []
        self._tasks: asyncio.TaskGroup

    def _meta(self, step: int, number: int) -> dict[str, Any]:
        settings, parts = self.settings, self.settings.parts
        return {
            "step": step,
            "group": number,
            "seed": settings.seed,
            "algorithm": settings.algorithm,
            "budget": parts.budget,
            "branch": parts.branch,
            "temperature": settings.temperature,
            **settings.filters,
            **({"opening": len(self.opening)} if self.opening else {}),
        }

    async def grow(self) -> None:
        """Play until the tree has all its trajectories."""
        asked = self.limits.now()
        async with self._admitted(self.admitted_whole, self.settings.num_generations) as waited:
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    for number in range(self.roots):
                        self._start_root("root")
                        self._record_start(number, asked, waited)
                    self.scheduler.settle()  # budget that the roots can never use becomes fresh roots right away
            finally:
                await self.environments.close_all()
        self.scheduler.explain_denials()
        if self.turn_tools is not None:
            self.turn_tools.keep_shared()
        # trajectories started in an order that depends on timing; the order of virtual rounds does not
        self.tree.reorder(sorted(range(len(self._orders)), key=self._orders.__getitem__))
        self.tree.meta["roots"] = self.roots
        if len(self.tree.trajectories) != self.settings.num_generations:
            raise RuntimeError(f"a group of {len(self.tree.trajectories)} trajectories: this is an error of the engine")

    async def grow_or_fail(self) -> GenerationError | None:
        """Grow; where the model fails, so do the trajectories that have not ended or begun. Returns its error."""
        try:
            with only_first_error():
                await self.grow()
        except GenerationError as error:
            self._fail(error)
            return error
        return None

    def _fail(self, error: GenerationError) -> None:
        missing = self.settings.num_generations - len(self.tree.trajectories)
        self.tree.trajectories += [Trajectory(-1) for _ in range(missing)]
        for trajectory in self.tree.trajectories:
            if not trajectory.outcome:
                self._set_end(trajectory, "failed", error=error_message(error))

    # how trajectories start

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        return self._tasks.create_task(coroutine)

    def _start_root(self, origin: Origin) -> None:
        name, self._started = str(self._started), self._started + 1
        episode = LiveEpisode(self.environments.spawn(), self.settings.retries, self._seed(f"{name}/world", 4))
        root = LiveTrajectory(name, episode, list(self.tree.prompt_ids), opening=self.opening)
        self.scheduler.root_started(root, origin == "top-up")
        self._start(root, origin)

    def _top_up(self, count: int) -> None:
        for _ in range(count):
            self._start_root("top-up")

    def _start_branch(self, branch: LiveTrajectory, parent: int, fork: Span) -> None:
        self._start(branch, "branch", parent, fork.index)

    def _start(
        self, trajectory: LiveTrajectory, origin: Origin, parent: int | None = None, fork: int | None = None
    ) -> None:
        trajectory.number = len(self.tree.trajectories)
        self._orders.append(self.scheduler.order(trajectory, origin == "top-up"))
        self.tree.trajectories.append(Trajectory(-1 if fork is None else fork, origin, parent, fork))
        self._spawn(self._play(trajectory))

    def _admitted(self, wanted: bool, count: int) -> contextlib.AbstractAsyncContextManager[float]:
        return self.limits.acquire("trajectory", count=count) if wanted else contextlib.nullcontext(0.0)

    def _record_start(self, number: int, asked: float, waited: float) -> None:
        if waited > 0.001:
            self.tree.timeline.append(Event(number, "start", asked, asked + waited, waited))

    # how they are played

    async def _play(self, trajectory: LiveTrajectory) -> None:
        asked = self.limits.now()
        async with self._admitted(not self.admitted_whole, 1) as waited:
            self._record_start(trajectory.number, asked, waited)
            try:
                await self.environments.start(trajectory)
                while await self._turn(trajectory):
                    pass
            except GenerationError:
                raise
            except Exception as error:  # a failure in an environment makes this sample invalid and no other one
                logger.warning("trajectory %d of %s failed: %r", trajectory.number, self.task.id, error)
                self._set_end(self.tree.trajectories[trajectory.number], "failed", error=error_message(error))
            finally:
                await self.environments.close(trajectory.env)
        self._ended(trajectory)

    def _ended(self, trajectory: LiveTrajectory) -> None:
        if self.turn_tools is not None:
            self.turn_tools.ended(trajectory)
        if self.scheduler.budget.reserve is None:
            self._set_budget(trajectory)
        self.scheduler.trajectory_ended(trajectory)
        if self.engine.on_trajectory:
            self.engine.on_trajectory()

    def _set_budget(self, probe: LiveTrajectory) -> None:
        """Set the budget from the first trajectory, which is kept as one of the group (AEPO)."""
        settings = self.settings
        first, after = self._measure(probe, settings.parts.budget_rule.published)
        total = settings.num_generations
        self.roots = probed_roots(settings.parts.budget, total, first, after, settings.budget_beta)
        self.tree.meta |= {"root_entropy": first, "tool_entropy": after}
        self.scheduler.set_roots(self.roots)
        for _ in range(self.roots - 1):
            self._start_root("root")

    def _measure(self, probe: LiveTrajectory, published: bool) -> tuple[float, float]:
        """Return the entropy of the first turn and the mean after tool results, or over all turns as published."""
        spans = [span for span in self.tree.path(probe.number) if span.sampled]
        window, vocabulary = self.settings.entropy_window, len(self.engine.tokenizer)
        if published:
            values = [segment_entropy(span.entropies, vocabulary, window) for span in spans]
            later = values
        else:
            values = [entropy_level(span.entropies, window) for span in spans]
            later = values[1:] or values
        return (values[0], sum(later) / len(later)) if values else (0.0, 0.0)

    async def _turn(self, trajectory: LiveTrajectory) -> bool:
        """Play one turn; return whether there is another."""
        tools = self.turn_tools
        if tools is not None:
            await self.scheduler.forks_made(trajectory)  # before the episode is changed
            await tools.before_turn(trajectory)
        generation = await self._generate(trajectory)
        await self.scheduler.forks_made(trajectory)  # before the episode goes on
        if tools is not None and await tools.takes_back_cut(trajectory, generation, self._room(trajectory)):
            return True
        made = {"logprobs": generation.logprobs, "entropies": generation.entropies, "finish": generation.finish}
        self._append(trajectory, "model", generation.ids, text=self.engine.tokenizer.decode(generation.ids), **made)
        text = self.engine.renderer.turn_text(generation.ids, first=not trajectory.env.episode.since_fold)
        # a native protocol reads an incomplete turn as an answer, so such a turn must not reach it
        cut, room = generation.finish == "length" and trajectory.env.protocol.native, self._room(trajectory)
        step = await (tools.play if tools else self.environments.act)(trajectory, text, room, cut)
        if step is None:  # the turn was taken back
            return True
        _, reward, terminated, truncated, info = step
        trajectory.turn += 1
        if terminated or truncated:
            short = generation.finish == "length" and info["outcome"] == "no answer"
            return self._end(trajectory, "truncated" if short else info["outcome"], reward, info)
        return await self._append_result(trajectory, generation, info)

    async def _generate(self, trajectory: LiveTrajectory) -> Generation:
        request = self._request(trajectory)
        event = Event(trajectory.number, "generate", 0.0, 0.0, context=len(request.ids))
        async with self.limits.timed(self.tree.timeline, event):
            tell = functools.partial(self.scheduler.first_tokens, trajectory) if request.window else None
            try:
                generation = await self.engine.backend.generate(request, tell)
            except GenerationError:
                raise
            except Exception as error:  # the model failed, whatever the error is called
                raise GenerationError(f"generation failed: {type(error).__name__}: {error}") from error
            event.waited += generation.queued
            event.status, event.tokens, event.cached = generation.finish, len(generation.ids), generation.cached
        return trajectory.opened(generation)

    def _request(self, trajectory: LiveTrajectory) -> Request:
        room = self._allowed(trajectory) - len(trajectory.ids) - len(trajectory.opening)
        chats = self.engine.backend.wants_messages
        return Request(
            (*trajectory.ids, *trajectory.opening),
            min(self.settings.max_turn_length or room, room),
            tuple(trajectory.env.protocol.stop_strings(trajectory.env.schemas)),
            self._seed(trajectory.place),
            self.settings.temperature,
            self.scheduler.window(trajectory),
            self.seed_name,
            trajectory.messages(self.engine.renderer) if chats else (),
            tuple(request_tools(trajectory.env)) if chats else (),
            trajectory.env.protocol if chats else None,
            self.settings.top_p,
            self.settings.top_k,
            self.settings.min_p or 0.0,
            self.settings.repetition_penalty,
        )

    def _seed(self, place: str, size: int = 8) -> int:
        # it depends on the place in the tree alone, so that timing and batches change nothing
        return int.from_bytes(hashlib.blake2b(f"{self.seed_name}/{place}".encode(), digest_size=size).digest())

    def _room(self, trajectory: LiveTrajectory) -> int:
        return self._window(trajectory) - len(trajectory.ids)

    def _window(self, trajectory: LiveTrajectory) -> int:
        """Return how long a context may become where something is added to it: the model has to have room after it."""
        most = getattr(self.engine.backend, "max_context", None)
        return min(self._allowed(trajectory), most or sys.maxsize)

    def _allowed(self, trajectory: LiveTrajectory) -> int:
        """Return how long the settings let a context become; a fold starts another one."""
        limits = (self.settings.max_completion_length, trajectory.env.budget.tokens)
        return len(self.tree.prompt_ids) + min(limit for limit in limits if limit is not None)

    def _append(self, trajectory: LiveTrajectory, kind: Kind, ids: list[int], **fields: Any) -> Span:
        """Add a span where a trajectory stands, which goes on behind it."""
        span = self.tree.add_span(trajectory.node, kind, ids, **fields)
        trajectory.node = self.tree.trajectories[trajectory.number].leaf = span.index
        trajectory.ids = list(ids) if kind == "fold" else [*trajectory.ids, *ids]
        return span

    async def _append_result(self, trajectory: LiveTrajectory, generation: Generation, info: dict[str, Any]) -> bool:
        """Append the result. One that does not fit is replaced by a notice; if that does not fit, truncate."""
        if info.get("folded") and (span := self._fold(trajectory, info)):
            self.scheduler.result_shown(trajectory, span, generation.entropies)
            return True
        ended, withheld = bool(generation.ids) and generation.finish == "eos", info.get("withheld", False)
        last = generation.ids[-1] if ended else None
        ids, room = self._result_ids(trajectory, last, info["results"]), self._room(trajectory)
        # a result that leaves no room to answer (`answer_tokens`) would be of no use to the model
        if len(ids) + trajectory.env.budget.answer_tokens >= room:
            notice = trajectory.env.budget.no_room(trajectory.env.episode)
            short = self._result_ids(trajectory, last, [notice] * len(info["results"]))
            if len(short) < len(ids):
                trajectory.env.withhold_result()
                ids, withheld = short, True
        trajectory.episode.record(withheld)
        if len(ids) >= room:
            _, reward, _, _, info = await self.environments.act(trajectory, "", room, cut=True)
            return self._end(trajectory, "truncated", reward, info)
        text = trajectory.env.episode.turns[-1].result
        span = self._append(trajectory, "environment", ids, text=text, tool=_tool(info, withheld))
        self.scheduler.result_shown(trajectory, span, generation.entropies)
        return True

    def _fold(self, trajectory: LiveTrajectory, info: dict[str, Any]) -> Span | None:
        """Move a trajectory whose last turn has folded its history behind a new prompt, and return its span.

        The limit of tokens holds for one context, so a fold gives back the room of the old history. Memories that leave
        no room to answer are refused: the environment undoes the fold, `info["results"]` says so, and None is returned.
        """
        env = trajectory.env
        ids = self.engine.renderer.prompt_ids(info["messages"], env.schemas)
        if len(ids) + env.budget.answer_tokens >= self._window(trajectory):
            # "withheld": whoever replays the episode has to undo the fold as well
            info |= {"results": env.withhold_result(), "tool": env.episode.turns[-1].tool, "withheld": True}
            return None
        tool = {**info["tool"], "memory": env.episode.memory}
        span = self._append(trajectory, "fold", ids, text=self.engine.tokenizer.decode(ids), tool=tool)
        trajectory.episode.record(withheld=False)
        return span

    def _result_ids(self, trajectory: LiveTrajectory, last: int | None, results: Sequence[str]) -> list[int]:
        return self.engine.renderer.result_ids(
            results, last is not None, trajectory.env.schemas, trajectory.called, ended_by=last
        )

    def _end(self, trajectory: LiveTrajectory, outcome: str, reward: float | None, info: dict[str, Any]) -> bool:
        ended = self.tree.trajectories[trajectory.number]
        ended.components, ended.answer = info.get("reward_components", {}), info.get("answer")
        ended.tool_calls = info["tool_calls"]
        self._set_end(ended, outcome, reward)
        return False

    def _set_end(self, ended: Trajectory, outcome: str, reward: float | None = None, error: str | None = None) -> None:
        if ended.leaf < 0:  # it failed before its first token, and a training row needs one; it is masked
            ended.leaf = self.tree.add_span(None, "environment", [self.engine.tokenizer.eos_token_id]).index
        ended.outcome, ended.reward, ended.error = outcome, reward, error


def _tool(info: dict[str, Any], withheld: bool) -> dict[str, Any] | None:
    tool: dict[str, Any] | None = info.get("tool")
    if tool is None:
        return None
    shown = {"images": info["images"]} if info.get("images") else {}
    return {**tool, "withheld": True} if withheld else {**tool, **shown}


@dataclass
class Engine:
    """Plays tasks as trees.

    Attributes:
        backend: generates the turns.
        tokenizer: of the model; it renders prompts, decodes turns and encodes tool results.
        env: the environment to play; trajectories run on copies of it. Unless it was given a protocol, it gets that of
            the model (`model_protocol`). With a reference algorithm it is replaced by one that writes results as the
            published code does.
        settings: how trees are grown.
        chat_template_kwargs: arguments for the chat template of the tokenizer.
        on_trajectory: called when a trajectory has ended, for progress bars.
        limits: maximum number of operations of one kind at once; see `ConcurrencyLimits`.
        tool_time: runs while at least one environment is busy.
        on_tree: called with each tree when it is complete, in the order of completion.
        inference: tools that help the policy at inference time, for evaluation only; None without any.
        on_begin: called on the event loop of the rollout when the backend has begun: it has its weights from then on,
            and those of the trainer may change.

    Raises:
        ValueError: a limit names an unknown kind, is below 1, or allows fewer trajectories than a group that branches
            has; the tools at inference time cannot work with the settings; or the environment shows pictures, and the
            backend passes on text alone.
    """

    backend: Backend
    tokenizer: Any
    env: ToolEnv
    settings: RolloutSettings
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    on_trajectory: Callable[[], object] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    tool_time: Stopwatch = field(default_factory=Stopwatch)
    on_tree: Callable[[RolloutTree], object] | None = None
    inference: InferenceTools | None = None
    on_begin: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.inference is not None:
            self.inference.settings.check(self.settings.temperature)
        if self.env.services.show_images and not self.backend.wants_messages:
            raise ValueError(UNSEEN.format(model=type(self.backend).__name__))
        messages, model = self.backend.wants_messages, (self.tokenizer, self.chat_template_kwargs)
        self.env = with_model_protocol(self.env, self.settings, *model, endpoint="an endpoint" if messages else "")
        # reference algorithms also need results written as the published code writes them
        self.env = as_published(self.env, self.settings.parts)
        if not messages:  # a server writes and reads calls itself
            self.env = with_model_calls(self.env, *model)
        check_limits(self.limits, list(self.env.tools))
        whole, most = self.settings.num_generations, self.limits.get("trajectory")
        # a group that branches takes all its places at once, so with fewer of them it would wait for ever
        if self.settings.parts.method is not None and most is not None and most < whole:
            raise ValueError(
                f"limits allows {most} trajectories at once, but a group that branches is admitted as a whole, with "
                f"all of its num_generations = {whole}; raise the limit, or limit 'generate' or a tool instead"
            )

    async def rollout(self, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> list[RolloutTree]:
        """Play each task as a tree.

        Args:
            tasks: one for each tree.
            step: of the training; part of the seeds.
            first_group: number of the first tree; above 0 where other processes play trees of the same step.

        Returns:
            One tree for each task, in order, each with exactly `num_generations` trajectories.

        Raises:
            GenerationError: the model failed.
            RuntimeError: more than `max_invalid` of the trajectories failed; names the first failure.
        """
        trees = await self.play(tasks, step, first_group)
        self.check_failures(trees)
        return trees

    async def play(self, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> list[RolloutTree]:
        """Do the same without `check_failures`, for callers that also count trees played by other processes."""
        limits = self.concurrency()
        groups = [Group(self, limits, task, step, number) for number, task in enumerate(tasks, first_group)]
        await self.begin()
        try:
            with only_first_error():
                async with asyncio.TaskGroup() as running:
                    for group in groups:
                        running.create_task(self._grow(group))
        finally:
            await self.backend.end()
        return [group.tree for group in groups]

    async def begin(self) -> None:
        """Begin a rollout: `play` calls it before it plays, and ends it with `backend.end`."""
        await self.backend.begin()
        if self.on_begin:
            self.on_begin()

    async def _grow(self, group: Group) -> None:
        await group.grow()
        if self.on_tree:
            self.on_tree(group.tree)

    def check_failures(self, trees: Sequence[RolloutTree]) -> None:
        """Refuse a rollout of which so many trajectories failed that learning from the rest would be biased.

        Raises:
            RuntimeError: more than `max_invalid` of the trajectories failed; names the first failure.
        """
        trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
        errors = [trajectory.error for trajectory in trajectories if trajectory.error]
        allowed = self.settings.max_invalid
        if len(errors) > allowed * len(trajectories):
            raise RuntimeError(
                f"{len(errors)} of {len(trajectories)} trajectories failed, more than max_invalid = {allowed:g} "
                f"allows; the first said: {errors[0]}"
            )

    @functools.cached_property
    def renderer(self) -> Renderer:
        """The renderer for this tokenizer and the protocol of the environment."""
        # an endpoint renders messages itself: the template of the tokenizer, which measures them, may show no tools
        return Renderer(
            self.tokenizer, self.env.protocol, self.chat_template_kwargs, strict=not self.backend.wants_messages
        )

    @functools.cached_property
    def inference_tools(self) -> InferenceTools | None:
        """The tools at inference time with a helper, which is the policy itself where none was given; None if off."""
        if not (self.inference and self.inference.settings):
            return None
        most = min(LONGEST_REPLY, self.settings.max_turn_length or LONGEST_REPLY)
        render = functools.partial(self.renderer.prompt_ids, tools=())
        return self.inference.with_helper(PolicyHelper(self.backend, self.tokenizer, render, most))

    def prompt_ids(self, task: Task) -> list[int]:
        """Render and tokenise the opening messages of a task."""
        return self.renderer.prompt_ids(self.env.messages(task), self.env.schemas)

    def concurrency(self) -> ConcurrencyLimits:
        """Return the limits of a rollout that begins now, for callers that play groups one by one."""
        # the default has to admit a whole group, too; a limit that is given replaces it
        return ConcurrencyLimits(
            {"trajectory": max(DEFAULT_TRAJECTORIES, self.settings.num_generations), **self.limits}
        )


@contextlib.contextmanager
def only_first_error() -> Iterator[None]:
    """Raise the first error in nested exception groups, which all have the same cause: callers expect it itself."""
    try:
        yield
    except BaseExceptionGroup as several:
        error: BaseException = several
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__


# several processes


def _distributed() -> Any:
    """Return `torch.distributed` if there are several processes; who has not imported torch has none."""
    dist = sys.modules.get("torch.distributed")
    several = dist is not None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return dist if several else None


def this_rank() -> int:
    """Return the rank of this process."""
    dist = _distributed()
    return dist.get_rank() if dist else 0


def rank_count() -> int:
    """Return the number of processes."""
    dist = _distributed()
    return dist.get_world_size() if dist else 1


def gather(values: Sequence[T]) -> list[T]:
    """Return the values of all ranks, in order of rank; every rank must call it. The values are pickled."""
    dist = _distributed()
    if dist is None:
        return list(values)
    parts: list[Sequence[T]] = [()] * rank_count()
    dist.all_gather_object(parts, list(values))
    return [value for part in parts for value in part]


def on_every_rank(work: Callable[[], T]) -> list[T]:
    """Call a function on every rank and return the results of all ranks, in order of rank.

    Raises:
        RuntimeError: on every rank if one failed; names that rank, where the error is the cause. With one process the
            error itself is raised.
    """
    if _distributed() is None:
        return [work()]
    own: Exception | None = None
    done: list[T] = []
    try:
        done = [work()]
    except Exception as error:  # raised below on all ranks: the others would wait for this one for ever
        own = error
    failures = gather([f"rank {this_rank()} of {rank_count()} failed: {type(own).__name__}: {own}"] if own else [])
    if failures:
        raise RuntimeError(failures[0]) from own
    return gather(done)


def share(count: int) -> range:
    """Return the groups of this rank among `count`: contiguous, and at most one more than another rank has."""
    rank, ranks = this_rank(), rank_count()
    # group g belongs to rank g * ranks // count; these are the smallest g of this rank and of the next one
    return range(-(-rank * count // ranks), -(-(rank + 1) * count // ranks))


def group_tasks(rows: Sequence[str], size: int) -> list[Task]:
    """Return one task for each `size` rows (tasks as JSON), from the rows of all ranks in order.

    Raises:
        ValueError: the rows are not whole groups of one task each.
    """
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    if any(len(group) != size or len(set(group)) != 1 for group in groups):
        raise ValueError(
            f"the {len(rows)} rows of {rank_count()} processes are not whole groups of {size} rows with one task: a "
            "sampler or data loader must repeat each row num_generations times in a row, as TRL's does"
        )
    return [Task.from_dict(json.loads(group[0])) for group in groups]


@dataclass
class OwnGroups:
    """The groups of a rollout that this rank has played.

    Attributes:
        trees: in order.
        seconds: from the beginning of the rollout to its end.
        spent: seconds during which the model ("seconds_generate") and a tool ("seconds_tools") was busy.
    """

    trees: list[RolloutTree]
    seconds: float
    spent: dict[str, float] = field(default_factory=dict)


class GroupsUnderWay(BackgroundCall[OwnGroups]):
    """The groups of this rank of a rollout, which play in the background. It returns when the backend has its weights.

    So the trainer may change its own weights while the groups play. Beginning may be collective, and nothing after it
    is: every rank must make one, and each may wait for its own at any time (`result`).

    Args:
        engine: of this rank; those of all ranks have the same settings and weights.
        tasks: of all groups, the same on every rank.
        step: of the training; part of the seeds.
        first_group: number of the first task's group in its step.

    Attributes:
        started: when it was made, by `time.perf_counter`.
        ended: when the last group had ended; 0.0 until then.
    """

    def __init__(self, engine: Engine, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> None:
        share_of_rank = share(len(tasks))
        self._begun, self.started, self.ended = threading.Event(), time.perf_counter(), 0.0
        self._engine = copy.copy(engine)  # the same parts, checked already
        self._engine.on_begin = self._begun.set
        own = [tasks[number] for number in share_of_rank]
        super().__init__(self._play(own, step, first_group + share_of_rank.start))
        try:
            self._begun.wait()
        except BaseException:  # an interrupt: nobody has this object to stop it
            self.stop()
            raise

    async def _play(self, tasks: Sequence[Task], step: int, first_group: int) -> OwnGroups:
        engine = self._engine
        try:
            clocks = {"seconds_generate": engine.backend.time, "seconds_tools": engine.tool_time}
            before = {name: clock.seconds for name, clock in clocks.items()}
            trees = await engine.play(tasks, step, first_group)
        finally:
            self.ended = time.perf_counter()
            self._begun.set()  # also if it could not begin: `result` raises the error
        spent = {name: clock.seconds - before[name] for name, clock in clocks.items()}
        return OwnGroups(trees, self.ended - self.started, spent)


def play_groups(
    engine: Engine, tasks: Sequence[Task], step: int = 0, first_group: int = 0
) -> tuple[list[RolloutTree], float]:
    """Play each task as a tree: the groups of this rank here, the others on their ranks; see `GroupsUnderWay`.

    Returns:
        The trees of all groups, in order and equal on every rank, and how many seconds the slowest rank played.

    Raises:
        RuntimeError: on every rank, if the rollout failed on one.
    """
    return joint_trees(engine, GroupsUnderWay(engine, tasks, step, first_group).result)


def joint_trees(engine: Engine, own: Callable[[], OwnGroups]) -> tuple[list[RolloutTree], float]:
    """Return what `play_groups` does, from the groups that each rank has played by itself; every rank must call it."""
    played = [(part.trees, part.seconds) for part in on_every_rank(own)]
    trees = [tree for part, _ in played for tree in part]
    engine.check_failures(trees)  # on the trees of all ranks, so that all ranks raise or none
    return trees, max(seconds for _, seconds in played)
