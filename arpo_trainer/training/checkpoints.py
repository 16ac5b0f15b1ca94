"""Which checkpoint a run goes on from, found in its folder and checked; `resuming` says what is in one.

A run that is killed while it writes leaves half a checkpoint behind. TRL writes `trainer_state.json` last, so a folder
without it, or with half of it, is not taken.

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
    """Return the checkpoint to go on from.

    Args:
        given: a checkpoint's folder; True or "last" for the newest complete one; None, False or "" for none.
        folder: the run's output folder.

    Raises:
        FileNotFoundError: there is none, or the one that was asked for is not complete; names those that are.
    """
    if given in (None, False, ""):
        return None
    found = _checkpoints(Path(folder))
    complete = [path for path in found if broken(path) is None]
    if given in NEWEST:
        if not complete:
            raise FileNotFoundError(
                f"resume_from_checkpoint={given!r}: no complete checkpoint in {str(folder)!r}; to begin anew leave "
                "resume_from_checkpoint out, and to have checkpoints set save_strategy: steps and save_steps"
            )
        for path in found[found.index(complete[-1]) + 1 :]:
            logger.warning("%s is not complete (%s): going on from %s", path, broken(path), complete[-1])
        return complete[-1]
    path = Path(str(given))
    if reason := broken(path):
        others = ", ".join(map(str, complete or [p for p in _checkpoints(path) if broken(p) is None])) or "none"
        raise FileNotFoundError(
            f"resume_from_checkpoint={str(given)!r} is no complete checkpoint: {reason}; complete ones: {others}"
        )
    return path


def newer(folder: str | Path, step: int) -> list[Path]:
    """Return the complete checkpoints in a folder that have more steps than that behind them."""
    complete = [path for path in _checkpoints(Path(folder)) if broken(path) is None]
    return [path for path in complete if checkpoint_step(path) > step]


def unmark(checkpoint: Path) -> None:
    """Take away what says that a checkpoint is complete, because it is going to be written over."""
    (checkpoint / _STATE).unlink(missing_ok=True)


def broken(checkpoint: Path) -> str | None:
    """Return why nothing can go on from a folder; None if it can."""
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
    """Return how many training steps a checkpoint has behind it."""
    return int(json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))["global_step"])


def epochs_behind(checkpoint: str | Path) -> int:
    """Return how many passes over the tasks a checkpoint has finished."""
    return int(json.loads((Path(checkpoint) / _STATE).read_text(encoding="utf-8"))["epoch"])


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders in one, by their steps."""
    numbered = [(int(match[1]), path) for path in (folder.iterdir() if folder.is_dir() else ())
                if path.is_dir() and (match := re.fullmatch(r"checkpoint-(\d+)", path.name))]  # fmt: skip
    return [path for _, path in sorted(numbered)]
