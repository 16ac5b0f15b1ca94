"""The `arpo view` command: shows what a run did.

arpo view                                      # the list of views
arpo view evals/gsm8k                          # an evaluation as a page: scores, tasks, conversations, trees
arpo view evals/before evals/after --text      # two of them in the terminal
arpo view timeline runs/arithmetic-cpu         # what each trajectory of the last step waited for, as a page
arpo view timeline runs/arithmetic-cpu --step 3 --group 0
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, write_table
from arpo_trainer.rollout.metrics import busy_seconds, generating, time_use, wall_seconds
from arpo_trainer.tree import RolloutTree

_VIEWS = (
    ("arpo view RUN [RUN ...]", "an evaluation, or several side by side: a page, a local server, or text"),
    ("arpo view timeline PATH", "what each trajectory of a step did and waited for: a page, and a table here"),
    ("arpo report FOLDER", "a whole run: a page with learning curves, trees, evaluations and settings"),
)
_TREES = "conversations in the page: all (default), broken, none, or a number, spread over the run"
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
    _add_run_view(views)


def _add_run_view(views: Any) -> None:
    purpose = "show an evaluation, or several side by side (arpo view RUN is the same)"
    run = add_command(views, "run", _run, purpose)
    run.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    run.add_argument("--output", type=Path, metavar="FILE", help="default: view.html in the first folder")
    run.add_argument("--trees", default="all", metavar="WHICH", help=_TREES)
    run.add_argument(
        "--tokenizer", type=Path, metavar="FOLDER", help="to colour texts by entropy; default: the models'"
    )
    how = run.add_mutually_exclusive_group()
    how.add_argument(
        "--serve", action="store_true", help="serve the page on this machine; it follows a run that goes on"
    )
    how.add_argument("--text", action="store_true", help="show it here, as text")
    run.add_argument(
        "--port", type=int, default=8300, metavar="N", help="of --serve (default: 8300; 0 takes a free one)"
    )
    run.add_argument("--tasks", choices=("all", "right", "wrong", "broken"), help="with --text: list these tasks")
    run.add_argument("--task", metavar="ID", help="with --text: show the conversations of a task")
    run.add_argument("--prompt", action="store_true", help="with --task: the prompt, too")


def _run(arguments: argparse.Namespace) -> int:
    wants_text = arguments.tasks or arguments.task or arguments.prompt
    if wants_text and not arguments.text:
        raise ValueError("--tasks, --task and --prompt belong to --text: give that, too")
    if arguments.text:
        _show_text(arguments)
        return 0
    if arguments.serve:
        return _serve(arguments)
    from arpo_trainer.views.run_page import write_view

    folders, output = arguments.folders, arguments.output
    page = write_view(folders, output=output, trees=arguments.trees, tokenizer=arguments.tokenizer)
    sys.stdout.write(f"{page}\n")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from arpo_trainer.views.live_server import ViewServer

    with ViewServer(arguments.folders, arguments.port, arguments.tokenizer) as server:
        sys.stdout.write(f"{server.address} (Ctrl+C ends it)\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


def _show_text(arguments: argparse.Namespace) -> None:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.views import terminal_view

    # a terminal that cannot write a character of some model shows "?" instead of an error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    runs = [load_eval_run(folder) for folder in arguments.folders]
    if arguments.task:
        for run in runs:
            for row in terminal_view.rows_of_task(run, arguments.task):
                for number in range(len(row.episodes)):
                    lines = terminal_view.conversation_lines(run, row, number, prompt=arguments.prompt)
                    sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    sys.stdout.writelines(f"{line}\n" for line in terminal_view.summary_lines(runs))
    tables = [terminal_view.score_rows(runs), terminal_view.comparison_rows(runs)]
    if arguments.tasks:
        tables += [terminal_view.task_rows(run, arguments.tasks) for run in runs]
    for table in tables:
        if table:
            sys.stdout.write("\n")
            write_table(table)


def _list(arguments: argparse.Namespace) -> int:
    write_table(_VIEWS)
    return 0


def _timeline(arguments: argparse.Namespace) -> int:
    from arpo_trainer.report.html_report import write_timeline

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


# The `arpo plot` command: figures of evaluations and training runs, for papers.
#
# arpo plot evals/gsm8k --output scores.svg                    # scores with 95 % intervals arpo plot evals/before
# evals/after --kind pass --output pass.pdf arpo plot runs/arithmetic-cpu --output learning.png          # a training
# run: its learning curve

KINDS = ("scores", "pass", "calls", "learning")


def add_plot_command(commands: Any) -> None:
    """Add the command to a parser."""
    plot = add_command(commands, "plot", _plot, "draw a figure of evaluations or training runs as SVG, PDF or PNG")
    plot.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="folders of `arpo eval` or `arpo train`")
    plot.add_argument("--output", type=Path, required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
    kind = "scores with intervals, pass@k, accuracy by tool calls, or the learning curve (default: as the runs allow)"
    plot.add_argument("--kind", choices=KINDS, help=kind)
    plot.add_argument("--width", type=float, default=6.0, metavar="INCHES", help="of the figure (default: 6)")


def _plot(arguments: argparse.Namespace) -> int:
    from arpo_trainer.views.figures import write_figure

    path = write_figure(arguments.folders, arguments.output, kind=arguments.kind, width=arguments.width)
    sys.stdout.write(f"{path}\n")
    return 0
