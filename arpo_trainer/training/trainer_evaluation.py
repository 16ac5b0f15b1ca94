"""Evaluation while a trainer trains: `EvaluatesOnTasks` answers an environment's tasks where TRL would measure a loss.

Everything around it is transformers' own: `eval_strategy` and `eval_steps` say when, `metric_for_best_model`,
`load_best_model_at_end` and `save_strategy="best"` what to keep, callbacks and loggers see `eval_accuracy` and the
others. What it does not do: sample, or branch; evaluation is greedy and answers each task once (see `evaluation`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.training.evaluation import Evaluation, evaluate
from envs_registry import Task

MEANS = ("reward", "reward_low", "reward_high", "accuracy", "accuracy_low", "accuracy_high", "tool_calls")
METRICS = (*MEANS, "n", "invalid")


def evaluation_tasks(env: ToolEnv, count: int | None) -> list[Task]:
    """Return the first `count` tasks of an environment, or all.

    Raises:
        ValueError: `count` is below 1, or missing where tasks have no end.
    """
    if count is None and env.tasks.size is None:
        raise ValueError(f"{env.env_spec.id} has tasks without end: say how many to evaluate on, as in eval_tasks=100")
    if count is not None and count < 1:
        raise ValueError(f"eval_tasks must be at least 1, got {count}; leave eval_env out to evaluate on nothing")
    sizes = [size for size in (count, env.tasks.size) if size is not None]
    return [env.tasks.task(number) for number in range(min(sizes))]


class EvaluatesOnTasks:
    """A mixin before `GRPOTrainer`; `evaluate()` plays `eval_tasks`, if there are any.

    Attributes:
        eval_env: whose tasks, tools and rewards those are; None leaves evaluation to TRL.
        eval_tasks: what is answered.
        evaluations: all so far, in order.
        on_evaluation: called with each, on the main process only.
    """

    eval_env: ToolEnv | None
    eval_tasks: list[Task]
    evaluations: list[Evaluation]
    on_evaluation: Callable[[Evaluation], None] | None = None

    def evaluate_tasks(self, name: str, on_task: Callable[[], object] | None = None) -> Evaluation:
        """Answer the evaluation tasks greedily with the policy as it is.

        Args:
            name: of this evaluation.
            on_task: called after each task of this process.

        Raises:
            ValueError: there is no `eval_env`.
        """
        trainer: Any = self
        env, engine = self.eval_env, trainer.engine
        if env is None:
            raise ValueError("nothing to evaluate on: give the trainer an eval_env")
        missing = set(engine.env.tools) - set(env.tools)  # a limit of what only training has means nothing here
        limits = {kind: most for kind, most in engine.limits.items() if kind not in missing}
        engine = replace(engine, env=env, limits=limits)
        result = evaluate(engine, self.eval_tasks, name, trainer.state.global_step, on_task)
        self.evaluations.append(result)
        if self.on_evaluation and trainer.accelerator.is_main_process:
            self.on_evaluation(result)
        return result

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return and log `eval_accuracy`, `eval_reward`, `eval_tool_calls`, ... with 95 % intervals.

        Where more than `max_invalid` of the tasks broke they are NaN, which is never the best, and not logged.

        Args:
            eval_dataset: rows of one's own are TRL's business: groups are sampled, and there is a loss.
            ignore_keys: for TRL.
            metric_key_prefix: goes before the metrics' names.
        """
        if eval_dataset is not None or self.eval_env is None:
            found: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]
            return found
        trainer: Any = self
        began, training = time.perf_counter(), trainer.model.training
        trainer.model.eval()  # the logged numbers go with those of evaluation
        try:
            result = self.evaluate_tasks(f"step {trainer.state.global_step}")
            found = {name: float(getattr(result, name)) for name in METRICS}
            if result.invalid > trainer.args.max_invalid * (result.n + result.invalid):
                found |= dict.fromkeys(MEANS, math.nan)  # of too few to choose a checkpoint by: NaN is never the best
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
            metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - began
            trainer.log({name: value for name, value in metrics.items() if math.isfinite(value)})
            told = (trainer.args, trainer.state, trainer.control, metrics)
            trainer.control = trainer.callback_handler.on_evaluate(*told)
        finally:
            trainer.model.train(training)
        return metrics
