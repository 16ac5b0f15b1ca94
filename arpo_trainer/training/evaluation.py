"""Greedy evaluation on held-out tasks, with intervals: `evaluate`, and `EvaluatesOnTasks` for trainers.

Each task is answered once, without sampling or branches. In a trainer everything around it is transformers' own:
`eval_strategy` and `eval_steps` say when, `metric_for_best_model`, `load_best_model_at_end` and `save_strategy="best"`
what to keep, and callbacks and loggers get `eval_accuracy` and the other metrics.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
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


class EvaluatesOnTasks:
    """A mixin before `GRPOTrainer` whose `evaluate()` plays `eval_tasks`, if there are any.

    Attributes:
        eval_env: the environment to evaluate on; None leaves evaluation to TRL.
        eval_tasks: the tasks to answer.
        evaluations: all results so far, in order.
    """

    eval_env: ToolEnv | None
    eval_tasks: list[Task]
    evaluations: list[Evaluation]

    def evaluate_tasks(self, name: str, on_task: Callable[[], object] | None = None) -> Evaluation:
        """Answer the evaluation tasks greedily with the present policy; see `evaluate`."""
        trainer: Any = self
        env, engine = self.eval_env, trainer.engine
        if env is None:
            raise ValueError("nothing to evaluate on: give the trainer an eval_env")
        trainer.before_rollout()  # the weights may not change under a rollout that is played ahead
        missing = set(engine.env.tools) - set(env.tools)  # limits of tools that only training has
        limits = {kind: most for kind, most in engine.limits.items() if kind not in missing}
        engine = replace(engine, env=env, limits=limits)
        result = evaluate(engine, self.eval_tasks, name, trainer.state.global_step, on_task)
        self.evaluations.append(result)
        trainer.tell("on_evaluation", result)
        return result

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return and log `eval_accuracy`, `eval_reward`, `eval_tool_calls`, ... with 95 % intervals.

        Where more than `max_invalid` of the tasks failed, the means are NaN, which is not logged and never the best.

        Args:
            eval_dataset: with rows of your own TRL evaluates: it samples groups and computes a loss.
            ignore_keys: passed on to TRL.
            metric_key_prefix: prefix of the metric names.
        """
        if eval_dataset is not None or self.eval_env is None:
            found: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]
            return found
        trainer: Any = self
        began, training = time.perf_counter(), trainer.model.training
        trainer.model.eval()  # TRL logs under the mode of the model
        try:
            result = self.evaluate_tasks(f"step {trainer.state.global_step}")
            found = {name: float(getattr(result, name)) for name in METRICS}
            if result.invalid > trainer.args.max_invalid * (result.n + result.invalid):
                found |= dict.fromkeys(MEANS, math.nan)  # too few to choose a checkpoint by
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
            metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - began
            trainer.log({name: value for name, value in metrics.items() if math.isfinite(value)})
            # as transformers does at the end of its own: callbacks such as early stopping answer in the control
            told = (trainer.args, trainer.state, trainer.control, metrics)
            trainer.control = trainer.callback_handler.on_evaluate(*told)
        finally:
            trainer.model.train(training)
        return metrics
