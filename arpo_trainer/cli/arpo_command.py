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

from arpo_trainer.cli.cache_command import add_cache_command
from arpo_trainer.cli.data_command import add_data_command
from arpo_trainer.cli.name_value_options import read_options
from arpo_trainer.cli.recipes_command import add_recipes_command, check_recipe
from arpo_trainer.cli.rollout_command import add_rollout_command
from arpo_trainer.cli.sandbox_command import add_sandbox_command
from arpo_trainer.cli.search_command import add_search_command
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.cli.view_command import add_view_command
from arpo_trainer.optional_dependencies import naming_extras, require
from arpo_trainer.run.launch import add_launch_flags, check_launch_flags, launch


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    arguments = _parser().parse_args(argv)
    arguments.argv = sys.argv[1:] if argv is None else list(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for name in ("arpo_trainer", "arpo_env", "sandbox"):
        logging.getLogger(name).setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    try:
        with naming_extras():
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
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="say which version this is, and end")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    envs = commands.add_parser("envs", help="list the environments")
    envs.add_argument("module", nargs="*", help="modules of yours that register environments, to list these too")
    envs.set_defaults(run=_envs)

    add_data_command(commands)

    play = commands.add_parser("play", help="play an episode in the terminal, by hand or with a model")
    play.add_argument("env", help="environment id, such as arpo/Arithmetic-v0, or MODULE:ID of your own")
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


class _ShowVersion(argparse.Action):
    """Looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        import importlib.metadata
        import platform

        try:
            version = importlib.metadata.version("arpo-gym")
        except importlib.metadata.PackageNotFoundError:
            version = "of a source tree, not installed"
        sys.stdout.write(f"arpo-gym {version} (Python {platform.python_version()})\n")
        parser.exit()


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
    from envs_registry.spec import import_module

    for module in arguments.module:
        import_module(module)
    specs = all_specs()
    rows = [("ID", "SIZE", "TOOLS", "SCORER", "LICENCE")]
    rows += [(s.id, s.size, ",".join(s.tool_names), s.scorer, s.licence) for s in specs]
    notes = [f"{s.description} (gated)" if s.gated else s.description for s in specs]
    write_table(rows, notes=["", *notes])
    return 0


def _play(arguments: argparse.Namespace) -> int:
    from arpo_trainer.cli.play import play_by_hand, play_with_model

    options = read_options(arguments.option, "--option")
    if arguments.model:
        return play_with_model(arguments.env, options, arguments.seed, arguments.model, arguments.temperature)
    return play_by_hand(arguments.env, options, arguments.seed)


def _train(arguments: argparse.Namespace) -> int:
    if arguments.recipe:
        check_recipe(arguments.recipe)
    check_launch_flags(arguments)
    require("train")
    if arguments.accelerate_config and not arguments.dry_run:
        return launch(arguments, arguments.argv)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # `rollout_func`: the seams' tests watch it for us
    from arpo_trainer.run.settings_file import read_settings
    from arpo_trainer.run.train import train

    settings = read_settings(arguments.recipe or arguments.config, arguments.set)
    if arguments.dry_run:
        return _dry_run(settings, arguments.num_processes, arguments.accelerate_config)
    train(settings)
    return 0


def _dry_run(settings: dict[str, Any], processes: int | None, launch_config: str | None) -> int:
    from arpo_trainer.costs.cost_table import lines
    from arpo_trainer.run.dry_run import dry_run

    costs, missing = dry_run(settings, processes, launch_config)
    if os.environ.get("RANK", "0") == "0":
        write_table(lines(costs))
        for note in costs.notes:
            sys.stdout.write(f"left out: {note}\n")
        for lack in missing:
            _say(f"missing here: {lack}")
    return 1 if missing else 0


def _report(arguments: argparse.Namespace) -> int:
    from arpo_trainer.report.html_report import write_report
    from arpo_trainer.report.run_data import require_run

    require_run(arguments.folder)
    sys.stdout.write(f"{write_report(arguments.folder)}\n")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from arpo_trainer.cli.doctor import examine

    findings = examine()
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 0 if all(finding.fine for finding in findings if finding.needed) else 1


if __name__ == "__main__":
    sys.exit(main())
