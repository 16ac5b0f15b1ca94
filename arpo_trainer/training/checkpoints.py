"""Finds and checks the checkpoint that a run resumes from; `resume` says what a checkpoint contains.

A run that is killed while it writes leaves an incomplete checkpoint. TRL writes `trainer_state.json` last, so a folder
without this file, or with an incomplete one, is not used.

    find_checkpoint("last", Path("runs/mine"))      # runs/mine/checkpoint-40
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

logger = logging.getLogger(__name__)
NEWEST = (True, "last", "true")
_STATE = "trainer_state.json"  # transformers' TRAINER_STATE_NAME, without importing it


def find_checkpoint(given: str | Path | bool | None, folder: str | Path) -> Path | None:
    """Return the checkpoint to resume from.

    Args:
        given: folder of a checkpoint; True or "last" for the newest complete one; None, False or "" for none.
        folder: output folder of the run.

    Raises:
        FileNotFoundError: there is none, or the given one is not complete; names the complete ones.
    """
    if given in (None, False, ""):
        return None
    found = _checkpoints(Path(folder))
    complete = [path for path in found if broken(path) is None]
    if given in NEWEST:
        if not complete:
            raise FileNotFoundError(
                f"resume_from_checkpoint={given!r}: no complete checkpoint in {str(folder)!r}; to start from the "
                "beginning leave resume_from_checkpoint out; for checkpoints set save_strategy: steps and save_steps"
            )
        # what comes after it is incomplete, most likely because the run was killed while it wrote it
        for path in found[found.index(complete[-1]) + 1 :]:
            logger.warning("%s is not complete (%s): resuming from %s", path, broken(path), complete[-1])
        return complete[-1]
    path = Path(str(given))
    if reason := broken(path):
        # the path may be the folder of a run, given in place of one of the checkpoints in it
        others = ", ".join(map(str, complete or [p for p in _checkpoints(path) if broken(p) is None])) or "none"
        raise FileNotFoundError(
            f"resume_from_checkpoint={str(given)!r} is not a complete checkpoint: {reason}; complete ones: {others}"
        )
    return path


def newer(folder: str | Path, step: int) -> list[Path]:
    """Return the complete checkpoints in a folder that are after a step."""
    complete = [path for path in _checkpoints(Path(folder)) if broken(path) is None]
    return [path for path in complete if checkpoint_step(path) > step]


def unmark(checkpoint: Path) -> None:
    """Remove the file that marks a checkpoint as complete, because the checkpoint will be overwritten."""
    (checkpoint / _STATE).unlink(missing_ok=True)


def broken(checkpoint: Path) -> str | None:
    """Return why a run cannot resume from a folder, or None if it can."""
    if not checkpoint.is_dir():
        return "there is no such folder"
    if not (checkpoint / _STATE).is_file():
        return f"it has no {_STATE}, which is written last"
    try:
        checkpoint_step(checkpoint)
    except (ValueError, KeyError, TypeError) as error:
        return f"its {_STATE} cannot be read ({error})"
    return None


def checkpoint_step(checkpoint: str | Path) -> int:
    """Return the number of training steps at a checkpoint."""
    return int(json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))["global_step"])


def epochs_behind(checkpoint: str | Path) -> int:
    """Return the number of finished passes over the tasks at a checkpoint."""
    return int(json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))["epoch"])


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders in a folder, in the order of steps."""
    folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    named = ((re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in folders)
    # sorted by number: by name checkpoint-100 would come before checkpoint-20
    return [path for _, path in sorted((int(match[1]), path) for match, path in named if match)]
