"""Records a run in one folder while it goes on: run.json, metrics.jsonl, eval.jsonl and traces.jsonl; then a report.

trainer.train()     # in args.output_dir; `arpo train` records its evaluations before and after it as well
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import logging
import math
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from arpo_trainer.folder_lock import only_writer, refuse_earlier
from arpo_trainer.report.html_report import write_report
from arpo_trainer.report.run_data import lines_of, read_facts, recorded, step_of, write_facts
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.resume import checkpoint_step, newer
from arpo_trainer.tree import RolloutTree, write_traces

logger = logging.getLogger(__name__)
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
    """A callback that records a run in a folder. `ARPOTrainer` has one; `remove_callback(RunRecorder)` turns it off.

    Args:
        folder: the output folder.
        trace_every: the trees of every n-th rollout are written; 0 writes none.

    Attributes:
        spent: what training has used so far, including the steps before the checkpoint.
    """

    def __init__(self, folder: str | Path, trace_every: int = 1) -> None:
        self.folder, self.trace_every = Path(folder), trace_every
        self._rollouts, self.spent = 0, UsageCounter()
        self._facts: dict[str, Any] = {}
        self._resume: Path | None = None
        self._early: list[Evaluation] = []  # before the run has begun, it is not known whether there will be one
        self._began = self._step_began = self._step_seconds = 0.0

    @contextlib.contextmanager
    def recording(self, facts: dict[str, Any], resume: str | Path | None = None) -> Iterator[None]:
        """Record until the block ends, however it ends, and write the report of what was recorded; see `begin`.

        A block within only adds facts.

        Raises:
            BlockingIOError: another process trains in the folder.
            FileExistsError: see `check_output`.
        """
        if self._facts.get("status") == "running":
            self._facts |= {**facts, **self._facts}  # the dictionary that `recorded` keeps
            self.write_facts()
            yield
            return
        with only_writer(self.folder):
            self.begin(facts, resume)
            try:
                with recorded(self.folder / "run.json", self._facts):
                    yield
            finally:
                self.write_facts()
                # a run that ended before it played anything, as for a model that does not exist, has its error to show
                if any((self.folder / name).is_file() for name in _RECORDS):
                    logger.info("training used %s", self.spent)
                    self._write_report()

    def begin(self, facts: dict[str, Any], resume: str | Path | None = None) -> None:
        """Begin the records of a run.

        Args:
            facts: the contents of run.json: name, env, model, algorithm, seed, settings, isolation.
            resume: the checkpoint that the run continues from, if any. If it is in this folder, the records up to it
                are kept, and later ones are removed because those steps are repeated.

        Raises:
            FileExistsError: see `check_output`.
        """
        check_output(self.folder, resume)
        self.folder.mkdir(parents=True, exist_ok=True)
        # a checkpoint in another folder says nothing about the records in this one
        self._resume = Path(resume) if resume and _is_in(resume, self.folder) else None
        self._began = time.time()
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._facts = {**facts, "started": started, "versions": versions(), "status": "running"}
        if resume:
            self._facts["resumed_from"] = str(resume)
        self.write_facts()
        early, self._early = self._early, []
        for evaluation in early:
            self.on_evaluation(evaluation)

    def write_facts(self, **more: Any) -> None:
        """Add facts to run.json."""
        self._facts.update(more, seconds=round(time.time() - self._began, 1), spent=self.spent.as_dict())
        write_facts(self.folder / "run.json", self._facts)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Append an evaluation to eval.jsonl; one before training is written when training begins."""
        if not self._facts:
            self._early.append(evaluation)
            return
        self._append("eval.jsonl", evaluation.as_dict())
        if self._facts["status"] != "running":
            self._write_report()

    def has_evaluation(self, name: str) -> bool:
        """Return whether eval.jsonl has an evaluation of this name."""
        # as of a running run: one that was killed may have left half a line
        lines = lines_of(self.folder / "eval.jsonl", running=True)
        return any(json.loads(line)["name"] == name for _, line in lines)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue from the checkpoint: take its counts, and remove what was recorded after it."""
        if self._resume:
            last = checkpoint_step(self._resume)
            for name, step in _RECORDS.items():
                _keep(self.folder / name, step, last)
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
            # the environment's, and where reward functions are given, the run learns from theirs
            if key == "arpo/reward" and "reward" in logs:
                continue
            if isinstance(value, (int, float)) and math.isfinite(value):
                row[key.removeprefix(_PREFIX)] = value
        row["seconds_step"] = self._step_seconds
        # a rollout that was played ahead took only the time that the trainer waited for it
        rollout = row.get("seconds_trainer_idle", row.get("seconds_rollout", 0.0))
        spent = rollout + row.get("seconds_score", 0.0)
        # a step that reuses a rollout logs none of its seconds, and all of the step is update
        row["seconds_update"] = max(0.0, self._step_seconds - spent)
        self._append("metrics.jsonl", row)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        # "replace": as in `write_traces`
        with (self.folder / name).open("a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _write_report(self) -> None:
        try:
            logger.info("report: %s", write_report(self.folder))
        except (OSError, ValueError) as error:  # what follows, such as saving the model, matters more
            logger.warning("no report: %s", error)


def check_output(folder: str | Path, resume: str | Path | None = None) -> None:
    """Refuse a folder whose records a new run would mix with its own; a checkpoint in it continues the run there.

    Raises:
        FileExistsError: the folder holds a run, an evaluation or rollouts; says how to go on.
    """
    folder = Path(folder)
    if resume and _is_in(resume, folder):
        return
    there = [name for name in _RECORDS if (folder / name).is_file() and (folder / name).stat().st_size]
    checkpoints = [path.name for path in newer(folder, 0)]
    if (folder / "run.json").is_file() and read_facts(folder / "run.json").get("kind"):
        there.append("run.json")
    go_on = "add --resume (in Python resume_from_checkpoint='last')" if checkpoints else ""
    refuse_earlier(folder, there + checkpoints[-1:], go_on)


def _is_in(checkpoint: str | Path, folder: Path) -> bool:
    return Path(checkpoint).resolve().parent == folder.resolve()


class UsageCounter:
    """Counts what the training rollouts of a run use, for comparison with the estimate; evaluations are not counted."""

    def __init__(self) -> None:
        self.counts = Counter(rollouts=0, groups=0, trajectories=0, sampled=0)
        self.calls: Counter[str] = Counter()

    def add(self, trees: Sequence[RolloutTree]) -> None:
        """Count the trees of one rollout, of all processes."""
        measured = rollout_metrics(trees)
        played, sampled = sum(len(tree.trajectories) for tree in trees), int(measured["tokens_generated"])
        self.counts.update(rollouts=1, groups=len(trees), trajectories=played, sampled=sampled)
        calls = {name.removeprefix(_CALLS): count for name, count in measured.items() if name.startswith(_CALLS)}
        self.calls.update({name: int(count) for name, count in calls.items()})

    def restore(self, kept: dict[str, Any]) -> None:
        """Continue from the counts that `as_dict` returned."""
        self.counts, self.calls = Counter({name: kept[name] for name in self.counts}), Counter(kept["calls_of"])

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and this process's peak memory in bytes."""
        calls = {"calls": self.calls.total(), "searches": self.calls["search"], "calls_of": dict(self.calls)}
        return {**self.counts, **calls, **_peak_memory()}

    def __str__(self) -> str:
        return (
            "{rollouts} rollouts, {trajectories:,} trajectories, {sampled:,} tokens sampled, ".format_map(self.counts)
            + f"{self.calls.total():,} tool calls"
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


def _keep(path: Path, step_of_row: Callable[[dict[str, Any]], int], last: int) -> None:
    """Remove a file's rows of steps after `last`, and an incomplete row of a killed run."""
    if not path.is_file():
        return
    scratch = path.with_suffix(".unfinished")
    with scratch.open("w", encoding="utf-8") as file:
        for _, line in lines_of(path, running=True):
            if step_of_row(json.loads(line)) <= last:
                file.write(line)
    # at the end, so that a crash leaves either the old file or the new one
    scratch.replace(path)
