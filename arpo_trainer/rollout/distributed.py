"""Groups under several processes (ranks): each group is played whole by one rank, its tree handed to all.

TRL deals rows to ranks without looking at groups, so a group may begin on one rank and end on the next. Here every
rank learns all rows, plays the groups it owns, group g of n on rank g * P // n of P, and gets the trees of the others.
A group that lies within one rank is its own there. Seeds go by a group's number among all, so that one process and
several grow the same trees. With fewer groups than ranks some play nothing, and take part in what is collective.

Ranks play at their own speed and meet when all have finished; so does an error: it ends all of them then.
With one process, or outside `torch.distributed`, nothing is exchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

from arpo_env.event_loop import run
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

T = TypeVar("T")


def this_rank() -> int:
    """Return the number of this process."""
    return dist.get_rank() if _several() else 0


def rank_count() -> int:
    """Return how many processes there are."""
    return dist.get_world_size() if _several() else 1


def gather(values: Sequence[T]) -> list[T]:
    """Return the values of all ranks, in their order; every rank has to call it. They are pickled."""
    if not _several():
        return list(values)
    parts: list[Sequence[T]] = [()] * rank_count()
    dist.all_gather_object(parts, list(values))
    return [value for part in parts for value in part]


def on_every_rank(work: Callable[[], T]) -> list[T]:
    """Do something on every rank and return the results of all, in their order.

    Raises:
        RuntimeError: on every rank, when one failed; names it, and has the error as its cause there. With one
            process the error is raised as it is.
    """
    if not _several():
        return [work()]
    own: Exception | None = None
    done: list[T] = []
    try:
        done = [work()]
    except Exception as error:  # not raised yet: the others would wait for this rank for ever
        own = error
    failures = gather([f"rank {this_rank()} of {rank_count()} failed: {type(own).__name__}: {own}"] if own else [])
    if failures:
        raise RuntimeError(failures[0]) from own
    return gather(done)


def share(count: int) -> range:
    """Return which of `count` groups are this rank's: contiguous, at most one more than another's."""
    rank, ranks = this_rank(), rank_count()
    return range(-(-rank * count // ranks), -(-(rank + 1) * count // ranks))


def group_tasks(rows: Sequence[str], size: int) -> list[Task]:
    """Return one task for each run of `size` rows, the rows of all ranks in their order.

    Args:
        rows: tasks as JSON, shape (groups * size,).
        size: trajectories a group.

    Raises:
        ValueError: the rows are no whole groups of one task each.
    """
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    if any(len(group) != size or len(set(group)) != 1 for group in groups):
        raise ValueError(
            f"the {len(rows)} rows of {rank_count()} processes are not whole groups of {size} rows with one task: a "
            "sampler or data loader has to repeat each row num_generations times, one after the other, as TRL's does"
        )
    return [Task.from_dict(json.loads(group[0])) for group in groups]


def play_groups(
    engine: Engine, tasks: Sequence[Task], step: int = 0, first_group: int = 0
) -> tuple[list[RolloutTree], float]:
    """Play each task as a tree, this rank's share here, the others' there.

    Args:
        engine: this rank's; all ranks' have the same settings and weights.
        tasks: of all groups, the same on every rank.
        step: of the training; part of the trees' seeds.
        first_group: number of the first task's group in its step.

    Returns:
        The trees of all groups, in order and equal on every rank, and the seconds that the slowest rank played.

    Raises:
        RuntimeError: on every rank, when the rollout failed on one.
    """
    own = share(len(tasks))

    def play() -> tuple[list[RolloutTree], float]:
        started = time.perf_counter()
        trees = run(engine.play([tasks[number] for number in own], step, first_group + own.start))
        return trees, time.perf_counter() - started

    played = on_every_rank(play)
    trees = [tree for part, _ in played for tree in part]
    engine.check_failures(trees)
    return trees, max(seconds for _, seconds in played)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
