"""The command `arpo run`: data, supervised training, reinforcement learning, DPO and evaluation from one file.

arpo run --recipe arpo-qwen2.5-3b-reasoning --dry-run
arpo run --recipe arithmetic-cpu --set train.max_steps=3
arpo run --recipe arithmetic-cpu --from train                 # redo the training and the evaluation
arpo run --recipe tool-star-qwen2.5-3b --set rounds=2         # sft, train-1, dpo-1, train-2, dpo-2, eval
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_set_option, write_table
from arpo_trainer.cli.sft_command import add_speed_options
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import check_recipe


def add_run_command(commands: Any) -> None:
    """Add the command to a parser."""
    parser = add_command(commands, "run", _run, "run synth, sft, train, dpo and eval from one file")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--recipe", metavar="NAME", help="a recipe of the package; `arpo recipes` lists them")
    source.add_argument("--config", metavar="FILE", help="a YAML file with sections synth, sft, train, dpo and eval")
    add_set_option(parser, "settings of a stage, with values in YAML: train.max_steps=3, output_dir=FOLDER")
    parser.add_argument("--from", dest="begin", metavar="STAGE", help="redo this stage and those after it")
    parser.add_argument("--dry-run", action="store_true", help="show tokens, hours and price of each stage only")
    add_speed_options(parser)
    parser.add_argument("--accelerate-config", metavar="NAME", help="start several processes for sft, train and dpo")
    parser.add_argument(
        "--num-processes", type=int, metavar="N", help="processes of sft, train and dpo (default: one per GPU)"
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.recipe:
        check_recipe(arguments.recipe, "run")
    require("train")
    from arpo_trainer.run.pipeline import Pipeline, run_command

    if arguments.num_processes and not (arguments.accelerate_config or arguments.dry_run):
        raise ValueError("--num-processes without --accelerate-config starts nothing: add it, such as ddp")
    flags = []
    for flag, value in (
        ("--accelerate-config", arguments.accelerate_config),
        ("--num-processes", arguments.num_processes),
    ):
        flags += [flag, str(value)] if value and arguments.accelerate_config else []
    pipeline = Pipeline.read(arguments.recipe or arguments.config, arguments.set, flags)
    if arguments.dry_run:
        return _dry_run(arguments, pipeline)
    pipeline.run(run_command, arguments.begin)
    return 0


def _dry_run(arguments: argparse.Namespace, pipeline: Any) -> int:
    from arpo_trainer.costs.estimate import ComputeSpeed
    from arpo_trainer.evaluation.eval_session import environment_rows
    from arpo_trainer.preference.dpo_run import dpo_dry_run
    from arpo_trainer.run.pipeline import Played, pipeline_dry_run

    def plan(names: Sequence[str]) -> list[Played]:
        return [Played(row.env, row.options, row.tasks) for row in environment_rows(names)]

    speed = ComputeSpeed(arguments.tflops, arguments.hour_price)
    rows, missing = pipeline_dry_run(pipeline, speed, arguments.num_processes, plan, dpo_dry_run)
    write_table(rows)
    sys.stderr.writelines(f"missing here: {lack}\n" for lack in missing)
    return 1 if missing else 0
