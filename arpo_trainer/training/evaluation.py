"""Greedy evaluation on held-out tasks, with intervals."""

from __future__ import annotations

import logging
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from arpo_trainer.rollout.distributed import play_groups, this_rank
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.tree import RolloutTree
from envs_registry import Task

logger = logging.getLogger(__name__)
Z95 = 1.959964
RESAMPLES = 2000
SAMPLES_KEPT = 20


@dataclass
class Evaluation:
    """How a policy does on some tasks.

    Attributes:
        name: "before", "after", ...
        step: training steps taken.
        n: tasks that could be scored.
        reward: mean, with a 95 % bootstrap interval in `reward_low` and `reward_high`.
        accuracy: share answered right (in part does not count), with a 95 % Wilson interval likewise.
        tool_calls: mean a task.
        invalid: tasks that could not be scored, because something broke.
        by_level: level -> {"n", "accuracy"}.
        samples: the first episodes in full.
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
        """Return it as plain data, one line of eval.jsonl."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.name}: accuracy {self.accuracy:.2f} [{self.accuracy_low:.2f}, {self.accuracy_high:.2f}], "
            f"reward {self.reward:.2f} [{self.reward_low:.2f}, {self.reward_high:.2f}], "
            f"{self.tool_calls:.1f} tool calls a task, n = {self.n}"
        )


def evaluate(
    engine: Engine,
    tasks: Sequence[Task],
    name: str,
    step: int = 0,
    on_task: Callable[[], object] | None = None,
) -> Evaluation:
    """Answer each task once, greedily, and summarise; several processes share the tasks and get one result.

    Tasks that broke are counted and warned about, and left out; training does not end for some of them.

    Args:
        engine: its sampling settings are replaced by greedy ones; it is not changed.
        tasks: what to answer.
        name: of this evaluation.
        step: training steps taken so far.
        on_task: called after each task of this process (`ranks.share`).

    Raises:
        ValueError: no task could be scored.
    """
    settings = replace(engine.settings.plain(1, temperature=0.0), max_invalid=1.0)
    trees, _ = play_groups(replace(engine, settings=settings, on_trajectory=on_task), tasks)
    result = summarise(trees, name, step)
    if result.invalid and this_rank() == 0:
        logger.warning("evaluation %r: %d of %d tasks could not be scored; %s", name, result.invalid, len(trees),
                       _first_fault(trees))  # fmt: skip
    return result


def summarise(trees: Sequence[RolloutTree], name: str, step: int = 0) -> Evaluation:
    """Summarise trees of one trajectory each.

    Raises:
        ValueError: no trajectory could be scored.
    """
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
    return f"the first said: {next(errors, None)}"


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion (Wilson 1927)."""
    share, z2 = successes / n, Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean (2000 resamples, seeded)."""
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def _right(tree: RolloutTree) -> float:
    """Return 1 for a right answer; one that shares words with it (F1) is in the reward, and is not right."""
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
