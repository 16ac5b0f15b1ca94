"""RUN/scores/NAME.jsonl: the verdicts of a scorer on stored answers, each appended at once.

    file = VerdictFile(run.folder / "scores" / "judge.jsonl", {"scorer": "judge"})
    file.add(verdict)

The first line says what grades, so that a file holds the verdicts of one scorer only. Of several verdicts on one answer
the last counts, and a half-written last line is removed.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from arpo_trainer.evaluation.unit_row import UnitKey

FORMAT = 1
VerdictKey = tuple[UnitKey, int, int]  # unit, attempt, trajectory


@dataclass(frozen=True)
class Verdict:
    """One line of RUN/scores/NAME.jsonl.

    Attributes:
        model, env, task, sample: the unit's key.
        attempt: of the unit: an episode that was played again is graded again.
        trajectory: number of the trajectory.
        value: the score, or None if it could not be decided.
        parts: what it was made of.
        error: why there is no value, or None.
    """

    model: str
    env: str
    task: str
    sample: int
    attempt: int
    trajectory: int
    value: float | None
    parts: dict[str, float]
    error: str | None = None

    @property
    def key(self) -> VerdictKey:
        """What identifies the graded answer."""
        return UnitKey(self.model, self.env, self.task, self.sample), self.attempt, self.trajectory


class VerdictFile:
    """RUN/scores/NAME.jsonl, opened for appending.

    Args:
        path: the file; its folder is created.
        about: what grades, as plain data. It is the first line, and must be the same in a later run.

    Attributes:
        verdicts: the last verdict of each answer.

    Raises:
        ValueError: the file was written by another scorer, or a line cannot be read.
        BlockingIOError: another process is writing to it.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: IO[bytes] = path.open("a+b")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BlockingIOError(f"another process is writing to {path}; wait for it, or give --name") from error
            self._open({"format": FORMAT, **about})
        except BaseException:
            self._file.close()
            raise

    def _open(self, header: dict[str, Any]) -> None:
        self._file.seek(0)
        whole, _, half = self._file.read().rpartition(b"\n")
        if half:  # of a process that was killed while it wrote
            self._file.truncate(len(whole) + bool(whole))
        # not splitlines(): texts of models hold other signs that it takes for the end of a line
        lines = whole.decode("utf-8").split("\n") if whole else []
        if not lines:
            self._append(header)
        elif json.loads(lines[0]) != header:
            raise ValueError(
                f"{self.path} was written by another scorer, {lines[0]}: give another --name, or delete it"
            )
        self.verdicts = {verdict.key: verdict for verdict in self._read(lines[1:])}

    def _read(self, lines: list[str]) -> Iterator[Verdict]:
        for number, line in enumerate(lines, start=2):
            try:
                yield Verdict(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.path}, line {number}: not a verdict ({error}); delete the line") from error

    def add(self, verdict: Verdict) -> None:
        """Append a verdict."""
        self._append(asdict(verdict))
        self.verdicts[verdict.key] = verdict

    def _append(self, data: Mapping[str, Any]) -> None:
        # a model may write half of a surrogate pair, which UTF-8 cannot encode
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        self._file.write(text.encode("utf-8", errors="replace") + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()
