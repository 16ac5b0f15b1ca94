"""Greedy evaluation on held-out tasks, with intervals: each task is answered once, without sampling or branches."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.rollout.engine import Engine, play_groups, this_rank
from arpo_trainer.statistics import bootstrap_interval, wilson_interval
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)
SAMPLES_KEPT = 20
MEANS = ("reward", "reward_low", "reward_high", "accuracy", "accuracy_low", "accuracy_high", "tool_calls")
METRICS = (*MEANS, "n", "invalid")


@dataclass
class Evaluation:
    """The result of a policy on some tasks.

    Attributes:
        name: "before", "after", ...
        step: training steps taken.
        n: number of tasks that could be scored; `invalid` could not, because something failed.
        reward: mean, with a 95 % bootstrap interval in `reward_low` and `reward_high`.
        accuracy: share of right answers (partly right does not count), with a 95 % Wilson interval likewise.
        tool_calls: mean per task.
        by_level: level -> {"n", "accuracy"}.
        samples: the first episodes, in full.
    """

    name: str
    step: int
    n: int
    reward: float
    reward_low: float
    reward_high: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tool_calls: float
    invalid: int
    by_level: dict[str, dict[str, float]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain data: one line of eval.jsonl."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.name}: accuracy {self.accuracy:.2f} [{self.accuracy_low:.2f}, {self.accuracy_high:.2f}], "
            f"reward {self.reward:.2f} [{self.reward_low:.2f}, {self.reward_high:.2f}], "
            f"{self.tool_calls:.1f} tool calls per task, n = {self.n}"
        )


def evaluate(
    engine: Engine, tasks: Sequence[Task], name: str, step: int = 0, on_task: Callable[[], object] | None = None
) -> Evaluation:
    """Answer each task once, greedily, and summarise. Several processes share the tasks and get the same result.

    Tasks that fail are counted, warned about and left out; some of them do not end a training run.

    Args:
        engine: a copy of it with greedy settings plays; the engine itself is not changed.
        tasks: the tasks to answer.
        name: of this evaluation.
        step: training steps taken so far.
        on_task: called after each task of this process (`distributed.share`).

    Raises:
        ValueError: no task could be scored.
    """
    # failures are counted instead of raised: whether to keep the result is decided by the caller
    settings = replace(engine.settings.plain(1, temperature=0.0), max_invalid=1.0)
    trees, _ = play_groups(replace(engine, settings=settings, on_trajectory=on_task), tasks)
    result = summarise(trees, name, step)
    if result.invalid and this_rank() == 0:
        logger.warning(
            "evaluation %r: %d of %d tasks could not be scored; %s",
            name,
            result.invalid,
            len(trees),
            _first_fault(trees),
        )
    return result


def summarise(trees: Sequence[RolloutTree], name: str, step: int = 0) -> Evaluation:
    """Summarise trees with one trajectory each."""
    scored = [tree for tree in trees if tree.trajectories[0].valid]
    if not scored:
        raise ValueError(
            f"evaluation {name!r}: none of {len(trees)} trajectories could be scored; {_first_fault(trees)}"
        )
    rewards = [tree.trajectories[0].reward or 0.0 for tree in scored]
    right = [_right(tree) for tree in scored]
    low, high = bootstrap_interval(rewards)
    accuracy_low, accuracy_high = wilson_interval(sum(right), len(right))
    return Evaluation(
        name,
        step,
        len(scored),
        statistics.fmean(rewards),
        low,
        high,
        statistics.fmean(right),
        accuracy_low,
        accuracy_high,
        statistics.fmean(tree.trajectories[0].tool_calls for tree in scored),
        len(trees) - len(scored),
        _by_level(scored),
        [_sample(tree) for tree in scored[:SAMPLES_KEPT]],
    )


def _first_fault(trees: Sequence[RolloutTree]) -> str:
    errors = (tree.trajectories[0].error for tree in trees if not tree.trajectories[0].valid)
    return f"the first error: {next(errors, None)}"


def _right(tree: RolloutTree) -> float:
    """Return 1 for a right answer. One that only shares words with it (F1) earns reward, but is not right."""
    return float(tree.trajectories[0].components.get("accuracy", 0.0) >= 1.0)


def _by_level(trees: Sequence[RolloutTree]) -> dict[str, dict[str, float]]:
    levels: dict[str, list[float]] = {}
    for tree in trees:
        levels.setdefault(tree.task.get("level", ""), []).append(_right(tree))
    return {key: {"n": len(levels[key]), "accuracy": statistics.fmean(levels[key])} for key in sorted(levels)}


def _sample(tree: RolloutTree) -> dict[str, Any]:
    first = tree.trajectories[0]
    return {
        "task": {key: tree.task[key] for key in ("id", "question", "answers", "level")},
        "reward": first.reward,
        "answer": first.answer,
        "correct": _right(tree) > 0,
        "outcome": first.outcome,
        "text": "".join(span.text for span in tree.path(0)),
    }


def evaluation_tasks(env: ToolEnv, count: int | None) -> list[Task]:
    """Return the first `count` tasks of an environment, or all of them."""
    if count is None and env.tasks.size is None:
        raise ValueError(f"{env.env_spec.id} has endless tasks: set how many to evaluate on, such as eval_tasks=100")
    if count is not None and count < 1:
        raise ValueError(f"eval_tasks must be at least 1, got {count}; leave eval_env out to evaluate on nothing")
    sizes = [size for size in (count, env.tasks.size) if size is not None]
    return [env.tasks.task(number) for number in range(min(sizes))]
