"""Tools at inference time in the turns of one group: debugger, backtracer and refiner (Tool-Star, sec. 2.1).

After a Python cell that failed, the debugger's correction runs in a fork of the session that was made before the call;
if the debugger is off or used up, the backtracer takes the turn back and the policy generates it again; otherwise the
error is shown. Before a turn, or after one that ran out of room, the refiner shortens the thoughts of the chain.

A trajectory goes on in other spans and in another environment, and what was abandoned stays in the tree. Whatever a
tool or its model fails at, the sample goes on as if the tool were off; the failure is noted in the tree.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arpo_env import ToolEnv, ToolResult
from arpo_env.cache import CacheError
from arpo_env.protocols.protocol import ToolCalls
from arpo_env.text import cut_middle
from arpo_env.tools.tool import as_result, invoke
from arpo_trainer.backends.base import Generation
from arpo_trainer.inference_tools import (
    BACKTRACER,
    DEBUGGER,
    REFINER,
    HelperFailed,
    InferenceTools,
    Spent,
    corrected_code,
    shortened_turns,
)
from arpo_trainer.rollout.live_trajectory import (
    REPLAYED_ERRORS,
    EnvironmentPool,
    LiveEpisode,
    LiveTrajectory,
    StepResult,
)
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import ABANDONED, FAILED, REWRITTEN, WORKED, Event, RolloutTree, Span

PYTHON, CODE = "python", "code"  # the tool whose calls can be corrected, and its argument
_FAILURES = ("error", "timeout")
_SHOWN_CODE, _SHOWN_ERROR = 2000, 300  # characters
_NOTE = """\
(The code failed: {error})
(It was corrected, and this ran instead, from the state before it:)
{code}
(Result:)
"""


@dataclass(frozen=True)
class Correction:
    """Code that runs in the place of the code of a call, and the error that it answers.

    The turn itself stays as the policy wrote it; its result says what was run. Called with an environment it makes the
    next call of Python within the block run the correction.
    """

    code: str
    error: str

    @property
    def note(self) -> str:
        """What the policy reads before the result."""
        lines = self.error.strip().splitlines() or ["no message"]
        said = cut_middle(lines[-1], _SHOWN_ERROR)
        return _NOTE.format(error=said, code=cut_middle(self.code, _SHOWN_CODE))

    @contextlib.contextmanager
    def __call__(self, env: ToolEnv) -> Iterator[None]:
        """Run the correction at calls of Python within the block, whatever they say."""
        tool = env.tools[PYTHON]
        call = tool.call

        async def corrected(**arguments: Any) -> ToolResult:
            result = as_result(await invoke(call, {**arguments, CODE: self.code}))
            return replace(result, text=self.note + result.text)

        vars(tool)["call"] = corrected  # of this object alone
        try:
            yield
        finally:
            del vars(tool)["call"]


# A trajectory whose thoughts were shortened. The prompt and the results keep their token ids. A turn gets new ids only
# if its shorter text still reads as the same action. The turns as they were written stay in the tree, marked as
# abandoned, beside the shorter ones.


@dataclass(frozen=True)
class ShorterTurn:
    """A turn with shorter thoughts: its number in the episode, its text, and its ids."""

    number: int
    text: str
    ids: list[int]


def shorter_spans(
    path: Sequence[Span], old: Sequence[str], new: Sequence[str], renderer: Renderer, schemas: Sequence[Any]
) -> dict[int, ShorterTurn]:
    """Return the turns of a path that became shorter from the texts `old` to `new`, by the index of their span."""
    found: dict[int, ShorterTurn] = {}
    turns = [span for span in path if span.kind == "model"]
    for number, (span, before, after) in enumerate(zip(turns, old, new, strict=True)):
        if before == after:
            continue
        ids, first = renderer.turn_ids(after, number == 0, span.finish == "eos"), number == 0
        # tokenised again, it must be read as the same text, and as the same call
        exact = renderer.turn_text(ids, first) == after
        same = renderer.protocol.parse(after, schemas) == renderer.protocol.parse(before, schemas)
        if exact and same and len(ids) < len(span.ids):
            found[span.index] = ShorterTurn(number, after, ids)
    return found


def go_over(
    tree: RolloutTree, trajectory: LiveTrajectory, shorter: Mapping[int, ShorterTurn], renderer: Renderer
) -> None:
    """Let a trajectory go on behind its shorter turns; what follows the first of them is copied."""
    path = tree.path_to(trajectory.node)
    first = next(place for place, span in enumerate(path) if span.index in shorter)
    node: int | None = path[first].parent
    for span in path[first:]:
        turn = shorter.get(span.index)
        copied = _copy(tree, node, span, turn.ids if turn else span.ids, renderer)
        if not span.has_outcome(ABANDONED):  # a branch may have left it before
            span.mark(REFINER, ABANDONED)
        node = copied.index
    trajectory.node, tree.trajectories[trajectory.number].leaf = node, len(tree.spans) - 1
    trajectory.ids = tree.prompt_ids + [number for span in tree.path_to(node) for number in span.ids]
    for turn in shorter.values():
        trajectory.env.episode.turns[turn.number].text = turn.text
        history = trajectory.episode.history
        if turn.number < len(history):  # the last turn is recorded later
            history[turn.number] = replace(history[turn.number], text=turn.text)


def _copy(tree: RolloutTree, parent: int | None, span: Span, ids: list[int], renderer: Renderer) -> Span:
    if span.kind == "environment":
        return tree.add_span(parent, span.kind, ids, text=span.text, tool=span.tool and dict(span.tool))
    same = ids == span.ids
    copied = tree.add_span(
        parent,
        "model",
        ids,
        # what the policy did not sample has no log-probabilities and entropies
        logprobs=list(span.logprobs) if same else [0.0] * len(ids),
        entropies=list(span.entropies) if same else [0.0] * len(ids),
        text=span.text if same else renderer.tokenizer.decode(ids),
        finish=span.finish,
        # another trajectory may have left the span before; this one goes on in the copy
        interventions=[mark for mark in span.interventions or () if mark["outcome"] != ABANDONED],
    )
    copied.mark(REFINER, REWRITTEN)
    return copied


class TurnTools:
    """The tools at inference time of one group; `seed` returns the seed of a place in its tree."""

    def __init__(
        self,
        tools: InferenceTools,
        environments: EnvironmentPool,
        tree: RolloutTree,
        renderer: Renderer,
        seed: Callable[[str], int],
    ) -> None:
        assert tools.helper is not None  # `InferenceTools.with_helper` has set it
        self.settings, self.helper, self.environments = tools.settings, tools.helper, environments
        self.tree, self.renderer, self._seed = tree, renderer, seed

    def keep_shared(self) -> None:
        """Take back the mark of abandoned spans through which a trajectory passes: one left them, others did not."""
        for span, below in zip(self.tree.spans, self.tree.leaves_below(), strict=True):
            if below and span.has_outcome(ABANDONED):
                span.interventions = [mark for mark in span.interventions or () if mark["outcome"] != ABANDONED] or None

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
        async with self._helping(trajectory, REFINER) as spent:
            chain = [(turn.text, turn.result) for turn in turns]
            new = await shortened_turns(self.helper, question, chain, self._place(trajectory), spent)
        shorter = shorter_spans(path, texts, new, self.renderer, trajectory.env.schemas)
        if not shorter:
            raise HelperFailed("no turn became shorter")
        go_over(self.tree, trajectory, shorter, self.renderer)

    # debugger and backtracer

    async def play(self, trajectory: LiveTrajectory, text: str, room: int, cut: bool) -> StepResult | None:
        """Play a turn as `EnvironmentPool.act` does, and repair it if its Python cell failed.

        None is returned if the turn was taken back, so that it is generated again.
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
        env = trajectory.env
        ids = self._result_ids(trajectory, self._span(trajectory), step)
        return len(ids) + env.budget.answer_tokens >= room

    def _result_ids(self, trajectory: LiveTrajectory, span: Span, step: StepResult) -> list[int]:
        """Return the ids of the results of a turn, as the engine would append them."""
        last = span.ids[-1] if span.ids and span.finish == "eos" else None
        schemas = trajectory.env.schemas
        return self.renderer.result_ids(step[4]["results"], last is not None, schemas, trajectory.called, last)

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
            async with self._helping(trajectory, DEBUGGER) as spent:
                fixed = await corrected_code(self.helper, code, error, self._place(trajectory), spent)
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
        ids = self._result_ids(trajectory, span, step)
        shown = trajectory.env.episode.turns[-1].result
        # what was done before the turn counts for the one in its place
        trajectory.notes, span.interventions = tuple(span.interventions or ()), None
        for abandoned in (span, self.tree.add_span(span.index, "environment", ids, text=shown, tool=step[4]["tool"])):
            abandoned.mark(BACKTRACER, ABANDONED)
        trajectory.used += (BACKTRACER,)
        trajectory.ids = trajectory.ids[: len(trajectory.ids) - len(span.ids)]
        trajectory.node = span.parent
        self.tree.trajectories[trajectory.number].leaf = -1 if span.parent is None else span.parent
        self._note(trajectory, BACKTRACER, WORKED, step[4]["results"][0])
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
    async def _helping(self, trajectory: LiveTrajectory, tool: str) -> AsyncIterator[Spent]:
        """Ask the helper within the block; an event has the time and the tokens, also when the block fails."""
        event, spent = Event(trajectory.number, "helper", 0.0, 0.0, name=tool), Spent()
        async with self.environments.limits.timed(self.environments.timeline, event, "generate"):
            try:
                yield spent
            finally:
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
