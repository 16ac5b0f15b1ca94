"""A supervised run from settings: traces, masks, `SFTTrainer`, and a folder with the model. The command is `arpo sft`.

    sft(read_settings("sft-qwen2.5-3b", ["data=[final_5w4_still.jsonl]"], command="sft"))

The output folder holds the model (`model/`, with adapters also `adapter/`), checkpoints, and `sft.json`: the settings,
the count of rows, and what came of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from arpo_env.episode import BYTES_A_TOKEN
from arpo_trainer.costs.estimate import PASS_AND_BACK, ComputeSpeed
from arpo_trainer.costs.memory import ModelShape, model_shape
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.folder_lock import only_writer
from arpo_trainer.make_env import make_env
from arpo_trainer.report.run_data import write_facts
from arpo_trainer.rollout.distributed import on_every_rank, this_rank
from arpo_trainer.rollout.rendering import Renderer, check_tokenizer
from arpo_trainer.run.arguments import DEMONSTRATIONS, SFTArguments, configure_sft, lora_config, save_adapters
from arpo_trainer.run.cold_start import demonstrated_traces
from arpo_trainer.run.train import idle_threads
from arpo_trainer.sft.plain_trace import ModelTurn, Trace, as_messages
from arpo_trainer.sft.sft_trainer import TraceTrainer, make_trainer
from arpo_trainer.sft.trace_data import Example, TraceData, examples_of, learnt_tokens, read_trace_files
from arpo_trainer.training.checkpoints import broken
from arpo_trainer.training.devices import planning, process_count
from arpo_trainer.training.recorder import versions

logger = logging.getLogger(__name__)
FACTS = "sft.json"


def sft(settings: dict[str, Any]) -> Path:
    """Train on traces, and return the output folder.

    Args:
        settings: fields of `SFTArguments` and TRL's `SFTConfig`, by name.

    Raises:
        ValueError: the settings cannot work, no row is left, or rows are dropped and `strict` is set.
        FileNotFoundError: the model, the data or the checkpoint is missing.
        FileExistsError: a new run is to be written over the checkpoints of an earlier one.
        BlockingIOError: another process trains in the folder.
    """
    run, args = configure_sft(settings)
    torch.set_num_threads(run.threads or idle_threads())
    folder = Path(args.output_dir)
    _check_new(folder, args.resume_from_checkpoint)
    with only_writer(folder, this_rank() == 0):
        return _train(run, args, settings, folder)


def _train(run: SFTArguments, args: Any, settings: dict[str, Any], folder: Path) -> Path:
    with args.main_process_first():  # the main process downloads
        tokenizer = load_tokenizer(run, args)
        run.files()
    data, examples = prepare(run, args, tokenizer)
    log_table(data)
    data.require(run.strict)
    trainer = _trainer(run, args, tokenizer, examples)
    checkpoint = trainer.checked_checkpoint(args.resume_from_checkpoint)
    facts = _facts(settings, data, examples)
    started, status = time.time(), "failed"
    _write_facts(folder, {**facts, "status": "running"})
    try:
        done = trainer.train(resume_from_checkpoint=checkpoint)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        _write_facts(folder, {**facts, "status": status, "seconds": round(time.time() - started, 1)})
    if run.save_final_model:
        save(trainer, run, folder)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    finished = {"status": status, "steps": done.global_step, "losses": losses}
    _write_facts(folder, {**facts, **finished, "seconds": round(time.time() - started, 1)})
    return folder


def _check_new(folder: Path, resume: Any) -> None:
    """Refuse to mix the checkpoints of two runs: a later `--resume` could not tell which are whose."""
    kept = [path.name for path in folder.glob("checkpoint-*") if broken(path) is None]
    if kept and not resume:
        raise FileExistsError(
            f"{str(folder)!r} holds checkpoints of an earlier run ({', '.join(sorted(kept)[:3])}): add --resume to go "
            "on with it, or give another folder with --set output_dir=FOLDER"
        )


def load_tokenizer(run: SFTArguments, args: Any) -> Any:
    """Return the tokenizer of the model, checked for a chat template.

    Raises:
        ValueError: it has none, or its ids cannot be joined turn by turn.
    """
    revision = (args.model_init_kwargs or {}).get("revision", "main")
    tokenizer = AutoTokenizer.from_pretrained(
        resolve_model(run.model), padding_side="left", revision=revision, trust_remote_code=args.trust_remote_code
    )
    check_tokenizer(tokenizer)
    return tokenizer


def prepare(run: SFTArguments, args: Any, tokenizer: Any, play: bool = True) -> tuple[TraceData, list[Example]]:
    """Return the checked traces of a run, with the count of dropped rows, and their ids and labels.

    Args:
        run: the settings of the run.
        args: those of the trainer.
        tokenizer: of the model.
        play: whether demonstrations are played; a dry run leaves them out.
    """
    data = read_trace_files(run.files(), run.trace_settings())
    if play and run.demonstrations:  # only one process plays; the others receive the same traces
        played = on_every_rank(lambda: _play(run) if this_rank() == 0 else [])[0]
        data.traces += played
        data.rows += len(played)
    return data, examples_of(data, Renderer(tokenizer, data.protocol), args.max_length, run.end_token)


def _play(run: SFTArguments) -> list[Trace]:
    asked = {**DEMONSTRATIONS, **run.demonstrations}
    options = {"protocol": run.protocol, **asked["env_kwargs"]}
    with contextlib.closing(make_env(asked["env"], options)) as env:
        source: Any = env.tasks
        return list(demonstrated_traces(env, source, asked["count"], asked["tool_share"], asked["seed"]))


def log_table(data: TraceData) -> None:
    """Log the count of rows; a warning if some were dropped."""
    rows = "; ".join(f"{name} {count}" for name, count, _ in data.table())
    (logger.warning if data.dropped else logger.info)("%s", rows)


def write_rows(run: SFTArguments, path: str | Path) -> TraceData:
    """Write the traces in the policy's protocol as JSONL messages, and return the count of rows.

    Raises:
        ValueError: no row is left, or rows are dropped and `strict` is set; nothing is written then.
    """
    data = read_trace_files(run.files(), run.trace_settings())
    data.require(run.strict)
    target = Path(path)
    scratch = target.with_name(f"{target.name}.unfinished")
    with scratch.open("w", encoding="utf-8") as file:
        for trace in data.traces:
            row = as_messages(trace, data.protocol, data.settings.schemas(trace))
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(scratch, target)
    return data


def save(trainer: TraceTrainer, run: SFTArguments, folder: Path) -> None:
    """Save the model in `folder`/model; with adapters also those, in `folder`/adapter. Every process takes part."""
    if run.lora_rank:
        save_adapters(trainer, folder)
        return
    trainer.save_model(str(folder / "model"))
    logger.info("model: %s", folder / "model")


def _trainer(run: SFTArguments, args: Any, tokenizer: Any, examples: list[Example]) -> TraceTrainer:
    args.model_init_kwargs = {"dtype": run.dtype, **(args.model_init_kwargs or {})}
    return make_trainer(
        str(resolve_model(run.model)),
        tokenizer,
        examples,
        args,
        peft_config=lora_config(run),
        share_beginnings=run.share_beginnings,
    )


def _facts(settings: dict[str, Any], data: TraceData, examples: list[Example]) -> dict[str, Any]:
    return {
        "kind": "sft",
        "settings": settings,
        "traces": asdict(data.settings),
        "rows": data.rows,
        "kept": len(examples),
        "dropped": dict(data.dropped),
        "tokens": sum(len(example["input_ids"]) for example in examples),
        "learnt_tokens": learnt_tokens(examples),
        "versions": versions(),
    }


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    if this_rank() == 0:
        write_facts(folder / FACTS, facts)


# `arpo sft --dry-run`: counts rows, dropped rows, tokens and steps, and estimates hours, without loading weights.
#
# rows, missing = sft_dry_run(settings, processes=8)

Line = tuple[str, str, str]


def sft_dry_run(
    settings: dict[str, Any], processes: int | None = None, speed: ComputeSpeed | None = None
) -> tuple[list[Line], list[str]]:
    """Return a table of what a run would do, and what this machine lacks for it.

    Args:
        settings: fields of `SFTArguments` and TRL's `SFTConfig`, by name.
        processes: the number of processes to plan for; None is the launcher's, else what the settings are written for.
        speed: the speed and price of a device.

    Raises:
        ValueError: the settings cannot work, or no row is left.
    """
    count = processes or (process_count() if process_count() > 1 else int(settings.get("processes") or 1))
    with planning(count):
        run, args = configure_sft(settings)
    missing: list[str] = []
    data, tokens, learnt = _rows_and_tokens(run, args, missing)
    if data is None:
        return [("ROWS", "not known", "the data is not here")], missing
    if data.rows or not run.demonstrations:
        data.require(run.strict)
    played = int({**DEMONSTRATIONS, **run.demonstrations}["count"]) if run.demonstrations else 0
    rows: list[Line] = [*data.table()]
    if played:
        rows.append(("demonstrations", f"{played:,}", "played when the run begins; their tokens are not counted"))
    rows += _schedule(args, len(data.traces) + played, tokens, learnt, count)
    shape = _shape(run, missing)
    if shape is not None and tokens:
        on_cpu = args.use_cpu or (not torch.cuda.is_available() and count == 1)
        epochs = _epochs(args, len(data.traces) + played, count)
        rows += (speed or ComputeSpeed()).rows(PASS_AND_BACK * shape.parameters * tokens * epochs, count, on_cpu)
    return rows, missing


def _rows_and_tokens(run: SFTArguments, args: Any, missing: list[str]) -> tuple[TraceData | None, int, int]:
    """Return the traces and the numbers of their tokens and of those that are learnt."""
    try:
        files = run.files()
    except FileNotFoundError as error:
        missing.append(f"data: {error}")
        return None, 0, 0
    try:
        data, examples = prepare(run, args, load_tokenizer(run, args), play=False)
        return data, sum(len(example["input_ids"]) for example in examples), learnt_tokens(examples)
    except OSError as error:  # no tokenizer: four bytes count as one token
        missing.append(f"tokenizer of {run.model}, so tokens are guessed ({str(error).splitlines()[0]})")
    data = read_trace_files(files, run.trace_settings())
    turns = [turn for trace in data.traces for turn in trace.turns]
    own = sum(len(turn.text.encode()) for turn in turns if isinstance(turn, ModelTurn))
    shown = sum(len(text.encode()) for turn in turns if not isinstance(turn, ModelTurn) for text in turn.texts)
    opening = sum(len(message["content"].encode()) for trace in data.traces for message in trace.messages)
    return data, (own + shown + opening) // BYTES_A_TOKEN, own // BYTES_A_TOKEN


def _schedule(args: Any, rows: int, tokens: int, learnt: int, processes: int) -> list[Line]:
    packed = math.ceil(tokens / args.max_length) if args.packing else rows
    steps, per_step = _steps(args, packed, processes)
    epochs = _epochs(args, packed, processes)
    how = f"{per_step} {'packed rows' if args.packing else 'rows'} each, {processes} process{'es' * (processes > 1)}"
    lines = [("optimizer steps", f"{steps:,}", how)]
    if not tokens:
        return lines
    each = f"{tokens // rows:,} per row; {learnt:,} of them are learnt"
    passes = f"{epochs:.3g} passes"
    return [("tokens", f"{tokens:,}", each), ("tokens computed", f"{round(tokens * epochs):,}", passes), *lines]


def _steps(args: Any, rows: int, processes: int) -> tuple[int, int]:
    per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * processes
    if args.max_steps > 0:
        return args.max_steps, per_step
    return math.ceil(math.ceil(rows / per_step) * args.num_train_epochs), per_step


def _epochs(args: Any, rows: int, processes: int) -> float:
    if args.max_steps <= 0:
        return float(args.num_train_epochs)
    return float(args.max_steps * _steps(args, rows, processes)[1] / max(1, rows))


def _shape(run: SFTArguments, missing: list[str]) -> ModelShape | None:
    try:
        return model_shape(resolve_model(run.model), lora_config(run))
    except (OSError, ValueError) as error:
        missing.append(f"configuration of {run.model}, so hours are left out ({str(error).splitlines()[0]})")
        return None
