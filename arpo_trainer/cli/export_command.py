"""The `arpo export` command: writes a checkpoint as a plain Hugging Face folder with a model card.

arpo export runs/arpo-qwen2.5-3b-reasoning --output exports/mine-3b --dtype bfloat16
arpo export runs/mine/checkpoint-40 --output exports/mine-40 --base Qwen/Qwen2.5-3B-Instruct
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.optional_dependencies import require

_DTYPES = ("float32", "bfloat16", "float16")


def add_export_command(commands: Any) -> None:
    """Add the command to a parser."""
    purpose = "write a checkpoint as a plain Hugging Face folder with a model card"
    export = add_command(commands, "export", _export, purpose)
    what = "a checkpoint, a saved model, adapters, or the output folder of a run (its final model, else the newest)"
    export.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=what)
    export.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the new folder")
    export.add_argument("--dtype", choices=_DTYPES, help="of the weights (default: that of the checkpoint)")
    base = "model that adapters are merged into, or whose structure shards have (default: what the run says)"
    export.add_argument("--base", metavar="MODEL", help=base)
    export.add_argument("--licence", metavar="NAME", help="for the card, as the hub names it: apache-2.0")
    export.add_argument("--name", metavar="NAME", help="of the model in the card (default: the folder's)")


def _export(arguments: argparse.Namespace) -> int:
    require("train")
    from arpo_trainer.export.export_model import export_model

    target = export_model(
        arguments.checkpoint,
        arguments.output,
        base=arguments.base,
        dtype=arguments.dtype,
        licence=arguments.licence,
        name=arguments.name,
    )
    sys.stdout.write(f"{target}\n")
    return 0
