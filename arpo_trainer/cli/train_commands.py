"""The commands that train: `arpo train`, `sft`, `dpo`, `run`; and `recipes`, which they run, and `export`.

arpo train --recipe arithmetic-cpu --set max_steps=3 --env-set level=2
arpo sft --recipe sft-qwen2.5-3b --data final_5w4_still.jsonl --accelerate-config zero3
arpo sft --data traces.jsonl --to-protocol native --rows-only rewritten.jsonl
arpo dpo --config my.yaml --resume                       # only what is missing is sampled
arpo run --recipe arithmetic-cpu --from train            # redo the training and the evaluation
arpo export runs/arpo-qwen2.5-3b-reasoning --output exports/mine-3b --dtype bfloat16
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from arpo_trainer.cli import command_options
from arpo_trainer.costs.compute_speed import ComputeSpeed
from arpo_trainer.make_env import known_id
from arpo_trainer.models import check_model_folder
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.launch import LaunchFlags, command_line, launch, without_launch_flags
from arpo_trainer.run.recipes import FOLDERS, check_recipe, read_settings, recipe_names, recipe_summary

Set = command_options.set_option("settings: max_steps=3 limits.python=4")
DryRun = Annotated[
    command_options.Flag, Parameter(help="check the settings and estimate tokens, hours and price; loads no weights")
]
Resume = Annotated[
    command_options.Flag, Parameter(help="go on with the folder, from its newest checkpoint if there is one")
]
Launch = Annotated[LaunchFlags | None, Parameter(name="*")]
Speed = Annotated[ComputeSpeed | None, Parameter(name="*")]


def recipes() -> None:
    """List the recipes, which `arpo COMMAND --recipe NAME` runs."""
    named = [(command, name) for command in FOLDERS for name in recipe_names(command)]
    rows = [(name, command, recipe_summary(name, command)) for command, name in named]
    command_options.write_table([("RECIPE", "COMMAND", "WHAT IT IS"), *rows])


def train(
    *,
    recipe: command_options.Recipe = None,
    config: command_options.Config = None,
    settings: Set = (),  # type: ignore[valid-type]
    env_set: command_options.EnvSet = (),
    ray: Annotated[str | None, Parameter(help="play rollouts on this Ray cluster: HOST:PORT, or auto")] = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    launcher: Launch = None,
) -> int:
    """Train a model, and write a report."""
    flags = _checked(launcher, dry_run)
    source = _source("train", recipe, config, needed=True)
    require("train")
    # each process that is launched reads the settings itself; a dry run plans for them in this one
    if flags.accelerate_config and not dry_run:
        return launch(flags)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # about `rollout_func`, which our tests of TRL watch
    given = read_settings(source, settings, env_set) | ({"ray_address": ray} if ray else {})
    # wrong names are refused before torch is imported, which takes seconds
    check_model_folder(given.get("model", ""))
    for env_id in (given.get("env"), given.get("eval_env")):
        if isinstance(env_id, str):
            known_id(env_id)
    if resume:
        given |= _resume_point(given.get("output_dir") or "trainer_output")  # which is TRL's own
    if dry_run:
        return _plan_training(given, flags)
    from arpo_trainer.run.train import train  # after the dry run: it imports the whole training stack

    train(given)
    return 0


def _plan_training(settings: dict[str, Any], flags: LaunchFlags) -> int:
    from arpo_trainer.costs.estimate import cost_rows
    from arpo_trainer.run.dry_run import Placement, plan_run
    from arpo_trainer.training.recorder import check_output
    from arpo_trainer.training.resume import find_checkpoint

    planned = plan_run(settings, flags.num_processes, flags.accelerate_config)
    placement = Placement(planned, flags.num_machines, flags.main_process_ip)
    refused = placement.refused()
    folder, resume = planned.args.output_dir, planned.args.resume_from_checkpoint
    try:
        check_output(folder, find_checkpoint(resume, folder))
    except FileExistsError as error:
        refused.append(str(error))
    return _show_plan([*cost_rows(planned.costs), *placement.rows()], planned.missing, planned.costs.notes, refused)


def _show_plan(
    rows: Sequence[Sequence[str]], missing: Iterable[str], notes: Iterable[str] = (), refused: Iterable[str] = ()
) -> int:
    # under a launcher each process makes the estimate, and one prints it
    if os.environ.get("RANK", "0") == "0":
        command_options.write_table(rows)
        command_options.write_lines(f"left out: {note}" for note in notes)
        command_options.write_lines((f"missing here: {lack}" for lack in missing), sys.stderr.write)
        command_options.write_lines((f"refused: {reason}" for reason in refused), sys.stderr.write)
    return 1 if missing or refused else 0


def _checked(launcher: LaunchFlags | None, dry_run: bool) -> LaunchFlags:
    flags = launcher or LaunchFlags()
    flags.check(dry_run)
    return flags


def _source(command: str, recipe: str | None, config: str | None, needed: bool = False) -> Any:
    if recipe:
        check_recipe(recipe, command)
    return command_options.chosen({"--recipe": recipe, "--config": config}, needed)


def _resume_point(folder: str) -> dict[str, str]:
    """Return the setting that goes on from a folder's newest complete checkpoint; none if there is none."""
    from arpo_trainer.training.resume import newer

    return {"resume_from_checkpoint": "last"} if newer(folder, 0) else {}


def sft(
    *,
    recipe: command_options.Recipe = None,
    config: command_options.Config = None,
    data: Annotated[command_options.Words, Parameter(help="files or folders of traces; replaces `data`")] = (),
    to_protocol: Annotated[str | None, Parameter(help="rewrite the traces in this protocol: native, hermes")] = None,
    rows_only: Annotated[Path | None, Parameter(help="write the rows as JSONL messages, and train nothing")] = None,
    strict: Annotated[command_options.Flag, Parameter(help="a row that cannot be used is an error")] = False,
    resume: Resume = False,
    settings: Set = (),  # type: ignore[valid-type]
    dry_run: DryRun = False,
    speed: Speed = None,
    launcher: Launch = None,
) -> int:
    """Train a model on traces: the cold start."""
    given = read_settings(_source("sft", recipe, config), settings, command="sft")
    asked = {"data": list(data), "protocol": to_protocol, "strict": strict}
    given |= {name: value for name, value in asked.items() if value}
    if resume:
        given |= _resume_point(given.get("output_dir", "runs/sft"))
    flags = _checked(launcher, dry_run)
    require("train")
    if flags.accelerate_config and not (dry_run or rows_only):
        return launch(flags)
    from arpo_trainer.run import sft_run
    from arpo_trainer.run.arguments import configure_sft

    if rows_only:
        command_options.write_table(sft_run.write_rows(configure_sft(given)[0], rows_only).table())
    elif dry_run:
        return _show_plan(*sft_run.sft_dry_run(given, flags.num_processes, speed))
    else:
        sft_run.sft(given)
    return 0


def dpo(
    *,
    recipe: command_options.Recipe = None,
    config: command_options.Config = None,
    pairs: Annotated[command_options.Words, Parameter(help="files of pairs to learn from; nothing is sampled")] = (),
    sample_only: Annotated[command_options.Flag, Parameter(help="end when the pairs are written")] = False,
    resume: Resume = False,
    settings: Set = (),  # type: ignore[valid-type]
    env_set: command_options.EnvSet = (),
    dry_run: DryRun = False,
    speed: Speed = None,
    launcher: Launch = None,
) -> int:
    """Train a model on pairs of its own right and wrong trajectories."""
    if not (recipe or config or settings or pairs):
        raise ValueError("say what is trained: --recipe NAME, --config FILE, or --set model=FOLDER env=ID")
    given = read_settings(_source("dpo", recipe, config), settings, env_set, "dpo")
    if pairs:
        given["pairs"] = list(pairs)
    folder = str(given.get("output_dir", "runs/dpo"))
    if resume:
        given |= _resume_point(folder)
    flags = _checked(launcher, dry_run)
    require("train")
    if flags.accelerate_config and not (dry_run or sample_only):
        if "pairs" not in given and (status := _sample_alone(folder)) is not None:
            return status
        return launch(flags)
    from arpo_trainer.preference import dpo_run

    if dry_run:
        return _show_plan(*dpo_run.dpo_dry_run(given, flags.num_processes, speed))
    dpo_run.dpo(given, resume=resume, sample_only=sample_only)
    return 0


def _sample_alone(folder: str) -> int | None:
    """Sample in one process, which frees its memory at its end; return its status if there is nothing to train then.

    A launcher's processes all run the same command; only one may sample.
    """
    alone = [*without_launch_flags(command_line), "--sample-only"]
    done = subprocess.run([sys.executable, "-m", "arpo_trainer.cli", *alone], check=False)
    record = Path(folder, "dpo.json")
    skipped = record.is_file() and json.loads(record.read_text(encoding="utf-8"))["status"] == "skipped"
    return done.returncode if done.returncode or skipped else None


def run(
    *,
    recipe: command_options.Recipe = None,
    config: command_options.Config = None,
    settings: command_options.set_option("settings of a stage: train.max_steps=3 output_dir=FOLDER") = (),  # type: ignore[valid-type]
    begin: Annotated[str | None, Parameter(name="--from", help="redo this stage and those after it")] = None,
    dry_run: DryRun = False,
    speed: Speed = None,
    accelerate_config: Annotated[str | None, Parameter(help="start several processes for sft, train and dpo")] = None,
    num_processes: Annotated[int | None, Parameter(help="of sft, train and dpo (default: one per GPU)")] = None,
) -> int:
    """Run synth, sft, train, dpo and eval from one file."""
    source = _source("run", recipe, config, needed=True)
    require("train")
    from arpo_trainer.run.pipeline import Pipeline, run_command

    LaunchFlags(accelerate_config, num_processes).check(dry_run)
    words = {"--accelerate-config": accelerate_config, "--num-processes": accelerate_config and num_processes}
    flags = [text for flag, value in words.items() if value for text in (flag, str(value))]
    pipeline = Pipeline.read(source, settings, flags)
    if not dry_run:
        pipeline.run(run_command, begin)
        return 0
    from arpo_trainer.evaluation.suites import environment_rows
    from arpo_trainer.preference.dpo_run import dpo_dry_run
    from arpo_trainer.run.pipeline import pipeline_dry_run

    planned = pipeline_dry_run(pipeline, speed or ComputeSpeed(), num_processes, environment_rows, dpo_dry_run)
    return _show_plan(*planned)


def export(
    checkpoint: Path,
    /,
    *,
    output: Path,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    base: str | None = None,
    licence: str | None = None,
    name: str | None = None,
) -> None:
    """Write a checkpoint as a plain Hugging Face folder with a model card.

    Args:
        checkpoint: a checkpoint, a saved model, adapters, or the folder of a run (its final model, else the newest)
        output: the new folder
        dtype: of the weights (default: that of the checkpoint)
        base: model that adapters are merged into, or whose structure shards have (default: what the run says)
        licence: for the card, as the hub names it: apache-2.0
        name: of the model in the card (default: the folder's)
    """
    require("train")
    from arpo_trainer.export.export_model import export_model

    target = export_model(checkpoint, output, base=base, dtype=dtype, licence=licence, name=name)
    sys.stdout.write(f"{target}\n")
