"""`EvalShard`: one of n parts of an evaluation, which a process of its own plays into a folder of its own.

    shard = read_shard("3/8")                     # the fourth of eight; indices begin at 0
    shard = read_shard("auto")                    # in a SLURM array: SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT
    shard = read_shard("auto/8")                  # also in an Indexed Job of Kubernetes: JOB_COMPLETION_INDEX of 8
    shard.folder("evals/gsm8k")                   # evals/gsm8k/shard-3-of-8

The units of an evaluation are numbered (`UnitNumbers`), and shard i of n has those whose number is i modulo n. What a
unit draws depends on its task and sample alone, so the shards together are the evaluation that one process plays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_SLURM, _KUBERNETES = "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"
_NAME = re.compile(r"shard-(\d+)-of-(\d+)")


@dataclass(frozen=True, order=True)
class EvalShard:
    """One part of an evaluation.

    Attributes:
        index: its index, from 0.
        count: the number of parts.

    Raises:
        ValueError: there is no such part.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"shard {self}: there must be at least 1 shard")
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"shard {self}: the indices of {self.count} shards are 0 to {self.count - 1} "
                f"(an array of SLURM for them is --array=0-{self.count - 1})"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def folder(self, output: str | Path) -> Path:
        """Return the folder of the shard in that of the evaluation."""
        return Path(output) / f"shard-{self.index}-of-{self.count}"

    def owns(self, number: int) -> bool:
        """Return whether the unit of a number belongs to the shard."""
        return number % self.count == self.index

    def as_dict(self) -> dict[str, int]:
        """Return the shard as plain data for run.json."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> EvalShard | None:
        """Return the shard that a run.json is of, or None if it is of a whole evaluation."""
        return cls(**facts["shard"]) if facts.get("shard") else None


@dataclass(frozen=True)
class UnitNumbers:
    """Numbers the units that one model plays: environment by environment, the first sample of all tasks first.

    Attributes:
        tasks: number of tasks of each environment, by its label, in their order.
        samples: samples of each task.
        first: number of the first task.
    """

    tasks: Mapping[str, int]
    samples: int
    first: int = 0

    def __len__(self) -> int:
        return self.samples * sum(self.tasks.values())

    def number(self, env: str, index: int, sample: int) -> int:
        """Return the number of a unit, from 0.

        Raises:
            ValueError: the evaluation has no such unit.
        """
        place = index - self.first
        if env not in self.tasks or not 0 <= place < self.tasks[env] or not 0 <= sample < self.samples:
            raise ValueError(f"no sample {sample} of task number {index} of {env} belongs to the evaluation")
        before = 0
        for label, count in self.tasks.items():
            if label == env:
                break
            before += count * self.samples
        return before + sample * self.tasks[env] + place

    def owned(self, shard: EvalShard) -> int:
        """Return how many units of a model belong to a shard."""
        return len(range(shard.index, len(self), shard.count))


def read_shard(text: str, environ: Mapping[str, str] = os.environ) -> EvalShard:
    """Return the shard that a command line names.

    Args:
        text: "i/n", "auto/n" (the index from SLURM or Kubernetes), or "auto" (in an array of SLURM, n as well).
        environ: environment variables.

    Raises:
        ValueError: it is none of these, the variable is missing, or the array cannot say the number of shards.
    """
    found = re.fullmatch(r"(auto|\d+)(?:/(\d+))?", text.strip())
    if found is None or (found[1] != "auto" and found[2] is None):
        raise ValueError(f"--shard {text!r}: write i/n with i from 0 to n-1, such as 0/8, or auto, or auto/8")
    if found[1] != "auto":
        return EvalShard(int(found[1]), int(found[2]))
    index = _index(text, environ)
    return EvalShard(index, int(found[2]) if found[2] else _array_size(environ))


def _index(text: str, environ: Mapping[str, str]) -> int:
    given = [name for name in (_SLURM, _KUBERNETES) if environ.get(name)]
    if len(given) != 1:
        which = "both are set" if given else "neither is set"
        raise ValueError(
            f"--shard {text}: the index is read from {_SLURM} (sbatch --array=0-7) or {_KUBERNETES} (an Indexed Job), "
            f"and {which}; write it out, such as --shard 0/8"
        )
    if not environ[given[0]].isdecimal():
        raise ValueError(f"--shard {text}: {given[0]} is {environ[given[0]]!r}, not an index")
    return int(environ[given[0]])


def _array_size(environ: Mapping[str, str]) -> int:
    """Return the number of shards of an array of SLURM; a part of an array does not say how many there are."""
    if environ.get(_KUBERNETES):
        raise ValueError(f"--shard auto: {_KUBERNETES} does not say how many shards there are; write --shard auto/8")
    parts = [environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("COUNT", "MIN", "MAX")]
    count, low, high = (int(part) if part.isdecimal() else -1 for part in parts)
    if low != 0 or high != count - 1:
        raise ValueError(
            f"--shard auto: this array has {parts[0] or '?'} tasks from {parts[1] or '?'} to {parts[2] or '?'}, which "
            "does not say the number of shards; write --shard auto/8 with an array of --array=0-7 or a part of it"
        )
    return count


def shard_folders(output: str | Path) -> dict[Path, EvalShard]:
    """Return the folders in an evaluation's folder whose names are those of shards, in the order of the indices."""
    named = {
        path: EvalShard(int(found[1]), int(found[2]))
        for path in Path(output).glob("shard-*-of-*")
        if (found := _NAME.fullmatch(path.name)) and int(found[1]) < int(found[2])
    }
    return dict(sorted(named.items(), key=lambda each: (each[1].count, each[1].index)))


def refuse_other_count(output: str | Path, shard: EvalShard) -> None:
    """Refuse to begin a shard beside shards of another number.

    Raises:
        ValueError: names one of them.
    """
    for path, other in shard_folders(output).items():
        if other.count != shard.count:
            raise ValueError(
                f"{str(path)!r} is one of {other.count} shards, and {shard} one of {shard.count}: go on with --shard "
                f"{shard.index}/{other.count}, or give another folder with --output"
            )
