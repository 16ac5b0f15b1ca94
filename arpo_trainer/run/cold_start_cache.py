"""Cold-started models in the cache: one for each set of settings, made at the first run and reused by later ones."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from arpo_env import ToolEnv
from arpo_trainer.rollout.distributed import on_every_rank, this_rank
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.cold_start import Example, cold_start, demonstrations
from arpo_trainer.run.launch import shards
from arpo_trainer.training.config import ARPOConfig
from sandbox.images.profiles import cache_directory

logger = logging.getLogger(__name__)


def cold_started_model(run: RunArguments, args: ARPOConfig, env: ToolEnv, path: str, tokenizer: Any) -> Path:
    """Return the folder of the cold-started model; all processes make it together if it is not in the cache.

    Args:
        run: the arguments of the run.
        args: the settings of the run.
        env: the environment of the demonstrations; it is closed afterwards.
        path: the model to start from.
        tokenizer: its tokenizer.

    Raises:
        ValueError: the model is not in the cache and would have to be made with sharded weights.
    """
    seed = args.seed if run.cold_start_seed is None else run.cold_start_seed
    # the prompt and a user's own tasks are part of the key: code that changes them changes no setting
    prompt = env.system_prompt + own_tasks(env, run.cold_start_examples)
    folder = cold_start_folder(run, path, prompt, seed, env.protocol.name, bf16=bool(args.bf16), packing=args.packing)
    # machines have caches of their own: all of them must have it, or all make it
    if all(on_every_rank((folder / "config.json").exists)):
        logger.info("cold start: taken from %s", folder)
        return folder
    if shards(args):
        raise ValueError(
            "a cold start needs whole weights: run once with the same settings and max_steps=1, without FSDP or "
            "DeepSpeed (for example with --accelerate-config ddp); later runs find the model in the cache"
        )
    logger.info("cold start: %d demonstrations, %d epochs", run.cold_start_examples, run.cold_start_epochs)
    # only one process plays; the others receive the same examples
    examples = on_every_rank(lambda: _all_demonstrations(run, env, tokenizer, seed) if this_rank() == 0 else [])[0]
    _make_cold_started_model(run, args, path, tokenizer, examples, seed, folder)
    return folder


def _make_cold_started_model(
    run: RunArguments, args: ARPOConfig, path: str, tokenizer: Any, examples: list[Example], seed: int, folder: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    scratch = folder.with_suffix(".unfinished")
    epochs, rate = run.cold_start_epochs, run.cold_start_learning_rate
    cold_start(
        model,
        tokenizer,
        examples,
        scratch,
        epochs=epochs,
        learning_rate=rate,
        bf16=args.bf16,
        seed=seed,
        packing=args.packing,
    )

    def save() -> None:
        if args.local_process_index == 0:  # once on each machine
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)  # at the end: the cache never holds half a model

    on_every_rank(save)


def cold_start_folder(
    run: RunArguments,
    model: str,
    prompt: str,
    seed: int,
    protocol: str = "arpo-tags",
    *,
    bf16: bool = True,
    packing: bool | str = "auto",
) -> Path:
    """Return the cache folder of the cold-started model for exactly these settings."""
    cold = [entry.name for entry in dataclasses.fields(run) if entry.name.startswith("cold")]
    names = ("env", "env_kwargs", *(name for name in cold if name != "cold_start_seed"))
    # the seed is added as it is used, since `cold_start_seed` may be None
    facts = {name: getattr(run, name) for name in names} | {"model": model, "prompt": prompt, "seed": seed}
    facts |= {"bf16": bf16, "packing": packing}  # both change the last bits of the result
    if protocol != "arpo-tags":  # a reference algorithm shows other results after the same prompt
        facts["protocol"] = protocol
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return cache_directory() / "cold-starts" / digest


def own_tasks(env: ToolEnv, count: int) -> str:
    """Return the first tasks of a user's own environment with their solutions, which may change; "" for ours."""
    if env.env_spec.source != env.env_spec.id:
        return ""
    tasks: Any = env.tasks
    return json.dumps([(tasks.task(number).as_dict(), tasks.solution(number)) for number in range(count)])


def _all_demonstrations(run: RunArguments, env: ToolEnv, tokenizer: Any, seed: int) -> list[Example]:
    source: Any = env.tasks
    with contextlib.closing(env):
        return list(demonstrations(env, source, tokenizer, run.cold_start_examples, run.cold_start_tool_share, seed))
