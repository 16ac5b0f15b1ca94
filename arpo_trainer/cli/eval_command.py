"""The `arpo eval` command: evaluates models on environments or suites, and goes on after any kill.

arpo eval arpo/GSM8K-v0 --env-set split=test --model FOLDER --tasks 100 -n 4 --output evals/gsm8k
arpo eval deepsearch --endpoint URL --endpoint-model NAME --model TOKENIZER --output evals/deepsearch
arpo eval --resume --output evals/gsm8k          # only what is missing
arpo eval retry evals/gsm8k                      # only what broke
arpo eval ... --shard 3/8 --output evals/gsm8k   # one of eight parts; `arpo eval merge evals/gsm8k` joins them
arpo eval ... --vllm-server URL --ray 10.0.0.1:6379 --rollout-workers 16     # episodes on the nodes of a Ray cluster
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import (
    add_command,
    add_env_options,
    read_env_options,
)
from arpo_trainer.cli.eval_actions import add_eval_actions
from arpo_trainer.cli.eval_inference import add_inference_options, read_inference
from arpo_trainer.cli.eval_summary import write_summary
from arpo_trainer.cli.model_options import (
    add_model_options,
    add_running_options,
    add_sampling_options,
    moved_model,
    opened_workers,
    read_models,
    read_rollout,
    read_running,
    stored_model,
)
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.optional_dependencies import require

if TYPE_CHECKING:
    from arpo_trainer.evaluation.eval_models import EvalModel
    from arpo_trainer.evaluation.eval_settings import EvalSettings
    from arpo_trainer.evaluation.eval_shard import EvalShard

_USAGE = "arpo eval ENV_OR_SUITE ... --model MODEL ... --output FOLDER [options]"


def add_eval_command(commands: Any) -> None:
    """Add the command and its actions to a parser."""
    evaluate = add_command(commands, "eval", _list, "evaluate models on environments and suites; compare, re-score")
    actions: Any = evaluate.add_subparsers(metavar="ACTION")
    play = add_command(actions, "run", _eval, "evaluate models (`run` may be left out)", _USAGE)
    play.add_argument("names", nargs="*", metavar="ENV_OR_SUITE", help="ids of environments, or names of suites")
    add_model_options(play)
    _add_own(play)
    add_env_options(play)
    _add_amount(play)
    add_sampling_options(play)
    add_inference_options(play)
    add_running_options(play)
    play.add_argument("--output", type=Path, metavar="FOLDER", help="where everything is written")
    play.add_argument("--resume", action="store_true", help="go on with the folder: play only what is missing")
    shard = "play part i of n, i from 0, into FOLDER/shard-i-of-n; auto or auto/n: i from SLURM or Kubernetes"
    play.add_argument("--shard", metavar="i/n", help=shard)
    play.add_argument("--list", action="store_true", help="list the suites and the presets, and end")

    add_eval_actions(actions)
    retry = add_command(actions, "retry", _retry, "play the episodes that broke again, and nothing else")
    retry.add_argument("folder", type=Path, metavar="RUN", help="the folder of an evaluation")
    add_model_options(retry)
    _add_own(retry)
    add_inference_options(retry)
    add_running_options(retry)


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", metavar="NAME", help="a published model: its prompt, tags, limits and sampling")
    parser.add_argument("--plain", action="store_true", help="show the progress as lines, not as a table")


def _add_amount(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, metavar="N", help="play the first N tasks of each environment")
    parser.add_argument("-n", "--samples", type=int, metavar="N", help="samples of each task (default 1)")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="play trees, by arpo, aepo, ..., and score their roots (default grpo: independent samples)",
    )
    parser.add_argument("--num-generations", type=int, metavar="M", help="trajectories of a tree (default 8)")


def _list(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.presets import preset_table
    from arpo_trainer.evaluation.suites import suite_table

    write_table(suite_table())
    sys.stdout.write("\n")
    write_table(preset_table())
    return 0


def _eval(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list(arguments)
    if arguments.output is None:
        raise ValueError("say where the evaluation is written: --output FOLDER")
    require("train")
    shard = _shard(arguments)
    folder = shard.folder(arguments.output) if shard else arguments.output
    settings, models = _resumed(arguments, folder) if arguments.resume else _begun(arguments)
    return _play(arguments, settings, models, arguments.output, repeat_broken=False)


def _retry(arguments: argparse.Namespace) -> int:
    require("train")
    settings, models = _resumed(arguments, arguments.folder)
    return _play(arguments, settings, models, arguments.folder, repeat_broken=True)


def _play(
    arguments: argparse.Namespace, settings: EvalSettings, models: list[EvalModel], folder: Path, repeat_broken: bool
) -> int:
    from arpo_trainer.evaluation.eval_session import run_evaluation
    from arpo_trainer.evaluation.live_display import LiveDisplay

    display = functools.partial(LiveDisplay, plain=arguments.plain)
    asked: dict[str, Any] = {"resume": repeat_broken or arguments.resume, "repeat_broken": repeat_broken}
    with opened_workers(arguments, settings, models) as workers:
        shard = _shard(arguments)
        found = run_evaluation(settings, models, folder, **asked, shard=shard, workers=workers, display=display)
    return write_summary(found, settings.max_broken)


def _shard(arguments: argparse.Namespace) -> EvalShard | None:
    from arpo_trainer.evaluation.eval_shard import read_shard

    return read_shard(arguments.shard) if getattr(arguments, "shard", None) else None


def _begun(arguments: argparse.Namespace) -> tuple[EvalSettings, list[EvalModel]]:
    """Return settings and models from the options."""
    from arpo_trainer.evaluation.eval_settings import EvalSettings
    from arpo_trainer.evaluation.presets import preset

    if not arguments.names:
        raise ValueError(f"name environments or suites: {_USAGE}")
    decided = _deciding(arguments)
    if arguments.preset:
        arguments.model = arguments.model or [preset(arguments.preset).model]
    models = read_models(arguments)
    if not models:
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ..., or --preset NAME of a published one")
    given = {name: getattr(arguments, name) for name in ("tasks", "samples", "algorithm", "seed")}
    settings = {name: value for name, value in given.items() if value is not None} | read_running(arguments)
    settings["inference"] = read_inference(arguments)
    return EvalSettings(tuple(arguments.names), **decided, **settings), models


def _deciding(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return options of environments, of rollouts and of the chat template that are given, those of a preset too."""
    from arpo_trainer.evaluation.presets import apply, preset

    options = read_env_options(arguments) if hasattr(arguments, "env_set") else {}
    rollout = read_rollout(arguments) if hasattr(arguments, "set") else {}
    if not arguments.preset:
        return {"env_options": options, "rollout": rollout}
    row = preset(arguments.preset)
    options, rollout = apply(row, options, rollout)
    return {"env_options": options, "rollout": rollout, "chat_template_kwargs": dict(row.chat_template_kwargs)}


def _resumed(arguments: argparse.Namespace, folder: Path) -> tuple[EvalSettings, list[EvalModel]]:
    """Return the settings and models of a stored evaluation; options that are given replace them."""
    from dataclasses import replace

    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.eval_settings import EvalSettings

    if not (folder / "run.json").is_file() and getattr(arguments, "names", []):
        return _begun(arguments)  # nothing is there yet: the first sitting of a command that always says --resume
    settings = EvalSettings.from_dict(load_eval_run(folder).facts["settings"])
    changed: dict[str, Any] = dict(read_running(arguments))
    for name in ("tasks", "samples", "algorithm", "seed"):
        if getattr(arguments, name, None) is not None:
            changed[name] = getattr(arguments, name)
    if getattr(arguments, "names", []):
        changed["environments"] = tuple(arguments.names)
    if inference := read_inference(arguments):
        changed["inference"] = {**settings.inference, **inference}
    for name, given in _deciding(arguments).items():
        changed[name] = {**getattr(settings, name), **given}
    if arguments.model or arguments.endpoint_model:
        return replace(settings, **changed), read_models(arguments)
    stored = [stored_model(label, facts) for label, facts in settings.models.items()]
    if arguments.vllm_server and len(stored) > 1:
        raise ValueError("vLLM servers serve one model, and the run has several: name the one with --model")
    return replace(settings, **changed), [moved_model(model, arguments) for model in stored]
