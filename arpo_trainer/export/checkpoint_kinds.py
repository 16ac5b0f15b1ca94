"""What a checkpoint holds and where: `find_checkpoint_files` looks at files only and loads nothing.

found = find_checkpoint_files("runs/mine")           # its model, or else its newest checkpoint
found.kind, found.folder                              # "adapter", Path("runs/mine/checkpoint-40")
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from arpo_trainer.training.checkpoints import broken, find_checkpoint

CheckpointKind = Literal["plain", "adapter", "fsdp", "fsdp-full", "zero"]
FSDP_SHARDS = "pytorch_model_fsdp_0"
FSDP_FULL = "pytorch_model_fsdp.bin"
_STATE = "trainer_state.json"
_RECORDS = ("run.json", "sft.json", "dpo.json")  # of `arpo train`, `arpo sft` and `arpo dpo`
_WEIGHTS = tuple(
    f"{name}{suffix}"
    for name in ("model.safetensors", "pytorch_model.bin")
    for suffix in ("", ".index.json")
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint that can be exported.

    Attributes:
        folder: its folder.
        kind: "plain" (transformers' files), "adapter" (PEFT's), "fsdp" (one file per process, written by
            torch.distributed.checkpoint), "fsdp-full" (one file of all weights), or "zero" (DeepSpeed's).
        run: the output folder of the run that wrote it, or None if none of their records is beside it.
        step: training steps taken, or None if the folder does not say.
    """

    folder: Path
    kind: CheckpointKind
    run: Path | None
    step: int | None

    def facts(self) -> dict[str, Any]:
        """Return the record of its run, or nothing if there is none or it cannot be read."""
        if self.run is None:
            return {}
        try:
            facts = json.loads(next(self.run / name for name in _RECORDS if (self.run / name).is_file()).read_bytes())
        except ValueError:  # a run that was killed while it wrote
            return {}
        if not isinstance(facts, dict):
            return {}
        settings = facts.get("settings") or {}
        # a supervised run has them in its settings only
        return {"model": settings.get("model"), "seed": settings.get("seed")} | facts


def find_checkpoint_files(path: str | Path) -> CheckpointFiles:
    """Return what a folder holds.

    Args:
        path: a checkpoint, a saved model, or the output folder of a run, which stands for its final model or else for
            its newest complete checkpoint.

    Raises:
        FileNotFoundError: there is no such folder, or no weights in it.
        ValueError: the checkpoint is not complete.
    """
    given = Path(path).expanduser()
    if not given.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path)!r}: give a checkpoint or the output folder of a run")
    folder = given
    if kind_of(given) is None:
        final = given / "model"
        folder = final if kind_of(final) else _newest(given)
    kind = kind_of(folder)
    if kind is None:
        raise FileNotFoundError(
            f"{str(folder)!r} holds no weights: a checkpoint has {_WEIGHTS[0]}, adapter_config.json, {FSDP_SHARDS}/ or "
            "the files of DeepSpeed (`latest`)"
        )
    if folder.name.startswith("checkpoint-") and (reason := broken(folder)):
        raise ValueError(f"{str(folder)!r} is not a complete checkpoint: {reason}; give an earlier one")
    return CheckpointFiles(folder, kind, _run_of(folder), _step_of(folder))


def kind_of(folder: Path) -> CheckpointKind | None:
    """Return the kind of a checkpoint, or None if there are no weights."""
    if (folder / "adapter_config.json").is_file():
        return "adapter"
    if any((folder / name).is_file() for name in _WEIGHTS):
        return "plain"  # also under ZeRO, where the 16-bit weights were gathered
    if (folder / FSDP_SHARDS / ".metadata").is_file():
        return "fsdp"
    if (folder / FSDP_FULL).is_file():
        return "fsdp-full"
    return "zero" if (folder / "latest").is_file() and any(folder.glob("global_step*")) else None


def _newest(folder: Path) -> Path:
    try:
        return find_checkpoint("last", folder) or folder
    except FileNotFoundError:
        return folder


def _run_of(folder: Path) -> Path | None:
    places = (folder, folder.resolve().parent)
    return next((one for one in places if any((one / name).is_file() for name in _RECORDS)), None)


def _step_of(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / _STATE).read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
