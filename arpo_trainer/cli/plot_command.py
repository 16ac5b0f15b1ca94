"""The `arpo plot` command: figures of evaluations and training runs, for papers.

arpo plot evals/gsm8k --output scores.svg                    # scores with 95 % intervals
arpo plot evals/before evals/after --kind pass --output pass.pdf
arpo plot runs/arithmetic-cpu --output learning.png          # a training run: its learning curve
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command

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
