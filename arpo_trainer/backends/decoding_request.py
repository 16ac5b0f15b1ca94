"""A request under way in a backend that decodes in this process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.backends.stop_strings import StopFinder

if TYPE_CHECKING:
    from arpo_trainer.backends.kv_cache import PrefixStore


@dataclass(eq=False)
class Row:
    """A request, whoever waits for it, and what has come so far.

    Attributes:
        request: what to generate.
        future: resolved with the generation; cancelled when nobody waits any more.
        on_window: told the first entropies, then None.
        stops: finds the request's stop strings.
        store: the prefixes of the rollout in which it was asked for, and of no other.
        rng: of the request's own seed, on the model's device.
        out: what has come so far.
    """

    request: Request
    future: asyncio.Future[Generation]
    on_window: OnWindow | None
    stops: StopFinder
    store: PrefixStore
    rng: torch.Generator
    out: Generation = field(default_factory=Generation)
    asked: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.request.window < 1:
            self.on_window = None

    def begin(self) -> None:
        """The model begins with it: it has waited until now."""
        self.out.queued = time.perf_counter() - self.asked

    def tell(self, last: bool = False) -> None:
        """Say what the first tokens' entropies are, once, when they are there; on the event loop."""
        if self.on_window and (last or len(self.out.ids) >= self.request.window):
            told, self.on_window = self.on_window, None
            told(self.out.entropies[: self.request.window])

    def answer(self) -> None:
        """Give the generation to whoever waits; on the event loop."""
        if not self.future.done():
            self.tell(last=True)
            self.future.set_result(self.out)

    def fail(self, error: Exception) -> None:
        """Give an error to whoever waits; on the event loop."""
        if not self.future.done():
            self.future.set_exception(error)
