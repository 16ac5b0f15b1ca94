"""`ARPOTrainer`: TRL's `GRPOTrainer`, whose groups are trees played in a forkable environment.

Everything else is TRL's: loss, KL, PEFT, accumulation, checkpoints, logging. Of its inside we use

    rollout_func (constructor)         a batch of prompts becomes completions: here the engine plays
    _generate_and_score_completions    wrapped: before it the rows are put aside (rollout_func sees only prompts),
                                       after it the advantages become one number a token, shape (B, T)
    _metrics                           where a step's own measurements are added to TRL's log
    _compute_loss                      wrapped: a micro-batch's own padding is cut off first; it takes (B, T) advantages

`tests/arpo_trainer/test_trl_seams.py` fails when one of them changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from trl import GRPOTrainer

from arpo_env import ToolEnv
from arpo_env.background import run
from arpo_trainer.advantages import Scale, group_advantages, token_advantages
from arpo_trainer.backends import trainer_backend
from arpo_trainer.config import ARPOConfig
from arpo_trainer.engine import Engine
from arpo_trainer.padding import trim_padding
from arpo_trainer.rollout_metrics import rollout_metrics
from arpo_trainer.tree import RolloutTree
from envs_registry import Task, TaskSource
from envs_registry.sources import LimitedSource

OURS = ("tools", "rollout_func", "environment_factory")


def env_reward(completions: Sequence[Any], env_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """Return the environment's own rewards: the default reward function; None marks an invalid trajectory."""
    return list(env_reward)


class ARPOTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is untyped
    """Trains a policy on a `ToolEnv` with ARPO, or with GRPO as the control.

    Args:
        model: as in `GRPOTrainer`: a hub id, a folder, or a model.
        env: the environment to train on.
        reward_funcs: TRL reward functions; by default the environment's reward alone (`env_reward`).
        args: the settings.
        train_dataset: rows with the columns "prompt" and "task"; by default made from the environment's tasks.
        on_rollout: called with the trees of each training rollout.
        kwargs: whatever else `GRPOTrainer` takes.

    Raises:
        TypeError: `tools`, `rollout_func` or `environment_factory` was given: the environment has all three parts.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "arpo"]
    _name = "ARPO"
    _paper: ClassVar[dict[str, str]] = {
        "title": "Agentic Reinforced Policy Optimization",
        "id": "2507.19849",
        "citation": "",
    }

    def __init__(
        self,
        model: Any,
        env: ToolEnv,
        reward_funcs: Any = None,
        args: ARPOConfig | None = None,
        train_dataset: Any = None,
        on_rollout: Callable[[list[RolloutTree]], None] | None = None,
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
        args = args or ARPOConfig(output_dir="arpo")
        # what only TRL can normalise, over several rewards or the whole batch, is taken from TRL as it is
        as_trl = args.scale_rewards == "batch" or args.multi_objective_aggregation != "sum_then_normalize"
        self._scale: Scale | None = None if as_trl else args.scale_rewards
        self.env, self.on_rollout = env, on_rollout
        self.trees: list[RolloutTree] = []
        self._rows: list[dict[str, Any]] = []
        super().__init__(
            model=model,
            reward_funcs=env_reward if reward_funcs is None else reward_funcs,
            args=args,
            train_dataset=train_dataset if train_dataset is not None else task_dataset(env, args),
            rollout_func=_rollout,
            **kwargs,
        )
        if self._scale:
            self.scale_rewards = "none"  # TRL then hands over R - mean; `group_advantages` divides
        self.backend = trainer_backend(self)
        template = args.chat_template_kwargs or {}
        self.engine = Engine(
            self.backend, self._tokenizer, env, args.rollout_settings(), template, limits=args.rollout_limits()
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        before = (self.backend.time.seconds, self.engine.tool_time.seconds)
        # TRL writes results back into its rows; rows that share one dict would overwrite each other
        self._rows = [dict(row) for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(self._rows)
        output["advantages"] = self._token_advantages(output["advantages"], output["completion_ids"])
        mode = "train" if self.model.training else "eval"
        measured = rollout_metrics(self.trees)
        measured["seconds_generate"] = self.backend.time.seconds - before[0]
        measured["seconds_tools"] = self.engine.tool_time.seconds - before[1]
        measured["seconds_rollout"] = self._rollout_seconds
        measured["seconds_score"] = time.perf_counter() - started - self._rollout_seconds
        for name, value in measured.items():
            self._metrics[mode][f"arpo/{name}"].append(value)
        if mode == "train" and self.on_rollout:
            self.on_rollout(self.trees)
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, trim_padding(inputs))
        return loss

    def play(self) -> dict[str, list[Any]]:
        """Play the rows put aside and return them in the form `rollout_func` has to have."""
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        tasks = _group_tasks(self._rows, size)
        evaluating = {} if training else {"algorithm": "grpo", "budget": None, "branch": None}
        self.engine.settings = self.args.rollout_settings(num_generations=size, **evaluating)
        started = time.perf_counter()
        first = self.accelerator.process_index * len(tasks)
        self.trees = run(self.engine.rollout(tasks, self.state.global_step + 1, first))
        self._rollout_seconds = time.perf_counter() - started
        return _as_rows(self.trees)

    def _token_advantages(self, centred: torch.Tensor, completion_ids: torch.Tensor) -> torch.Tensor:
        """Spread the rows' advantages over their tokens: (B,) to (B, T)."""
        result = torch.zeros(completion_ids.shape, dtype=centred.dtype, device=centred.device)
        values, row = centred.tolist(), 0
        for tree in self.trees:
            size = len(tree.trajectories)
            own = values[row : row + size]
            if self._scale:
                known = [value if t.valid else None for value, t in zip(own, tree.trajectories, strict=True)]
                own = group_advantages(known, self._scale)
            for number, tokens in enumerate(token_advantages(tree, own, self.args.attribution)):
                result[row + number, : len(tokens)] = torch.tensor(tokens, dtype=result.dtype)
            row += size
        return result


def _rollout(prompts: list[Any], trainer: ARPOTrainer) -> dict[str, list[Any]]:
    return trainer.play()


def _as_rows(trees: list[RolloutTree]) -> dict[str, list[Any]]:
    output: dict[str, list[Any]] = {
        "prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "env_reward": []
    }  # fmt: skip
    for tree in trees:
        for number, trajectory in enumerate(tree.trajectories):
            row = tree.row(number)
            output["prompt_ids"].append(tree.prompt_ids)
            output["completion_ids"].append(row.ids)
            output["logprobs"].append(row.logprobs)
            output["env_mask"].append(row.mask if trajectory.valid else [0] * len(row.ids))
            output["env_reward"].append(trajectory.reward)
    return output


def _group_tasks(rows: list[dict[str, Any]], size: int) -> list[Task]:
    """Return one task for each run of `size` rows.

    Raises:
        ValueError: the rows are no whole groups of one task each.
    """
    names = [row["task"] for row in rows]
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    if any(len(group) != size or len(set(group)) != 1 for group in groups):
        raise ValueError(
            f"{len(rows)} rows are not whole groups of {size}: make per_device_train_batch_size x "
            "steps_per_generation a multiple of num_generations on every process"
        )
    return [Task.from_dict(json.loads(group[0])) for group in groups]


def training_tasks(env: ToolEnv, args: ARPOConfig) -> TaskSource:
    """Return the environment's tasks; of an endless source as many as training needs."""
    source: TaskSource = env.tasks
    if source.size is not None:
        return source
    per_step = max(1, (args.generation_batch_size or 1) // (args.num_generations or 1))
    return LimitedSource(source, per_step * args.max_steps if args.max_steps > 0 else 1000)


def task_dataset(env: ToolEnv, args: ARPOConfig) -> Any:
    """Return a `datasets.Dataset` with the tasks to train on."""
    from datasets import Dataset

    source = training_tasks(env, args)
    tasks = [source.task(number) for number in range(source.size or 0)]
    return Dataset.from_list(
        [{"prompt": env.messages(task), "task": json.dumps(task.as_dict(), ensure_ascii=False)} for task in tasks]
    )
