"""Supervised runs: `arpo sft` on traces, and the cold start of `arpo train` on scripted demonstrations.

    sft(read_settings("sft-qwen2.5-3b", ["data=[final_5w4_still.jsonl]"], command="sft"))

The output folder holds the model (`model/`, with adapters also `adapter/`), checkpoints, and `sft.json`: the settings,
the count of rows, and what came of it. `KeptRun` keeps it, for `arpo dpo` too.

`demonstrated_traces` plays the real environment with scripted turns: one share of them calls the tool, the rest
answer at once. They show the format to a model that never saw it, but not which of the two is better; that is left to
RL. `cold_started_model` trains on them once for each set of settings and keeps the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig

from arpo_env import ArpoTags, ToolEnv
from arpo_env.episode import BYTES_A_TOKEN
from arpo_env.protocols import make_protocol
from arpo_trainer.costs.compute_speed import PASS_AND_BACK, ComputeSpeed, Line
from arpo_trainer.costs.memory import ProcessLayout, check_cpu_memory, model_shape
from arpo_trainer.folder_lock import only_writer, refuse_earlier
from arpo_trainer.make_env import make_env
from arpo_trainer.models import available_memory, weight_files
from arpo_trainer.report.run_data import recorded, write_facts, write_whole
from arpo_trainer.rollout.engine import on_every_rank, rank_count, this_rank
from arpo_trainer.rollout.model_protocol import marked
from arpo_trainer.rollout.rendering import Renderer, check_tokenizer
from arpo_trainer.run.arguments import (
    DEMONSTRATIONS,
    RunArguments,
    SFTArguments,
    WeightArguments,
    configure_sft,
    idle_threads,
    lora_config,
    model_source,
    run_tokenizer,
    save_final,
)
from arpo_trainer.sft.plain_trace import ModelTurn, ToolResults, Trace, Turn, as_messages
from arpo_trainer.sft.sft_trainer import make_trainer
from arpo_trainer.sft.trace_data import (
    Example,
    TraceData,
    TraceSettings,
    examples_of,
    learnt_tokens,
    read_trace_files,
    tokenised,
)
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.devices import planning, process_count
from arpo_trainer.training.recorder import versions
from arpo_trainer.training.resume import newer
from arpo_trainer.training.trackers import missing_trackers
from envs_registry import TaskSource
from envs_registry.datasets.rows import ChosenTasks
from sandbox.images.profiles import cache_directory

logger = logging.getLogger(__name__)


class KeptRun:
    """A run of one of TRL's trainers on rows, and the folder that it keeps: one lock, one record, exact resume.

    Args:
        command: "sft" or "dpo"; the record is COMMAND.json.
        run: settings of ours.
        args: settings of TRL's.
        settings: all settings as they were given.
    """

    def __init__(self, command: str, run: WeightArguments, args: Any, settings: dict[str, Any]) -> None:
        torch.set_num_threads(run.threads or idle_threads())
        self.run, self.args, self.folder = run, args, Path(args.output_dir)
        self.record = self.folder / f"{command}.json"
        self.facts: dict[str, Any] = {"kind": command, "settings": settings, "versions": versions()}

    @contextlib.contextmanager
    def held(self, resume: Any, *others: str) -> Iterator[None]:
        """Hold the folder as its only writer; `others` are things of an earlier run in it."""
        kept = [path.name for path in newer(self.folder, 0)]
        if not (resume or self.args.resume_from_checkpoint):
            refuse_earlier(self.folder, [*kept, *others])
        with only_writer(self.folder, this_rank() == 0):
            yield

    def check_memory(self) -> None:
        """Check that the weights can be trained on this machine, before they are loaded; the model is downloaded."""
        if torch.cuda.is_available() and not self.args.use_cpu:
            return
        with self.args.main_process_first():
            path, options = model_source(self.run, self.args)
        with contextlib.suppress(OSError, ValueError):  # a shape that the estimate does not know
            shape = model_shape(path, lora_config(self.run), **options)
            check_cpu_memory(shape, self.args, self.run.dtype, available_memory())

    def tokenizer(self) -> Any:
        """Return the tokenizer of the model, which the main process downloads first."""
        with self.args.main_process_first():
            return run_tokenizer(self.run, self.args)

    def model_options(self) -> dict[str, Any]:
        """Return what both trainers are made with besides rows; the weights get the type of the settings."""
        # a dtype in `model_init_kwargs` replaces that of the run
        self.args.model_init_kwargs = {"dtype": self.run.dtype, **(self.args.model_init_kwargs or {})}
        return {"model": model_source(self.run, self.args)[0], "peft_config": lora_config(self.run)}

    def write(self, **facts: Any) -> None:
        """Add facts to the record."""
        self.facts |= facts
        if this_rank() == 0:
            write_facts(self.record, self.facts)

    def train(self, trainer: Any, curves: Mapping[str, str]) -> Path:
        """Train, save the model, and return the folder; `curves` maps names of the record to those of TRL's log."""
        # asked before the record of the earlier run is overwritten
        checkpoint = trainer.checked_checkpoint(self.args.resume_from_checkpoint)
        with recorded(self.record, self.facts, keep=this_rank() == 0):
            done = trainer.train(resume_from_checkpoint=checkpoint)
            log = [entry for entry in trainer.state.log_history if "loss" in entry]
            logged = {name: [entry[key] for entry in log if key in entry] for name, key in curves.items()}
            self.facts |= {"steps": done.global_step, "log": logged}
        save_final(trainer, self.run, self.folder)
        return self.folder


def sft(settings: dict[str, Any]) -> Path:
    """Train on traces, and return the output folder.

    Args:
        settings: fields of `SFTArguments` and TRL's `SFTConfig`, by name.

    Raises:
        ValueError: the settings cannot work, no row is left, or rows are dropped and `strict` is set.
        FileExistsError: a new run is to be written over the checkpoints of an earlier one.
        BlockingIOError: another process trains in the folder.
    """
    run, args = configure_sft(settings)
    kept = KeptRun("sft", run, args, settings)
    with kept.held(resume=False):
        kept.check_memory()
        tokenizer = marked(kept.tokenizer(), run.protocol)
        with args.main_process_first():  # the main process downloads
            run.files()
        data, examples = prepare(run, args, tokenizer)
        counts = "; ".join(f"{name} {count}" for name, count, _ in data.table())
        (logger.warning if data.dropped else logger.info)("%s", counts)
        data.require(run.strict)
        kept.facts |= {
            "traces": {entry.name: getattr(run, entry.name) for entry in fields(TraceSettings)},
            "rows": data.rows,
            "kept": len(examples),
            "dropped": dict(data.dropped),
            "tokens": sum(len(example["input_ids"]) for example in examples),
            "learnt_tokens": learnt_tokens(examples),
        }
        trainer = make_trainer(tokenizer=tokenizer, examples=examples, args=args, **kept.model_options())
        return kept.train(trainer, {"loss": "loss"})


def prepare(run: SFTArguments, args: Any, tokenizer: Any, play: bool = True) -> tuple[TraceData, list[Example]]:
    """Return the checked traces of a run, with the count of dropped rows, and their ids and labels."""
    check_tokenizer(tokenizer)
    renderer = Renderer(tokenizer, make_protocol(run.protocol), run.chat_template_kwargs)
    data = read_trace_files(run.files(), run, renderer.protocol)
    if play and run.demonstrations:
        asked = {**DEMONSTRATIONS, **run.demonstrations}
        options = {"protocol": run.protocol, **asked["env_kwargs"]}
        how = (asked["count"], asked["tool_share"], asked["seed"])
        played = _played(lambda: make_env(asked["env"], options), *how)
        data.traces += played
        data.rows += len(played)
    return data, examples_of(data, renderer, args.max_length, run.end_token)


def _played(make: Callable[[], ToolEnv], count: int, tool_share: float, seed: int) -> list[Trace]:
    """Return demonstrations, which one process plays; the others receive the same."""

    def play() -> list[Trace]:
        with contextlib.closing(make()) as env:
            return list(demonstrated_traces(env, count, tool_share, seed))

    return on_every_rank(lambda: play() if this_rank() == 0 else [])[0]


def write_rows(run: SFTArguments, path: str | Path) -> TraceData:
    """Write the traces in the policy's protocol as JSONL messages, and return the count of rows."""
    if Path(path).exists():  # the data itself, perhaps
        raise FileExistsError(f"{path} is there already: give another file, or remove it first")
    data = read_trace_files(run.files(), run)
    data.require(run.strict)
    rows = (as_messages(trace, data.protocol, data.settings.schemas(trace)) for trace in data.traces)
    write_whole(Path(path), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return data


# The dry run: counts rows, tokens and steps, and estimates hours, without loading weights.


def planned_processes(settings: Mapping[str, Any], processes: int | None) -> int:
    """Return the number of processes to plan for: as asked, the launcher's, or that of the settings."""
    return processes or (process_count() if process_count() > 1 else int(settings.get("processes") or 1))


def hours_of(
    run: WeightArguments, args: Any, processes: int, speed: ComputeSpeed | None, per_parameter: float
) -> tuple[list[Line], list[str]]:
    """Return the rows of hours and price, and what is missing for them."""
    try:
        path, options = model_source(run, args, download=False)
        shape = model_shape(path, lora_config(run), **options)
    except (OSError, ValueError) as error:
        return [], [f"configuration of {run.model}, so hours are left out ({str(error).splitlines()[0]})"]
    on_cpu = args.use_cpu or (not torch.cuda.is_available() and processes == 1)
    missing = []
    if on_cpu:
        try:
            check_cpu_memory(shape, args, run.dtype, available_memory())
        except MemoryError as error:
            missing.append(f"memory: {error}")
    return (speed or ComputeSpeed()).rows(per_parameter * shape.active, processes, on_cpu), missing


def sft_dry_run(
    settings: dict[str, Any], processes: int | None = None, speed: ComputeSpeed | None = None
) -> tuple[list[Line], list[str]]:
    """Return a table of what a run would do, and what this machine lacks for it; no weights are loaded."""
    count = planned_processes(settings, processes)
    with planning(count):
        run, args = configure_sft(settings)
    try:
        files = run.files()
    except FileNotFoundError as error:
        return [("ROWS", "not known", "the data is not here")], [f"data: {error}"]
    missing = missing_trackers(args.report_to)
    try:
        data, examples = prepare(run, args, run_tokenizer(run, args, download=False), play=False)
        tokens, learnt = sum(len(example["input_ids"]) for example in examples), learnt_tokens(examples)
    except OSError as error:
        missing.append(f"tokenizer of {run.model}, so tokens are guessed ({str(error).splitlines()[0]})")
        data = read_trace_files(files, run)
        tokens, learnt = _guessed_tokens(data)
    if data.rows or not run.demonstrations:
        data.require(run.strict)
    lines: list[Line] = [*data.table()]
    rows = len(data.traces)
    if run.demonstrations:
        played = int({**DEMONSTRATIONS, **run.demonstrations}["count"])
        lines.append(("demonstrations", f"{played:,}", "played when the run begins; their tokens are not counted"))
        rows += played
    packed = math.ceil(tokens / args.max_length) if args.packing else rows
    per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * count
    steps, epochs = args.max_steps, args.max_steps * per_step / max(1, packed)
    if steps <= 0:
        epochs = float(args.num_train_epochs)
        steps = math.ceil(math.ceil(packed / per_step) * epochs)
    how = f"{per_step} {'packed rows' if args.packing else 'rows'} each, {count} process{'es' * (count > 1)}"
    if tokens:
        lines.append(("tokens", f"{tokens:,}", f"{tokens // rows:,} per row; {learnt:,} of them are learnt"))
        lines.append(("tokens computed", f"{round(tokens * epochs):,}", f"{epochs:.3g} passes"))
    lines.append(("optimizer steps", f"{steps:,}", how))
    hours, lacks = hours_of(run, args, count, speed, PASS_AND_BACK * tokens * epochs) if tokens else ([], [])
    return [*lines, *hours], [*missing, *lacks]


def _guessed_tokens(data: TraceData) -> tuple[int, int]:
    """Return the numbers of tokens and of learnt tokens without a tokenizer: four bytes count as one."""
    turns = [turn for trace in data.traces for turn in trace.turns]
    own = sum(len(turn.text.encode()) for turn in turns if isinstance(turn, ModelTurn))
    shown = sum(len(text.encode()) for turn in turns if not isinstance(turn, ModelTurn) for text in turn.texts)
    opening = sum(len(message["content"].encode()) for trace in data.traces for message in trace.messages)
    return (own + shown + opening) // BYTES_A_TOKEN, own // BYTES_A_TOKEN


# Scripted demonstrations, and the cold start from them.

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
    env: ToolEnv, tokenizer: Any, traces: Iterable[Trace], chat_template_kwargs: Mapping[str, Any] | None = None
) -> Iterator[Example]:
    """Yield the training examples of `demonstrated_traces`, which end as rollouts of the environment do."""
    renderer = Renderer(tokenizer, env.protocol, chat_template_kwargs)
    # a rollout stops at </answer>; other protocols end with the template's end token
    ends = not isinstance(env.protocol, ArpoTags)
    for trace in traces:
        yield tokenised(trace, renderer, env.schemas, end_token=ends)


def demonstrated_traces(env: ToolEnv, count: int, tool_share: float = 0.5, seed: int = 0) -> Iterator[Trace]:
    """Play an environment's tasks by script and yield them as traces.

    Args:
        env: the environment to play in; tool results are real.
        count: the number of tasks.
        tool_share: the share of demonstrations that call the tool; the rest answer at once.
        seed: the seed of the random choices.

    Raises:
        ValueError: the tasks have no solutions, their tool is not in the environment, or the protocol has no tags.
    """
    source: Any = env.tasks
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
    template: Any = args.chat_template_kwargs
    prompt = env.system_prompt + own_tasks(env, run.cold_start_examples) + (json.dumps(template) if template else "")
    loading = model_source(run, args)[1]
    how: dict[str, Any] = {"bf16": bool(args.bf16), "packing": args.packing}
    folder = cold_start_folder(run, path, prompt, seed, env.protocol.name, loading["revision"], **how)
    # machines have caches of their own: all of them must have it, or all make it
    if all(on_every_rank((folder / "config.json").exists)):
        logger.info("cold start: taken from %s", folder)
        return folder
    if ProcessLayout.of(args.world_size).sharding != "ddp" or args.fsdp or args.deepspeed:
        raise ValueError(
            "a cold start needs whole weights: run once with the same settings and max_steps=1, without FSDP or "
            "DeepSpeed (for example with --accelerate-config ddp); later runs find the model in the cache"
        )
    logger.info("cold start: %d demonstrations, %d epochs", run.cold_start_examples, run.cold_start_epochs)
    traces = _played(lambda: env, run.cold_start_examples, run.cold_start_tool_share, seed)
    examples = list(demonstrations(env, tokenizer, traces, template))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **loading)
    scratch = folder.with_suffix(".unfinished")
    how |= {"epochs": run.cold_start_epochs, "learning_rate": run.cold_start_learning_rate, "seed": seed}
    cold_start(model, tokenizer, examples, scratch, **how)

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
    revision: str = "main",
    *,
    bf16: bool = True,
    packing: bool | str = "auto",
) -> Path:
    """Return the cache folder of the cold-started model for exactly these settings, and the weights that are there."""
    settings = {name: value for name, value in vars(run).items() if name.startswith(("env", "cold_start"))}
    # the seed is added as it is used, since `cold_start_seed` may be None; the last two change the last bits
    facts = {**settings, "model": model, "prompt": prompt, "protocol": protocol, "cold_start_seed": seed}
    # a folder is written to again when its model is trained anew
    written = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in weight_files(model)]
    facts |= {"bf16": bf16, "packing": packing, "revision": revision, "weights": written}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return cache_directory() / "cold-starts" / digest


def own_tasks(env: ToolEnv, count: int) -> str:
    """Return the first tasks with their solutions where a user made or chose them; "" for all of ours, in order."""
    if env.env_spec.source != env.env_spec.id and not isinstance(env.tasks, ChosenTasks):
        return ""
    tasks: Any = env.tasks
    return json.dumps([(tasks.task(number).as_dict(), tasks.solution(number)) for number in range(count)])
