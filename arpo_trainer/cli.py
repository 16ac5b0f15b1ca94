"""The `arpo` command: look at environments and data, play, roll out, train, look at what came of it, mend the machine.

Heavy imports happen inside the subcommand that needs them, so that `arpo envs` answers at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cache_command import add_cache_command
from arpo_trainer.data_command import add_data_command
from arpo_trainer.launching import add_launch_flags, check_launch_flags, launch
from arpo_trainer.options import read_options
from arpo_trainer.recipes_command import add_recipes_command, check_recipe
from arpo_trainer.rollout_command import add_rollout_command
from arpo_trainer.sandbox_command import add_sandbox_command
from arpo_trainer.search_command import add_search_command
from arpo_trainer.table import write_table
from arpo_trainer.view_command import add_view_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    arguments = _parser().parse_args(argv)
    arguments.argv = sys.argv[1:] if argv is None else list(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for name in ("arpo_trainer", "arpo_env", "sandbox"):
        logging.getLogger(name).setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.traceback:
            raise
        _say(f"error: {error}\n(run again with --traceback before the command to see where)")
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="arpo", description="Tool-using language agents: environments and training.")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    envs = commands.add_parser("envs", help="list the environments")
    envs.set_defaults(run=_envs)

    add_data_command(commands)

    play = commands.add_parser("play", help="play an episode in the terminal, by hand or with a model")
    play.add_argument("env", help="environment id, such as arpo/Arithmetic-v0")
    play.add_argument("--model", help="let this model play: a folder, a hub id, or smollm2-135m-instruct")
    play.add_argument("--seed", type=int, default=0, help="chooses the task (default 0)")
    play.add_argument("--temperature", type=float, default=0.0, help="of the model; 0 is greedy (default)")
    play.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the environment")
    play.set_defaults(run=_play)

    add_rollout_command(commands)

    _add_train(commands)
    add_recipes_command(commands)

    report = commands.add_parser("report", help="write report.html for the folder of a run, also while it goes on")
    report.add_argument("folder", type=Path)
    report.set_defaults(run=_report)

    doctor = commands.add_parser("doctor", help="say what this machine has and lacks, and how to mend it")
    doctor.set_defaults(run=_doctor)

    add_view_command(commands)
    add_cache_command(commands)
    add_sandbox_command(commands)
    add_search_command(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser("train", help="train, and write a report")
    what = train.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--recipe", metavar="NAME", help="a recipe of the package, such as arithmetic-cpu: `arpo recipes`"
    )
    what.add_argument("--config", metavar="FILE", help="a YAML file of your own, or the name of a recipe")
    train.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="replace a setting")
    train.add_argument("--dry-run", action="store_true", help="check the settings, say what the run will cost, and end")
    add_launch_flags(train)
    train.set_defaults(run=_train)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _envs(arguments: argparse.Namespace) -> int:
    from envs_registry import all_specs

    rows = [("ID", "SIZE", "TOOLS", "SCORER", "LICENCE", "GATED", "DESCRIPTION")]
    for s in all_specs():
        gated = "yes" if s.gated else "no"
        rows.append((s.id, s.size, ",".join(s.tools), s.scorer, s.licence, gated, s.description))
    write_table(rows)
    return 0


def _play(arguments: argparse.Namespace) -> int:
    from arpo_trainer.play import play_by_hand, play_with_model

    options = read_options(arguments.option, "--option")
    if arguments.model:
        return play_with_model(arguments.env, options, arguments.seed, arguments.model, arguments.temperature)
    return play_by_hand(arguments.env, options, arguments.seed)


def _train(arguments: argparse.Namespace) -> int:
    if arguments.recipe:
        check_recipe(arguments.recipe)
    check_launch_flags(arguments)
    if arguments.accelerate_config and not arguments.dry_run:
        return launch(arguments, arguments.argv)
    try:
        from arpo_trainer.settings_file import read_settings
        from arpo_trainer.train import train
    except ImportError as error:
        raise RuntimeError(f"training needs more packages ({error}): pip install 'arpo-gym[train]'") from error
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # `rollout_func`: the seams' tests watch it for us
    settings = read_settings(arguments.recipe or arguments.config, arguments.set)
    if arguments.dry_run:
        return _dry_run(settings, arguments.num_processes, arguments.accelerate_config)
    train(settings)
    return 0


def _dry_run(settings: dict[str, Any], processes: int | None, launch_config: str | None) -> int:
    from arpo_trainer.costs.plan import dry_run
    from arpo_trainer.costs.table import lines

    costs, missing = dry_run(settings, processes, launch_config)
    if os.environ.get("RANK", "0") == "0":
        write_table(lines(costs))
        for note in costs.notes:
            sys.stdout.write(f"left out: {note}\n")
        for lack in missing:
            _say(f"missing here: {lack}")
    return 1 if missing else 0


def _report(arguments: argparse.Namespace) -> int:
    from arpo_trainer.report import write_report

    sys.stdout.write(f"{write_report(arguments.folder)}\n")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from arpo_trainer.doctor import examine

    findings = examine()
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 0 if all(finding.fine for finding in findings if finding.needed) else 1


if __name__ == "__main__":
    sys.exit(main())
