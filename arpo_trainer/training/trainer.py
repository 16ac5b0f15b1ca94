"""`ARPOTrainer`: TRL's `GRPOTrainer`, whose groups are trees played in a forkable environment.

Everything else is TRL's: loss, KL, PEFT, accumulation, checkpoints, logging. What is ours hangs on the hooks of
`trl_seams`: the engine plays, the advantages become one number a token, a micro-batch's own padding is cut off, and the
anchors of the ratio are moved (see `reanchoring`). Under several processes each group is played whole by one of them
(see `ranks`); advantages and measurements are the same as with one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from arpo_env import ToolEnv
from arpo_trainer.algorithms.advantages import Scale, batch_advantages, has_signal, silent_groups
from arpo_trainer.algorithms.credit_assignment import deduplication_scale, token_advantages
from arpo_trainer.algorithms.published_code import as_published
from arpo_trainer.rollout.concurrency import check_limits
from arpo_trainer.rollout.distributed import gather, group_tasks, play_groups
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.metrics import completion_metrics, rollout_metrics
from arpo_trainer.rollout.tokenizer_checks import check_tokenizer
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.config_checks import check_vllm_length
from arpo_trainer.training.entropy_advantage import entropy_factor, tree_moments
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.packed_trainer import PackedGRPOTrainer
from arpo_trainer.training.policy_backend import trainer_backend
from arpo_trainer.training.resume import ResumableTrainer
from arpo_trainer.training.rewards import RewardCheck, SilenceAlarm, env_reward
from arpo_trainer.training.trainer_evaluation import EvaluatesOnTasks, evaluation_tasks
from arpo_trainer.training.trim_padding import trim_padding
from arpo_trainer.training.trl_hooks import tokenizer_of
from arpo_trainer.training.trl_losses import needs_anchors, reanchor
from arpo_trainer.tree import RolloutTree
from envs_registry import Task, TaskSource
from envs_registry.sources import LimitedSource

OURS = ("tools", "rollout_func", "environment_factory")


class ARPOTrainer(EvaluatesOnTasks, ResumableTrainer, PackedGRPOTrainer):
    """Trains a policy on a `ToolEnv` with ARPO, or with GRPO as the control.

    Args:
        model: as in `GRPOTrainer`: a hub id, a folder (str or Path), or a model.
        env: the environment to train on.
        reward_funcs: TRL reward functions; by default the environment's reward alone (`env_reward`).
        args: the settings.
        train_dataset: rows with the columns "prompt" and "task"; by default made from the environment's tasks.
        eval_env: the environment to evaluate on while training (`eval_strategy`, `eval_steps`), greedily; with
            `load_best_model_at_end` the checkpoint with the best accuracy is the one that stays.
        eval_tasks: how many of its tasks, the first ones; default all.
        on_rollout: called with the trees of each training rollout before they are scored, those of all processes, on
            the main process only.
        on_evaluation: called with the result of each evaluation on `eval_env`, likewise.
        kwargs: whatever else `GRPOTrainer` takes.

    Attributes:
        trees: of the last rollout, those of all processes, in order and equal on every one.

    Raises:
        TypeError: `tools`, `rollout_func` or `environment_factory` was given: the environment has all three parts.
        ValueError: settings that the backend cannot serve (see `trainer_backend`), a tokenizer that cannot (see
            `tokenizer_checks`), or both `eval_env` and `eval_dataset`.
    """

    def __init__(
        self,
        model: Any,
        env: ToolEnv,
        reward_funcs: Any = None,
        args: ARPOConfig | None = None,
        train_dataset: Any = None,
        eval_env: ToolEnv | None = None,
        eval_tasks: int | None = None,
        on_rollout: Callable[[list[RolloutTree]], None] | None = None,
        on_evaluation: Callable[[Evaluation], None] | None = None,
        **kwargs: Any,
    ) -> None:
        given = [name for name in OURS if kwargs.get(name) is not None]
        if given:
            raise TypeError(f"ARPOTrainer takes no {', '.join(given)}: tools, rollout and resets belong to `env`")
        if not isinstance(env, ToolEnv):
            raise TypeError(
                f"env must be a ToolEnv, got {type(env).__name__}: rollouts run on copies of the environment itself, "
                "which a wrapper would not follow; give `env.unwrapped`, and limits as its own options (max_turns=...)"
            )
        env.check()
        if eval_env:
            eval_env.check()
            if kwargs.get("eval_dataset") is not None:
                raise ValueError(
                    "give eval_env or eval_dataset: with both, the rows of eval_dataset would never be used"
                )
        args = args or ARPOConfig(output_dir="arpo")
        row = args.rollout_settings().parts
        env, eval_env = as_published(env, row), as_published(eval_env, row) if eval_env else None
        check_limits(args.rollout_limits(), list(env.tools))
        check_vllm_length(args, env.budget.tokens)
        # what only TRL can normalise, over several rewards or the whole batch, is taken from TRL as it is
        as_trl = args.scale_rewards == "batch" or args.multi_objective_aggregation != "sum_then_normalize"
        self._scale: Scale | None = None if as_trl else args.scale_rewards
        self.env, self.on_rollout = env, on_rollout
        self.trees: list[RolloutTree] = []
        self.on_evaluation, self.evaluations = on_evaluation, []
        self.eval_env, self.eval_tasks = eval_env, evaluation_tasks(eval_env, eval_tasks) if eval_env else []
        if eval_env:
            kwargs["eval_dataset"] = task_rows(eval_env, self.eval_tasks)
        elif args.metric_for_best_model == "accuracy":  # TRL's evaluation, on rows of one's own, has it under our name
            args.metric_for_best_model = "arpo/accuracy"
        self._rewards: list[float] = []
        self._silent, self._alarm, self._reward_check = 0, SilenceAlarm(), RewardCheck()
        self._token_loss = args.token_loss()
        super().__init__(
            model=str(model) if isinstance(model, Path) else model,
            reward_funcs=self._reward_check.wrap(env_reward if reward_funcs is None else reward_funcs),
            args=args,
            train_dataset=train_dataset if train_dataset is not None else task_dataset(env, args),
            **kwargs,
        )
        if self._scale:
            self.scale_rewards = "none"  # TRL then hands over R - mean; `group_advantages` divides
        check_tokenizer(tokenizer_of(self))
        self.pack_if_possible()
        self.backend = trainer_backend(self)
        template = args.chat_template_kwargs or {}
        self.engine = Engine(
            self.backend, tokenizer_of(self), env, args.rollout_settings(), template, limits=args.rollout_limits()
        )

    def play(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """Play the rows' groups, those of all processes, as trees."""
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        tasks = group_tasks(gather([row["task"] for row in rows]), size)
        evaluating = {} if training else {"algorithm": "grpo", "budget": None, "branch": None}
        self.engine.settings = self.args.rollout_settings(num_generations=size, **evaluating)
        before = (self.backend.time.seconds, self.engine.tool_time.seconds)
        first = self.number_groups(len(tasks)) if training else 0
        self.trees, self._rollout_seconds = play_groups(self.engine, tasks, self.state.global_step + 1, first)
        self._spent = {
            "seconds_generate": self.backend.time.seconds - before[0],
            "seconds_tools": self.engine.tool_time.seconds - before[1],
        }
        if training and self.on_rollout and self.accelerator.is_main_process:
            self.on_rollout(self.trees)
        return _as_rows(self.trees, self._own_rows)

    def batch_made(self, seconds: float) -> None:
        """Log the rollout."""
        spent = gather([{**self._spent, "seconds_score": seconds - self._rollout_seconds}])
        measured = rollout_metrics(self.trees)
        measured["seconds_rollout"] = self._rollout_seconds
        measured["groups_silent"] = self._silent
        measured.update({name: statistics.fmean(rank[name] for rank in spent) for name in spent[0]})
        for name, value in measured.items():
            self.add_metric(f"arpo/{name}", value)
        for name, value in completion_metrics(self.trees).items():
            self.replace_metric(f"completions/{name}", value)

    def rewards_seen(self, rewards: torch.Tensor) -> None:
        """Check the rewards of all trajectories, and put them aside; what broke has none, whoever gave it one."""
        self._reward_check.settle(rewards, self.reward_funcs)
        broken = [not trajectory.valid for tree in self.trees for trajectory in tree.trajectories]
        rewards[torch.tensor(broken, device=rewards.device)] = torch.nan  # TRL leaves it out of its means then
        weighted = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        self._rewards = weighted.where(~rewards.isnan().all(dim=1), torch.nan).tolist()

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Cut the micro-batch's own padding off."""
        return trim_padding(inputs)

    def logps_seen(self, logps: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Move the anchors, where the loss is another one than TRL's."""
        if not needs_anchors(self._token_loss):
            return
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        moved = reanchor(inputs, logps, self._token_loss, mask)
        kept, counted = self.accelerator.reduce(torch.stack([moved.sum(), mask.sum()]), "sum").tolist()
        self.add_metric("arpo/kept_gradients", kept / max(1, counted))

    @property
    def _own_rows(self) -> range:
        """Which of all ranks' rows are this rank's."""
        count, rank = len(self.rows), self.accelerator.process_index
        return range(rank * count, (rank + 1) * count)

    def token_advantages(self, centred: torch.Tensor, completion_ids: torch.Tensor) -> torch.Tensor:
        """Make the advantages of this rank's tokens: from TRL's (B,) to (B, T)."""
        groups = self._group_advantages(centred)
        if self.model.training:
            self._alarm.hear(groups)
        rows = [row for tree, own in zip(self.trees, groups, strict=True) for row in self.credit(tree, own)]
        result = torch.zeros(completion_ids.shape, dtype=centred.dtype, device=centred.device)
        for place, number in enumerate(self._own_rows):
            result[place, : len(rows[number])] = torch.tensor(rows[number], dtype=result.dtype)
        if self.args.attribution == "dedup" and self.args.loss_type in ("dapo", "cispo", "vespo", "bnpo"):
            result *= deduplication_scale(self.trees)
        return result * self._entropy_factor(result) if self.args.entropy_weight else result

    def credit(self, tree: RolloutTree, advantages: list[float]) -> list[list[float]]:
        """Return an advantage for every token of a tree's trajectories; override it to give credit of your own.

        Args:
            tree: all that was sampled for one prompt; every process sees the same.
            advantages: of its trajectories, by `args.advantage`; 0 for invalid ones.

        Returns:
            One list a trajectory, as long as its row.
        """
        return token_advantages(tree, advantages, self.args.attribution)

    def _group_advantages(self, centred: torch.Tensor) -> list[list[float]]:
        """Return one advantage a trajectory, of all ranks' groups."""
        # TRL's are 0 where a reward function returned None, as if that were the group's mean: ours start at the rewards
        rewards = iter(self._rewards)
        groups = [[(next(rewards), t.valid) for t in tree.trajectories] for tree in self.trees]
        known = [[value if valid and value == value else None for value, valid in group] for group in groups]
        self._silent = silent_groups(known)
        if self._scale is None:
            theirs = iter(self.accelerator.gather(centred).tolist())
            centred_groups = [[next(theirs) for _ in group] for group in known]
            if self.args.multi_objective_aggregation != "sum_then_normalize":  # equal sums may have different parts
                return centred_groups
            # where all are equal, theirs is the rounding of their mean: Adam would make steps of it
            return [own if has_signal(group) else [0.0] * len(own)
                    for own, group in zip(centred_groups, known, strict=True)]  # fmt: skip
        name = "grpo-no-std" if (self.args.advantage, self._scale) == ("grpo", "none") else self.args.advantage
        lengths = [[sum(tree.row(n).mask) for n in range(len(tree.trajectories))] for tree in self.trees]
        return batch_advantages(name, known, lengths, [tree.starts() for tree in self.trees])

    def _entropy_factor(self, like: torch.Tensor) -> torch.Tensor:
        entropies = torch.zeros_like(like)
        every = [(tree, number) for tree in self.trees for number in range(len(tree.trajectories))]
        for place, number in enumerate(self._own_rows):
            tree, trajectory = every[number]
            row = tree.row(trajectory).entropies
            entropies[place, : len(row)] = torch.tensor(row, dtype=like.dtype)
        return entropy_factor(entropies, tree_moments(self.trees), self.args.entropy_weight, self.args.entropy_limit)


def _as_rows(trees: list[RolloutTree], wanted: range) -> dict[str, list[Any]]:
    output: dict[str, list[Any]] = {
        "prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "env_reward": []
    }  # fmt: skip
    every = [(tree, number) for tree in trees for number in range(len(tree.trajectories))]
    for tree, number in every[wanted.start : wanted.stop]:
        trajectory, row = tree.trajectories[number], tree.row(number)
        output["prompt_ids"].append(tree.prompt_ids)
        output["completion_ids"].append(row.ids)
        output["logprobs"].append(row.logprobs)
        output["env_mask"].append(row.mask if trajectory.valid else [0] * len(row.ids))
        output["env_reward"].append(trajectory.reward)
    return output


def training_tasks(env: ToolEnv, args: ARPOConfig) -> TaskSource:
    """Return the environment's tasks; of an endless source as many as training needs."""
    source: TaskSource = env.tasks
    if source.size is not None:
        return source
    if args.max_steps <= 0:
        return LimitedSource(source, 1000)
    rollouts = -(
        -args.max_steps * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    )
    return LimitedSource(source, rollouts * max(1, (args.generation_batch_size or 1) // (args.num_generations or 1)))


def task_dataset(env: ToolEnv, args: ARPOConfig) -> Any:
    """Return a `datasets.Dataset` with the tasks to train on."""
    source = training_tasks(env, args)
    return task_rows(env, [source.task(number) for number in range(source.size or 0)])


def task_rows(env: ToolEnv, tasks: Sequence[Task]) -> Any:
    """Return a `datasets.Dataset` with a row a task: "prompt" and "task"."""
    from datasets import Dataset

    return Dataset.from_list(
        [{"prompt": env.messages(task), "task": json.dumps(task.as_dict(), ensure_ascii=False)} for task in tasks]
    )
