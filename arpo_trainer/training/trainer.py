"""`ARPOTrainer`: TRL's `GRPOTrainer`, whose groups are trees that are played in a forkable environment.

Loss, KL, PEFT, accumulation, checkpoints and logging are TRL's. This class fills the hooks of `trl_hooks`: the engine
plays the rollouts, advantages become one number per token, padding of a micro-batch is trimmed, and log pi_old is
shifted for losses that TRL does not have (see `losses`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from arpo_env import ToolEnv
from arpo_trainer.algorithms.advantages import Scale, batch_advantages, has_signal
from arpo_trainer.algorithms.credit import (
    CREDITS,
    action_advantages,
    action_rewards,
    call_marks,
    first_tag,
    learned_trajectories,
    success_rewards,
    token_advantages,
    weight_scale,
)
from arpo_trainer.algorithms.losses import shift_old_logps
from arpo_trainer.models import resolve_model
from arpo_trainer.rollout.engine import Engine, gather, group_tasks
from arpo_trainer.rollout.live_trajectory import check_limits
from arpo_trainer.rollout.metrics import completion_metrics
from arpo_trainer.rollout.model_protocol import learnt_protocol, marked, with_model_protocol
from arpo_trainer.rollout.rendering import as_published, check_tokenizer
from arpo_trainer.training import rollout_batch
from arpo_trainer.training.config import ARPOConfig, check_vllm_length, on_workers, warn_of_dropout
from arpo_trainer.training.evaluation import MEANS, METRICS, Evaluation, evaluate, evaluation_tasks
from arpo_trainer.training.overlap_trainer import OverlappingTrainer
from arpo_trainer.training.packed_trainer import PackedGRPOTrainer
from arpo_trainer.training.policy_backend import rollout_tokenizer, trainer_backend
from arpo_trainer.training.recorder import RunRecorder
from arpo_trainer.training.resume import run_facts
from arpo_trainer.training.task_data import as_env, rows_apart, task_dataset, task_rows, with_tasks
from arpo_trainer.training.trackers import TrackerCallback
from arpo_trainer.training.trl_hooks import processing_class, tokenizer_of
from arpo_trainer.tree import RolloutTree
from envs_registry.datasets.hub import offline

logger = logging.getLogger(__name__)


class ARPOTrainer(OverlappingTrainer, PackedGRPOTrainer):
    """Trains a policy on a `ToolEnv` with ARPO, or with another algorithm of the table.

    Args:
        model: as in `GRPOTrainer`: a hub id, a folder (str or Path), or a model; names of `arpo models` need no hub.
        env: the environment to train on: a `ToolEnv`, an id such as "arpo/GSM8K-v0", or a function that makes one.
            Unless they were given a protocol, it and `eval_env` get that of the model (`rollout.model_protocol`); the
            saved tokenizer says which.
        reward_funcs: TRL reward functions; by default only the reward of the environment (`env_reward`).
        args: the settings; of TRL's `GRPOConfig` those are taken that differ from its defaults.
        train_dataset: rows with a question ("question", "problem", or "prompt" as text or messages) and its answer
            ("answer" or "solution"), as a data set or a list; by default the tasks of the environment. The environment
            writes the prompt. Other columns go to the reward functions.
        eval_env: the environment to evaluate on during training (`eval_strategy`, `eval_steps`), greedily. With
            `load_best_model_at_end` the checkpoint with the best accuracy is kept.
        eval_tasks: how many of its tasks to use, from the first one on; by default all.
        overlap: what happens to training tasks that are evaluation tasks too: "refuse" raises, "drop" trains on the
            others, "allow" does not compare them. Streamed data sets are not compared.
        kwargs: other arguments of `GRPOTrainer`. On the main process `callbacks` may have the methods `on_rollout`,
            called with the trees of a training rollout, of all processes, before they are scored, and `on_evaluation`,
            called with the result of an evaluation on `eval_env`.

    Attributes:
        rollout_batch: the last rollout.
        eval_tasks: the tasks of `eval_env` to answer.
        evaluations: all results on them so far, in order.

    Raises:
        ConnectionError: the model is to be pushed to the hub, which does not answer.
        FileNotFoundError: the model's folder is missing, or the hub does not answer and the model is not cached.
        TypeError: `tools`, `rollout_func` or `environment_factory` is given, which the environment has; or `env`,
            `args` or `train_dataset` is nothing of the above.
        ValueError: the backend cannot serve the settings (see `trainer_backend`), the tokenizer cannot be used (see
            `check_tokenizer`), both `eval_env` and `eval_dataset` are given, or an evaluation task is trained on.
    """

    def __init__(
        self,
        model: Any,
        env: Any = None,
        reward_funcs: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        eval_env: Any = None,
        eval_tasks: int | None = None,
        overlap: str = "refuse",
        **kwargs: Any,
    ) -> None:
        _check_arguments(model, eval_env, kwargs)
        env, eval_env = as_env(env, "env"), None if eval_env is None else as_env(eval_env, "eval_env")
        args = ARPOConfig(output_dir="arpo") if args is None else ARPOConfig.of(args)
        if args.push_to_hub and (reason := offline()):
            raise ConnectionError(
                f"push_to_hub=True, and {reason}. Or leave push_to_hub out, and push the saved model later: hf upload"
            )
        settings = args.rollout_settings()
        check_limits(args.rollout_limits(), list(env.tools))
        check_vllm_length(args, env.budget.tokens)
        rows = {"train_dataset": train_dataset, "eval_dataset": kwargs.get("eval_dataset")}
        rows = {name: given for name, given in rows.items() if given is not None}
        kwargs |= {name: with_tasks(given, env, name) for name, given in rows.items()}  # wrong ones are refused first
        if isinstance(model, str | Path):
            with args.main_process_first():
                model = resolve_model(model, (args.model_init_kwargs or {}).get("revision", "main"))
        # the model decides the protocol, and the protocol the prompts of the rows
        processing, before = kwargs.get("processing_class") or processing_class(model, args), env.protocol.name
        # a tokenizer that was given may be the base's, which does not know what the model was trained with
        folder = model if isinstance(model, str) else getattr(model, "name_or_path", "")
        if learnt := learnt_protocol(getattr(processing, "tokenizer", processing), folder):
            processing = marked(processing, learnt[0])
        tokenizer = getattr(processing, "tokenizer", processing)
        env = as_published(with_model_protocol(env, settings, tokenizer, args.chat_template_kwargs), settings.parts)
        if env.protocol.name != before:
            kwargs |= {name: with_tasks(given, env, name) for name, given in rows.items()}
        kwargs["processing_class"] = processing = marked(processing, env.protocol.name)
        if eval_env and not eval_env.protocol_given:
            eval_env = eval_env.with_protocol(env.protocol)
        eval_env = eval_env and as_published(eval_env, settings.parts)
        # TRL itself normalises over the whole batch or over several rewards: its advantages are taken as they are then
        as_trl = args.scale_rewards == "batch" or args.multi_objective_aggregation != "sum_then_normalize"
        self._scale: Scale | None = None if as_trl else args.scale_rewards
        self.env, self.rollout_batch = env, rollout_batch.RolloutBatch()
        self.evaluations: list[Evaluation] = []
        self.eval_env, self.eval_tasks = eval_env, evaluation_tasks(eval_env, eval_tasks) if eval_env else []
        if train_dataset is None:
            kwargs["train_dataset"] = task_dataset(env, args)
        if eval_env:
            kwargs["eval_dataset"] = task_rows(eval_env, self.eval_tasks)
        elif args.metric_for_best_model == "accuracy":  # TRL evaluates on the user's rows and logs it under our prefix
            args.metric_for_best_model = "arpo/accuracy"
        if args.report_to:  # right behind the trackers' own callbacks
            kwargs["callbacks"] = [TrackerCallback(self), *(kwargs.get("callbacks") or ())]
        self._no_signal, self._reward_check = rollout_batch.NoSignalWarning(), rollout_batch.RewardCheck()
        self._env_rewards = reward_funcs is None
        self._token_loss, self._prepare = args.token_loss(), CREDITS[args.attribution].prepare
        super().__init__(
            model=model,
            reward_funcs=self._reward_check.wrap(rollout_batch.env_reward if reward_funcs is None else reward_funcs),
            args=args,
            **kwargs | {"train_dataset": rows_apart(kwargs["train_dataset"], kwargs.get("eval_dataset"), overlap)},
        )
        if self._scale:
            self.scale_rewards = "none"  # TRL then hands over R - mean; `group_advantages` divides
        check_tokenizer(tokenizer_of(self))
        warn_of_dropout(self.model, args)
        self.choose_packing()
        self.check_overlap()
        tokenizer = rollout_tokenizer(self)
        self.backend = trainer_backend(self, tokenizer)
        template, limits = args.chat_template_kwargs or {}, args.rollout_limits()
        self.engine = on_workers(Engine(self.backend, tokenizer, env, settings, template, limits=limits), args)
        if self.recorder is None and self.accelerator.is_main_process:
            self.add_callback(RunRecorder(args.output_dir, args.trace_every))

    @property
    def recorder(self) -> RunRecorder | None:
        """The callback that records the run; None if it was removed, and in all processes but the main one."""
        return next((each for each in self.callback_handler.callbacks if isinstance(each, RunRecorder)), None)

    def recording(self, checkpoint: str | Path | None) -> contextlib.AbstractContextManager[None]:
        """Record in `args.output_dir`.

        Raises:
            BlockingIOError: another process trains in the folder.
            FileExistsError: the folder holds a run that this one does not continue.
        """
        return self.recorder.recording(run_facts(self), checkpoint) if self.recorder else contextlib.nullcontext()

    def save_model(self, output_dir: str | Path | None = None, _internal_call: bool = False) -> None:
        """Save the model, and push it if `args.push_to_hub` says so; a hub that fails then ends no run."""
        super().save_model(str(output_dir) if output_dir else None, _internal_call=True)
        if _internal_call or not self.args.push_to_hub:
            return
        try:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)
        except Exception as error:  # the hub's client raises many types
            folder = output_dir or self.args.output_dir
            logger.error(
                "the model is saved in %s, and not pushed (%s: %s); push it with: hf upload %s %s",
                *(folder, type(error).__name__, error, self.hub_model_id, folder),
            )

    @property
    def trees(self) -> list[RolloutTree]:
        """The trees of the last rollout, those of all processes, in order and equal on every process."""
        return self.rollout_batch.trees

    def play(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """Play the groups of the rows as trees, together with those of the other processes."""
        training = self.model.training
        size, engine = self.num_generations if training else self.num_generations_eval, self.engine
        tasks = group_tasks(gather([row["task"] for row in rows]), size)
        if not training:
            # independent samples: branches share their beginnings, which would count several times in a mean
            engine = replace(engine, settings=engine.settings.plain(size))
        # several rollouts of one step number their groups on, or equal tasks would be played with equal seeds
        first = self.number_groups(len(tasks)) if training else 0
        batch = self.take_rollout(engine, tasks, self.state.global_step + 1, first)
        if training and self._prepare:
            self._prepare(self, batch.trees)
        self.rollout_batch, self.rolled_out = batch, True
        if training:
            self.tell("on_rollout", batch.trees)
        return self.rollout_batch.trl_rows(self._own_rows)

    def batch_made(self, seconds: float) -> None:
        """Log the rollout."""
        for name, value in self.rollout_batch.metrics(seconds).items():
            self.add_metric(f"arpo/{name}", value)
        for name, value in completion_metrics(self.rollout_batch.trees).items():
            self.replace_metric(f"completions/{name}", value)
        # TRL's are means over all rows, and rows that share a beginning would make a tree another policy than its own
        names = ["reward", *(f"rewards/{name}/mean" for name in self.reward_func_names)]
        for name, mean in zip(names, self.rollout_batch.mean_rewards(), strict=True):
            if mean is not None:
                self.replace_metric(name, mean)

    def rewards_seen(self, rewards: torch.Tensor) -> None:
        """Check the rewards of all trajectories and keep them; invalid trajectories have none, whatever was given."""
        self._reward_check.settle(rewards, self.reward_funcs)
        self.rollout_batch.score(rewards, self.reward_weights)

    def fold_mask(self, width: int) -> torch.Tensor | None:
        """Return where the rows of this process have new prompts."""
        return self.rollout_batch.fold_mask(self._own_rows, width)

    def before_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Trim the padding of the micro-batch."""
        return rollout_batch.trim_padding(super().before_loss(inputs))

    def logps_seen(self, logps: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Shift log pi_old if the loss is not TRL's own."""
        if not self._token_loss.is_own:
            return
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        shifted = shift_old_logps(inputs, logps, self._token_loss, mask)
        # summed over processes before dividing: a mean of their shares would not weigh all tokens equally
        kept, counted = self.accelerator.reduce(torch.stack([shifted.sum(), mask.sum()]), "sum").tolist()
        self.add_metric("arpo/kept_gradients", kept / max(1, counted))

    @property
    def _own_rows(self) -> range:
        """The rows of this process among those of all processes."""
        count, rank = len(self.rows), self.accelerator.process_index
        return range(rank * count, (rank + 1) * count)

    def token_advantages(self, centred: torch.Tensor, completion_ids: torch.Tensor) -> torch.Tensor:
        """Return the advantages of the tokens of this process, (B, T), from TRL's, (B,)."""
        groups = self._group_advantages(centred)
        own, scored = self._own_rows, self.rollout_batch.scored_trees()
        # no update reads the advantages of an evaluation, for which nothing is prepared
        known = self.model.training or not self._prepare
        credit = self.credit if known else partial(token_advantages, attribution="soft")
        rows = [row for tree, group in zip(scored, groups, strict=True) for row in credit(tree, group)]
        if self.model.training:  # ToolPO has a signal where only the calls differ
            self._no_signal.update(rows if self.args.action_weight or self._prepare else groups)
        like = torch.zeros(completion_ids.shape, dtype=centred.dtype, device=centred.device)
        result = rollout_batch.pad_rows(rows[own.start : own.stop], like)
        # these losses divide by a number of tokens in which every copy counts 1
        if self.args.loss_type in ("dapo", "cispo", "vespo", "bnpo"):
            result *= weight_scale(scored, self.args.attribution)
        if self.args.entropy_weight:
            result *= rollout_batch.entropy_factor(
                self.rollout_batch.entropies(own, like),
                rollout_batch.tree_moments(scored),
                self.args.entropy_weight,
                self.args.entropy_limit,
            )
        return result

    def learned_rows(self) -> list[bool]:
        """Return which trajectories are learned from: those that were scored, and that the attribution trains."""
        scored = self.rollout_batch.scored_trees()
        return [row for tree in scored for row in learned_trajectories(tree, self.args.attribution)]

    def credit(self, tree: RolloutTree, advantages: list[float]) -> list[list[float]]:
        """Return an advantage for every token of a tree's trajectories. Override it for your own credit assignment.

        Args:
            tree: all that was sampled for one prompt; every process sees the same. Its trajectories have the rewards of
                the reward functions, and those that none could score are invalid.
            advantages: of its trajectories, by `args.advantage`; 0 for invalid ones.
        """
        rows = token_advantages(tree, advantages, self.args.attribution)
        if not self.args.action_weight or not self.model.training:
            return rows
        marks = call_marks(tree, tokenizer_of(self).decode, call_start(self.engine.env))
        rewards = action_rewards(tree, getattr(self.env.rewards, "fold_weight", 1.0))
        actions = action_advantages(tree, rewards, marks, self.args.attribution)
        weight = self.args.action_weight
        return [[a + weight * b for a, b in zip(*pair, strict=True)] for pair in zip(rows, actions, strict=True)]

    def _group_advantages(self, centred: torch.Tensor) -> list[list[float]]:
        """Return one advantage per trajectory, of the groups of all processes."""
        # start from the rewards: TRL has 0 where a function returned None, as if that were the mean of the group
        batch, known = self.rollout_batch, self.rollout_batch.group_rewards()
        if self.args.action_weight and self._env_rewards:  # what calls earn has an advantage of its own
            known = [success_rewards(tree, group) for tree, group in zip(batch.trees, known, strict=True)]
        if self._scale is None:
            theirs = iter(self.accelerator.gather(centred).tolist())
            centred_groups = [[next(theirs) for _ in group] for group in known]
            if self.args.multi_objective_aggregation != "sum_then_normalize":  # equal sums may have different parts
                return centred_groups
            # where all rewards are equal, TRL's are the rounding error of their mean, which Adam would scale to steps
            pairs = zip(centred_groups, known, strict=True)
            return [own if has_signal(group) else [0.0] * len(own) for own, group in pairs]
        name = "grpo-no-std" if (self.args.advantage, self._scale) == ("grpo", "none") else self.args.advantage
        return batch_advantages(name, known, batch.turn_lengths(), [tree.starts() for tree in batch.trees])

    def evaluate_tasks(self, name: str, on_task: Callable[[], object] | None = None) -> Evaluation:
        """Answer the evaluation tasks greedily with the present policy; see `evaluate`."""
        env, engine = self.eval_env, self.engine
        if env is None:
            raise ValueError("nothing to evaluate on: give the trainer an eval_env")
        self.before_rollout()  # the weights may not change under a rollout that is played ahead
        missing = set(engine.env.tools) - set(env.tools)  # limits of tools that only training has
        limits = {kind: most for kind, most in engine.limits.items() if kind not in missing}
        engine = replace(engine, env=env, limits=limits)
        result = evaluate(engine, self.eval_tasks, name, self.state.global_step, on_task)
        self.evaluations.append(result)
        self.tell("on_evaluation", result)
        return result

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return and log `eval_accuracy`, `eval_reward`, `eval_tool_calls`, ... with 95 % intervals.

        Everything around it is transformers' own: `eval_strategy` and `eval_steps` say when, `metric_for_best_model`,
        `load_best_model_at_end` and `save_strategy="best"` what to keep; callbacks and loggers get these metrics.
        Where more than `max_invalid` of the tasks failed, the means are NaN, which is not logged and never the best.

        Args:
            eval_dataset: with rows of your own TRL evaluates: it samples groups and computes a loss.
            ignore_keys: passed on to TRL.
            metric_key_prefix: prefix of the metric names.
        """
        if eval_dataset is not None or self.eval_env is None:
            found: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
            return found
        began, training = time.perf_counter(), self.model.training
        self.model.eval()  # TRL logs under the mode of the model
        try:
            result = self.evaluate_tasks(f"step {self.state.global_step}")
            found = {name: float(getattr(result, name)) for name in METRICS}
            if result.invalid > self.args.max_invalid * (result.n + result.invalid):
                found |= dict.fromkeys(MEANS, math.nan)  # too few to choose a checkpoint by
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
            metrics[f"{metric_key_prefix}_runtime"] = time.perf_counter() - began
            self.log({name: value for name, value in metrics.items() if math.isfinite(value)})
            # as transformers does at the end of its own: callbacks such as early stopping answer in the control
            told = (self.args, self.state, self.control, metrics)  # type: ignore[has-type]
            self.control = self.callback_handler.on_evaluate(*told)
        finally:
            self.model.train(training)
        return metrics


def _check_arguments(model: Any, eval_env: Any, given: dict[str, Any]) -> None:
    wrong = [name for name in ("tools", "rollout_func", "environment_factory") if given.get(name) is not None]
    if wrong:
        raise TypeError(f"ARPOTrainer takes no {', '.join(wrong)}: tools, rollout and resets belong to `env`")
    if isinstance(model, torch.nn.Module) and not (model.name_or_path or given.get("processing_class")):
        raise ValueError(
            "the model was loaded from no folder, so that its tokenizer is not known: give processing_class"
        )
    if eval_env is not None and given.get("eval_dataset") is not None:
        raise ValueError("give eval_env or eval_dataset: with both, the rows of eval_dataset would never be used")


def call_start(env: ToolEnv) -> Callable[[str], int]:
    """Return what finds the calls in a turn's text, for ToolPO's marks."""
    protocol: Any = env.protocol
    if protocol.native:
        return lambda text: len((protocol.read_calls(text) or ("",))[0])
    closings = [text for text in protocol.stop_strings(env.schemas) if text.startswith("</")]
    return first_tag(*(f"<{text[2:]}" for text in closings if text != "</answer>"))
