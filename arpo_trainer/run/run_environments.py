"""The environments of a run, each made once: for training, for evaluation, and for the cold start."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.make_env import known_id, make_env
from arpo_trainer.rollout.distributed import this_rank
from arpo_trainer.rollout.live_trajectory import check_limits
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.cold_start import check_solvable
from arpo_trainer.training.config import ARPOConfig, check_vllm_length
from arpo_trainer.training.policy_backend import check_served_model
from arpo_trainer.training.task_data import training_tasks
from envs_registry.contamination import keep_apart
from envs_registry.sources import LimitedSource


class RunEnvironments:
    """Makes each environment of a run at its first use and keeps it; equal options share the loaded tasks.

    Args:
        run: the arguments of the run.
        make: makes an environment from an id and options; `dry_run` gives one that works without the tasks.
    """

    def __init__(self, run: RunArguments, make: Callable[[str, dict[str, Any]], ToolEnv] = make_env) -> None:
        self._run, self._make = run, make

    @functools.cached_property
    def train(self) -> ToolEnv:
        """The environment to train on."""
        return self._make(self._run.env, self._run.env_kwargs)

    @functools.cached_property
    def held_out(self) -> ToolEnv | None:
        """The environment for evaluation; None if `eval_tasks` is 0."""
        run = self._run
        if not run.eval_tasks:
            return None
        # "my_envs:mine/Task-v0" and "mine/Task-v0" are the same environment
        if run.eval_env is None or known_id(run.eval_env) == known_id(run.env):
            return self._variant({**run.env_kwargs, **run.eval_env_kwargs})
        return self._make(run.eval_env, run.eval_env_kwargs)

    @functools.cached_property
    def cold_start(self) -> ToolEnv | None:
        """The environment of the demonstrations; None without a cold start."""
        run = self._run
        return self._variant({**run.env_kwargs, **run.cold_start_env_kwargs}) if run.cold_start_examples else None

    def _variant(self, options: dict[str, Any]) -> ToolEnv:
        """Return the training environment with other options."""
        # `spawn` shares the tasks; a data set is read and checked once even if evaluation or cold start use it as it is
        return self.train.spawn() if options == self._run.env_kwargs else self._make(self._run.env, options)

    def played(self) -> list[ToolEnv]:
        """Return the environments that policies play in: for training, and for evaluation if there is one."""
        return [self.train, *([self.held_out] if self.held_out else [])]

    def check(self, args: ARPOConfig) -> None:
        """Check everything before a model is loaded.

        Raises:
            ValueError: the settings or the tasks cannot work, or a judge model is missing.
            RuntimeError: no search is configured where one is needed, or a vLLM server does not answer.
        """
        for env in self.played():
            env.check()
        self.check_settings(args)
        self.check_tasks(args)
        if this_rank() == 0:
            check_served_model(args, self._run.model, self.train.budget.tokens)

    def check_settings(self, args: ARPOConfig) -> None:
        """Check the settings that depend on the tools and the token budget.

        Raises:
            ValueError: a limit names no tool, or vLLM's context is too short.
        """
        check_limits(args.rollout_limits(), list(self.train.tools))
        check_vllm_length(args, self.train.budget.tokens)

    def check_tasks(self, args: ARPOConfig) -> None:
        """Check the tasks; with `overlap: drop`, remove evaluation tasks from training.

        Raises:
            ValueError: a cold start on tasks without solutions, or evaluation tasks that are trained on.
        """
        if self.cold_start:
            check_solvable(self.cold_start.tasks)
        if self.held_out:
            trained = training_tasks(self.train, args)
            # only tasks that will be evaluated are held out; others of that source may be trained on
            apart = keep_apart(trained, LimitedSource(self.held_out.tasks, self._run.eval_tasks), self._run.overlap)
            # the environment itself changes: everything that trains on it takes its tasks from there
            if apart is not trained:
                self.train.tasks = apart
