"""`arpo sft --dry-run`: counts rows, dropped rows, tokens and steps, and estimates hours, without loading weights.

rows, missing = sft_dry_run(settings, processes=8)
"""

from __future__ import annotations

import math
from typing import Any

import torch

from arpo_env.episode import BYTES_A_TOKEN
from arpo_trainer.costs.compute_hours import PASS_AND_BACK, ComputeSpeed
from arpo_trainer.costs.model_shape import ModelShape, model_shape
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.run.lora import lora_config
from arpo_trainer.run.sft_arguments import DEMONSTRATIONS, SFTArguments, configure_sft
from arpo_trainer.run.sft_run import load_tokenizer, prepare
from arpo_trainer.sft.plain_trace import ModelTurn
from arpo_trainer.sft.trace_data import TraceData, learnt_tokens, read_trace_files
from arpo_trainer.training.process_count import planning, process_count

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
