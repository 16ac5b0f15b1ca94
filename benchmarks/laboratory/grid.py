"""A grid of training runs (algorithms x environments x seeds) over processes, which goes on after any kill.

    plan = GridPlan(algorithms, envs, seeds, budget={"tokens": 20000})
    run_grid(plan, "lab/first", training_run, processes=2)

Each finished run is stored at once. Started again, the grid makes the runs that are missing and those that failed. With
more algorithms, environments or seeds it makes these too.
"""

from __future__ import annotations

import logging
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from benchmarks.laboratory.grid_run import GridRun
from benchmarks.laboratory.run_process import RunProcess, TrainingRun
from benchmarks.laboratory.run_store import WORK, GridPlan, Record, RunStore, stored_plan

logger = logging.getLogger(__name__)
_SHOWN = 4  # running runs that a line of progress names


@dataclass
class GridOutcome:
    """What came of a grid.

    Attributes:
        made: records of the runs that were made now.
        failed: those of them that failed.
        stored: number of runs that were there before.
    """

    made: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)
    stored: int = 0


def run_grid(
    plan: GridPlan,
    folder: str | Path,
    run: TrainingRun,
    *,
    processes: int = 2,
    check: Callable[[GridRun], None] | None = None,
) -> GridOutcome:
    """Make the runs of a plan that are missing in a folder; return what was made.

    Args:
        plan: what belongs to the grid; it is joined with the folder's.
        folder: where records and the folders of running and failed runs go.
        run: trains one run in a process of its own; an importable function.
        processes: most runs at once.
        check: raises an error for a run that cannot work, before anything is written.

    Raises:
        BlockingIOError: another process writes to the folder.
        ValueError: a value is given twice, the folder is a file or has runs of other settings, a run cannot work, or
            `processes` is below 1. Nothing is changed then.
    """
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    specs = plan.specs()  # refuses what is given twice
    if stored := stored_plan(folder):
        stored.joined(plan.as_stored())  # for its errors: they say more than those of runs with other settings
    for spec in specs:
        _check_budget(spec)
        if check:
            check(spec)
    with RunStore(folder) as store:
        specs = store.extend(plan).specs()
        left = store.missing(specs)
        outcome = GridOutcome(stored=len(specs) - len(left))
        if left:
            logger.info("%d runs: %d are stored, %d to make", len(specs), outcome.stored, len(left))
            _make(left, store, run, processes, outcome)
    return outcome


def _make(left: Sequence[GridRun], store: RunStore, run: TrainingRun, processes: int, outcome: GridOutcome) -> None:
    waiting, running, idle = list(left), list[RunProcess](), list[RunProcess]()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                spec = waiting.pop(0)
                running.append(idle.pop() if idle else RunProcess(run))
                running[-1].start(spec, _fresh(store.folder / WORK / spec.folder))
            ready = wait([each.waits_for for each in running])
            for done in [each for each in running if each.waits_for in ready]:
                _keep(done, store, outcome)
                running.remove(done)
                if done.fit and len(idle) < len(waiting):
                    idle.append(done)
                else:
                    done.end()
                _report(outcome, len(left), [each.spec for each in running], waiting, store, processes)
    finally:  # also after Ctrl-C: what is finished is stored
        for each in running:
            each.stop()
        for each in idle:
            each.end()


def _keep(done: RunProcess, store: RunStore, outcome: GridOutcome) -> None:
    record = done.record()
    store.add(record)
    outcome.made.append(record)
    if record["status"] == "failed":
        outcome.failed.append(record)
        logger.warning("%s failed: %s; its folder is %s", done.spec.name, record["error"], done.folder)
    else:
        shutil.rmtree(done.folder, ignore_errors=True)


def _fresh(folder: Path) -> Path:
    """Return the folder of a run without what a killed or failed run of the same name left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _report(
    outcome: GridOutcome,
    total: int,
    running: Sequence[GridRun],
    waiting: Sequence[GridRun],
    store: RunStore,
    processes: int,
) -> None:
    record, done = outcome.made[-1], len(outcome.made)
    text = f"[{done}/{total}] {record['label']}, {record['env']}, seed {record['seed']}: {record['status']}"
    text += _success(record) + f" in {record['seconds']:.0f} s"
    if running:
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        text += f"; running: {', '.join('/'.join(map(str, spec.key)) for spec in running[:_SHOWN])}{more}"
        text += f"; about {duration(time_left(running, waiting, store, processes))} left"
    logger.info("%s", text)


def _success(record: Record) -> str:
    curve, final = record["curve"], record["final"].get("success")
    return f", success {curve[0]['success']:.2f} -> {final:.2f}" if curve and final is not None else ""


def time_left(running: Sequence[GridRun], waiting: Sequence[GridRun], store: RunStore, processes: int) -> float:
    """Return an estimate of the seconds that are left, from the stored runs of the same environments."""
    seconds: dict[str, list[float]] = {}
    for record in store.records.values():
        if record["status"] != "failed":
            seconds.setdefault(record["env"], []).append(float(record.get("wall_seconds") or record["seconds"]))
    every = [value for values in seconds.values() for value in values] or [0.0]
    expected = [statistics.fmean(seconds.get(spec.env, every)) for spec in [*running, *waiting]]
    halves = sum(expected[: len(running)]) / 2  # a running run is half done on average
    return (halves + sum(expected[len(running) :])) / max(1, min(processes, len(expected)))


def duration(seconds: float) -> str:
    """Return a time in words, such as "1 h 20 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "1 min"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _check_budget(spec: GridRun) -> None:
    """Refuse a budget that one group of the run would exceed, as far as that is certain before it is played."""
    group = spec.settings.get("num_generations")
    if type(group) is not int:
        return  # not given, or refused by `check`
    # each trajectory of a group samples at least one token of its own
    for axis in ("trajectories", "tokens"):
        if spec.budget.get(axis, group) < group:
            raise ValueError(
                f"--budget {axis}={spec.budget[axis]} is too small for one group of {spec.label!r}, which has "
                f"{group} trajectories (num_generations); give at least {axis}={group}"
            )
