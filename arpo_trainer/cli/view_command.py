"""The `arpo view` command: shows what a run did.

arpo view                                      # the list of views
arpo view timeline runs/arithmetic-cpu         # what each trajectory of the last step waited for, as a page
arpo view timeline runs/arithmetic-cpu --step 3 --group 0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.rollout.time_use import busy_seconds, generating, time_use, wall_seconds
from arpo_trainer.tree import RolloutTree

_VIEWS = (
    ("arpo view timeline PATH", "what each trajectory of a step did and waited for: a page, and a table here"),
    ("arpo report FOLDER", "a whole run: a page with learning curves, trees, evaluations and settings"),
)
_COLUMNS = 5  # of activities, besides their sum


def add_view_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    view = add_command(commands, "view", _list, "show what a run did; without VIEW, list the views")
    views = view.add_subparsers(metavar="VIEW")

    purpose = "write a page that shows what each trajectory of a step did and waited for"
    timeline = add_command(views, "timeline", _timeline, purpose)
    timeline.add_argument("path", type=Path, metavar="PATH", help="the folder of a run, or a traces.jsonl file")
    timeline.add_argument("--step", type=int, metavar="N", help="the training step (default: the last)")
    timeline.add_argument("--group", type=int, metavar="N", help="draw only this tree of the step (default: all)")
    timeline.add_argument("--output", type=Path, metavar="FILE", help="default: timeline.html beside the traces")


def _list(arguments: argparse.Namespace) -> int:
    write_table(_VIEWS)
    return 0


def _timeline(arguments: argparse.Namespace) -> int:
    from arpo_trainer.report.timeline_page import write_timeline

    page, shown = write_timeline(arguments.path, step=arguments.step, group=arguments.group, output=arguments.output)
    write_table(time_table(shown))
    # the model serves all trees of a step, so one tree cannot tell whether it was idle
    if arguments.group is None:
        sys.stdout.write(f"nothing was generated for {100 * idle_share(shown):.1f} % of the rollout\n")
    sys.stdout.write(f"{page}\n")
    return 0


def idle_share(trees: Sequence[RolloutTree]) -> float:
    """Return the share of a rollout during which nothing was generated."""
    wall = wall_seconds(trees)
    return 1.0 - busy_seconds(generating(trees)) / wall if wall else 0.0


def time_table(trees: Sequence[RolloutTree]) -> list[tuple[str, ...]]:
    """Return how the trajectories of each tree, and of all trees, spent their time, as rows of a table."""
    total = time_use(trees)
    # the largest shares of all trees together, so that all rows have the same columns
    names = list(total.shares())[:_COLUMNS]
    rows = [("TREE", "TRAJECTORIES", "SECONDS", *(name.upper() for name in names), "ALL WAITING")]
    groups = [(str(tree.meta.get("group", number)), [tree]) for number, tree in enumerate(trees)]
    for name, some in [*groups, ("all", trees)] if len(groups) > 1 else groups:
        use = time_use(some)
        shares = use.shares()
        cells = [f"{100 * shares.get(activity, 0.0):.1f} %" for activity in names]
        waiting = f"{100 * use.waited / use.life:.1f} %" if use.life else "-"
        rows.append((name, str(use.trajectories), f"{wall_seconds(some):.2f}", *cells, waiting))
    return rows
