"""Writes a checkpoint of the trainer as a plain Hugging Face folder: `export_model`.

    export_model("runs/mine", "exports/mine-3b", dtype="bfloat16", licence="apache-2.0")

The folder has weights in safetensors, configuration, generation configuration, tokenizer with its chat template, and a
model card. transformers, vLLM and `arpo eval --model` load it like any other.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from arpo_trainer.demo_model import resolve_model
from arpo_trainer.export.checkpoint_kinds import CheckpointFiles, find_checkpoint_files
from arpo_trainer.export.load_weights import DTYPES, base_of, load_model
from arpo_trainer.export.model_card import make_card
from arpo_trainer.validation import check_name

logger = logging.getLogger(__name__)


def export_model(
    checkpoint: str | Path,
    output: str | Path,
    *,
    base: str | None = None,
    dtype: str | None = None,
    licence: str | None = None,
    name: str | None = None,
) -> Path:
    """Write the folder, and return it.

    It is written as OUTPUT.unfinished and renamed at the end, so that OUTPUT is complete or not there at all.

    Args:
        checkpoint: a checkpoint, a saved model, adapters, or the output folder of a run.
        output: the new folder.
        base: what adapters are merged into, or whose structure sharded weights have; by default what the run says.
        dtype: of the written weights, one of `DTYPES`; by default that of the checkpoint, or of the base of adapters.
        licence: for the model card, as the hub names it.
        name: of the model in the card; by default the name of the folder.

    Raises:
        FileExistsError: there is something at `output` already.
        FileNotFoundError: there are no weights at `checkpoint`.
        ValueError: the checkpoint is incomplete, its weights do not fit, or the type is unknown.
        ModuleNotFoundError: the library that reads the checkpoint is not installed.
    """
    target = Path(output).expanduser()
    if dtype is not None:
        check_name("dtype", dtype, DTYPES)
    if target.exists():
        raise FileExistsError(f"{str(output)!r} exists already: choose another folder, or remove it first")
    found = find_checkpoint_files(checkpoint)
    model, tokenizer = load_model(found, base, dtype)
    _take_generation_config(model, found, base)
    scratch = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    kind = str(model.dtype).removeprefix("torch.")
    make_card(found, name or target.name, licence=licence, base=base, dtype=kind).save(scratch / "README.md")
    scratch.rename(target)
    logger.info("%s (%s, %s) is %s", found.folder, found.kind, kind, target)
    return target


def _take_generation_config(model: Any, found: CheckpointFiles, base: str | None) -> None:
    """Give the model the generation settings of its checkpoint, or of its base."""
    from transformers import GenerationConfig

    for folder in (found.folder, None):
        try:
            model.generation_config = GenerationConfig.from_pretrained(folder or resolve_model(base_of(found, base)))
        except (OSError, ValueError, RuntimeError):  # it has none, or no base is known or at hand
            continue
        return
