"""The command `arpo dpo`: a round of self-critic DPO, which samples, pairs and trains.

arpo dpo --recipe dpo-tool-star-qwen2.5-3b --set model=runs/mine/model --accelerate-config zero3
arpo dpo --set model=FOLDER env=arpo/MultiHop-v0 tasks=64 algorithm=arpo output_dir=runs/mine-dpo
arpo dpo --config my.yaml --resume                       # only what is missing is sampled
arpo dpo --config my.yaml --pairs runs/mine-dpo/pairs.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_env_options, add_set_option, write_table
from arpo_trainer.cli.sft_command import add_speed_options, read_settings_alone, resume_point
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.launch import add_launch_flags, check_launch_flags, launch, without_launch_flags
from arpo_trainer.run.recipes import check_recipe, read_section, read_settings

_FOLDER = "runs/dpo"


def add_dpo_command(commands: Any) -> None:
    """Add the command `arpo dpo` to a parser."""
    parser = add_command(commands, "dpo", _dpo, "train a model on pairs of its own right and wrong trajectories")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--recipe", metavar="NAME", help="a recipe of the package; `arpo recipes` lists them")
    source.add_argument("--config", metavar="FILE", help="a YAML file with settings")
    parser.add_argument("--pairs", nargs="+", metavar="FILE", help="files of pairs to learn from; nothing is sampled")
    parser.add_argument("--sample-only", action="store_true", help="end when the pairs are written")
    parser.add_argument("--resume", action="store_true", help="go on with the folder, also with its checkpoints")
    add_set_option(parser, "settings, with values in YAML: tasks=64, lora_rank=8")
    add_env_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="count trajectories and pairs, and estimate the hours")
    add_speed_options(parser)
    add_launch_flags(parser)


def _dpo(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    check_launch_flags(arguments)
    if arguments.sample_only and "pairs" in settings:
        raise ValueError("--sample-only and pairs: there is nothing to sample; leave one of them out")
    require("train")
    if arguments.dry_run:
        return _dry_run(arguments, settings)
    if arguments.accelerate_config and not arguments.sample_only:
        return _launch(arguments, settings)
    from arpo_trainer.preference.dpo_run import dpo

    dpo(settings, resume=arguments.resume, sample_only=arguments.sample_only)
    return 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.recipe:
        check_recipe(arguments.recipe, "dpo")
    given = arguments.recipe or arguments.config
    if given:
        settings = read_settings(given, arguments.set, arguments.env_set, "dpo")
    else:
        options = read_settings_alone([f"env_kwargs.{text}" for text in arguments.env_set])
        settings = read_section({**read_settings_alone(arguments.set), **options}, "dpo")
    if arguments.pairs:
        settings["pairs"] = arguments.pairs
    point = resume_point(str(settings.get("output_dir", _FOLDER))) if arguments.resume else None
    return {**settings, "resume_from_checkpoint": point} if point else settings


def _launch(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Sample in one process, which frees its memory at its end, and train in several.

    A launcher's processes all run the same command; only one may sample.
    """
    if "pairs" not in settings:
        alone = [*without_launch_flags(arguments.argv), "--sample-only"]
        done = subprocess.run([sys.executable, "-m", "arpo_trainer.cli", *alone], check=False)
        if done.returncode or _status(settings) == "skipped":
            return done.returncode
    return launch(arguments, arguments.argv)


def _status(settings: dict[str, Any]) -> str:
    record = Path(str(settings.get("output_dir", _FOLDER))) / "dpo.json"
    return str(json.loads(record.read_text(encoding="utf-8"))["status"]) if record.is_file() else ""


def _dry_run(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from arpo_trainer.costs.estimate import ComputeSpeed
    from arpo_trainer.preference.dpo_run import dpo_dry_run

    speed = ComputeSpeed(arguments.tflops, arguments.hour_price)
    rows, missing = dpo_dry_run(settings, arguments.num_processes, speed)
    if os.environ.get("RANK", "0") == "0":
        write_table(rows)
        sys.stderr.writelines(f"missing here: {lack}\n" for lack in missing)
    return 1 if missing else 0
