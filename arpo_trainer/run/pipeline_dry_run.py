"""`arpo run --dry-run`: tokens, hours and price of each stage of a pipeline. Nothing is trained and nothing is written.

A stage whose model is the output of an earlier one is estimated on the model that the earlier stage starts from, which
has the same shape.

rows, missing = pipeline_dry_run(Pipeline.read("arpo-qwen2.5-3b-reasoning"), ComputeSpeed(hour_price=2.0))
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from arpo_trainer.costs.compute_hours import PASS, PASS_AND_BACK, ComputeSpeed
from arpo_trainer.costs.cost_table import cost_rows
from arpo_trainer.costs.estimate import Costs
from arpo_trainer.costs.memory import model_shape
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.make_env import make_env
from arpo_trainer.run.dry_run import plan_run, published_size
from arpo_trainer.run.pipeline import Pipeline
from arpo_trainer.run.placement import Placement
from arpo_trainer.run.sft_run import Line, sft_dry_run
from envs_registry.datasets.hub import HubError
from envs_registry.spec import UnknownEnvError

PAPER_TOKENS = 4096  # tokens of one answer of the papers' evaluation, per call of the model


@dataclass(frozen=True)
class Played:
    """What an evaluation plays of an environment.

    Attributes:
        env: its id.
        options: options of the environment.
        tasks: how many tasks at most; None is all.
    """

    env: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None


Plan = Callable[[Sequence[str]], Sequence[Played]]
DryRun = Callable[[dict[str, Any], int | None, ComputeSpeed], tuple[list[Line], list[str]]]


def pipeline_dry_run(
    pipeline: Pipeline,
    speed: ComputeSpeed | None = None,
    processes: int | None = None,
    plan: Plan | None = None,
    dpo: DryRun | None = None,
) -> tuple[list[Line], list[str]]:
    """Return a table with a part for each stage, and what this machine lacks.

    Args:
        pipeline: the pipeline.
        speed: the speed and price of a device.
        processes: the number of processes of the stages that train; None is what their settings are written for.
        plan: what the stage eval plays for names of suites and environments; None knows single environments only.
        dpo: the dry run of a stage dpo; None leaves its costs out.

    Raises:
        ValueError: a stage's settings cannot work, or `plan` does not know a name.
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
        if stage.kind == "eval":
            part, lacks = _eval(settings, speed, plan or _as_named)
        elif stage.kind == "sft" and not _is_here(settings, pipeline):
            part, lacks = [("ROWS", "not known", "the stage synth makes them")], []
        elif stage.kind == "sft":
            part, lacks = sft_dry_run(settings, processes, speed)
        elif stage.kind == "dpo":
            part, lacks = dpo(settings, processes, speed) if dpo else ([], [])
        elif stage.kind == "synth":
            part, lacks = [("samples, at most", _samples(settings), "of each environment and model")], []
        else:
            part, lacks = _train(settings, speed, processes)
        rows += part
        missing += [f"{stage.name}: {lack}" for lack in lacks]
    return rows, missing


def _train(settings: dict[str, Any], speed: ComputeSpeed, processes: int | None) -> Any:
    planned = plan_run(settings, processes)
    costs, missing = planned.costs, planned.missing
    # its headings stand between the stages otherwise
    rows = [row for row in (*cost_rows(costs), *Placement(planned).rows()) if row[1]]
    if costs.shape is None:
        return rows, missing
    on_cpu = not torch.cuda.is_available() and costs.layout.processes == 1
    return [*rows, *speed.rows(_operations(costs), costs.layout.processes, on_cpu)], missing


def _operations(costs: Costs) -> float:
    """Return the operations of updates and rollouts; waiting for tools and for memory takes longer than is counted."""
    parameters = costs.shape.parameters if costs.shape else 0
    seen = costs.sampled * (1 + costs.passes) + costs.groups * costs.prompts.mean
    return parameters * (PASS_AND_BACK * costs.computed + PASS * seen)


def _is_here(settings: Mapping[str, Any], pipeline: Pipeline) -> bool:
    """Return whether the data of the stage sft do not wait for the stage synth."""
    made = {str(stage.folder / "sft.jsonl") for stage in pipeline.stages if stage.name == "synth"}
    return not any(str(file) in made and not Path(file).is_file() for file in settings.get("data") or ())


def _samples(settings: Mapping[str, Any]) -> str:
    """Return how many samples a synthesis plays, if no question is answered without tools."""
    direct, tir = int(settings.get("direct", 2)), int(settings.get("tir", 3))
    tasks = settings.get("tasks")
    each = tir + direct * (1 + len(settings.get("hints", ("verify", "reflect"))))
    return f"{int(tasks) * each:,}" if tasks else f"{each} per question"


def _as_named(names: Sequence[str]) -> list[Played]:
    return [Played(name) for name in names]


def _eval(settings: dict[str, Any], speed: ComputeSpeed, plan: Plan) -> Any:
    names = settings["environments"]
    missing: list[str] = []
    counted, unknown = 0, []
    for played in plan([names] if isinstance(names, str) else [str(name) for name in names]):
        tasks = _tasks(played, settings)
        counted += tasks or 0
        unknown += [] if tasks else [played.env]
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


def _tasks(played: Played, settings: dict[str, Any]) -> int | None:
    """Return the number of tasks of an environment; None for a suite, or tasks that are not here."""
    limit = min(filter(None, (settings.get("tasks"), played.tasks)), default=None)
    options = {**played.options, **(settings.get("env_settings") or {})}
    try:
        with contextlib.closing(make_env(played.env, options)) as env:
            size = env.tasks.size
    except UnknownEnvError:
        return None
    except (HubError, OSError, ValueError):  # its tasks are not here
        size = published_size(played.env, options)
        return limit if size is None else min(size, limit or size)
    return limit if size is None else min(size, limit or size)
