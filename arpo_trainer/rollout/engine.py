"""The rollout engine: plays prompts as trees of live episodes, many at once, on one process or several.

Every trajectory of every group is a coroutine (see `group`). The backend batches whatever is ready, and tools run
meanwhile. The tree of a group depends on its seed, its step and its number, and not on timing: each request has its own
seed, and branches are settled in an order that timing does not change (see `branch_scheduler`).

With several processes (ranks) each group is played whole by one of them (group g of n on rank g * P // n of P), and all
ranks get its tree. TRL splits rows over ranks without regard to groups, so a group may begin on one rank and end on the
next. Ranks play at their own speed and meet when all have finished; an error is raised on all ranks then. With one
process, or outside `torch.distributed`, nothing is exchanged.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from arpo_env import ToolEnv
from arpo_env.event_loop import BackgroundCall
from arpo_trainer.backends.base import Backend
from arpo_trainer.inference_tools import InferenceTools, PolicyHelper
from arpo_trainer.rollout.group import Group, RolloutContext
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES, ConcurrencyLimits, check_limits
from arpo_trainer.rollout.rendering import Renderer, as_published
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from envs_registry import Task

__all__ = ["Engine", "RolloutSettings"]
UNSEEN = (
    "show_images=True shows pictures to the model, and {model} reads token ids of text alone. Serve a model that sees, "
    "for instance with `vllm serve`, and evaluate it as a chat endpoint (--endpoint http://HOST:8000/v1 "
    "--endpoint-model NAME, or EndpointBackend), or leave show_images out"
)
T = TypeVar("T")


@dataclass
class Engine:
    """Plays tasks as trees.

    Attributes:
        backend: generates the turns.
        tokenizer: of the model; it renders prompts, decodes turns and encodes tool results.
        env: the environment to play; trajectories run on copies of it. With a reference algorithm it is replaced by one
            that writes results as the published code does.
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
        # reference algorithms also need results written as the published code writes them
        self.env = as_published(self.env, self.settings.parts)
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
        context = rollout_context(self)
        groups = [Group(context, task, step, number) for number, task in enumerate(tasks, first_group)]
        await self.begin()
        try:
            async with asyncio.TaskGroup() as running:
                for group in groups:
                    running.create_task(self._grow(group))
        except BaseExceptionGroup as several:
            error = first_error(several)  # callers expect the error itself, with the traceback of its cause
            raise error from error.__cause__
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

    def prompt_ids(self, task: Task) -> list[int]:
        """Render and tokenise the opening messages of a task."""
        return self.renderer.prompt_ids(self.env.messages(task), self.env.schemas)


def rollout_context(engine: Engine, limits: ConcurrencyLimits | None = None) -> RolloutContext:
    """Return what the groups of a rollout share, for callers that play groups one by one.

    Args:
        engine: plays the groups.
        limits: those of several engines together; by default the limits of this one.
    """
    # the default has to admit a whole group, too; a limit that is given replaces it
    most = {"trajectory": max(DEFAULT_TRAJECTORIES, engine.settings.num_generations), **engine.limits}
    return RolloutContext(
        engine.backend,
        engine.tokenizer,
        engine.env,
        engine.settings,
        engine.renderer,
        limits or ConcurrencyLimits(most),
        engine.tool_time,
        engine.on_trajectory,
        _with_helper(engine) if engine.inference and engine.inference.settings else None,
    )


def _with_helper(engine: Engine) -> InferenceTools:
    """Return the tools at inference time with a helper, which is the policy itself where none was given."""
    tools = engine.inference
    assert tools is not None
    most = min(tools.settings.helper_tokens, engine.settings.max_turn_length or tools.settings.helper_tokens)
    render = functools.partial(engine.renderer.prompt_ids, tools=())
    return tools.with_helper(PolicyHelper(engine.backend, engine.tokenizer, render, most))


def first_error(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups: they all have the same cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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


class GroupsUnderWay:
    """The groups of this rank of a rollout, which play in the background. It returns when the backend has its weights.

    So the trainer may change its own weights while the groups play. Beginning may be collective, and nothing after it
    is: every rank must make one, and each may wait for its own at any time.

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
        self._call = BackgroundCall(self._play(own, step, first_group + share_of_rank.start))
        try:
            self._begun.wait()
        except BaseException:  # an interrupt: nobody has this object to stop it
            self.stop()
            raise

    def own(self) -> OwnGroups:
        """Wait for the groups of this rank and return them; raises what ended the rollout."""
        return self._call.result()

    def wait(self) -> None:
        """Wait until the groups of this rank have ended, or failed."""
        self._call.wait()

    def stop(self) -> None:
        """Cancel the groups of this rank and wait until their environments are closed."""
        self._call.stop()

    async def _play(self, tasks: Sequence[Task], step: int, first_group: int) -> OwnGroups:
        engine = self._engine
        try:
            clocks = {"seconds_generate": engine.backend.time, "seconds_tools": engine.tool_time}
            before = {name: clock.seconds for name, clock in clocks.items()}
            trees = await engine.play(tasks, step, first_group)
        finally:
            self.ended = time.perf_counter()
            self._begun.set()  # also if it could not begin: `own` raises the error
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
    return joint_trees(engine, GroupsUnderWay(engine, tasks, step, first_group).own)


def joint_trees(engine: Engine, own: Callable[[], OwnGroups]) -> tuple[list[RolloutTree], float]:
    """Return what `play_groups` does, from what each rank has played by itself; every rank must call it.

    Args:
        engine: checks how many trajectories failed, those of all ranks together.
        own: returns the groups of this rank, or raises the error that ended them.
    """
    played = [(part.trees, part.seconds) for part in on_every_rank(own)]
    trees = [tree for part, _ in played for tree in part]
    engine.check_failures(trees)  # on the trees of all ranks, so that all ranks raise or none
    return trees, max(seconds for _, seconds in played)
