"""Rollouts with several processes (ranks): each group is played whole by one rank, and all ranks get its tree.

TRL splits rows over ranks without regard to groups, so a group may begin on one rank and end on the next. Here every
rank gets all rows, plays its own groups (group g of n on rank g * P // n of P), and receives the trees of the others. A
group whose rows lie within one rank is played there. Seeds depend on the number of a group among all groups, so one
process and several play the same trees. With fewer groups than ranks, some ranks play nothing and only take part in the
collective operations.

Ranks play at their own speed and meet when all have finished; an error is raised on all ranks then. With one process,
or outside `torch.distributed`, nothing is exchanged.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch.distributed as dist

from arpo_env.event_loop import BackgroundCall
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

T = TypeVar("T")


def this_rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if _several() else 0


def rank_count() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _several() else 1


def gather(values: Sequence[T]) -> list[T]:
    """Return the values of all ranks, in order of rank; every rank must call it. The values are pickled."""
    if not _several():
        return list(values)
    parts: list[Sequence[T]] = [()] * rank_count()
    dist.all_gather_object(parts, list(values))
    return [value for part in parts for value in part]


def on_every_rank(work: Callable[[], T]) -> list[T]:
    """Call a function on every rank and return the results of all ranks, in order of rank.

    Raises:
        RuntimeError: on every rank if one failed; names that rank, where the error is the cause. With one process the
            error itself is raised.
    """
    if not _several():
        return [work()]
    own: Exception | None = None
    done: list[T] = []
    try:
        done = [work()]
    except Exception as error:  # raised below on all ranks: the others would wait for this one for ever
        own = error
    failures = gather([f"rank {this_rank()} of {rank_count()} failed: {type(own).__name__}: {own}"] if own else [])
    if failures:
        raise RuntimeError(failures[0]) from own
    return gather(done)


def share(count: int) -> range:
    """Return the groups of this rank among `count`: contiguous, and at most one more than another rank has."""
    rank, ranks = this_rank(), rank_count()
    # group g belongs to rank g * ranks // count; these are the smallest g of this rank and of the next one
    return range(-(-rank * count // ranks), -(-(rank + 1) * count // ranks))


def group_tasks(rows: Sequence[str], size: int) -> list[Task]:
    """Return one task for each `size` rows, from the rows of all ranks in order.

    Args:
        rows: tasks as JSON, shape (groups * size,).
        size: number of trajectories per group.

    Raises:
        ValueError: the rows are not whole groups of one task each.
    """
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    if any(len(group) != size or len(set(group)) != 1 for group in groups):
        raise ValueError(
            f"the {len(rows)} rows of {rank_count()} processes are not whole groups of {size} rows with one task: a "
            "sampler or data loader must repeat each row num_generations times in a row, as TRL's does"
        )
    return [Task.from_dict(json.loads(group[0])) for group in groups]


def play_groups(
    engine: Engine, tasks: Sequence[Task], step: int = 0, first_group: int = 0
) -> tuple[list[RolloutTree], float]:
    """Play each task as a tree: the groups of this rank here, the others on their ranks.

    Args:
        engine: of this rank; those of all ranks have the same settings and weights.
        tasks: of all groups, the same on every rank.
        step: of the training; part of the seeds.
        first_group: number of the first task's group in its step.

    Returns:
        The trees of all groups, in order and equal on every rank, and how many seconds the slowest rank played.

    Raises:
        RuntimeError: on every rank, if the rollout failed on one.
    """
    return joint_trees(engine, GroupsUnderWay(engine, tasks, step, first_group).own)


def joint_trees(engine: Engine, own: Callable[[], OwnGroups]) -> tuple[list[RolloutTree], float]:
    """Return what `play_groups` does, from what each rank has played by itself; every rank must call it.

    Args:
        engine: checks how many trajectories failed, those of all ranks together.
        own: returns the groups of this rank, or raises the error that ended them.
    """
    played = [(part.trees, part.seconds) for part in on_every_rank(own)]
    trees = [tree for part, _ in played for tree in part]
    engine.check_failures(trees)  # on the trees of all ranks, so that all ranks raise or none
    return trees, max(seconds for _, seconds in played)


@dataclass
class OwnGroups:
    """The groups of a rollout that this rank has played.

    Attributes:
        trees: in order.
        seconds: from the beginning of the rollout to its end.
        spent: seconds during which the model ("seconds_generate") and a tool ("seconds_tools") was busy.
    """

    trees: list[RolloutTree]
    seconds: float
    spent: dict[str, float] = field(default_factory=dict)


class GroupsUnderWay:
    """The groups of this rank of a rollout, which play in the background. It returns when the backend has its weights.

    So the trainer may change its own weights while the groups play. Beginning may be collective, and nothing after it
    is: every rank must make one, and each may wait for its own at any time.

    Args:
        engine: as in `play_groups`.
        tasks: as in `play_groups`.
        step: as in `play_groups`.
        first_group: as in `play_groups`.

    Attributes:
        started: when it was made, by `time.perf_counter`.
        ended: when the last group had ended; 0.0 until then.
    """

    def __init__(self, engine: Engine, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> None:
        share_of_rank = share(len(tasks))
        self._begun, self.started, self.ended = threading.Event(), time.perf_counter(), 0.0
        self._engine = replace(engine, on_begin=self._begun.set)
        own = [tasks[number] for number in share_of_rank]
        self._call = BackgroundCall(self._play(own, step, first_group + share_of_rank.start))
        try:
            self._begun.wait()
        except BaseException:  # an interrupt: nobody has this object to stop it
            self.stop()
            raise

    def own(self) -> OwnGroups:
        """Wait for the groups of this rank and return them.

        Raises:
            BaseException: what ended the rollout.
        """
        return self._call.result()

    def wait(self) -> None:
        """Wait until the groups of this rank have ended, or failed."""
        self._call.wait()

    def stop(self) -> None:
        """Cancel the groups of this rank and wait until their environments are closed."""
        self._call.stop()

    async def _play(self, tasks: Sequence[Task], step: int, first_group: int) -> OwnGroups:
        engine = self._engine
        try:
            clocks = {"seconds_generate": engine.backend.time, "seconds_tools": engine.tool_time}
            before = {name: clock.seconds for name, clock in clocks.items()}
            trees = await engine.play(tasks, step, first_group)
        finally:
            self.ended = time.perf_counter()
            self._begun.set()  # also if it could not begin: `own` raises the error
        spent = {name: clock.seconds - before[name] for name, clock in clocks.items()}
        return OwnGroups(trees, self.ended - self.started, spent)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
