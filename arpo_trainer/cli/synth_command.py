"""The command `arpo synth`: cold-start data from questions, sampled from any model and checked.

arpo synth arpo/GSM8K-v0 --model TOKENIZER --endpoint URL --endpoint-model NAME --tasks 1000 --output data/gsm8k
arpo synth arpo/Reasoning10K-v0 --model FOLDER --vllm --against arpo/MATH500-v0 arpo/HotpotQA-v0 --output data/mine
arpo synth --resume --output data/gsm8k                # only what is missing; the files are written anew
arpo synth ... --shard 3/8 --output data/gsm8k         # an eighth of the questions; `arpo eval merge data/gsm8k` joins
arpo synth ... --ray 10.0.0.1:6379 --rollout-workers 16      # samples on the nodes of a Ray cluster
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import (
    add_command,
    add_env_options,
    add_model_options,
    add_running_options,
    add_sampling_options,
    moved_model,
    opened_workers,
    read_env_options,
    read_models,
    read_rollout,
    read_running,
    stored_model,
    write_table,
)
from arpo_trainer.optional_dependencies import require

if TYPE_CHECKING:
    from arpo_trainer.evaluation.episode_store import UnitRow
    from arpo_trainer.evaluation.eval_settings import EvalModel
    from arpo_trainer.synthesis.synth_settings import SynthSettings

_USAGE = "arpo synth ENV ... --model MODEL ... --output FOLDER [options]"
_NUMBERS: tuple[tuple[str, Any, str, str], ...] = (
    ("tasks", int, "N", "take the first N questions of each environment"),
    ("direct", int, "N", "samples without tools of each question (default 2)"),
    ("tir", int, "N", "samples with tools (default 3)"),
    ("easy", float, "SHARE", "a question that is answered this often without tools needs none (default 0.5)"),
    ("hard", float, "SHARE", "a question that is answered at most this often with tools is for RL (default 0)"),
    ("min_score", float, "SCORE", "least score of a right answer (default 1)"),
    ("max_calls", int, "N", "most tool calls of a sample (default 5)"),
    ("max_failed", int, "N", "most failed tool calls of a sample (default 1)"),
    ("max_tokens", int, "N", "most tokens of a sample after the prompt (default: any number)"),
    ("max_per_task", int, "N", "most samples of a question that are kept (default 4)"),
    ("seed", int, "N", ""),
)
_OF_MODELS = ("model", "endpoint", "endpoint_model", "vllm", "vllm_server", "price")
_SECONDS_BETWEEN_LINES = 30.0


def add_synth_command(commands: Any) -> None:
    """Add the command `arpo synth` to a parser."""
    parser = add_command(commands, "synth", _synth, "make cold-start data from questions with a model", _USAGE)
    parser.add_argument("names", nargs="*", metavar="ENV", help="ids of environments whose questions are taken")
    parser.add_argument("--config", metavar="FILE", help="a YAML file with settings; options replace them")
    add_model_options(parser)
    add_env_options(parser)
    for name, kind, shown, purpose in _NUMBERS:
        if purpose:  # the others are options of sampling
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=shown, help=purpose)
    parser.add_argument("--hints", nargs="*", metavar="KIND", help="verify, reflect; none after the bare option")
    parser.add_argument(
        "--all-questions", action="store_true", default=None, help="use tools also where none are needed"
    )
    against = "evaluation sets whose questions are left out: ENV, ENV:SPLIT or ENV:SPLIT=PATH"
    parser.add_argument("--against", nargs="+", metavar="ENV", help=against)
    parser.add_argument("--format", metavar="NAME", help="of sft.jsonl: sharegpt (default), alpaca, messages")
    add_sampling_options(parser, temperature=0.8)
    add_running_options(parser)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where everything is written")
    shard = "take part i of n of the questions, i from 0, into FOLDER/shard-i-of-n; join them by arpo eval merge"
    parser.add_argument("--shard", metavar="i/n", help=shard)
    parser.add_argument("--resume", action="store_true", help="go on with the folder: sample only what is missing")
    parser.add_argument("--retry", action="store_true", help="with --resume: sample what broke again, too")


def _synth(arguments: argparse.Namespace) -> int:
    require("train")
    from arpo_trainer.evaluation.eval_shard import read_shard
    from arpo_trainer.synthesis.synth_session import NothingLeft, broken_samples, synthesise

    given = _from_file(arguments)
    if arguments.output is None:
        raise ValueError("say where the samples are written: --output FOLDER")
    shard = read_shard(arguments.shard) if arguments.shard else None
    folder = shard.folder(arguments.output) if shard else arguments.output
    settings, models = _begun(arguments, given, folder)
    progress = _Progress()
    asked = {"resume": arguments.resume, "repeat_broken": arguments.retry, "shard": shard, "progress": progress.add}
    try:
        with opened_workers(arguments, settings.play, models) as workers:
            report = synthesise(settings, models, arguments.output, workers=workers, **asked)
    except NothingLeft as fault:
        write_table(fault.report.table())
        raise
    write_table(report.table())
    share = broken_samples(report)
    if share > settings.max_broken:
        sys.stderr.write(
            f"{share:.1%} of the samples broke; after mending the cause: arpo synth --resume --retry --output "
            f"{folder}\n"
        )
        return 1
    return 0


def _from_file(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the file; those of models and of the folder become options that were not given."""
    if not arguments.config:
        return {}
    from arpo_trainer.run.recipes import read_section

    path = Path(arguments.config)
    if not path.is_file():
        raise FileNotFoundError(f"no settings file {arguments.config!r}")
    import yaml

    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(given, dict):
        raise ValueError(f"{path}: expected `name: value` lines")
    settings = read_section(given, "synth")
    named = bool(arguments.model or arguments.endpoint_model)
    for name in _OF_MODELS:
        value = settings.pop(name, None)
        if value is not None and not named and not getattr(arguments, name):
            several = name in ("model", "endpoint_model", "vllm_server") and not isinstance(value, list)
            setattr(arguments, name, [value] if several else value)
    folder = settings.pop("output_dir", None)
    if arguments.output is None and folder:
        arguments.output = Path(folder)
    return settings


def _begun(arguments: argparse.Namespace, given: dict[str, Any], folder: Path) -> tuple[SynthSettings, list[EvalModel]]:
    """Return settings and models: options replace the file, and the file what the folder was made with."""
    from arpo_trainer.synthesis.synth_session import stored_settings
    from arpo_trainer.synthesis.synth_settings import SynthSettings

    stored = None
    if arguments.resume and (folder / "run.json").is_file():
        stored = stored_settings(folder)
    base = {} if stored is None else {name: value for name, value in stored.as_dict().items() if name != "models"}
    values = {**base, **given}
    for name, found in (("env_options", read_env_options(arguments)), ("rollout", read_rollout(arguments))):
        values[name] = {**(values.get(name) or {}), **found}
    names = [*(name for name, *_ in _NUMBERS), "hints", "all_questions", "against", "format"]
    values |= {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    values |= read_running(arguments) | ({"environments": arguments.names} if arguments.names else {})
    settings = SynthSettings.from_dict(values)
    return settings, _models(arguments, stored)


def _models(arguments: argparse.Namespace, stored: SynthSettings | None) -> list[EvalModel]:
    if arguments.model or arguments.endpoint_model:
        return read_models(arguments)
    if stored is None:
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ...")
    return [moved_model(stored_model(label, facts), arguments) for label, facts in stored.models.items()]


class _Progress:
    """Writes a line about what has been sampled, now and then."""

    def __init__(self) -> None:
        self._stages: Counter[str] = Counter()
        self._broken = 0
        self._began = self._line = time.monotonic()

    def add(self, row: UnitRow) -> None:
        """Count a sample that has just been stored."""
        self._stages[row.env.rpartition("/")[2]] += 1
        self._broken += row.broken
        if time.monotonic() - self._line >= _SECONDS_BETWEEN_LINES:
            self._line = time.monotonic()
            counts = ", ".join(f"{name} {count}" for name, count in self._stages.items())
            rate = self._stages.total() / (self._line - self._began)
            sys.stderr.write(f"sampled: {counts}; {self._broken} broken; {rate:.2g} samples/s\n")
