"""A supervised run from settings: traces, masks, `SFTTrainer`, and a folder with the model. The command is `arpo sft`.

    sft(read_settings("sft-qwen2.5-3b", ["data=[final_5w4_still.jsonl]"], command="sft"))

The output folder holds the model (`model/`, with adapters also `adapter/`), checkpoints, and `sft.json`: the settings,
the count of rows, and what came of it. `KeptRun` keeps it, for `arpo dpo` too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from arpo_env.episode import BYTES_A_TOKEN
from arpo_trainer.costs.estimate import PASS_AND_BACK, ComputeSpeed, Line
from arpo_trainer.costs.memory import ModelShape, model_shape
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.folder_lock import only_writer, refuse_earlier
from arpo_trainer.make_env import make_env
from arpo_trainer.report.run_data import recorded, write_facts, write_whole
from arpo_trainer.rollout.engine import on_every_rank, this_rank
from arpo_trainer.rollout.rendering import Renderer, check_tokenizer
from arpo_trainer.run.arguments import (
    DEMONSTRATIONS,
    SFTArguments,
    WeightArguments,
    configure_sft,
    lora_config,
    save_final,
)
from arpo_trainer.run.cold_start import demonstrated_traces
from arpo_trainer.run.train import idle_threads
from arpo_trainer.sft.plain_trace import ModelTurn, Trace, as_messages
from arpo_trainer.sft.sft_trainer import make_trainer
from arpo_trainer.sft.trace_data import (
    Example,
    TraceData,
    TraceSettings,
    examples_of,
    learnt_tokens,
    read_trace_files,
)
from arpo_trainer.training.devices import planning, process_count
from arpo_trainer.training.recorder import versions
from arpo_trainer.training.resume import newer

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

    def tokenizer(self) -> Any:
        """Return the tokenizer of the model, which the main process downloads first."""
        revision = (self.args.model_init_kwargs or {}).get("revision", "main")
        with self.args.main_process_first():
            return AutoTokenizer.from_pretrained(
                resolve_model(self.run.model), padding_side="left", revision=revision,
                trust_remote_code=self.args.trust_remote_code,
            )  # fmt: skip

    def model_options(self) -> dict[str, Any]:
        """Return what both trainers are made with besides rows; the weights get the type of the settings."""
        # a dtype in `model_init_kwargs` replaces that of the run
        self.args.model_init_kwargs = {"dtype": self.run.dtype, **(self.args.model_init_kwargs or {})}
        return {"model": str(resolve_model(self.run.model)), "peft_config": lora_config(self.run)}

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
        tokenizer = kept.tokenizer()
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
    data = read_trace_files(run.files(), run)
    if play and run.demonstrations:  # only one process plays; the others receive the same traces
        played = on_every_rank(lambda: _play(run) if this_rank() == 0 else [])[0]
        data.traces += played
        data.rows += len(played)
    return data, examples_of(data, Renderer(tokenizer, data.protocol), args.max_length, run.end_token)


def _play(run: SFTArguments) -> list[Trace]:
    asked = {**DEMONSTRATIONS, **run.demonstrations}
    with contextlib.closing(make_env(asked["env"], {"protocol": run.protocol, **asked["env_kwargs"]})) as env:
        source: Any = env.tasks
        return list(demonstrated_traces(env, source, asked["count"], asked["tool_share"], asked["seed"]))


def write_rows(run: SFTArguments, path: str | Path) -> TraceData:
    """Write the traces in the policy's protocol as JSONL messages, and return the count of rows."""
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
        shape: ModelShape = model_shape(resolve_model(run.model), lora_config(run))
    except (OSError, ValueError) as error:
        return [], [f"configuration of {run.model}, so hours are left out ({str(error).splitlines()[0]})"]
    on_cpu = args.use_cpu or (not torch.cuda.is_available() and processes == 1)
    return (speed or ComputeSpeed()).rows(per_parameter * shape.parameters, processes, on_cpu), []


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
    missing: list[str] = []
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve_model(run.model), trust_remote_code=args.trust_remote_code)
        data, examples = prepare(run, args, tokenizer, play=False)
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
