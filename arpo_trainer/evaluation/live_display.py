"""Shows how an evaluation goes on: a table that is redrawn on a terminal, plain lines elsewhere.

Both show what is done, running and broken, the score so far with its 95 % interval, the speed, the cost and the time
that is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from arpo_trainer.evaluation.episode_store import UnitRow
from arpo_trainer.evaluation.eval_metrics import EvalUsage, RunningScore

SECONDS_BETWEEN_LINES = 30.0
_REDRAWS = 4  # per second


class LiveDisplay:
    """Shows the progress of an evaluation; use it as a context.

    Args:
        facts: run.json.
        totals: number of units for each pair of model and environment.
        stored: rows of earlier sittings, which count as done.
        running: returns how many episodes are being played.
        stream: where to write; a terminal gets the table.
        plain: write plain lines also on a terminal.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        totals: Mapping[tuple[str, str], int],
        stored: Sequence[UnitRow],
        running: Callable[[], int],
        stream: IO[str] | None = None,
        plain: bool = False,
    ) -> None:
        self.facts, self.totals, self.running = facts, dict(totals), running
        self.stream = stream or sys.stderr
        self.scores = {
            pair: RunningScore(facts["environments"][pair[1]].get("metric", "accuracy")) for pair in self.totals
        }
        self.done, self.broken = dict.fromkeys(self.totals, 0), dict.fromkeys(self.totals, 0)
        self.usage, self.now = EvalUsage(facts), EvalUsage(facts)
        for row in stored:
            self._count(row)
        self._began, self._played, self._line = time.monotonic(), 0, 0.0
        self._live = None if plain or not self.stream.isatty() else self._table()

    def add(self, row: UnitRow) -> None:
        """Count a unit that has just been stored."""
        self._count(row)
        self.now.add(row)
        self._played += 1
        if self._live is None and time.monotonic() - self._line >= SECONDS_BETWEEN_LINES:
            self._write_line()

    def repeat(self, row: UnitRow) -> None:
        """Take back a stored row, since its unit is played again."""
        pair = (row.model, row.env)
        self.done[pair] -= 1
        self.broken[pair] -= row.broken

    def __enter__(self) -> LiveDisplay:
        self._began = self._line = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._write_line()

    def summary(self) -> str:
        """Return one line: done, running, broken, score, speed, cost and the time left."""
        done, total = sum(self.done.values()), sum(self.totals.values())
        parts = [f"{done}/{total} done", f"{self.running()} running", f"{sum(self.broken.values())} broken"]
        if len(self.totals) == 1:
            parts += [text for text in (self._score(next(iter(self.totals))),) if text]
        return ", ".join([*parts, *self._speed(), f"{cost(self.usage.usd)}", f"{self._left(total - done)} left"])

    def _count(self, row: UnitRow) -> None:
        pair = (row.model, row.env)
        if pair not in self.totals:
            return
        self.done[pair] += 1
        self.broken[pair] += row.broken
        self.scores[pair].add(row)
        self.usage.add(row)

    def _score(self, pair: tuple[str, str]) -> str:
        interval = self.scores[pair].interval
        if interval is None:
            return ""
        mean, low, high = (100 * value for value in (interval.mean, interval.low, interval.high))
        return f"{self.scores[pair].metric} {mean:.1f} [{low:.1f}, {high:.1f}]"

    def _speed(self) -> list[str]:
        seconds = max(time.monotonic() - self._began, 1e-9)
        calls = sum(self.now.calls.values())
        return [f"{self.now.generated / seconds:,.0f} tokens/s", f"{calls / seconds:,.1f} calls/s"]

    def _left(self, missing: int) -> str:
        if not missing:
            return "nothing"
        if not self._played:
            return "not known"
        return duration(missing * (time.monotonic() - self._began) / self._played)

    def _write_line(self) -> None:
        self._line = time.monotonic()
        self.stream.write(f"{duration(self._line - self._began)}: {self.summary()}\n")
        self.stream.flush()

    def _table(self) -> Any:
        from rich.console import Console
        from rich.live import Live

        return Live(
            console=Console(file=self.stream, highlight=False, markup=False),
            get_renderable=self._drawn,
            refresh_per_second=_REDRAWS,
            transient=True,
        )

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for column in ("MODEL", "ENVIRONMENT", "DONE", "BROKEN", "SCORE SO FAR"):
            table.add_column(column, justify="right" if column in ("DONE", "BROKEN") else "left")
        for pair, total in self.totals.items():
            cells = (*pair, f"{self.done[pair]}/{total}", str(self.broken[pair]), self._score(pair))
            table.add_row(*cells, style="dim" if self.done[pair] == total else None)
        return Group(table, self.summary())


def duration(seconds: float) -> str:
    """Return a time in words, such as "3 min 20 s"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def cost(usd: float | None) -> str:
    """Return an amount of US dollars in words."""
    return "cost not known" if usd is None else f"{usd:,.2f} USD"
