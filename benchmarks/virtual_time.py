"""An event loop whose clock jumps to the next timer: coroutines that only wait take no time.

    trees = run_virtual(engine.rollout(tasks))

Coroutines run as they are. While the loop runs, `time.monotonic` and `time.perf_counter` return its clock, so rate
limits, rests of servers and time lines of a rollout are in virtual seconds, too. What computes takes no virtual time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar
from unittest import mock

T = TypeVar("T")


class JumpingSelector(selectors.DefaultSelector):
    """Advances the clock instead of waiting.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; the clock is `timeout` seconds later.

        Raises:
            RuntimeError: no timer is set and nothing is ready, so that nothing would ever happen.
        """
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("all coroutines wait for each other: nothing would ever happen in virtual time")
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Threads are refused: the clock would not wait for them."""

    def __init__(self) -> None:
        self.clock = JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self.clock.now

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        """Refuse.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("virtual time does not pass in threads: this coroutine cannot be simulated")


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual loop and return its result."""
    loop = VirtualLoop()
    with (
        mock.patch("time.monotonic", loop.time),
        mock.patch("time.perf_counter", loop.time),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(main)
