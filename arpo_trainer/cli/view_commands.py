"""The commands `arpo view`, `report` and `plot`: what a run did, as pages, text and figures.

arpo view                                      # the list of views
arpo view evals/gsm8k                          # an evaluation as a page: scores, tasks, conversations, trees
arpo view evals/before evals/after --text      # two of them in the terminal
arpo view timeline runs/arithmetic-cpu         # what each trajectory of the last step waited for, as a page
arpo plot evals/gsm8k --output scores.svg      # scores with 95 % intervals
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from arpo_trainer.cli.command_options import Flag, chosen, new_app, write_lines, write_table

if TYPE_CHECKING:
    from arpo_trainer.tree import RolloutTree

_VIEWS = (
    ("arpo view RUN [RUN ...]", "an evaluation, or several side by side: a page, a local server, or text"),
    ("arpo view timeline PATH", "what each trajectory of a step did and waited for: a page, and a table here"),
    ("arpo report FOLDER", "a whole run: a page with learning curves, trees, evaluations and settings"),
)
_COLUMNS = 5  # of activities, besides their sum
view = new_app("view", "show what a run did; without RUN, list the views")


@view.default
def show(
    *folders: Path,
    output: Path | None = None,
    trees: str = "all",
    tokenizer: Path | None = None,
    serve: Flag = False,
    port: int = 8300,
    text: Flag = False,
    tasks: Literal["all", "right", "wrong", "broken"] | None = None,
    task: str | None = None,
    prompt: Flag = False,
) -> None:
    """Show an evaluation, or several side by side; without RUN, list the views.

    Args:
        folders: the --output folders of `arpo eval`
        output: default: view.html in the first folder
        trees: conversations in the page: all, broken, none, or a number, spread over the run
        tokenizer: to colour texts by entropy; default: the models'
        serve: serve the page on this machine; it follows a run that goes on
        port: of --serve; 0 takes a free one
        text: show it here, as text
        tasks: with --text: list these tasks
        task: with --text: show the conversations of a task
        prompt: with --task: the prompt, too
    """
    chosen({"--serve": serve, "--text": text})
    if (tasks or task or prompt) and not text:
        raise ValueError("--tasks, --task and --prompt belong to --text: give that, too")
    if not folders:
        write_table(_VIEWS)
    elif text:
        _show_text(folders, tasks, task, prompt)
    elif serve:
        _serve(folders, port, tokenizer)
    else:
        from arpo_trainer.views.run_page import write_view

        sys.stdout.write(f"{write_view(list(folders), output=output, trees=trees, tokenizer=tokenizer)}\n")


def _serve(folders: Sequence[Path], port: int, tokenizer: Path | None) -> None:
    from arpo_trainer.views.live_server import ViewServer

    with ViewServer(list(folders), port, tokenizer) as server:
        sys.stdout.write(f"{server.address} (Ctrl+C ends it)\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def _show_text(folders: Sequence[Path], tasks: str | None, task: str | None, prompt: bool) -> None:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.views import terminal_view

    # a terminal that cannot write a character of some model shows "?" instead of an error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    runs = [load_eval_run(folder) for folder in folders]
    if task:
        for run in runs:
            for row in terminal_view.rows_of_task(run, task):
                for number in range(len(row.episodes)):
                    write_lines(terminal_view.conversation_lines(run, row, number, prompt=prompt))
        return
    write_lines(terminal_view.summary_lines(runs))
    tables = [terminal_view.score_rows(runs), terminal_view.comparison_rows(runs)]
    if tasks:
        tables += [terminal_view.task_rows(run, tasks) for run in runs]
    for table in filter(None, tables):
        sys.stdout.write("\n")
        write_table(table)


@view.command
def timeline(path: Path, /, *, step: int | None = None, output: Path | None = None) -> None:
    """Write a page that shows what each trajectory of a step did and waited for.

    Args:
        path: the folder of a run, or a traces.jsonl file
        step: the training step (default: the last)
        output: default: timeline.html beside the traces
    """
    from arpo_trainer.report.html_report import write_timeline
    from arpo_trainer.rollout.metrics import busy_seconds, generating, wall_seconds

    page, shown = write_timeline(path, step=step, output=output)
    write_table(time_table(shown))
    wall = wall_seconds(shown)
    idle = 1.0 - busy_seconds(generating(shown)) / wall if wall else 0.0
    sys.stdout.write(f"nothing was generated for {100 * idle:.1f} % of the rollout\n{page}\n")


def time_table(trees: Sequence[RolloutTree]) -> list[tuple[str, ...]]:
    """Return how the trajectories of each tree, and of all trees, spent their time, as rows of a table."""
    from arpo_trainer.rollout.metrics import time_use, wall_seconds

    # the largest shares of all trees together, so that all rows have the same columns
    names = list(time_use(trees).shares())[:_COLUMNS]
    rows = [("TREE", "TRAJECTORIES", "SECONDS", *(name.upper() for name in names), "ALL WAITING")]
    groups = [(str(tree.meta.get("group", number)), [tree]) for number, tree in enumerate(trees)]
    for name, some in [*groups, ("all", trees)] if len(groups) > 1 else groups:
        use = time_use(some)
        shares = use.shares()
        cells = [f"{100 * shares.get(activity, 0.0):.1f} %" for activity in names]
        waiting = f"{100 * use.waited / use.life:.1f} %" if use.life else "-"
        rows.append((name, str(use.trajectories), f"{wall_seconds(some):.2f}", *cells, waiting))
    return rows


def report(folder: Annotated[Path, Parameter(help="the output folder of the run")], /) -> None:
    """Write report.html for a run, also while it goes on."""
    from arpo_trainer.report.html_report import write_report
    from arpo_trainer.report.run_data import require_run

    require_run(folder)
    sys.stdout.write(f"{write_report(folder)}\n")


def plot(
    *folders: Path,
    output: Path,
    kind: Literal["scores", "pass", "calls", "learning"] | None = None,
) -> None:
    """Draw a figure of evaluations or training runs as SVG, PDF or PNG.

    Args:
        folders: folders of `arpo eval` or `arpo train`
        output: FILE.svg, FILE.pdf or FILE.png
        kind: scores with intervals, pass@k, accuracy by tool calls, or the learning curve (default: as the runs allow)
    """
    from arpo_trainer.views.figures import write_figure

    if not folders:
        raise ValueError("name the folders of the runs: arpo plot RUN ... --output FILE")
    sys.stdout.write(f"{write_figure(list(folders), output, kind=kind)}\n")
