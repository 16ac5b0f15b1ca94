"""What a training run plays, costs and needs, before any weight is loaded: `RunEnvironments`, `plan_run`, `Placement`.

    planned = plan_run(settings, processes=16, launch_config="fsdp2")      # arpo train --dry-run
    Placement(planned, machines=2, address="n1").rows()

A dry run reads the settings, the tasks (from the hub if they are there), the model's configuration and its tokenizer.
It starts no sandbox, no GPU work and no search. Settings that a run would refuse are refused; what only this machine
lacks, such as a key, is listed as missing.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import arpo_env  # noqa: F401  (registers the environments)
from arpo_env import ToolEnv
from arpo_env.net import strip_credentials
from arpo_trainer.costs.compute_speed import Line
from arpo_trainer.costs.estimate import Costs, cost_summary, estimate
from arpo_trainer.costs.memory import (
    SHARDINGS,
    MemoryNeeds,
    ModelShape,
    ProcessLayout,
    check_cpu_memory,
    format_bytes,
    model_shape,
)
from arpo_trainer.make_env import known_id, make_env
from arpo_trainer.models import MODELS, available_memory
from arpo_trainer.rollout.engine import this_rank
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES, check_limits
from arpo_trainer.rollout.model_protocol import with_model_protocol
from arpo_trainer.run.arguments import RunArguments, configure, lora_config, model_source, run_tokenizer
from arpo_trainer.run.launch import config_file, refused_machines
from arpo_trainer.run.sft_run import check_solvable, planned_processes
from arpo_trainer.training.config import ARPOConfig, check_vllm_length
from arpo_trainer.training.devices import planning
from arpo_trainer.training.policy_backend import check_served_model, server_urls
from arpo_trainer.training.resume import find_checkpoint
from arpo_trainer.training.task_data import training_tasks
from arpo_trainer.training.trackers import missing_trackers
from envs_registry import TaskSource, get_spec
from envs_registry.contamination import keep_apart
from envs_registry.datasets.hub import HubError
from envs_registry.datasets.rows import ChosenTasks
from envs_registry.install_line import install_line
from envs_registry.sources import LimitedSource, ListSource
from sandbox.backends.http_backend import http_addresses, is_http_address


class RunEnvironments:
    """Makes each environment of a run at its first use and keeps it; equal options share the loaded tasks.

    A dry run gives a `make` that works without the tasks.
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
        """Check everything before a model is loaded."""
        for env in self.played():
            env.check()
        self.check_settings(args)
        self.check_tasks(args)
        if this_rank() == 0:
            check_served_model(args, self._run.model, self.train.budget.tokens)

    def check_settings(self, args: ARPOConfig) -> None:
        """Check the settings that depend on the tools and the token budget."""
        check_limits(args.rollout_limits(), list(self.train.tools))
        check_vllm_length(args, self.train.budget.tokens)

    def check_tasks(self, args: ARPOConfig) -> None:
        """Check the tasks; with `overlap: drop`, remove evaluation tasks from training and from the cold start."""
        if self.cold_start:
            check_solvable(self.cold_start.tasks)
        if self.held_out:
            trained = training_tasks(self.train, args)
            # only tasks that will be evaluated are held out; others of that source may be trained on
            held_out = LimitedSource(self.held_out.tasks, self._run.eval_tasks)
            apart = keep_apart(trained, held_out, self._run.overlap)
            # the environment itself changes: everything that trains on it takes its tasks from there
            if apart is not trained:
                self.train.tasks = apart
            if self.cold_start:
                self.cold_start.tasks = self._demonstrated(self.cold_start.tasks, held_out)

    def _demonstrated(self, source: TaskSource, held_out: TaskSource) -> TaskSource:
        """Return the tasks of the cold start, with their solutions, that are not evaluated on."""
        tasks = [source.task(number) for number in range(self._run.cold_start_examples)]
        shown = ListSource(tasks)
        apart = keep_apart(shown, held_out, self._run.overlap)
        if apart is shown:
            return source
        left = {apart.task(number).id for number in range(apart.size or 0)}
        return ChosenTasks(source, tuple(number for number, task in enumerate(tasks) if task.id in left))


# The dry run: settings are checked, costs are estimated.

logger = logging.getLogger(__name__)
_SHARD = "more processes that share them (--accelerate-config fsdp2 or zero3), or adapters (lora_rank)"


@dataclass(frozen=True)
class PlannedRun:
    """What a dry run has found out."""

    run: RunArguments
    args: ARPOConfig
    costs: Costs
    missing: list[str]  # what the run would miss on this machine


def plan_run(settings: dict[str, Any], processes: int | None = None, launch_config: str | None = None) -> PlannedRun:
    """Check the settings of a run and estimate its costs, without loading weights.

    Args:
        settings: as of `train`.
        processes: the number of processes to plan for, as of `planned_processes`.
        launch_config: an accelerate configuration, a name of ours or a file; None is what the environment variables of
            `accelerate launch` say.
    """
    count = planned_processes(settings, processes)
    layout = ProcessLayout.of_file(count, config_file(launch_config)) if launch_config else ProcessLayout.of(count)
    with planning(count):  # configurations are checked as if there were that many processes
        run, args = configure(settings)
        missing: list[str] = []

        def make(env_id: str, options: dict[str, Any]) -> ToolEnv:
            try:
                return make_env(env_id, options)
            except (HubError, OSError) as error:
                missing.append(f"tasks: {error}")
                return UnloadedEnv(env_id, **options)

        environments = RunEnvironments(run, make)
        missing += _missing(args, environments)
        # this machine's lack of a GPU decides for one process only; several, and vLLM, may be planned for another one
        on_cpu = bool(settings.get("use_cpu")) or (count == 1 and not args.use_vllm and not torch.cuda.is_available())
        costs = _estimate(run, args, environments, layout, on_cpu, missing)
        if on_cpu and costs.shape:
            try:
                check_cpu_memory(costs.shape, args, run.dtype, available_memory(), layout)
            except MemoryError as error:
                missing.append(f"memory: {error}")
        # training and evaluation may lack the same
        return PlannedRun(run, args, costs, list(dict.fromkeys(missing)))


class UnloadedEnv(ToolEnv):
    """An environment whose tasks are not available: it has the tools and limits, but no task."""

    def _load(self, **options: Any) -> Any:
        return ListSource(())


def log_estimate(run: RunArguments, args: ARPOConfig, environments: RunEnvironments) -> dict[str, Any]:
    """Log a summary of what a starting run will cost, and return the whole estimate for run.json."""
    layout = ProcessLayout.of(args.world_size)
    costs = _estimate(run, args, environments, layout, not torch.cuda.is_available(), [])
    logger.info("%s", cost_summary(costs))
    if costs.memory and torch.cuda.is_available() and not args.use_cpu:
        quantised = costs.shape is not None and costs.shape.quantised
        check_memory(costs.memory, args, torch.cuda.get_device_properties(args.device).total_memory, quantised)
    elif costs.shape and costs.memory:
        has = available_memory()
        check_cpu_memory(costs.shape, args, run.dtype, has, layout)
        _warn_of_peak(costs.memory, has, f"{format_bytes(has)} are free", "adapters (lora_rank)")
    return costs.as_dict()


def check_memory(needs: MemoryNeeds, args: ARPOConfig, has: int, quantised: bool = False) -> None:
    """Compare the estimate with the memory of the GPU, before weights are loaded."""
    vllm = args.vllm_gpu_memory_utilization if args.use_vllm and args.vllm_mode == "colocate" else 0.0
    beside = round(has * (1 - vllm))  # what is left while an engine generates
    share = f", of which vLLM takes {vllm:.0%}" if vllm else ""
    fixed = sum(size for name, size in needs.kept.items() if name in ("weights", "optimizer"))
    # the estimate knows nothing of a DeepSpeed file and of quantised weights
    known = not (args.deepspeed or args.fsdp or os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE"))
    quantised = quantised or bool((args.model_init_kwargs or {}).get("quantization_config"))
    if fixed > beside and known and not quantised:
        raise ValueError(
            f"weights and optimizer states take {format_bytes(fixed)} in each process, and its GPU has "
            f"{format_bytes(has)}{share}. Take {_SHARD}" + ", or less vllm_gpu_memory_utilization" * bool(vllm)
        )
    # an engine that sleeps gives its share back for the update
    left = has if args.vllm_enable_sleep_mode else beside
    _warn_of_peak(needs, left, f"its GPU has {format_bytes(has)}{share}", _SHARD)


def _warn_of_peak(needs: MemoryNeeds, has: int, said: str, last: str) -> None:
    parts = needs.kept | max(needs.training, needs.rollout, key=lambda parts: sum(parts.values()))
    if (peak := sum(parts.values())) > has:
        largest = sorted(parts, key=lambda name: -parts[name])[:3]
        logger.warning(
            "an estimated %s of memory in each process, and %s: it may run out of memory. Most is for "
            "%s. To lower it take less per_device_train_batch_size, max_rows or max_completion_length, "
            "gradient_checkpointing: true, or %s",
            *(format_bytes(peak), said),
            ", ".join(f"{name} ({format_bytes(parts[name])})" for name in largest),
            last,
        )


def _missing(args: ARPOConfig, environments: RunEnvironments) -> list[str]:
    """Return what this machine lacks for the run, such as a key; wrong settings are raised."""
    missing = missing_trackers(args.report_to)
    if args.use_vllm and importlib.util.find_spec("vllm") is None:
        missing.append(f"vLLM: {install_line('vllm')}")
    if args.uses_workers and importlib.util.find_spec("ray") is None:
        missing.append(f"Ray: {install_line('ray')}")
    for env in environments.played():
        try:
            env.check()
        except (RuntimeError, ValueError, OSError) as error:  # no search, no key, no judge
            missing.append(str(error))
    # a checkpoint that does not exist is an error here as in the run
    find_checkpoint(args.resume_from_checkpoint, args.output_dir)
    environments.check_settings(args)
    # an environment without its tasks would fail these checks for the wrong reason
    if not any(isinstance(env, UnloadedEnv) for env in environments.played()):
        environments.check_tasks(args)
    return missing


def _estimate(
    run: RunArguments,
    args: ARPOConfig,
    environments: RunEnvironments,
    layout: ProcessLayout,
    on_cpu: bool,
    missing: list[str],
) -> Costs:
    env = environments.train
    tasks = published_size(run.env, run.env_kwargs) if isinstance(env, UnloadedEnv) else training_tasks(env, args).size
    tokenizer, shape, notes = _tokenizer_and_shape(run, args, missing)
    held_out = environments.held_out
    if tokenizer is not None and not environments.cold_start:  # which teaches the protocol that the environment has
        env = with_model_protocol(env, args.rollout_settings(), tokenizer, args.chat_template_kwargs)
        if held_out and not held_out.protocol_given:  # as the trainer does
            held_out = held_out.with_protocol(env.protocol)
    known = {"tokenizer": tokenizer, "shape": shape, "layout": layout, "on_cpu": on_cpu, "notes": notes}
    return estimate(run, args, env, held_out, tasks, **known)


def published_size(env_id: str, options: dict[str, Any]) -> int | None:
    """Return the number of tasks that a data set's description states; None if it states none."""
    spec = get_spec(env_id)
    split = options.get("split") or next(iter(spec.splits), "train")
    # sizes read like "test 680 / train 14,000", or are one number
    found = re.search(rf"\b{re.escape(split)} ([\d,]+)", spec.size) or re.fullmatch(r"([\d,]+)", spec.size)
    if found is None:
        return None
    size, limit = int(found[1].replace(",", "")), options.get("limit")
    return min(size, limit) if limit else size


def _tokenizer_and_shape(
    run: RunArguments, args: ARPOConfig, missing: list[str]
) -> tuple[Any, ModelShape | None, tuple[str, ...]]:
    """Return the model's tokenizer and shape, and notes on what is not there; add what a run needs to `missing`."""
    tokenizer, shape, notes = None, None, []
    try:
        path, options = model_source(run, args, download=False)
    except FileNotFoundError as error:
        left_out = f"memory, disk and exact prompts: {error}"
        if run.model in MODELS:  # a run downloads it
            return None, None, (left_out,)
        missing.append(left_out)
        return None, None, ()
    try:
        tokenizer = run_tokenizer(run, args, download=False)
    except (OSError, ValueError) as error:
        missing.append(f"exact prompts: no tokenizer of {run.model} ({str(error).strip().splitlines()[0]})")
    try:
        shape = model_shape(path, lora_config(run), **options)
    except (OSError, ValueError) as error:
        notes.append(f"memory and disk: no configuration of {run.model} ({str(error).strip().splitlines()[0]})")
    if (args.model_init_kwargs or {}).get("quantization_config") or (shape and shape.quantised):
        notes.append("quantisation: weights are counted without it")
    if shape and shape.others:
        notes.append(f"memory: layers of {', '.join(shape.others)} are counted as if they were full attention")
    return tokenizer, shape, tuple(notes)


# Which processes run where, with the GPU, rollouts, vLLM and sandboxes of each. The hosts of SLURM or of another
# scheduler are not asked: machines are numbered as `--machine-rank` numbers them.

_THIS_MACHINE = ("localhost", "0.0.0.0", "::1")


@dataclass(frozen=True)
class Placement:
    """Where the parts of a planned run are: on so many machines, of which `address` is that of machine 0."""

    planned: PlannedRun
    machines: int = 1
    address: str | None = None

    @property
    def processes(self) -> int:
        """Processes on all machines."""
        return self.planned.costs.layout.processes

    def rows(self) -> list[Line]:
        """Return the rows of the table: what, where or how many, remark."""
        return [("PLACEMENT", "", ""), *self._training(), *self._generation(), *self._rollouts(), *self._memory()]

    def refused(self) -> list[str]:
        """Return why this placement cannot work; what is wrong with single settings, `plan_run` has refused."""
        args, layout = self.planned.args, self.planned.costs.layout
        refused = refused_machines(self.processes, self.machines, self.address)
        for url in self._servers():
            host = urllib.parse.urlsplit(url).hostname or ""
            if self.machines > 1 and (host in _THIS_MACHINE or host.startswith("127.")):
                refused.append(
                    f"the vLLM server {strip_credentials(url)} is another one on each of {self.machines} machines: "
                    "give it the address that all of them reach"
                )
        if self.planned.run.cold_start_examples and layout.sharding != "ddp":
            refused.append(
                f"a cold start with {layout.sharding}: it writes whole weights. Make it once with --accelerate-config "
                "ddp and --set max_steps=1; it is kept"
            )
        size, each = args.vllm_tensor_parallel_size, self.processes // self.machines
        if args.use_vllm and args.vllm_mode == "colocate" and each % size:
            refused.append(
                f"vllm_tensor_parallel_size={size}: an engine would span two machines of {each} processes; take a "
                "number that divides them"
            )
        return refused

    def _servers(self) -> list[str]:
        args = self.planned.args
        return server_urls(args) if args.use_vllm and args.vllm_mode == "server" else []

    def _training(self) -> Iterator[Line]:
        layout, each = self.planned.costs.layout, self.processes // self.machines
        parts = SHARDINGS[layout.sharding]
        shared = f"{layout.sharding}: a share of {', '.join(parts)}" if parts else "ddp: whole weights, all states"
        how = shared if self.processes > 1 else "the whole model"
        device = "on the CPU" if self.planned.args.use_cpu and not self.planned.args.use_vllm else "a GPU each"
        first = f"machine 0 ({self.address})" if self.address else "machine 0"
        yield first, _span("process", 0, each), f"training, {device}; {how}"
        if self.machines > 1:
            others = _span("machine", 1, self.machines - 1)
            yield others, _span("process", each, self.processes - each), f"training, {each} on each"

    def _generation(self) -> Iterator[Line]:
        args, layout = self.planned.args, self.planned.costs.layout
        if urls := self._servers():
            for url in urls:
                yield "vLLM server", strip_credentials(url), "is not started by this command; its GPUs are its own"
            ports = _span("port", args.vllm_group_port, len(urls))
            yield "  new weights", "from process 0", f"after each step, by NCCL over {ports}"
        elif args.use_vllm:
            size = max(1, args.vllm_tensor_parallel_size)
            sleeps = "between rollouts it sleeps" if args.vllm_enable_sleep_mode else "all the time"
            share = f"{args.vllm_gpu_memory_utilization:.0%} of each of their GPUs, {sleeps}"
            yield "generation", f"{self.processes // size} vLLM engine(s) of {size} process(es)", share
        else:
            copied = layout.share("weights") < 1 or bool(args.max_staleness)
            copy = "with a whole copy of the weights in rollouts" if copied else "the model itself"
            yield "generation", "transformers, in each process", copy

    def _rollouts(self) -> Iterator[Line]:
        plan, args = self.planned.costs.schedule, self.planned.args
        players, where, one = self.processes, "in the training processes", "process"
        if args.uses_workers:
            players, one = max(args.rollout_workers, self.processes), "actor"
            count = f"{args.rollout_workers}" if args.rollout_workers else "one for each node:"
            where = f"{count} Ray actors, cluster {args.ray_address or 'RAY_ADDRESS, or of this machine'}"
        groups, size = -(-plan.prompts // players), plan.trajectories // plan.prompts
        idle = f"; {players - plan.prompts} without a group" if players > plan.prompts else ""
        yield "rollouts", where, f"at most {groups} of {plan.prompts} groups of {size} in each{idle}"
        most = min(groups * size, args.rollout_limits().get("trajectory", DEFAULT_TRAJECTORIES))
        yield "environments at once, at most", f"{most:,} in each", f"{min(most * players, plan.trajectories):,} in all"
        if "python" in self.planned.costs.episode.calls_of:
            yield "sandboxes", self._sandboxes(one), f"at most {most:,} sessions of each {one}"

    def _sandboxes(self, one: str) -> str:
        backend = os.environ.get("ARPO_SANDBOX") or "auto"
        if is_http_address(backend):
            return "servers " + ", ".join(http_addresses(backend, "")[0])
        hosts = os.environ.get("DOCKER_HOST", "")
        if hosts and backend in ("auto", "docker"):
            return "docker on " + ", ".join(strip_credentials(host) for host in hosts.split(","))
        return f"{backend}, on the machine of each {one}"

    def _memory(self) -> Iterator[Line]:
        needs = self.planned.costs.memory
        if needs is None:
            yield "memory of a process", "not estimated", "the model's configuration is not available"
            return
        seen = ""
        if torch.cuda.is_available():
            seen = f"; a GPU of this machine has {format_bytes(torch.cuda.get_device_properties(0).total_memory)}"
        left_out = "; ".join(["without PyTorch and CUDA", *needs.elsewhere])
        yield "memory of a process", format_bytes(needs.peak), left_out + seen


def _span(what: str, first: int, count: int) -> str:
    plural = f"{what}{'es' if what.endswith('s') else 's'}"
    return f"{what} {first}" if count == 1 else f"{plural} {first} .. {first + count - 1}"
