"""The rollout engine: plays prompts as trees of live episodes, many at once.

Every trajectory of every group is a coroutine (see `group`). The backend batches whatever is ready, and tools run
meanwhile. The tree of a group depends on its seed, its step and its number, and not on timing: each request has its own
seed, and branches are settled in an order that timing does not change (see `branch_budget`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
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
        limits: most operations of one kind at once; see `ConcurrencyLimits`.
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
        _with_helper(engine),
    )


def _with_helper(engine: Engine) -> InferenceTools | None:
    """Return the tools at inference time with a helper, which is the policy itself where none was given."""
    tools = engine.inference
    if not (tools and tools.settings):
        return None
    most = min(tools.settings.helper_tokens, engine.settings.max_turn_length or tools.settings.helper_tokens)
    render = functools.partial(engine.renderer.prompt_ids, tools=())
    return tools.with_helper(PolicyHelper(engine.backend, engine.tokenizer, render, most))


def first_error(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups: they all have the same cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
