"""The policy of the rollout benchmarks: turns drawn from a script, written by a real backend or a simulated one.

Everything is drawn from a request's seed, never from the order or the time of asking: two engines that play the same
trajectory write the same turns.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, replace
from typing import Any

from arpo_trainer.backends.base import Backend, Generation, OnWindow, Request
from arpo_trainer.tree import Stopwatch
from benchmarks.rollout_world import MARK, Delay


@dataclass(frozen=True)
class Script:
    """What the policy does, drawn from a request's seed: the length of its turns, whether and what it calls.

    A trajectory makes 1 to `calls` calls, each number as likely as the others, then answers. The lengths of turns are
    log-normal (`median`, `p99` tokens), from `shortest` to `longest`. All tokens of a turn have one entropy, 0.1 to 0.6
    nats.

    Attributes:
        tokenizer: `small_tokenizer`.
        calls: most calls of a trajectory.
        median: tokens of a turn.
        p99: likewise.
        shortest: likewise; a turn's end takes up to 16.
        longest: likewise.
        searches: share of calls that search; the others run Python.
    """

    tokenizer: Any
    calls: int = 5
    median: float = 120.0
    p99: float = 600.0
    shortest: int = 20
    longest: int = 600
    searches: float = 0.6

    def end(self, request: Request) -> list[int]:
        """Return the ids that close the turn: its call, or its answer."""
        rng = random.Random(request.seed)
        done = request.ids.count(self._mark)
        left = max(0, self.calls - done)
        goes_on = done == 0 or rng.random() < left / (left + 1)
        act = "<answer>\\boxed{3}</answer>"
        if goes_on:
            name = "search" if rng.random() < self.searches else "python"
            act = f"<{name}>{rng.randrange(10**8)}</{name}>"
        return [self._mark, *self.tokenizer(f"<think>s</think>{act}", add_special_tokens=False)["input_ids"]]

    def length(self, request: Request) -> int:
        """Return how long the turn is, the end included."""
        drawn = Delay(self.median, self.p99, self.longest).draw(random.Random(request.seed ^ 1))
        return min(request.max_tokens, max(self.shortest, round(drawn)))

    def entropy(self, request: Request) -> float:
        """Return the entropy of each of the turn's tokens, in nats."""
        return random.Random(request.seed ^ 2).uniform(0.1, 0.6)

    @property
    def _mark(self) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(MARK))


@dataclass
class ScriptedBackend:
    """Generates with another backend, as long as the script says and with its ends: real work, known shape."""

    inner: Backend
    script: Script
    tokens: int = 0

    def __post_init__(self) -> None:
        self.time, self.trains, self.wants_messages = self.inner.time, False, False

    async def begin(self) -> None:
        """Begin."""
        await self.inner.begin()

    async def end(self) -> None:
        """End."""
        await self.inner.end()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate the script's number of tokens and write its end over the last ones."""
        length, end = self.script.length(request), self.script.end(request)
        made = await self.inner.generate(replace(request, max_tokens=length, stop=()), on_window)
        self.tokens += len(made.ids)
        if len(end) <= len(made.ids):
            made.ids[-len(end) :], made.finish = end, "stop"
        return made


@dataclass
class _Row:
    request: Request
    future: asyncio.Future[Generation]
    on_window: OnWindow | None
    entropy: float
    length: int
    done: int = 0


@dataclass
class SimulatedBackend:
    """An engine on a GPU, simulated: a step makes one token for every row and takes `fixed + a_row * rows` seconds.

    The defaults are those of a model with 1.5B parameters in bfloat16 on a GPU with about 2 TB/s: 6 ms for one row (3
    GB of weights are read in 2 ms, the rest is launching kernels and choosing tokens), 19 ms for 256 (13,500 tokens/s).
    Rows join and leave at every step. Reading the prompt costs nothing, the same for all who are compared.

    Attributes:
        script: what is written.
        speed: seconds are divided by it.
        fixed: seconds of a step.
        a_row: seconds more for every row.
        max_rows: rows at once.
    """

    script: Script
    speed: float = 1.0
    fixed: float = 0.006
    a_row: float = 0.00005
    max_rows: int = 256
    tokens: int = 0

    def __post_init__(self) -> None:
        self.time, self.trains, self.wants_messages = Stopwatch(), False, False
        self._waiting: list[_Row] = []
        self._rows: list[_Row] = []
        self._news = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Take as long as the engine would."""
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        script = self.script
        self._waiting.append(_Row(request, future, on_window, script.entropy(request), script.length(request)))
        self._news.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        with self.time.running():
            clock = time.perf_counter()
            while True:
                await asyncio.sleep(0)  # let everybody who is ready ask first
                free = self.max_rows - len(self._rows)
                self._rows, self._waiting = self._rows + self._waiting[:free], self._waiting[free:]
                if not self._rows:
                    return
                step = (self.fixed + self.a_row * len(self._rows)) / self.speed
                most = min(self._next(row) for row in self._rows)
                await self._until(clock + most * step)
                steps = max(1, min(most, int((time.perf_counter() - clock) / step)))
                clock += steps * step
                self._advance(steps)

    def _next(self, row: _Row) -> int:
        """Return the steps until something happens to a row: its window is full, or its turn is over."""
        window = row.request.window - row.done
        return min(window, row.length - row.done) if row.on_window and window > 0 else row.length - row.done

    async def _until(self, moment: float) -> None:
        """Wait until then, or until somebody asks; at the limit of rows nobody can join."""
        self._news.clear()
        left = moment - time.perf_counter()
        if left <= 0:
            return
        if len(self._rows) >= self.max_rows:
            await asyncio.sleep(left)
            return
        try:
            await asyncio.wait_for(self._news.wait(), left)
        except TimeoutError:
            return

    def _advance(self, steps: int) -> None:
        for row in self._rows:
            row.done += steps
            self.tokens += steps
            if row.on_window and (row.done >= row.request.window or row.done >= row.length):
                told, row.on_window = row.on_window, None
                told([row.entropy] * min(row.request.window, row.length))
            if row.done >= row.length and not row.future.done():
                row.future.set_result(self._generation(row))
        self._rows = [row for row in self._rows if row.done < row.length and not row.future.cancelled()]

    def _generation(self, row: _Row) -> Generation:
        rng, end = random.Random(row.request.seed ^ 3), self.script.end(row.request)
        letters: list[int] = self.script.tokenizer("abcdefgh", add_special_tokens=False)["input_ids"]
        ids = rng.choices(letters, k=max(0, row.length - len(end))) + end
        finish: Any = "stop" if len(ids) == row.length else "length"
        return Generation(ids[: row.length], [-0.5] * row.length, [row.entropy] * row.length, finish)
