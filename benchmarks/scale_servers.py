"""Inference servers of `scale.py`: a model on some GPUs, its prefix cache and its queue, in (virtual) time.

A step writes one token for every row and takes

    FIXED + PER_ROW rows + max(bytes read / bandwidth, operations / speed)

Bytes are the weights and the keys and values of all rows. Contexts that are not cached are computed before the next
step, as vLLM's chunked prefill nearly does. Blocks of keys and values stay until the room is needed, those that were
not used for the longest time go first. Rows are admitted in order while there is a place and room for keys and values.

Published: the GPU's bandwidth, operations and memory (NVIDIA H100 SXM), the models' shapes (config.json of Qwen2.5).
Fitted to published measurements (`published_check`): the share of the bandwidth that is reached, FIXED and PER_ROW
(scheduling, sampling, streaming). Assumed: the shares of operations and memory, TENSOR_PARALLEL. A row's room for its
turn is reserved when it begins; vLLM would preempt.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.backends.base import Generation, OnWindow, Request
from benchmarks.rollout_script import Script

TOKENS_PER_ID = 4  # an id of the simulated trees stands for so many tokens, which makes them cheap to play
BLOCK = 32  # ids of a block of the prefix cache
BANDWIDTH, OPERATIONS, MEMORY_BYTES = 3.35e12, 989e12, 80e9  # of one GPU, per second; bfloat16, dense
BANDWIDTH_SHARE, OPERATIONS_SHARE, TENSOR_PARALLEL, MEMORY = 0.75, 0.35, 0.85, 0.85
FIXED, PER_ROW, MOST_ROWS = 0.0015, 0.00012, 256


@dataclass(frozen=True)
class ServedModel:
    """A model on one server.

    Attributes:
        name: of the model.
        parameters: in billions.
        layers: of the model.
        kv_heads: heads of keys and values, of 128 numbers each, in bfloat16.
        gpus: of one server (tensor parallel).
    """

    name: str
    parameters: float
    layers: int
    kv_heads: int
    gpus: int

    @property
    def _speed(self) -> float:
        return self.gpus * (TENSOR_PARALLEL if self.gpus > 1 else 1.0)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values per token."""
        return 2 * self.layers * self.kv_heads * 128 * 2

    @property
    def room(self) -> int:
        """Tokens whose keys and values fit."""
        return int((MEMORY * MEMORY_BYTES * self.gpus - 2e9 * self.parameters) / self.kv_bytes)

    @property
    def prefill(self) -> float:
        """Seconds for a token of context."""
        return 2e9 * self.parameters / (OPERATIONS * OPERATIONS_SHARE * self._speed)

    def step(self, rows: int, kv_tokens: float) -> float:
        """Return the seconds of a step."""
        read = (2e9 * self.parameters + kv_tokens * self.kv_bytes) / (BANDWIDTH * BANDWIDTH_SHARE * self._speed)
        return FIXED + PER_ROW * rows + max(read, rows * self.prefill)


MODELS = {
    "1.5B": ServedModel("Qwen2.5-1.5B", 1.54, 28, 2, 1),
    "7B": ServedModel("Qwen2.5-7B", 7.62, 28, 4, 1),
    "14B": ServedModel("Qwen2.5-14B", 14.77, 48, 8, 2),
    "32B": ServedModel("Qwen2.5-32B", 32.76, 64, 8, 4),
}


def block_keys(ids: Sequence[int]) -> list[int]:
    """Return a key for each full block; it depends on all ids up to the end of the block."""
    keys, key = [], 0
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        key = hash((key, tuple(ids[end - BLOCK : end])))
        keys.append(key)
    return keys


class BlockCache:
    """Blocks of keys and values: those that rows hold, and idle ones, which are dropped when room is needed.

    Args:
        room: blocks that fit.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._held: Counter[int] = Counter()
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._reserved = 0

    def known(self, keys: Sequence[int]) -> int:
        """Return how many blocks at the beginning are there."""
        there = (key in self._held or key in self._idle for key in keys)
        return sum(1 for _ in itertools.takewhile(bool, there))

    def take(self, keys: Sequence[int], more: int) -> bool:
        """Hold these blocks and reserve `more`; returns False, and changes nothing, if they do not fit."""
        new = sum(key not in self._held for key in keys)
        if len(self._held) + self._reserved + new + more > self.room:
            return False
        for key in keys:
            self._idle.pop(key, None)
            self._held[key] += 1
        self._reserved += more
        self._drop()
        return True

    def give_back(self, keys: Sequence[int], more: int, written: Sequence[int]) -> None:
        """Make the blocks of a row idle; `written` are those of its turn."""
        self._reserved -= more
        for key in reversed([*keys, *written]):  # the end of a context is dropped before its beginning
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]
                self._idle[key] = None
                self._idle.move_to_end(key)
        self._drop()

    def _drop(self) -> None:
        while self._idle and len(self._held) + len(self._idle) + self._reserved > self.room:
            self._idle.popitem(last=False)


@dataclass(eq=False)
class _Row:
    request: Request
    on_window: OnWindow | None
    keys: list[int]
    length: int
    asked: float
    done: asyncio.Future[Generation]
    cached: int = 0
    queued: float = 0.0

    @property
    def tokens(self) -> int:
        return len(self.request.ids) * TOKENS_PER_ID


@dataclass(eq=False)
class SimulatedServer:
    """One server.

    Attributes:
        model: what it serves.
        script: what is written.
        busy: seconds with at least one row.
        prefilling: seconds spent on contexts.
        written: tokens.
        read: tokens of all contexts.
        cached: those of them that were cached.
        row_seconds: sum of the rows' times.
        queued: seconds that rows waited for a place or for room.
    """

    model: ServedModel
    script: Script
    busy: float = 0.0
    prefilling: float = 0.0
    written: float = 0.0
    read: float = 0.0
    cached: float = 0.0
    row_seconds: float = 0.0
    queued: float = 0.0
    _rows: int = 0
    _kv: float = 0.0
    _steps: float = 0.0
    _last: float = 0.0
    _prefilled: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    _ends: list[tuple[float, int, str, _Row]] = field(default_factory=list)
    _waiting: deque[_Row] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._cache = BlockCache(self.model.room // (BLOCK * TOKENS_PER_ID))
        self._numbers = itertools.count()
        self._letters: list[int] = self.script.tokenizer("abcdefgh", add_special_tokens=False)["input_ids"]

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Take as long as the server would."""
        loop = asyncio.get_running_loop()
        keys, length = block_keys(request.ids), self.script.length(request)
        self._waiting.append(_Row(request, on_window, keys, length, loop.time(), loop.create_future()))
        row = self._waiting[-1]
        self._turn(loop.time())
        return await row.done

    def _turn(self, now: float) -> None:
        self._advance(now)
        while self._ends and self._ends[0][0] <= self._steps + 1e-6:
            _, _, what, row = heapq.heappop(self._ends)
            self._tell(row) if what == "window" else self._finish(row)
        while self._waiting and self._rows < MOST_ROWS and self._begin(self._waiting[0], now):
            self._waiting.popleft()
        if self._timer:
            self._timer.cancel()
        if self._ends:
            steps = max(0.0, self._ends[0][0] - self._steps)
            when = max(now, self._prefilled) + steps * self.model.step(self._rows, self._kv)
            self._timer = asyncio.get_running_loop().call_at(when, lambda: self._turn(when))

    def _advance(self, now: float) -> None:
        if self._rows:
            self.busy += now - self._last
            self.row_seconds += self._rows * (now - self._last)
            steps = max(0.0, now - max(self._last, self._prefilled)) / self.model.step(self._rows, self._kv)
            self._steps += steps
            self._kv += steps * self._rows
            self.written += steps * self._rows
        self._last = now

    def _begin(self, row: _Row, now: float) -> bool:
        known = self._cache.known(row.keys)
        if not self._cache.take(row.keys, self._more(row)):
            return False
        row.queued, row.cached = now - row.asked, known * BLOCK
        missing = (len(row.request.ids) - row.cached) * TOKENS_PER_ID * self.model.prefill
        self._prefilled = max(now, self._prefilled) + missing
        self.prefilling += missing
        self.queued += row.queued
        self.read += row.tokens
        self.cached += row.cached * TOKENS_PER_ID
        self._rows += 1
        self._kv += row.tokens
        window = min(row.request.window, row.length)
        if row.on_window and window > 0:
            heapq.heappush(self._ends, (self._steps + window * TOKENS_PER_ID, next(self._numbers), "window", row))
        heapq.heappush(self._ends, (self._steps + row.length * TOKENS_PER_ID, next(self._numbers), "end", row))
        return True

    def _more(self, row: _Row) -> int:
        return -(-row.length // BLOCK) + 1

    def _tell(self, row: _Row) -> None:
        assert row.on_window is not None  # only such rows have a window
        row.on_window([self.script.entropy(row.request)] * min(row.request.window, row.length))

    def _finish(self, row: _Row) -> None:
        self._rows -= 1
        self._kv -= row.tokens + row.length * TOKENS_PER_ID
        made = self._generation(row)
        written = block_keys((*row.request.ids, *made.ids))[len(row.keys) :]
        self._cache.give_back(row.keys, self._more(row), written)
        row.done.set_result(made)

    def _generation(self, row: _Row) -> Generation:
        end, length, seed = self.script.end(row.request), row.length, row.request.seed
        # the first ids tell turns apart, so that siblings do not share blocks by accident
        start = [self._letters[seed >> 3 * place & 7] for place in range(8)]
        ids = start + self._letters[:1] * max(0, length - len(end) - len(start)) + end
        ids = ids[: max(0, length - len(end))] + end
        entropy, finish = self.script.entropy(row.request), "stop" if len(ids) == length else "length"
        numbers: Any = ([-0.5] * length, [entropy] * length, finish, row.queued, row.cached)
        return Generation(ids[:length], *numbers)


def published_check(concurrency: int = 256) -> dict[str, tuple[float, float]]:
    """Return what the model says and what was measured, for ShareGPT on one H100 with vLLM's defaults.

    Measured by others: docs.gpustack.ai, performance lab, qwen3-8b/h100-latency (seconds of a request) and
    qwen3-14b/h100 (tokens per second, read and written). FIXED, PER_ROW and BANDWIDTH_SHARE were chosen to fit them.
    The mean lengths of 215 and 200 tokens and the concurrency are assumptions.
    """
    read, written = 215, 200
    small, large = ServedModel("Qwen3-8B", 8.2, 36, 8, 1), ServedModel("Qwen3-14B", 14.8, 40, 8, 1)
    answers = {rows: written * small.step(rows, rows * (read + written / 2)) for rows in (1, 8)}
    step = large.step(concurrency, concurrency * (read + written / 2))
    question = written * step / concurrency + read * large.prefill
    return {
        "8B, 1 at once: seconds": (round(answers[1] + read * small.prefill, 2), 1.66),
        "8B, 8 at once: seconds": (round(answers[8] + read * small.prefill, 2), 1.78),
        "14B: tokens per second": (round((read + written) / question), 6596),
    }
