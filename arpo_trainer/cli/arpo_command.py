"""The `arpo` command.

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
from arpo_trainer.cli.command_options import add_command, write_table
from arpo_trainer.cli.data_command import add_data_command
from arpo_trainer.cli.dpo_command import add_dpo_command
from arpo_trainer.cli.eval_command import add_eval_command
from arpo_trainer.cli.export_command import add_export_command
from arpo_trainer.cli.play_command import add_play_command
from arpo_trainer.cli.rollout_command import add_rollout_command
from arpo_trainer.cli.run_command import add_run_command
from arpo_trainer.cli.sandbox_command import add_sandbox_command
from arpo_trainer.cli.search_command import add_search_command
from arpo_trainer.cli.serve_command import add_serve_command
from arpo_trainer.cli.sft_command import add_sft_command
from arpo_trainer.cli.synth_command import add_synth_command
from arpo_trainer.cli.train_command import add_recipes_command, add_train_command
from arpo_trainer.cli.view_commands import add_plot_command, add_view_command
from arpo_trainer.optional_dependencies import naming_extras

# command -> the action that may be left out, and the others
_DEFAULT_ACTIONS = {
    "eval": ("run", ("retry", "compare", "score", "merge", "export")),
    "view": ("run", ("timeline",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    arguments = _parser().parse_args(_with_action(sys.argv[1:] if argv is None else list(argv)))
    # the launcher of several processes runs this same command line again in each of them
    arguments.argv = sys.argv[1:] if argv is None else list(argv)
    return run_command(arguments)


def run_command(arguments: argparse.Namespace) -> int:
    """Run the command that was parsed; return its exit status. Errors are one line, with --traceback all of them."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    # with several processes only the main one reports progress; warnings come from all of them
    for name in ("arpo_trainer", "arpo_env", "sandbox"):
        logging.getLogger(name).setLevel(logging.INFO if _is_main_process() else logging.WARNING)
    try:
        with naming_extras():
            status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130  # 128 + SIGINT, as shells report it
    except BrokenPipeError:
        # whoever read the output is gone; Python would complain again when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.traceback:
            raise
        _say(f"error: {error}\n(run again with --traceback before the command to see where)")
        return 1
    return status


def _with_action(argv: list[str]) -> list[str]:
    """Return the command line with the action that may be left out: `arpo eval ENV` is `arpo eval run ENV`."""
    place = next((number for number, word in enumerate(argv) if not word.startswith("-")), len(argv))
    usual, others = _DEFAULT_ACTIONS.get(argv[place] if place < len(argv) else "", ("", ()))
    following = argv[place + 1 :]
    if not usual or not following or following[0] in (usual, *others, "-h", "--help"):
        return argv
    return [*argv[: place + 1], usual, *following]


def _is_main_process() -> bool:
    # the variable of the launcher; torch.distributed would have to be imported, even for `arpo envs`
    return os.environ.get("RANK", "0") == "0"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="arpo", description="Tool-using language agents: environments and training.")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version, and end")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    envs = add_command(commands, "envs", _envs, "list the environments")
    envs.add_argument("module", nargs="*", metavar="MODULE", help="a module of yours that registers environments")
    add_data_command(commands)
    add_eval_command(commands)
    add_play_command(commands)
    add_rollout_command(commands)
    add_synth_command(commands)
    add_sft_command(commands)
    add_dpo_command(commands)
    add_train_command(commands)
    add_run_command(commands)
    add_recipes_command(commands)
    add_export_command(commands)
    report = add_command(commands, "report", _report, "write report.html for a run, also while it goes on")
    report.add_argument("folder", type=Path, metavar="FOLDER", help="the output folder of the run")
    add_view_command(commands)
    add_plot_command(commands)
    add_command(commands, "doctor", _doctor, "show what this machine has and lacks, and how to get it")
    add_cache_command(commands)
    add_sandbox_command(commands)
    add_search_command(commands)
    add_serve_command(commands)
    return parser


class _ShowVersion(argparse.Action):
    """Shows the version; argparse's own action would need it before the command line is read."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        import importlib.metadata
        import platform

        try:
            version = importlib.metadata.version("arpo-gym")
        except importlib.metadata.PackageNotFoundError:
            version = "of a source tree, not installed"
        sys.stdout.write(f"arpo-gym {version} (Python {platform.python_version()})\n")
        parser.exit()


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
