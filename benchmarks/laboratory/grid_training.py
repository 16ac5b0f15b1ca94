"""Trains the runs of a grid: a `GridRun`, as users write it, becomes the `RunSpec` of `training_run`.

Settings of a grid are those of `ARPOConfig`, and `groups` and `test_tasks` of `RunSpec`; `knobs.NAME` is a knob of the
world, and `policy.NAME` a setting of the policy to start from.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.validation import nearest_names
from benchmarks.laboratory.grid_run import AXES, GridRun
from benchmarks.laboratory.lab_worlds import lab_world
from benchmarks.laboratory.training_run import RunSpec, run_config, training_run

_OF_RUN = ("groups", "test_tasks")


def train_grid_run(run: GridRun, folder: Path) -> dict[str, Any]:
    """Train one run, and return its record.

    Raises:
        ValueError: the run cannot work.
    """
    return training_run(spec_of(run), folder)


class GridRunCheck:
    """Refuses runs that cannot work, before any is made; runs that differ only in their seed are checked once."""

    def __init__(self) -> None:
        self._fine: set[str] = set()

    def __call__(self, run: GridRun) -> None:
        """Check a run.

        Raises:
            ValueError: an environment or a setting is unknown, with the nearest name; settings do not go together; or
                the budget does not last for one step.
        """
        alike = json.dumps([run.algorithm, run.env, run.budget, run.settings], sort_keys=True, default=str)
        if alike not in self._fine:
            try:
                spec = spec_of(run)
                run_config(spec, Path("unused"))
                _ = spec.policy_settings  # checks them, too
            except (ValueError, TypeError) as error:  # a value of another type
                raise ValueError(f"{run.label}, {run.env}: {error}") from error
            self._fine.add(alike)


def spec_of(run: GridRun) -> RunSpec:
    """Return a run as `training_run` takes it.

    Raises:
        ValueError: the environment or a setting is unknown; the error has the nearest name.
    """
    world = lab_world(run.env)
    fields = {field.name for field in dataclasses.fields(ARPOConfig)}
    known = {
        "": fields | set(_OF_RUN),
        "policy": set(world.policy_names()),
        "knobs": set(world.knobs),
    }
    parts: dict[str, dict[str, Any]] = {name: {} for name in known}
    for name, value in run.settings.items():
        group, _, inner = name.rpartition(".")
        if group not in known or inner not in known[group]:
            every = [f"{prefix}.{one}".lstrip(".") for prefix, names in known.items() for one in names]
            near = nearest_names(name, sorted(every), 3)
            raise ValueError(f"no setting {name!r}" + (f"; did you mean {near}?" if near else ""))
        parts[group][inner] = value
    own = {name: parts[""].pop(name) for name in _OF_RUN if name in parts[""]}
    return RunSpec(
        run.algorithm,
        run.label,
        run.env,
        run.seed,
        {AXES[axis]: most for axis, most in run.budget.items()},
        parts["knobs"],
        settings=parts[""],
        policy=parts["policy"],
        **own,
    )
