"""Tools at inference time in the turns of one group: debugger, backtracer and refiner (Tool-Star, sec. 2.1).

After a Python cell that failed, the debugger's correction runs in a fork of the session that was made before the call;
if the debugger is off or used up, the backtracer takes the turn back and the policy generates it again; otherwise the
error is shown. Before a turn, or after one that ran out of room, the refiner shortens the thoughts of the chain.

A trajectory goes on in other spans and in another environment, and what was abandoned stays in the tree. Whatever a
tool or its model fails at, the sample goes on as if the tool were off; the failure is noted in the tree.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from arpo_env import ToolEnv
from arpo_env.protocols.protocol import ToolCalls
from arpo_env.sqlite_store import CacheError
from arpo_trainer.backends.base import Generation
from arpo_trainer.inference_tools.chain_refiner import shortened_turns
from arpo_trainer.inference_tools.code_debugger import corrected_code
from arpo_trainer.inference_tools.helper_model import CountedHelper, HelperFailed, InferenceTools
from arpo_trainer.inference_tools.inference_settings import BACKTRACER, DEBUGGER, REFINER
from arpo_trainer.rollout.corrected_code import CODE, PYTHON, Correction
from arpo_trainer.rollout.environments import EnvironmentPool, StepResult
from arpo_trainer.rollout.live_trajectory import REPLAYED_ERRORS, LiveEpisode, LiveTrajectory
from arpo_trainer.rollout.refined_chain import go_over, shorter_spans
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.timeline import Event
from arpo_trainer.tree import ABANDONED, FAILED, WORKED, RolloutTree, Span

_FAILURES = ("error", "timeout")


class TurnTools:
    """The tools of one group.

    Args:
        tools: which tools, how often in a sample, and the model that helps.
        environments: of the group.
        tree: of the group.
        renderer: of the model.
        seed: returns the seed of a place in the tree.
    """

    def __init__(
        self,
        tools: InferenceTools,
        environments: EnvironmentPool,
        tree: RolloutTree,
        renderer: Renderer,
        seed: Callable[[str], int],
    ) -> None:
        if tools.helper is None:
            raise ValueError("tools at inference time need a helper here: `InferenceTools.with_helper`")
        self.settings, self.helper, self.environments = tools.settings, tools.helper, environments
        self.tree, self.renderer, self._seed = tree, renderer, seed

    # the refiner

    async def before_turn(self, trajectory: LiveTrajectory) -> None:
        """Shorten a chain that has become too long."""
        length = len(trajectory.ids) - len(self.tree.prompt_ids)
        if length >= self.settings.refine_above and self.settings.left(REFINER, trajectory.used):
            await self._refine(trajectory)

    async def takes_back_cut(self, trajectory: LiveTrajectory, generation: Generation, room: int) -> bool:
        """Return whether a turn that ran out of room is generated again, behind a shorter chain."""
        cut = generation.finish == "length" and len(generation.ids) >= room
        # without a turn before it there is nothing to shorten
        if not cut or trajectory.node is None or not self.settings.left(REFINER, trajectory.used):
            return False
        node = trajectory.node
        if not await self._refine(trajectory):
            return False
        text = self.renderer.tokenizer.decode(generation.ids)
        numbers = {"logprobs": generation.logprobs, "entropies": generation.entropies}
        self.tree.add_span(node, "model", generation.ids, **numbers, text=text, finish="length").mark(
            REFINER, ABANDONED
        )
        return True

    async def _refine(self, trajectory: LiveTrajectory) -> bool:
        before = len(trajectory.ids)
        trajectory.used += (REFINER,)
        try:
            await self._shorten(trajectory)
        except HelperFailed as error:
            self._note(trajectory, REFINER, FAILED, str(error))
            return False
        self._note(trajectory, REFINER, WORKED, f"{before - len(trajectory.ids)} tokens less")
        return True

    async def _shorten(self, trajectory: LiveTrajectory) -> None:
        path, turns = self.tree.path_to(trajectory.node), trajectory.env.episode.turns
        whole = ["model", "environment"] * len(turns)
        if [span.kind for span in path] not in (whole, whole[:-1]):
            raise HelperFailed("the chain is not one of turns and results alone")  # such as after a fold
        texts, question = [turn.text for turn in turns], self.environments.task.question
        async with self._helping(trajectory, REFINER) as helper:
            chain = [(turn.text, turn.result) for turn in turns]
            new = await shortened_turns(helper, question, chain, self._place(trajectory))
        shorter = shorter_spans(path, texts, new, self.renderer, trajectory.env.schemas)
        if not shorter:
            raise HelperFailed("no turn became shorter")
        go_over(self.tree, trajectory, shorter, self.renderer)

    # debugger and backtracer

    async def play(self, trajectory: LiveTrajectory, text: str, room: int, cut: bool) -> StepResult | None:
        """Play a turn, and repair it if its Python cell failed.

        Args:
            trajectory: whose turn; its last span is the turn.
            text: of the turn.
            room: tokens left for what follows the turn.
            cut: whether the turn is incomplete and must not be read.

        Returns:
            What `EnvironmentPool.act` returns; None if the turn was taken back, so that it is generated again.
        """
        span = self._span(trajectory)
        _leave_notes(trajectory, span)
        step = await self._repaired(trajectory, span, text, room, cut)
        if (
            step is not None
            and self.settings.left(REFINER, trajectory.used)
            and self._overflows(trajectory, step, room)
        ):
            await self._refine(trajectory)
        return step

    def _overflows(self, trajectory: LiveTrajectory, step: StepResult, room: int) -> bool:
        """Return whether a result would be withheld, since it leaves no room to answer."""
        if step[2] or step[3] or step[4].get("folded"):  # a fold makes room by itself
            return False
        env, ended = trajectory.env, self._span(trajectory).finish == "eos"
        ids = self.renderer.result_ids(step[4]["results"], ended, env.schemas)
        return len(ids) + env.budget.answer_tokens >= room

    async def _repaired(
        self, trajectory: LiveTrajectory, span: Span, text: str, room: int, cut: bool
    ) -> StepResult | None:
        code = None if cut else _python_code(trajectory, text)
        tool = self._next_tool(trajectory)
        if code is None or not tool:
            return await self.environments.act(trajectory, text, room, cut)
        saved = await self._fork(trajectory)
        try:
            step = await self.environments.act(trajectory, text, room)
            if not _failed(step):
                return step
            if isinstance(saved, str):
                span.mark(tool, FAILED, saved)
                return step
            if tool == DEBUGGER:
                return await self._debug(trajectory, saved, text, room, code, step) or step
            await self._take_back(trajectory, saved, span, step)
            return None
        finally:
            if isinstance(saved, ToolEnv) and saved is not trajectory.env:
                await self.environments.close(saved)

    def _next_tool(self, trajectory: LiveTrajectory) -> str:
        """Return which tool answers the next error, in the order of the published code; "" if none does."""
        wanted = (tool for tool in (DEBUGGER, BACKTRACER) if self.settings.left(tool, trajectory.used))
        return next(wanted, "")

    async def _fork(self, trajectory: LiveTrajectory) -> ToolEnv | str:
        """Return a copy of the environment as it is before the call, or why there is none."""
        try:
            [saved] = await self.environments.fork(trajectory, Event(trajectory.number, "fork", 0.0, 0.0, copies=1))
        except REPLAYED_ERRORS as error:
            return f"the session could not be forked: {error}"
        return saved

    async def _debug(
        self, trajectory: LiveTrajectory, saved: ToolEnv, text: str, room: int, code: str, step: StepResult
    ) -> StepResult | None:
        """Return the step that the corrected code makes, from which the trajectory goes on; None if it fails, too."""
        span, error = self._span(trajectory), step[4]["results"][0]
        trajectory.used += (DEBUGGER,)
        try:
            async with self._helping(trajectory, DEBUGGER) as helper:
                fixed = await corrected_code(helper, code, error, self._place(trajectory))
            trial = self._in(trajectory, saved)
            trial.episode.correction = Correction(fixed, error)
            again = await self.environments.act(trial, text, room)
            if _failed(again):
                raise HelperFailed("the corrected code failed, too")
        except CacheError:
            raise
        except (HelperFailed, *REPLAYED_ERRORS) as fault:
            span.mark(DEBUGGER, FAILED, str(fault))
            return None
        span.mark(DEBUGGER, WORKED, fixed)
        await self._move(trajectory, trial)
        return again

    async def _take_back(self, trajectory: LiveTrajectory, saved: ToolEnv, span: Span, step: StepResult) -> None:
        """Bring a trajectory to where it was before its last turn, which stays in the tree with its result."""
        results = step[4]["results"]
        ids = self.renderer.result_ids(results, span.finish == "eos", trajectory.env.schemas)
        shown = trajectory.env.episode.turns[-1].result
        # what was done before the turn counts for the one in its place
        trajectory.notes, span.interventions = tuple(span.interventions or ()), None
        for abandoned in (span, self.tree.add_span(span.index, "environment", ids, text=shown, tool=step[4]["tool"])):
            abandoned.mark(BACKTRACER, ABANDONED)
        trajectory.used += (BACKTRACER,)
        trajectory.ids = trajectory.ids[: len(trajectory.ids) - len(span.ids)]
        trajectory.node = span.parent
        self.tree.trajectories[trajectory.number].leaf = -1 if span.parent is None else span.parent
        self._note(trajectory, BACKTRACER, WORKED, results[0])
        await self._move(trajectory, self._in(trajectory, saved))

    @staticmethod
    def _in(trajectory: LiveTrajectory, env: ToolEnv) -> LiveTrajectory:
        """Return the trajectory in another environment, one that is not made again if it breaks down."""
        old = trajectory.episode
        return replace(trajectory, episode=LiveEpisode(env, 0, old.seed, begun=True, history=list(old.history)))

    async def _move(self, trajectory: LiveTrajectory, to: LiveTrajectory) -> None:
        """Let a trajectory go on in another environment, and close its own."""
        left = trajectory.episode
        to.episode.retries = left.retries
        trajectory.episode = to.episode
        await self.environments.close(left.env)

    # for both

    def ended(self, trajectory: LiveTrajectory) -> None:
        """Leave the marks for a turn that no longer comes where the trajectory has ended."""
        _leave_notes(trajectory, self.tree.spans[self.tree.trajectories[trajectory.number].leaf])

    def _span(self, trajectory: LiveTrajectory) -> Span:
        assert trajectory.node is not None  # for the type checker: it has just generated a turn
        return self.tree.spans[trajectory.node]

    @staticmethod
    def _note(trajectory: LiveTrajectory, tool: str, outcome: str, detail: str) -> None:
        trajectory.notes += ({"tool": tool, "outcome": outcome, "detail": detail},)

    def _place(self, trajectory: LiveTrajectory) -> int:
        return self._seed(f"{trajectory.place}/helper")

    @contextlib.asynccontextmanager
    async def _helping(self, trajectory: LiveTrajectory, tool: str) -> AsyncIterator[CountedHelper]:
        """Ask the helper within the block; an event has the time and the tokens, also when the block fails."""
        event, helper = Event(trajectory.number, "helper", 0.0, 0.0, name=tool), CountedHelper(self.helper)
        async with self.environments.limits.timed(self.environments.timeline, event, "generate"):
            try:
                yield helper
            finally:
                spent = helper.spent
                event.context, event.cached, event.tokens = spent["context"], spent["cached"], spent["tokens"]


def _leave_notes(trajectory: LiveTrajectory, span: Span) -> None:
    for mark in trajectory.notes:
        span.mark(**mark)
    trajectory.notes = ()


def _failed(step: StepResult) -> bool:
    """Return whether the episode goes on after a call that failed."""
    _, _, terminated, truncated, info = step
    return not (terminated or truncated) and info.get("tool", {}).get("status") in _FAILURES


def _python_code(trajectory: LiveTrajectory, text: str) -> str | None:
    """Return the code of a turn whose only call is Python."""
    action = trajectory.env.protocol.parse(text, trajectory.env.schemas)
    if not isinstance(action, ToolCalls) or [call.name for call in action.calls] != [PYTHON]:
        return None
    code = action.calls[0].arguments.get(CODE)
    return code if isinstance(code, str) else None
