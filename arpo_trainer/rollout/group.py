"""One prompt: grows its tree.

Each trajectory is a coroutine: generate a turn, act, go on. There are no rounds. Where it branches is `brancher`'s
business: after a tool's result the entropy of the next k tokens is compared with that of the first k tokens of the
tree's root (ARPO, sec. 3.1, Alg. 1). The tokens that were measured stay in the trajectory that wrote them.

A group that branches is let in as a whole: it holds a place for each of its trajectories until it has ended. A branch
waits for what other paths of its group do, and an episode may need one of few sandboxes to go on: if paths were let in
one by one, those which hold the sandboxes could wait for those which wait for one.

Every group ends with exactly `num_generations` trajectories. What breaks in an environment voids that sample and no
other; a model that fails ends the rollout.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arpo_env.budget import NO_ROOM
from arpo_trainer.algorithms.budgets import probed_roots, split_budget
from arpo_trainer.algorithms.entropy import ENTROPY_UNIT, entropy_level, segment_entropy
from arpo_trainer.backends.base import Generation, GenerationError, OnWindow, Request
from arpo_trainer.rollout.branch_scheduler import Brancher
from arpo_trainer.rollout.concurrency import Gates
from arpo_trainer.rollout.environments import Worlds
from arpo_trainer.rollout.live_trajectory import Path
from arpo_trainer.timeline import Event
from arpo_trainer.tree import Origin, RolloutTree, Span, Trajectory
from envs_registry import Task

if TYPE_CHECKING:
    from arpo_trainer.rollout.engine import Engine

logger = logging.getLogger(__name__)


class Group:
    """One prompt, and the tree that grows from it.

    Args:
        engine: whose group it is.
        task: what is asked.
        step: of the training; part of the seed.
        number: of the group in its step; likewise.
        gates: how many things go on at once, over all groups.
    """

    def __init__(self, engine: Engine, task: Task, step: int, number: int, gates: Gates) -> None:
        self.engine, self.task, self.settings, self.gates = engine, task, engine.settings, gates
        self.seed_name = f"{self.settings.seed}/{step}/{number}/{task.id}"
        parts = self.settings.parts
        self.roots, reserve = split_budget(parts.budget, self.settings.num_generations, self.settings.initial_rollouts)
        meta = {"step": step, "group": number, "seed": self.settings.seed, "algorithm": self.settings.algorithm,
                "budget": parts.budget, "branch": parts.branch, "temperature": self.settings.temperature}  # fmt: skip
        self.tree = RolloutTree(engine.prompt_ids(task), task=task.as_dict(), meta=meta)
        self.tree.prompt = engine.tokenizer.decode(self.tree.prompt_ids)
        self.worlds = Worlds(engine.env, task, gates, self.tree.timeline, engine.tool_time,
                             self.settings.turn_timeout)  # fmt: skip
        self.brancher = Brancher(self.settings, self.seed_name, len(engine.tokenizer), self.worlds,
                                 self._spawn, self._start_branch, self._top_up)  # fmt: skip
        if reserve is not None:
            self.brancher.divide(self.roots)
        if not self.brancher.published:
            self.tree.meta["entropy_unit"] = ENTROPY_UNIT
        self.whole = parts.method is not None
        self._started = 0
        self._orders: list[tuple[float, ...]] = []
        self._tasks: asyncio.TaskGroup

    async def grow(self) -> None:
        """Play until the tree has its trajectories."""
        asked = self.gates.now()
        async with self._place(self.whole, self.settings.num_generations) as waited:
            try:
                async with asyncio.TaskGroup() as self._tasks:
                    for number in range(self.roots):
                        self._start_root("root")
                        self._note_start(number, asked, waited)
                    self.brancher.settle()  # what the roots can never claim need not wait for them
            finally:
                await self.worlds.close_all()
        self.brancher.close()
        self.tree.reorder(sorted(range(len(self._orders)), key=self._orders.__getitem__))
        self.tree.meta["roots"] = self.roots
        if len(self.tree.trajectories) != self.settings.num_generations:
            raise RuntimeError(f"a group of {len(self.tree.trajectories)} trajectories: this is an error of the engine")

    # how trajectories start

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        return self._tasks.create_task(coroutine)

    def _start_root(self, origin: Origin) -> None:
        name, self._started = str(self._started), self._started + 1
        path = Path(name, 0, self.worlds.spawn(), None, list(self.tree.prompt_ids), retries=self.settings.retries)
        topped_up = origin == "top-up"
        path.branches = self.brancher.may_branch(topped_up)
        if path.branches:
            self.brancher.opens(path, topped_up)
        self._start(path, origin, topped_up=topped_up)

    def _top_up(self, count: int) -> None:
        for _ in range(count):
            self._start_root("top-up")

    def _start_branch(self, path: Path, parent: int, fork: Span) -> None:
        self._start(path, "branch", parent, fork)

    def _start(
        self, path: Path, origin: Origin, parent: int | None = None, fork: Span | None = None, topped_up: bool = False
    ) -> None:
        path.number = len(self.tree.trajectories)
        self._orders.append(self.brancher.order(path, topped_up))
        span = None if fork is None else fork.index
        self.tree.trajectories.append(Trajectory(-1 if span is None else span, origin, parent, span))
        self._spawn(self._play(path))

    def _place(self, wanted: bool, count: int) -> contextlib.AbstractAsyncContextManager[float]:
        return self.gates.place("trajectory", count=count) if wanted else contextlib.nullcontext(0.0)

    def _note_start(self, number: int, asked: float, waited: float) -> None:
        if waited > 0.001:
            self.tree.timeline.append(Event(number, "start", asked, asked + waited, waited))

    # how they are played

    async def _play(self, path: Path) -> None:
        asked = self.gates.now()
        async with self._place(not self.whole, 1) as waited:
            self._note_start(path.number, asked, waited)
            try:
                await self.worlds.begin(path)
                while await self._turn(path):
                    pass
            except GenerationError:
                raise
            except Exception as error:  # whatever breaks in an environment voids this sample and no other
                logger.warning("trajectory %d of %s failed: %r", path.number, self.task.id, error)
                self._end(path, "failed", error=_said(error))
            finally:
                await self.worlds.close(path.env)
        self._ended(path)

    def _ended(self, path: Path) -> None:
        if self.brancher.ledger.reserve is None:
            self._divide(path)
        self.brancher.ends(path)
        if self.engine.on_trajectory:
            self.engine.on_trajectory()

    def _divide(self, probe: Path) -> None:
        """Decide the budget by the first trajectory, which is kept as one of the group's (AEPO)."""
        settings, reference = self.settings, self.settings.parts.budget == "aepo-reference"
        first, after = self._probed(probe, reference)
        total = settings.num_generations
        self.roots = probed_roots(settings.parts.budget, total, first, after, settings.budget_beta)
        self.tree.meta |= {"root_entropy": first, "tool_entropy": after}
        self.brancher.divide(self.roots)
        for _ in range(self.roots - 1):
            self._start_root("root")

    def _probed(self, probe: Path, reference: bool) -> tuple[float, float]:
        """Return the entropies of the first turn and after tool results, or the published sums of all turns."""
        spans = [span for span in self.tree.path(probe.number) if span.kind == "model"]
        window, vocabulary = self.settings.entropy_window, len(self.engine.tokenizer)
        if reference:
            values = [segment_entropy(span.entropies, vocabulary, window, "sum") for span in spans]
            later = values
        else:
            values = [entropy_level(span.entropies, window) for span in spans]
            later = values[1:] or values
        return (values[0], sum(later) / len(later)) if values else (0.0, 0.0)

    async def _turn(self, path: Path) -> bool:
        """Play one turn; say whether there is another."""
        generation = await self._generate(path)
        self._add_model_span(path, generation)
        if path.forking is not None:  # the copies have to be made while the episode stands where it was
            await asyncio.wait([path.forking])
            path.forking = None
        text = self.engine.renderer.turn_text(generation.ids, first=path.turn == 0)
        cut = generation.finish == "length" and path.env.protocol.native  # half a turn reads like an answer there
        _, reward, terminated, truncated, info = await self.worlds.act(path, text, self._room(path), cut)
        path.turn += 1
        if terminated or truncated:
            short = generation.finish == "length" and info["outcome"] == "no answer"
            return self._end(path, "truncated" if short else info["outcome"], reward, info)
        return await self._append_result(path, generation, info)

    async def _generate(self, path: Path) -> Generation:
        request = self._request(path)
        event = Event(path.number, "generate", 0.0, 0.0, context=len(request.ids))
        async with self.gates.doing(self.tree.timeline, event):
            tell = functools.partial(self.brancher.first_tokens, path) if request.window else None
            generation = await self._from_model(request, tell)
            event.waited += generation.queued
            event.status, event.tokens, event.cached = generation.finish, len(generation.ids), generation.cached
        return generation

    async def _from_model(self, request: Request, tell: OnWindow | None) -> Generation:
        try:
            return await self.engine.backend.generate(request, tell)
        except GenerationError:
            raise
        except Exception as error:  # whatever it calls it: no environment failed
            raise GenerationError(f"generation failed: {type(error).__name__}: {error}") from error

    def _request(self, path: Path) -> Request:
        digest = hashlib.blake2b(f"{self.seed_name}/{path.name}/{path.turn}".encode(), digest_size=8).digest()
        return Request(
            tuple(path.ids),
            min(self.settings.max_turn_tokens, self._room(path)),
            tuple(path.env.protocol.stop_strings(path.env.schemas)),
            int.from_bytes(digest),
            self.settings.temperature,
            self.brancher.window(path),
            self.seed_name,
            tuple(self._messages(path)) if self.engine.backend.wants_messages else (),
        )

    def _messages(self, path: Path) -> list[dict[str, str]]:
        messages = path.env.messages(self.task)
        for turn in path.env.episode.turns:
            messages += [{"role": "assistant", "content": turn.text}, {"role": "user", "content": turn.result}]
        return messages

    def _room(self, path: Path) -> int:
        limits = (self.settings.max_completion_length, path.env.budget.tokens)
        return min(limit for limit in limits if limit is not None) - (len(path.ids) - len(self.tree.prompt_ids))

    def _add_model_span(self, path: Path, generation: Generation) -> None:
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

    async def _append_result(self, path: Path, generation: Generation, info: dict[str, Any]) -> bool:
        """Append what the environment says; if it does not fit, a word that it does not; if even that, truncate."""
        ended = generation.finish == "eos"
        ids, room, withheld = self._result_ids(path, ended, info["results"]), self._room(path), False
        if len(ids) + path.env.budget.answer_tokens >= room:
            short = self._result_ids(path, ended, [NO_ROOM] * len(info["results"]))
            withheld = len(short) < len(ids)
        if withheld:
            path.env.withhold_result()
            ids = short
        path.note(withheld)
        if len(ids) >= room:
            _, reward, _, _, info = await self.worlds.act(path, "", room, cut=True)
            return self._end(path, "truncated", reward, info)
        text = path.env.episode.turns[-1].result
        span = self.tree.add_span(path.node, "environment", ids, text=text, tool=_tool(info, withheld))
        path.node = self.tree.trajectories[path.number].leaf = span.index
        path.ids += ids
        self.brancher.result(path, span, generation.entropies)
        return True

    def _result_ids(self, path: Path, ended: bool, results: Sequence[str]) -> list[int]:
        return self.engine.renderer.result_ids(results, ended, path.env.schemas)

    def _end(
        self,
        path: Path,
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


def _tool(info: dict[str, Any], withheld: bool) -> dict[str, Any] | None:
    tool: dict[str, Any] | None = info.get("tool")
    return {**tool, "withheld": True} if tool and withheld else tool


def _said(error: BaseException) -> str:
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f"; {notes}" if notes else "")
