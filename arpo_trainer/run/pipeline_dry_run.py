"""`arpo run --dry-run`: tokens, hours and price of each stage of a pipeline. Nothing is trained and nothing is written.

A stage whose model is the output of an earlier one is estimated on the model that the earlier stage starts from, which
has the same shape.

rows, missing = pipeline_dry_run(Pipeline.read("arpo-qwen2.5-3b-reasoning"), ComputeSpeed(hour_price=2.0))
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from arpo_trainer.costs.compute_hours import PASS, PASS_AND_BACK, ComputeSpeed
from arpo_trainer.costs.cost_table import cost_rows
from arpo_trainer.costs.estimate import Costs
from arpo_trainer.costs.model_shape import model_shape
from arpo_trainer.run.demo_model import resolve_model
from arpo_trainer.run.dry_run import dry_run, published_size
from arpo_trainer.run.make_env import make_env
from arpo_trainer.run.pipeline import Pipeline, Stage
from arpo_trainer.run.sft_dry_run import Line, sft_dry_run
from envs_registry.datasets.hub import HubError
from envs_registry.spec import UnknownEnvError

PAPER_TOKENS = 4096  # tokens of one answer of the papers' evaluation, per call of the model


def pipeline_dry_run(
    pipeline: Pipeline, speed: ComputeSpeed | None = None, processes: int | None = None
) -> tuple[list[Line], list[str]]:
    """Return a table with a part for each stage, and what this machine lacks.

    Args:
        pipeline: the pipeline.
        speed: the speed and price of a device.
        processes: the number of processes of the stages that train; None is what their settings are written for.

    Raises:
        ValueError: a stage's settings cannot work.
    """
    speed = speed or ComputeSpeed()
    rows: list[Line] = []
    missing: list[str] = []
    model, folders = "", {str(stage.folder / "model") for stage in pipeline.stages}
    for stage in pipeline.stages:
        given = str(stage.settings.get("model") or "")
        model = model if given in folders else given
        settings = {**stage.settings, **({"model": model} if model else {})}
        rows.append((f"STAGE {stage.name}", stage.status, str(stage.folder)))
        part, lacks = _PARTS[stage.name](stage, settings, speed, processes)
        rows += part
        missing += [f"{stage.name}: {lack}" for lack in lacks]
    return rows, missing


def _sft(stage: Stage, settings: dict[str, Any], speed: ComputeSpeed, processes: int | None) -> Any:
    return sft_dry_run(settings, processes, speed)


def _train(stage: Stage, settings: dict[str, Any], speed: ComputeSpeed, processes: int | None) -> Any:
    costs, missing = dry_run(settings, processes)
    rows = [row for row in cost_rows(costs) if row[1]]  # its headings stand between the stages otherwise
    if costs.shape is None:
        return rows, missing
    on_cpu = not torch.cuda.is_available() and costs.layout.processes == 1
    return [*rows, *speed.rows(_operations(costs), costs.layout.processes, on_cpu)], missing


def _operations(costs: Costs) -> float:
    """Return the operations of updates and rollouts; waiting for tools and for memory takes longer than is counted."""
    parameters = costs.shape.parameters if costs.shape else 0
    seen = costs.sampled * (1 + costs.passes) + costs.groups * costs.prompts.mean
    return parameters * (PASS_AND_BACK * costs.computed + PASS * seen)


def _eval(stage: Stage, settings: dict[str, Any], speed: ComputeSpeed, processes: int | None) -> Any:
    names = settings["environments"]
    missing: list[str] = []
    counted, unknown = 0, []
    for name in [names] if isinstance(names, str) else names:
        tasks = _tasks(str(name), settings)
        counted += tasks or 0
        unknown += [] if tasks else [str(name)]
    samples = int(settings.get("samples", 1))
    answers = counted * samples
    room = int((settings.get("settings") or {}).get("max_completion_length", PAPER_TOKENS))
    left_out = f"; not counted: {', '.join(unknown)}" if unknown else ""
    rows: list[Line] = [("answers", f"{answers:,}" if counted else "not known", f"{samples} per task{left_out}")]
    if not counted:
        return rows, missing
    rows.append(("tokens sampled, at most", f"{answers * room:,}", f"{room:,} per answer"))
    if not settings.get("model"):
        return rows, missing
    try:
        shape = model_shape(resolve_model(str(settings["model"])))
    except (OSError, ValueError) as error:
        return rows, [f"configuration of {settings['model']}, so hours are left out ({str(error).splitlines()[0]})"]
    return [*rows, *speed.rows(PASS * shape.parameters * answers * room, 1, not torch.cuda.is_available())], missing


def _tasks(name: str, settings: dict[str, Any]) -> int | None:
    """Return the number of tasks of an environment; None for a suite, or tasks that are not here."""
    limit = settings.get("tasks")
    options = dict(settings.get("env_settings") or {})
    try:
        with contextlib.closing(make_env(name, options)) as env:
            size = env.tasks.size
    except UnknownEnvError:
        return None
    except (HubError, OSError, ValueError):  # its tasks are not here
        size = published_size(name, options)
        return None if size is None else min(size, limit or size)
    return limit if size is None else min(size, limit or size)


_PARTS = {"sft": _sft, "train": _train, "eval": _eval}
