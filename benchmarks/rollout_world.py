"""The tools and the tokenizer of the rollout benchmarks: tools that take as long as a heavy-tailed distribution says.

A delay is drawn from the text before the call, never from the order or the time of asking: two engines that play the
same trajectory wait for the same tools.

A delay is log-normal, given by its median and 99th percentile. SEARCH: 0.5 s and 8 s, a web search with a page now and
then that hangs. PYTHON: 0.05 s and 5 s, mostly a line of arithmetic, sometimes a loop that runs into seconds. None is
longer than the tool's own limit. These are assumptions: for the papers' tools no distribution was published.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arpo_env.tools.python import python
from arpo_env.tools.search_tool import search
from arpo_env.tools.tool import Tool, ToolResult, function_schema
from arpo_trainer.tree import Stopwatch

_NINETY_NINE = 2.3263  # standard deviations of a normal distribution up to its 99th percentile
MARK = "<|turn|>"


@dataclass(frozen=True)
class Delay:
    """Seconds a call takes: log-normal, cut at `limit`."""

    median: float
    p99: float
    limit: float

    def draw(self, rng: random.Random) -> float:
        """Return one."""
        width = math.log(self.p99 / self.median) / _NINETY_NINE
        return min(self.limit, self.median * math.exp(width * rng.gauss(0.0, 1.0)))


DELAYS = {"search": Delay(0.5, 8.0, 60.0), "python": Delay(0.05, 5.0, 10.0)}


@dataclass
class Delays:
    """The delays of one rollout, and how many calls there were.

    Attributes:
        seed: of all of them.
        speed: seconds are divided by it.
        calls: executed so far.
        time: runs while at least one call waits.
    """

    seed: int
    speed: float = 1.0
    calls: int = 0
    time: Stopwatch = field(default_factory=Stopwatch)

    async def wait(self, tool: str, context: Sequence[str]) -> float:
        """Wait as long as this call takes after this text; return the seconds."""
        digest = hashlib.blake2b("\0".join([f"{self.seed}/{tool}", *context]).encode(errors="replace"), digest_size=8)
        seconds = DELAYS[tool].draw(random.Random(digest.digest())) / self.speed
        self.calls += 1
        with self.time.running():
            await asyncio.sleep(seconds)
        return seconds


class DelayedTool(Tool):
    """A tool that takes longer than it has to."""

    voids = keeps_time = True

    def __init__(self, inner: Tool, delays: Delays) -> None:
        self.inner, self.delays = inner, delays
        self.name, self.schema, self.repeatable = inner.name, inner.schema, inner.repeatable

    async def call(self, **arguments: Any) -> ToolResult:
        """Wait, then call."""
        self.inner.context = self.context
        waited = await self.delays.wait(self.name, self.context)
        result = await self.inner.call(**arguments)
        return replace(result, seconds=result.seconds + waited)

    async def reset(self, setup: str) -> None:
        """Reset the tool."""
        await self.inner.reset(setup)

    async def fork(self, n: int) -> list[Tool]:
        """Fork the tool."""
        return [DelayedTool(copy, self.delays) for copy in await self.inner.fork(n)]

    async def close(self) -> None:
        """Close the tool."""
        await self.inner.close()


class FixedTool(Tool):
    """A tool without state that always says the same."""

    repeatable = True

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.schema = function_schema({"python": python, "search": search}[name])

    async def call(self, **arguments: Any) -> ToolResult:
        """Say it."""
        return ToolResult(self.text)

    async def reset(self, setup: str) -> None:
        """There is nothing to forget."""

    async def fork(self, n: int) -> list[Tool]:
        """Return others that say the same."""
        return [FixedTool(self.name, self.text) for _ in range(n)]

    async def close(self) -> None:
        """There is nothing to give back."""


def fixed_tools(delays: Delays) -> list[Tool]:
    """Return a search and a Python tool with delays; a search result has 400 letters, one of Python 8."""
    fixed = (FixedTool("search", "fact " * 80), FixedTool("python", "12345678"))
    return [DelayedTool(tool, delays) for tool in fixed]


def small_tokenizer(texts: Sequence[str] = ()) -> Any:
    """Return a tokenizer with a chat template that needs no file.

    Args:
        texts: where it learns up to 1,024 tokens from; without any its tokens are bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|end|>", "<|start|>", MARK]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: number for number, token in enumerate([*special, *letters])}, merges=[]))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if texts:
        trainer = trainers.BpeTrainer(
            vocab_size=1024, special_tokens=special, initial_alphabet=letters, show_progress=False
        )
        core.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=special[0], pad_token=special[0], additional_special_tokens=special[1:]
    )
    made.add_tokens([f"<{slash}{name}>" for name in ("think", "search", "python", "answer") for slash in ("", "/")])
    made.chat_template = (
        "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    return made
