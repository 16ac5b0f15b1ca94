"""Jobs are given out so that each has one result, whatever happens to the workers."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_trainer.ray_rollouts.rollout_workers import JobDispatch, WorkerLost, WorkersGone


@dataclass(eq=False)
class Player:
    """A worker that dies when it has played `lives` jobs; -1 never."""

    name: str
    lives: int = -1
    now: int = 0
    most: int = 0

    async def play(self, job: int, rng: random.Random) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if self.lives == 0:
                raise WorkerLost("gone")
            self.lives -= self.lives > 0
            return job * job
        finally:
            self.now -= 1


def dispatch(
    jobs: int, play: Callable[[Player, int], Coroutine[Any, Any, int]], at_once: int = 2, losses: int = 2, **more: Any
) -> tuple[JobDispatch[Player, int], list[tuple[int, int]]]:
    taken: list[tuple[int, int]] = []
    replace = more.get("replace", mock.AsyncMock(return_value=None))
    made = JobDispatch[Player, int](jobs, at_once, play, replace, lambda *result: taken.append(result), losses)
    return made, taken


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.integers(0, 40),
    lives=st.lists(st.integers(-1, 6), min_size=1, max_size=5),
    at_once=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_each_job_is_taken_once_whoever_dies(jobs: int, lives: list[int], at_once: int, seed: int) -> None:
    rng, players = random.Random(seed), [Player(str(n), life) for n, life in enumerate(lives)]

    async def replace(lost: Player) -> Player | None:
        await asyncio.sleep(0)
        players.append(Player("new", -1))
        return players[-1]

    made, taken = dispatch(jobs, lambda who, job: who.play(job, rng), at_once, losses=100, replace=replace)
    asyncio.run(made.run(list(players)))
    assert Counter(taken) == Counter((job, job * job) for job in range(jobs))
    assert all(player.most <= at_once and player.now == 0 for player in players)


def test_workers_that_come_later_take_part_and_without_any_the_run_ends() -> None:
    made, taken = dispatch(4, lambda who, job: who.play(job, random.Random(1)))
    asyncio.run(made.run([], [asyncio.sleep(0.01, Player("late"))]))
    assert sorted(job for job, _ in taken) == [0, 1, 2, 3]
    made, taken = dispatch(3, lambda who, job: who.play(job, random.Random(0)), at_once=1)
    with pytest.raises(WorkersGone, match="2 groups are left"):
        asyncio.run(made.run([Player("mortal", lives=1)]))
    assert len(taken) == 1


def test_a_job_that_ends_its_workers_ends_the_run() -> None:
    play, replace = mock.AsyncMock(side_effect=WorkerLost("out of memory")), mock.AsyncMock(return_value=Player("new"))
    made, _ = dispatch(1, play, losses=2, replace=replace)
    with pytest.raises(RuntimeError, match=r"group 0 was lost with its rollout worker 3 times \(out of memory\)"):
        asyncio.run(made.run([Player("one")]))
