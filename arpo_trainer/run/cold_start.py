"""The cold start: a short supervised training, so that a model that never saw the tags can use them.

`demonstrated_traces` plays the real environment with scripted turns: one share of them calls the tool, the rest
answer at once. They show the format, but not which of the two is better; that is left to RL. `cold_start` trains on
them as `arpo sft` does, and `cold_started_model` does both once for each set of settings and keeps the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig

from arpo_env import ArpoTags, ToolEnv
from arpo_trainer.rollout.engine import on_every_rank, rank_count, this_rank
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.launch import shards
from arpo_trainer.sft.plain_trace import ModelTurn, ToolResults, Trace, Turn
from arpo_trainer.sft.sft_trainer import make_trainer
from arpo_trainer.sft.trace_data import Example, tokenised
from arpo_trainer.training.config import ARPOConfig
from envs_registry import TaskSource
from sandbox.images.profiles import cache_directory

logger = logging.getLogger(__name__)
# several wordings: the demonstrations teach the tags, and not one sentence by heart
_PLANS = {
    "python": ("I will compute it.", "Let me use Python.", "I run some code.", "Python can do this."),
    "search": ("I look it up.", "Let me search.", "I have to find this first.", "A search will tell."),
}
_CLOSES = ("That is it.", "I have the result.", "Done.", "The number is clear.")
_GUESSES = ("I can tell.", "This is easy.", "I know this one.", "No need for code.")


class SolvableSource(TaskSource, Protocol):
    """A task source that knows a solution of its tasks.

    A source whose tasks take several tools has `solution_protocol` in place of `solution_tool`: the solutions are then
    all turns of an episode but the answer, written in that protocol, such as "deepagent".
    """

    solution_tool: str

    def solution(self, index: int) -> tuple[str, ...]:
        """Return the arguments of the calls of `solution_tool` that solve a task, one string per call."""


def demonstrations(
    env: ToolEnv, source: SolvableSource, tokenizer: Any, count: int, tool_share: float = 0.5, seed: int = 0
) -> Iterable[Example]:
    """Play tasks by script and yield training examples, as `arpo sft` makes them.

    Args:
        env: the environment to play in; tool results are real.
        source: the tasks and their solutions.
        tokenizer: the model's tokenizer.
        count: the number of tasks.
        tool_share: the share of demonstrations that call the tool; the rest answer at once.
        seed: the seed of the random choices.

    Raises:
        ValueError: the source has no solutions, their tool is not in the environment, or the protocol has no tags.
    """
    renderer = Renderer(tokenizer, env.protocol)
    # a rollout stops at </answer>; other protocols end with the template's end token
    ends = not isinstance(env.protocol, ArpoTags)
    for trace in demonstrated_traces(env, source, count, tool_share, seed):
        yield tokenised(trace, renderer, env.schemas, end_token=ends)


def demonstrated_traces(
    env: ToolEnv, source: SolvableSource, count: int, tool_share: float = 0.5, seed: int = 0
) -> Iterator[Trace]:
    """Play tasks by script and yield them as traces; the arguments are those of `demonstrations`."""
    check_solvable(source)
    _check_protocol(env, source)
    rng = random.Random(seed)
    for index in range(count):
        task = source.task(index)
        _, info = env.reset(options={"task": task})
        cells = source.solution(index) if rng.random() < tool_share else ()
        turns: list[Turn] = []
        for text in _turns(source, cells, task.answers[0], rng):
            *_, step = env.step(text)
            turns += [ModelTurn(text), *([ToolResults(tuple(step["results"]))] if step["results"] else [])]
        system, question = (message["content"] for message in info["messages"])
        yield Trace(system, question, tuple(turns), env.protocol.name)


def check_solvable(source: object) -> None:
    """Check that demonstrations can be made of a source's tasks."""
    if not hasattr(source, "solution"):
        raise ValueError(
            "a cold start needs tasks with known solutions: arpo/Arithmetic-v0, arpo/MultiHop-v0 or arpo/ToolWorld-v0, "
            "without `limit`. For other environments start from a model that knows the tags, with cold_start_examples=0"
        )


def _check_protocol(env: ToolEnv, source: SolvableSource) -> None:
    written = getattr(source, "solution_protocol", None)
    if written is not None and env.protocol.name != written:
        raise ValueError(
            f"the solutions of these tasks are written in protocol {written!r}, not in {env.protocol.name!r}: "
            f"protocol={written!r}, or cold_start_examples=0"
        )
    if written is None and not isinstance(env.protocol, ArpoTags):
        raise ValueError(
            f"the cold start writes tags, which protocol {env.protocol.name!r} does not have: cold_start_examples=0"
        )
    if written is None and source.solution_tool not in env.tools:
        raise ValueError(
            f"these tasks are solved with {source.solution_tool!r}; the tools are {', '.join(env.tools) or 'none'}. "
            "Add it to `tools`, or set cold_start_examples=0"
        )


def _turns(source: SolvableSource, cells: Sequence[str], answer: str, rng: random.Random) -> Iterable[str]:
    if hasattr(source, "solution_protocol"):
        yield from cells
        yield f"{rng.choice(_CLOSES if cells else _GUESSES)} \\boxed{{{answer}}}"
        return
    tool = source.solution_tool
    for cell in cells:
        yield f"<think>{rng.choice(_PLANS[tool])}</think><{tool}>{cell}</{tool}>"
    thought = rng.choice(_CLOSES if cells else _GUESSES)
    yield f"<think>{thought}</think><answer>\\boxed{{{answer}}}</answer>"


def cold_start(
    model: Any,
    tokenizer: Any,
    examples: list[Example],
    folder: str | Path,
    *,
    epochs: int = 2,
    batch_size: int = 8,
    learning_rate: float = 5e-5,
    bf16: bool = True,
    seed: int = 0,
    packing: bool | str = "auto",
    callbacks: Sequence[Callable[..., Any]] = (),
) -> None:
    """Fit the model, in place, to the labelled tokens of the examples that `demonstrations` made.

    `batch_size` examples make a step, over all processes (each takes at least one); the learning rate falls linearly to
    0; `packing` is that of `ARPOConfig`; transformers may write its logs into `folder`.
    """
    arguments = SFTConfig(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=max(1, batch_size // rank_count()),
        learning_rate=learning_rate,
        warmup_steps=3,
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        max_length=None,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        seed=seed,
    )
    trainer = make_trainer(model, tokenizer, examples, arguments, share_beginnings=packing, callbacks=callbacks)
    trainer.train()
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)  # removes autocast from `forward`
    vars(model).pop("forward", None)  # TRL's fused head: restores the class's own forward


# Cold-started models in the cache: one for each set of settings, made at the first run and reused by later ones.


def cold_started_model(run: RunArguments, args: ARPOConfig, env: ToolEnv, path: str, tokenizer: Any) -> Path:
    """Return the folder of the cold-started model; all processes make it together if it is not in the cache."""
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
    asked: Any = (env.tasks, tokenizer, run.cold_start_examples, run.cold_start_tool_share, seed)

    def play() -> list[Example]:
        with contextlib.closing(env):
            return list(demonstrations(env, *asked))

    # only one process plays; the others receive the same examples
    examples = on_every_rank(lambda: play() if this_rank() == 0 else [])[0]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    scratch = folder.with_suffix(".unfinished")
    how: dict[str, Any] = {"epochs": run.cold_start_epochs, "learning_rate": run.cold_start_learning_rate}
    cold_start(model, tokenizer, examples, scratch, **how, bf16=args.bf16, seed=seed, packing=args.packing)

    def save() -> None:
        if args.local_process_index == 0:  # once on each machine
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)  # at the end: the cache never holds half a model

    on_every_rank(save)
    return folder


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
    settings = {name: value for name, value in vars(run).items() if name.startswith(("env", "cold_start"))}
    # the seed is added as it is used, since `cold_start_seed` may be None; the last two change the last bits
    facts = {**settings, "model": model, "prompt": prompt, "protocol": protocol, "cold_start_seed": seed}
    facts |= {"bf16": bf16, "packing": packing}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return cache_directory() / "cold-starts" / digest


def own_tasks(env: ToolEnv, count: int) -> str:
    """Return the first tasks of a user's own environment with their solutions, which may change; "" for ours."""
    if env.env_spec.source != env.env_spec.id:
        return ""
    tasks: Any = env.tasks
    return json.dumps([(tasks.task(number).as_dict(), tasks.solution(number)) for number in range(count)])
