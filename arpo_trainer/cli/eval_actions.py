"""The actions of `arpo eval` on stored runs: compare, score, merge, export.

arpo eval merge evals/gaia                       # joins evals/gaia/shard-0-of-8, shard-1-of-8, ...
arpo eval export evals/gaia --format inspect --output exported
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.cli.eval_compare import add_compare_action
from arpo_trainer.cli.eval_score import add_score_action
from arpo_trainer.cli.eval_summary import write_summary


def add_eval_actions(actions: Any) -> None:
    """Add the actions to a parser."""
    add_compare_action(actions)
    add_score_action(actions)
    merge = add_command(actions, "merge", _merge, "join the shards of an evaluation or of a synthesis")
    merge.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a folder with shards, or the shards")
    merge.add_argument("--output", type=Path, metavar="FOLDER", help="where the whole is written (default: FOLDER)")
    merge.add_argument("--partial", action="store_true", help="join what there is, though parts are missing")
    purpose = "write a run in the format of the papers' code, of lm-evaluation-harness, or of Inspect"
    export = add_command(actions, "export", _export, purpose)
    export.add_argument("run_folder", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    export.add_argument("--format", required=True, metavar="FORMAT", help="papers, lm-eval or inspect")
    export.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where the files go")


def _merge(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import KIND
    from arpo_trainer.evaluation.merge_shards import merge_shards

    found = merge_shards(arguments.folders, arguments.output, arguments.partial)
    if found.facts["kind"] == KIND:
        return write_summary(found, found.facts["settings"]["max_broken"])
    sys.stdout.write(f"{len(found.rows)} samples in {found.folder}; choose and write the training rows with\n")
    sys.stdout.write(f"arpo synth --resume --output {found.folder}\n")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.log_formats import export_run

    for path in export_run(load_eval_run(arguments.run_folder), arguments.format, arguments.output):
        sys.stdout.write(f"{path}\n")
    return 0
