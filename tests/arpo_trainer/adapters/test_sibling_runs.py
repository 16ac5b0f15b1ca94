"""Coroutines that begin at the same time share one piece of work."""

import asyncio
from unittest.mock import ANY

import pytest

from arpo_trainer.adapters.verl_backend import together


def test_work_is_done_once_for_all_that_begin_together() -> None:
    asked: list[int] = []

    async def work(count: int) -> str:
        asked.append(count)
        await asyncio.sleep(0)
        return f"for {count}"

    async def run() -> None:
        tasks = [asyncio.create_task(together(key, work)) for key in "aabaab"]
        first = await asyncio.gather(*tasks)
        assert first == [(0, "for 4"), (1, "for 4"), (0, "for 2"), (2, "for 4"), (3, "for 4"), (1, "for 2")]
        # one that comes later has work of its own
        assert await together("a", work) == (0, "for 1")

    asyncio.run(run())
    assert asked == [4, 2, 1]


def test_an_error_is_raised_in_all_and_a_cancelled_caller_disturbs_no_other() -> None:
    async def work(count: int) -> int:
        await asyncio.sleep(0.01)
        return 6 // (count - 2)

    async def run() -> None:
        failed = await asyncio.gather(*(together("a", work) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in failed] == [ZeroDivisionError] * 2
        tasks = [asyncio.create_task(together("b", work)) for _ in range(3)]
        await asyncio.sleep(0.001)
        tasks[0].cancel()
        assert await asyncio.gather(*tasks, return_exceptions=True) == [ANY, (1, 6), (2, 6)]
        assert tasks[0].cancelled()

    asyncio.run(run())


@pytest.mark.parametrize("steps", [1, 2, 3])  # of the event loop: before the work begins, and after
def test_work_that_nobody_waits_for_is_cancelled(steps: int) -> None:
    ended: list[int] = []

    async def work(count: int) -> int:
        await asyncio.sleep(0.01)
        ended.append(count)
        return count

    async def run() -> None:
        tasks = [asyncio.create_task(together("a", work)) for _ in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results)
        # others with this key are not disturbed
        assert await asyncio.gather(*(together("a", work) for _ in range(2))) == [(0, 2), (1, 2)]
        await asyncio.sleep(0.02)

    asyncio.run(run())
    assert ended == [2]
