"""Records a run in one folder while it goes on: run.json, metrics.jsonl, eval.jsonl and traces.jsonl."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from arpo_trainer.report.run_data import lines_of, step_of, write_facts
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.training.checkpoints import checkpoint_step
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.tree import RolloutTree, write_traces

PACKAGES = ("arpo-gym", "torch", "transformers", "trl", "gymnasium", "accelerate")
_PREFIX = "arpo/"
_CALLS = "tool_calls/"
_STATE = "arpo_recorder"
_RECORDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "metrics.jsonl": lambda row: int(row["step"]),
    "eval.jsonl": lambda row: sys.maxsize if row["name"] == "after" else int(row["step"]),  # repeated at the end
    "traces.jsonl": step_of,
}


class RunRecorder(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """A trainer callback that records a run; with several processes only the main one has it.

    Args:
        folder: the output folder; files of an earlier run in it are replaced.
        facts: the contents of run.json: name, env, model, algorithm, seed, settings, isolation.
        trace_every: the trees of every n-th rollout are written; 0 writes none.
        resume: the checkpoint that the run continues from, if any. If it is in this folder, the records up to it are
            kept, and later ones are removed because those steps are repeated.

    Attributes:
        spent: what training has used so far, including the steps before the checkpoint.
    """

    def __init__(
        self, folder: str | Path, facts: dict[str, Any], trace_every: int = 1, resume: str | Path | None = None
    ) -> None:
        self.folder, self.trace_every = Path(folder), trace_every
        self.folder.mkdir(parents=True, exist_ok=True)
        checkpoint = Path(resume).resolve() if resume else None
        # a checkpoint in another folder says nothing about the records in this one
        self._resume = checkpoint if checkpoint and checkpoint.parent == self.folder.resolve() else None
        if self._resume is None:
            self._cut(None)
        self._began = time.time()
        self._rollouts, self.spent = 0, UsageCounter()
        self._step_began = 0.0
        self._step_seconds = 0.0
        self._facts = {**facts, "started": _now(), "versions": versions(), "status": "running"}
        if resume:
            self._facts["resumed_from"] = str(resume)
        self.write_facts()

    def write_facts(self, **more: Any) -> None:
        """Add facts to run.json."""
        self._facts.update(more, seconds=round(time.time() - self._began, 1), spent=self.spent.as_dict())
        write_facts(self.folder / "run.json", self._facts)

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Append an evaluation to eval.jsonl."""
        self._append("eval.jsonl", evaluation.as_dict())

    def has_evaluation(self, name: str) -> bool:
        """Return whether eval.jsonl has an evaluation of this name."""
        # as of a running run: one that was killed may have left half a line
        lines = lines_of(self.folder / "eval.jsonl", running=True)
        return any(json.loads(line)["name"] == name for _, line in lines)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue from the checkpoint: take its counts, and remove what was recorded after it."""
        if self._resume:
            self._cut(checkpoint_step(self._resume))
        kept = state.stateful_callbacks.get(_STATE, {})
        self._rollouts = kept.get("rollouts", 0)
        if "spent" in kept:
            self.spent.restore(kept["spent"])

    def on_rollout(self, trees: list[RolloutTree]) -> None:
        """Count a training rollout; append its trees to traces.jsonl if `trace_every` selects it."""
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
        state.stateful_callbacks[_STATE] = kept  # saved in each checkpoint

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Append a training step's numbers to metrics.jsonl, also if it used an earlier step's rollout."""
        # evaluations, and the summary at the end of training, are logged as well
        if not logs or "loss" not in logs:
            return
        row: dict[str, Any] = {"step": state.global_step}
        for key, value in logs.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                row[key.removeprefix(_PREFIX)] = value
        row["seconds_step"] = self._step_seconds
        # a rollout that was played ahead took only the time that the trainer waited for it
        rollout = row.get("seconds_trainer_idle", row.get("seconds_rollout", 0.0))
        spent = rollout + row.get("seconds_score", 0.0)
        # a step that reuses a rollout logs none of its seconds, and all of the step is update
        row["seconds_update"] = max(0.0, self._step_seconds - spent)
        self._append("metrics.jsonl", row)

    def _cut(self, last: int | None) -> None:
        for name, step in _RECORDS.items():
            _keep(self.folder / name, step, last)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


class UsageCounter:
    """Counts what the training rollouts of a run use, for comparison with the estimate; evaluations are not counted."""

    def __init__(self) -> None:
        self.rollouts = self.groups = self.trajectories = 0
        self.calls: Counter[str] = Counter()
        self.sampled = 0

    def add(self, trees: Sequence[RolloutTree]) -> None:
        """Count the trees of one rollout, of all processes."""
        measured = rollout_metrics(trees)
        self.rollouts += 1
        self.groups += len(trees)
        self.trajectories += sum(len(tree.trajectories) for tree in trees)
        self.sampled += int(measured["tokens_generated"])
        for name, count in measured.items():
            if name.startswith(_CALLS):
                self.calls[name.removeprefix(_CALLS)] += int(count)

    def restore(self, counts: dict[str, Any]) -> None:
        """Continue from the counts that `as_dict` returned."""
        self.rollouts, self.groups = counts["rollouts"], counts["groups"]
        self.trajectories, self.sampled = counts["trajectories"], counts["sampled"]
        self.calls = Counter(counts["calls_of"])

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and this process's peak memory in bytes."""
        return {
            "rollouts": self.rollouts,
            "groups": self.groups,
            "trajectories": self.trajectories,
            "sampled": self.sampled,
            "calls": sum(self.calls.values()),
            "searches": self.calls["search"],
            "calls_of": dict(self.calls),
            **_peak_memory(),
        }

    def __str__(self) -> str:
        return (
            f"{self.rollouts} rollouts, {self.trajectories:,} trajectories, {self.sampled:,} tokens sampled, "
            f"{sum(self.calls.values()):,} tool calls"
        )


def _peak_memory() -> dict[str, int]:
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB elsewhere
    found = {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["memory_cuda"] = int(torch.cuda.max_memory_allocated())
    return found


def versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _keep(path: Path, step_of_row: Callable[[dict[str, Any]], int], last: int | None) -> None:
    """Remove a file's rows of steps after `last`, and an incomplete row of a killed run; None removes the file."""
    if last is None or not path.is_file():
        path.unlink(missing_ok=True)
        return
    scratch = path.with_suffix(".unfinished")
    with scratch.open("w", encoding="utf-8") as file:
        for _, line in lines_of(path, running=True):
            if step_of_row(json.loads(line)) <= last:
                file.write(line)
    # at the end, so that a crash leaves either the old file or the new one
    scratch.replace(path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
