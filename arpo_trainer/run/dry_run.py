"""`arpo train --dry-run`: check the settings of a run and say what it will cost, and load no weights for it.

Read are the settings, the tasks (from the hub where they are there), the model's configuration and its tokenizer.
Nothing is started: no sandbox, no GPU, no search. What a real run would refuse is refused, or listed as missing where
it belongs to the machine and not to the settings.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from typing import Any

import torch

import arpo_env  # noqa: F401  (registers the environments)
from arpo_env import ToolEnv
from arpo_trainer.costs.cost_table import summary
from arpo_trainer.costs.estimate import Costs, estimate
from arpo_trainer.costs.model_shape import Shape, model_shape
from arpo_trainer.costs.sharding import Launch
from arpo_trainer.rollout.concurrency import check_limits
from arpo_trainer.run.demo_model import FOLDER
from arpo_trainer.run.launch import config_file
from arpo_trainer.run.lora import lora_config
from arpo_trainer.run.train import DEMO_MODEL, RunArguments, configure, known_id, make_env
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.config_checks import check_vllm_length
from arpo_trainer.training.process_count import planning, process_count
from arpo_trainer.training.trainer import training_tasks
from envs_registry import get_spec
from envs_registry.datasets.hub import HubError
from envs_registry.sources import ListSource
from sandbox.cache_directory import cache_directory

logger = logging.getLogger(__name__)


class UnloadedEnv(ToolEnv):
    """An environment whose tasks could not be had: its tools and limits, without a task."""

    def _load(self, **options: Any) -> Any:
        return ListSource(())


def dry_run(
    settings: dict[str, Any], processes: int | None = None, launch_config: str | None = None
) -> tuple[Costs, list[str]]:
    """Return what a run with these settings costs, and what it would lack on this machine.

    Args:
        settings: of `RunArguments` and `ARPOConfig`, by name.
        processes: to plan for; None is what the launcher says, else what the settings are written for, else one.
        launch_config: an accelerate configuration, by the name of one of ours or as a file; None is what the
            environment of `accelerate launch` says.

    Raises:
        ValueError: settings that no machine could run.
        FileNotFoundError: the model's folder is missing.
    """
    count = processes or (process_count() if process_count() > 1 else int(settings.get("processes") or 1))
    launch = Launch.of_file(count, config_file(launch_config)) if launch_config else Launch.of(count)
    with planning(count):
        run, args = configure(settings)
        env, missing = _environment(run.env, run.env_kwargs)
        held_out, lacking = _held_out(run)
        missing += lacking
        missing += _missing(run, args, settings, env, held_out)
        on_cpu = bool(settings.get("use_cpu")) or (count == 1 and not args.use_vllm and not torch.cuda.is_available())
        tasks = _published_size(run) if isinstance(env, UnloadedEnv) else training_tasks(env, args).size
        return _estimate(run, args, env, held_out, tasks, launch, on_cpu), list(dict.fromkeys(missing))


def announce(run: RunArguments, args: ARPOConfig, env: ToolEnv) -> dict[str, Any]:
    """Log in a few words what a run that is about to start will cost, and return all of it for run.json.

    Raises:
        ValueError: it would train nothing.
    """
    launch, tasks = Launch.of(args.world_size), training_tasks(env, args).size
    costs = _estimate(run, args, env, _held_out(run)[0], tasks, launch, not torch.cuda.is_available())
    logger.info("%s", summary(costs))
    return costs.as_dict()


def _estimate(
    run: RunArguments,
    args: ARPOConfig,
    env: ToolEnv,
    held_out: ToolEnv | None,
    tasks: int | None,
    launch: Launch,
    on_cpu: bool,
) -> Costs:
    tokenizer, shape, notes = _model(run, args)
    return estimate(
        run, args, env, held_out, tasks, tokenizer=tokenizer, shape=shape, launch=launch, on_cpu=on_cpu, notes=notes
    )


def _environment(env_id: str, options: dict[str, Any]) -> tuple[ToolEnv, list[str]]:
    """Return an environment, without its tasks if they cannot be had here, and what is missing then."""
    try:
        return make_env(env_id, options), []
    except (HubError, OSError) as error:
        return UnloadedEnv(env_id, **options), [f"tasks: {error}"]


def _published_size(run: RunArguments) -> int | None:
    """Return how many tasks a data set says it has, where it cannot be read here."""
    spec = get_spec(run.env)
    split = run.env_kwargs.get("split") or next(iter(spec.splits), "train")
    found = re.search(rf"\b{re.escape(split)} ([\d,]+)", spec.size) or re.fullmatch(r"([\d,]+)", spec.size)
    sizes = [int(found[1].replace(",", ""))] if found else []
    return min([*sizes, *([run.env_kwargs["limit"]] if sizes and run.env_kwargs.get("limit") else [])], default=None)


def _held_out(run: RunArguments) -> tuple[ToolEnv | None, list[str]]:
    if not run.eval_tasks:
        return None, []
    other = run.eval_env or run.env
    same = known_id(other) == known_id(run.env)
    options = {**run.env_kwargs, **run.eval_env_kwargs} if same else run.eval_env_kwargs
    return _environment(other, options)


def _missing(
    run: RunArguments, args: ARPOConfig, settings: dict[str, Any], env: ToolEnv, held_out: ToolEnv | None
) -> list[str]:
    """Return what this machine lacks for the run, such as a key; what is wrong with the settings is raised."""
    from arpo_trainer.run.training_run import Session

    missing = []
    if args.use_vllm and importlib.util.find_spec("vllm") is None:
        missing.append("vLLM: pip install 'arpo-gym[vllm]'")
    for one in (env, held_out):
        try:
            if one is not None:
                one.check()
        except (RuntimeError, ValueError, OSError) as error:  # no search, no key, no judge
            missing.append(str(error))
    session = Session(run, args, settings)  # refuses a checkpoint that is not there
    check_limits(args.rollout_limits(), list(env.tools))
    check_vllm_length(args, env.budget.tokens)
    if not missing and not isinstance(env, UnloadedEnv) and not isinstance(held_out, UnloadedEnv):
        session.check_tasks(env)
    return missing


def _model(run: RunArguments, args: ARPOConfig) -> tuple[Any, Shape | None, tuple[str, ...]]:
    """Return the model's tokenizer and shape, and in words what of it could not be had."""
    from transformers import AutoTokenizer

    folder = cache_directory() / FOLDER
    path = str(folder) if run.model == DEMO_MODEL else run.model
    if run.model == DEMO_MODEL and not (folder / "config.json").exists():
        return None, None, ("memory, and exact prompts: the demo model is fetched when it is first used",)
    revision = (args.model_init_kwargs or {}).get("revision", "main")
    options = {"trust_remote_code": args.trust_remote_code, "revision": revision}
    tokenizer, shape, notes = None, None, []
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
    except (OSError, ValueError) as error:
        notes.append(f"exact prompts: no tokenizer of {run.model} ({_first_line(error)})")
    try:
        shape = model_shape(path, lora_config(run), **options)
    except (OSError, ValueError) as error:
        notes.append(f"memory and disk: no configuration of {run.model} ({_first_line(error)})")
    if (args.model_init_kwargs or {}).get("quantization_config"):
        notes.append("quantisation: weights are counted as if there were none")
    return tokenizer, shape, tuple(notes)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
