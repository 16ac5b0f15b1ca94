"""Rollouts ahead of the update (`max_staleness: 1`) beside waiting for new weights (0): learning, and seconds a step.

    python -m benchmarks.overlap [learning] [timing] [--seeds 5] [--steps 40] [--seconds 3]

learning: tiny policies in the world `short`, the same seeds with and without overlap. Differences are paired by seed,
with 95 % t-intervals: the success of all rollouts by the step that uses them ("by_steps", in which overlap is one step
behind by itself) and by the updates that their weights have had ("by_updates"), of the last quarter ("late"), and on
held-out tasks after training.

timing: the two sides of a step take equally long. A rollout ends `--seconds` after it has begun and an update takes at
least as long, since each sleeps for the rest: as if a server and a GPU worked meanwhile. So it measures the schedule,
on any number of cores; what both sides compute takes a small part of that time. "as-is" is without any sleep: both
sides compete for the cores then.

Written to benchmarks/results/overlap.json; a part that is left out keeps what is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from arpo_trainer.training.recorder import versions
from arpo_trainer.training.trainer import ARPOTrainer
from benchmarks.laboratory.lab_policy import lab_policy, world_env
from benchmarks.laboratory.training_run import RunSpec, run_config, training_run

RESULTS = Path(__file__).parent / "results" / "overlap.json"
MODES = {"sequential": 0, "overlapped": 1}
GROUPS, SIZE = 4, 16
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}  # two-sided, by number of pairs


def spec(mode: str, seed: int, steps: int) -> RunSpec:
    """Return a run of some steps."""
    return RunSpec(
        "arpo",
        mode,
        "short",
        seed,
        {"trajectories": GROUPS * SIZE * steps},
        groups=GROUPS,
        settings={"max_staleness": MODES[mode], "num_generations": SIZE},
    )


def learning(seeds: int, steps: int) -> dict[str, Any]:
    """Train with and without overlap, and compare seed by seed."""
    rows: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for seed in range(seeds):
        for mode, found in rows.items():
            with tempfile.TemporaryDirectory() as folder:
                run = training_run(spec(mode, seed, steps), Path(folder))
            points = [point["success"] for point in run["curve"]]
            found.append({"curve": points, "held_out": run["final"]["success"], "seconds": run["seconds"]})
            print(mode, seed, found[-1], flush=True)
    return compared(rows, steps)


def compared(rows: dict[str, list[dict[str, Any]]], steps: int) -> dict[str, Any]:
    """Return means, differences and the runs themselves."""
    seeds = len(rows["sequential"])
    measures = [{mode: _measures(found[seed], MODES[mode]) for mode, found in rows.items()} for seed in range(seeds)]
    names = list(measures[0]["sequential"])
    differences = {
        name: interval([each["overlapped"][name] - each["sequential"][name] for each in measures]) for name in names
    }
    means = {mode: {name: statistics.fmean(each[mode][name] for each in measures) for name in names} for mode in MODES}
    return {"seeds": seeds, "steps": steps, "means": means, "differences": differences, "runs": rows}


def _measures(run: dict[str, Any], staleness: int) -> dict[str, float]:
    """Return the measures of a run; a rollout of weights that are a step old tells of the step before."""
    curve = run["curve"]
    by_updates = curve[1:] if staleness else curve[:-1]  # the first two rollouts have the same weights
    return {
        "by_steps": statistics.fmean(curve),
        "by_updates": statistics.fmean(by_updates),
        "late": statistics.fmean(curve[-max(1, len(curve) // 4) :]),
        "held_out": run["held_out"],
    }


def interval(values: list[float]) -> dict[str, float]:
    """Return the mean and the half width of its 95 % t-interval."""
    half = T_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) in T_95 else math.nan
    return {"mean": statistics.fmean(values), "half_width": half}


class PaddedTrainer(ARPOTrainer):
    """Its rollouts and its updates take at least `seconds` each.

    Attributes:
        seconds: 0 adds nothing.
        times: when each step ended.
    """

    seconds = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.times = list[float]()
        begin, end, began = self.backend.begin, self.backend.end, 0.0

        async def begin_padded() -> None:
            nonlocal began
            began = time.perf_counter()
            await begin()

        async def end_padded() -> None:
            await asyncio.sleep(max(0.0, began + self.seconds - time.perf_counter()))
            await end()

        self.backend.begin, self.backend.end = begin_padded, end_padded  # type: ignore[method-assign]

    def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(max(0.0, self._started + self.seconds - time.perf_counter()) if self.seconds else 0.0)
        return super()._compute_loss(*args, **kwargs)

    def play(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """Note when the update begins."""
        found = super().play(rows)
        self._started = time.perf_counter()
        return found

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Note when the step ends."""
        loss = super().training_step(*args, **kwargs)
        self.times.append(time.perf_counter())
        return loss


def timing(seconds: float, steps: int) -> dict[str, Any]:
    """Measure the median seconds of a step, without the first two and the last one."""
    found: dict[str, Any] = {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            one = spec(mode, 0, steps)
            args = run_config(one, Path(folder))
            args.logging_strategy, args.logging_steps = "steps", 1
            trainer = PaddedTrainer(lab_policy(one.policy_settings), world_env("short"), args=args)
            trainer.seconds = seconds
            trainer.train()
        between = [after - before for before, after in zip(trainer.times, trainer.times[1:], strict=False)]
        logs = [row for row in trainer.state.log_history if "arpo/seconds_rollout" in row][2:-1]
        names = [name for name in logs[0] if name.startswith("arpo/seconds") or name == "arpo/staleness"]
        found[mode] = {
            "seconds_step": statistics.median(between[1:-1]),
            **{name.removeprefix("arpo/"): statistics.median(row[name] for row in logs) for name in names},
        }
        print(mode, found[mode], flush=True)
    ratio = found["overlapped"]["seconds_step"] / found["sequential"]["seconds_step"]
    return {"seconds": seconds, "steps": steps, **found, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["learning", "timing"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for part in given.parts:
        load = os.getloadavg()[0]
        if part == "learning":
            found = learning(given.seeds, given.steps)
        else:
            found = {"padded": timing(given.seconds, 9), "as-is": timing(0.0, 9)}
        facts = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        facts |= {part: {**found, "cores": os.cpu_count(), "load": round(load, 1)}, "versions": versions()}
        RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
