"""The `arpo view` command: look at what a run did.

arpo view                                      # what there is to look at
arpo view timeline runs/arithmetic-cpu         # what every trajectory of the last step waited for, as a page
arpo view timeline runs/arithmetic-cpu --step 3 --group 0
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.text_table import write_table
from arpo_trainer.rollout.time_use import busy_seconds, generating, time_use, wall_seconds
from arpo_trainer.tree import RolloutTree

_VIEWS = (
    ("arpo view timeline PATH", "what every trajectory of a step did and waited for: a page, and a table here"),
    ("arpo report FOLDER", "a whole run: learning curves, trees, evaluations, settings: a page"),
)
_COLUMNS = 5  # of activities, besides their sum


def add_view_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    view = commands.add_parser("view", help="look at what a run did: timeline")
    view.set_defaults(run=_list)
    views = view.add_subparsers(metavar="VIEW")

    purpose = "write a page that shows what every trajectory of a step did and waited for"
    timeline = views.add_parser("timeline", help=purpose, description=purpose)
    timeline.add_argument("path", type=Path, help="the folder of a run, or a traces.jsonl")
    timeline.add_argument("--step", type=int, help="default: the last one")
    timeline.add_argument("--group", type=int, help="draw only this tree of the step")
    timeline.add_argument("--output", type=Path, metavar="FILE", help="default: timeline.html beside the traces")
    timeline.set_defaults(run=_timeline)


def _list(arguments: argparse.Namespace) -> int:
    write_table(_VIEWS)
    return 0


def _timeline(arguments: argparse.Namespace) -> int:
    from arpo_trainer.report.timeline_page import write_timeline

    page, shown = write_timeline(arguments.path, step=arguments.step, group=arguments.group, output=arguments.output)
    write_table(time_table(shown))
    if arguments.group is None:
        sys.stdout.write(f"nothing was being generated for {100 * idle_share(shown):.1f} % of the rollout\n")
    sys.stdout.write(f"{page}\n")
    return 0


def idle_share(trees: Sequence[RolloutTree]) -> float:
    """Return the share of a rollout during which nothing was being generated."""
    wall = wall_seconds(trees)
    return 1.0 - busy_seconds(generating(trees)) / wall if wall else 0.0


def time_table(trees: Sequence[RolloutTree]) -> list[tuple[str, ...]]:
    """Return where the time of each tree's trajectories went, and of all together, as rows of a table."""
    total = time_use(trees)
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
