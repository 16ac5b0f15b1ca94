"""The command `arpo sft`: supervised training on tool-integrated traces, the cold start.

arpo sft --recipe sft-qwen2.5-3b --data final_5w4_still.jsonl --accelerate-config zero3
arpo sft --config my.yaml --data runs/mine/traces.jsonl --dry-run
arpo sft --data traces.jsonl --to-protocol hermes --rows-only rewritten.jsonl
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_set_option, write_table
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.launch import add_launch_flags, check_launch_flags, launch
from arpo_trainer.run.recipes import check_recipe, read_settings


def add_sft_command(commands: Any) -> None:
    """Add the command `arpo sft` to a parser."""
    parser = add_command(commands, "sft", _sft, "train a model on traces: the cold start")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--recipe", metavar="NAME", help="a recipe of the package; `arpo recipes` lists them")
    source.add_argument("--config", metavar="FILE", help="a YAML file with settings")
    parser.add_argument("--data", nargs="+", metavar="FILE", help="files or folders of traces; replaces `data`")
    parser.add_argument(
        "--to-protocol", metavar="NAME", help="rewrite the traces in this protocol: hermes, llama3, ..."
    )
    parser.add_argument("--rows-only", metavar="FILE", help="write the rows as JSONL messages, and train nothing")
    parser.add_argument("--strict", action="store_true", help="a row that cannot be used is an error")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint, if there is one")
    add_set_option(parser, "settings, with values in YAML: num_train_epochs=2, lora_rank=64")
    parser.add_argument("--dry-run", action="store_true", help="count rows, tokens and steps, and estimate the hours")
    add_speed_options(parser)
    add_launch_flags(parser)


def add_speed_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that a dry run needs for hours and prices."""
    parser.add_argument("--tflops", type=float, metavar="N", help="TFLOP/s that a device reaches, for --dry-run")
    parser.add_argument("--hour-price", type=float, metavar="USD", help="price of a device's hour, for --dry-run")


def _sft(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    check_launch_flags(arguments)
    require("train")
    if arguments.rows_only:
        return _write_rows(settings, Path(arguments.rows_only))
    if arguments.accelerate_config and not arguments.dry_run:
        return launch(arguments, arguments.argv)
    if arguments.dry_run:
        return _dry_run(arguments, settings)
    from arpo_trainer.run.sft_run import sft

    sft(settings)
    return 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.recipe:
        check_recipe(arguments.recipe, "sft")
    given = arguments.recipe or arguments.config
    settings = read_settings(given, arguments.set, command="sft") if given else read_settings_alone(arguments.set)
    if arguments.data:
        settings["data"] = arguments.data
    if arguments.to_protocol:
        settings["protocol"] = arguments.to_protocol
    if arguments.strict:
        settings["strict"] = True
    if arguments.resume:
        settings["resume_from_checkpoint"] = resume_point(settings.get("output_dir", "runs/sft"))
    return settings


def read_settings_alone(texts: list[str]) -> dict[str, Any]:
    """Return settings that were given with `--set` and build on no file."""
    from arpo_trainer.run.recipes import parse_assignments

    return parse_assignments(texts, "--set")


def resume_point(folder: str) -> str | None:
    """Return "last" if there is a complete checkpoint in a folder, so that `--resume` also starts a new run."""
    from arpo_trainer.training.checkpoints import broken

    found = [path for path in Path(folder).glob("checkpoint-*") if broken(path) is None]
    return "last" if found else None


def _write_rows(settings: dict[str, Any], path: Path) -> int:
    from arpo_trainer.run.arguments import configure_sft
    from arpo_trainer.run.sft_run import write_rows

    run, _ = configure_sft(settings)
    write_table(write_rows(run, path).table())
    return 0


def _dry_run(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from arpo_trainer.costs.estimate import ComputeSpeed
    from arpo_trainer.run.sft_run import sft_dry_run

    speed = ComputeSpeed(arguments.tflops, arguments.hour_price)
    rows, missing = sft_dry_run(settings, arguments.num_processes, speed)
    if os.environ.get("RANK", "0") == "0":
        write_table(rows)
        sys.stderr.writelines(f"missing here: {lack}\n" for lack in missing)
    return 1 if missing else 0
