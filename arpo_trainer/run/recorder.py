"""Writes a run down while it goes on: run.json, metrics.jsonl, eval.jsonl and traces.jsonl in one folder."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from arpo_env.net.http_errors import blotted
from arpo_trainer.report.run_data import lines_of, step_of
from arpo_trainer.run.actual_costs import Spent
from arpo_trainer.training.checkpoints import checkpoint_step
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.tree import RolloutTree, write_traces

PACKAGES = ("arpo-gym", "torch", "transformers", "trl", "gymnasium", "accelerate")
_PREFIX = "arpo/"
_STATE = "arpo_recorder"
_RECORDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "metrics.jsonl": lambda row: int(row["step"]),
    "eval.jsonl": lambda row: sys.maxsize if row["name"] == "after" else int(row["step"]),  # made again at the end
    "traces.jsonl": step_of,
}


class RunRecorder(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """A trainer callback that records a run.

    Args:
        folder: made if missing; files of an earlier run in it are replaced.
        facts: what to say of the run: name, env, model, algorithm, seed, settings, isolation.
        trace_every: write the trees of every n-th rollout; 0 writes none.
        resume: the checkpoint the run goes on from, if any. Where it lies in this folder, what was recorded up to it
            is kept, and what came after it is left out: it happens again.

    Under several processes only the main one may record: the others have the same to say.

    Attributes:
        spent: what training has used so far, up to a checkpoint that it goes on from, too.
    """

    def __init__(
        self, folder: str | Path, facts: dict[str, Any], trace_every: int = 1, resume: str | Path | None = None
    ) -> None:
        self.folder, self.trace_every = Path(folder), trace_every
        self.folder.mkdir(parents=True, exist_ok=True)
        checkpoint = Path(resume).resolve() if resume else None
        self._resume = checkpoint if checkpoint and checkpoint.parent == self.folder.resolve() else None
        if self._resume is None:
            self._cut(None)
        self._began = time.time()
        self._rollouts, self.spent = 0, Spent()
        self._step_began = 0.0
        self._step_seconds = 0.0
        self._facts = {**facts, "started": _now(), "versions": versions(), "status": "running"}
        if resume:
            self._facts["resumed_from"] = str(resume)
        self.write_facts()

    def write_facts(self, **more: Any) -> None:
        """Add to run.json."""
        self._facts.update(more, seconds=round(time.time() - self._began, 1), spent=self.spent.as_dict())
        text = blotted(json.dumps(self._facts, indent=2, ensure_ascii=False, default=str))
        (self.folder / "run.json").write_text(text + "\n", encoding="utf-8")

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Append to eval.jsonl."""
        self._append("eval.jsonl", evaluation.as_dict())

    def has_evaluation(self, name: str) -> bool:
        """Say whether eval.jsonl has an evaluation of this name."""
        lines = lines_of(self.folder / "eval.jsonl", running=True)
        return any(json.loads(line)["name"] == name for _, line in lines)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on where the checkpoint stopped: with its counts, and without what was recorded after it."""
        if self._resume:
            self._cut(checkpoint_step(self._resume))
        kept = state.stateful_callbacks.get(_STATE, {})
        self._rollouts = kept.get("rollouts", 0)
        if "spent" in kept:
            self.spent.restore(kept["spent"])

    def on_rollout(self, trees: list[RolloutTree]) -> None:
        """Append a training rollout's trees to traces.jsonl, if it is one of those to keep."""
        self.spent.add(trees)
        if self.trace_every and self._rollouts % self.trace_every == 0:
            write_traces(self.folder / "traces.jsonl", trees)
        self._rollouts += 1

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the step's clock."""
        self._step_began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the step's clock."""
        self._step_seconds = time.perf_counter() - self._step_began
        kept = {"rollouts": self._rollouts, "spent": self.spent.as_dict()}
        state.stateful_callbacks[_STATE] = kept  # saved with a checkpoint

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Append a training step's numbers to metrics.jsonl, also where it used an earlier step's rollout."""
        if not logs or "loss" not in logs:
            return
        row: dict[str, Any] = {"step": state.global_step}
        for key, value in logs.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                row[key.removeprefix(_PREFIX)] = value
        row["seconds_step"] = self._step_seconds
        spent = row.get("seconds_rollout", 0.0) + row.get("seconds_score", 0.0)
        row["seconds_update"] = max(0.0, self._step_seconds - spent)
        self._append("metrics.jsonl", row)

    def _cut(self, last: int | None) -> None:
        for name, step in _RECORDS.items():
            _keep(self.folder / name, step, last)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _keep(path: Path, step_of_row: Callable[[dict[str, Any]], int], last: int | None) -> None:
    """Leave out a file's rows of later steps than the last one, and half a row that a killed run wrote."""
    if last is None or not path.is_file():
        path.unlink(missing_ok=True)
        return
    scratch = path.with_suffix(".unfinished")
    with scratch.open("w", encoding="utf-8") as file:
        for _, line in lines_of(path, running=True):
            if step_of_row(json.loads(line)) <= last:
                file.write(line)
    scratch.replace(path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
