"""Samples what is missing into a folder and writes the training files: `synthesise`.

    OUTPUT/traces.jsonl, episodes.jsonl   every sample, appended at once (the store of evaluations)
    OUTPUT/sft.jsonl, dataset_info.json   the training rows, and their description for LLaMA-Factory
    OUTPUT/hard/ENV.jsonl                 the questions for reinforcement learning
    OUTPUT/report.json, run.json          what was dropped and why; settings and status

Models on servers and endpoints are asked at the same time, those in this process one after the other. The files are
written anew at the end of each sitting, from all stored samples.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from arpo_env.cache import Cache
from arpo_env.event_loop import run
from arpo_trainer.evaluation.episode_store import FACTS, ROWS, SYNTH, EpisodeStore, EvalRun, UnitRow
from arpo_trainer.evaluation.eval_models import SERVED, EvalModel, context_length, free_memory, labelled, load_tokenizer
from arpo_trainer.evaluation.eval_plan import share_limits
from arpo_trainer.evaluation.eval_runner import EvalRunner, RayEvalRunner, Unit, check_for_workers
from arpo_trainer.evaluation.eval_session import open_recorded, shard_folder
from arpo_trainer.evaluation.eval_settings import refuse_other_settings
from arpo_trainer.evaluation.eval_shard import EvalShard
from arpo_trainer.report.run_data import read_facts, write_facts
from arpo_trainer.rollout.engine import Engine, first_error
from arpo_trainer.synthesis.question_sets import (
    QuestionSet,
    SynthUnits,
    add_counts,
    find_contaminated,
    open_question_sets,
)
from arpo_trainer.synthesis.selection import REPORT, SynthReport, select, write_files
from arpo_trainer.synthesis.synth_settings import STAGES, TIR, SynthSettings, stage_label
from arpo_trainer.training.recorder import versions

if TYPE_CHECKING:
    from arpo_trainer.backends.base import Backend
    from arpo_trainer.ray_rollouts import RolloutWorkers

_SEED_OF_STAGE = 1_000_003  # stages draw other random numbers
Progress = Callable[[UnitRow], object]


@dataclass
class _SynthSitting:
    """One call of `synthesise`: what it works on."""

    settings: SynthSettings
    sets: list[QuestionSet]
    store: EpisodeStore
    cache: Cache | None
    repeat_broken: bool
    progress: Progress | None
    workers: RolloutWorkers | None = None
    hints: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


class NothingLeft(ValueError):
    """Raised when no sample is kept.

    Args:
        report: the counts.
        folder: where they are written.
    """

    def __init__(self, report: SynthReport, folder: Path) -> None:
        super().__init__(
            f"nothing is left to train on: {report.nothing_left()}. {folder / REPORT} has all counts; change the "
            "limits and go on with --resume, or take other questions or another model"
        )
        self.report = report


def synthesise(
    settings: SynthSettings,
    models: Sequence[EvalModel],
    output: str | Path,
    *,
    resume: bool = False,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
    workers: RolloutWorkers | None = None,
    progress: Progress | None = None,
) -> SynthReport:
    """Sample what is missing, and write the files.

    Args:
        settings: what is sampled, and what is kept.
        models: the models that are sampled from.
        output: the folder.
        resume: go on with a folder that holds samples.
        repeat_broken: sample what broke again.
        shard: take only this part of the questions, into a folder of its own in `output`. `merge_shards` joins the
            samples, and another call with `resume` chooses the rows from all.
        workers: play on these; this process alone writes to the folder. The models have to be served.
        progress: called with each row after it was stored.

    Returns:
        What became of the questions and samples, those of earlier sittings included.

    Raises:
        FileExistsError: the folder holds samples and `resume` is not set, or something else.
        ValueError: the folder has other settings, or a setting cannot work.
        NothingLeft: no sample is left to train on, and it is no shard; the files are written all the same.
        GenerationError: a model failed again and again; what was sampled is stored.
        RolloutWorkerError: a worker cannot play, or none is left; what was sampled is stored.
    """
    if workers is not None:
        check_for_workers(settings.play, models)
    folder, models = shard_folder(output, shard), labelled(models)
    settings = replace(settings, models={model.label: model.facts() for model in models})
    _stored_facts(folder, settings, resume)
    with contextlib.ExitStack() as held:
        cache = Cache(settings.cache, settings.cache_mode or "record") if settings.cache else None
        if cache:
            held.callback(cache.close)
        sets = held.enter_context(open_question_sets(settings, cache))
        report = SynthReport(against=find_contaminated(settings, sets))
        limits = share_limits(settings.limits, [one.planned for one in sets])
        store = held.enter_context(EpisodeStore(folder))
        # again, now that no other process can write
        stored = _stored_facts(folder, settings, resume)
        shard = EvalShard.of(stored) or shard
        for one in sets:
            one.shard = shard
        facts = _facts(folder, settings, stored, sets) | ({"shard": shard.as_dict()} if shard else {})
        sampled = replace(settings, limits=limits)
        sitting = _SynthSitting(sampled, sets, store, cache, repeat_broken, progress, workers)
        with _recorded(folder, facts):
            _play_models(sitting, models)
            report.hints.update(sitting.hints)
            samples = EvalRun(folder, facts, list(store.rows.values()), [])
            chosen = select(settings, sets, samples, report)
            write_files(folder, chosen, settings.format, sets)
    if not chosen.rows and shard is None:
        raise NothingLeft(report, folder)
    return report


def broken_samples(report: SynthReport) -> float:
    """Return the share of samples that have no score because something broke."""
    dropped = report.dropped.get("broken", Counter())
    return dropped.total() / report.played.total() if report.played.total() else 0.0


def _play_models(sitting: _SynthSitting, models: Sequence[EvalModel]) -> None:
    served = [model for model in models if model.kind in SERVED]

    async def all_served() -> None:
        async with asyncio.TaskGroup() as running:
            for model in served:
                running.create_task(_play_model(sitting, model))

    for model in models:
        if model not in served:
            run(_play_model(sitting, model))
            free_memory()
    if served:
        try:
            run(all_served())
        except BaseExceptionGroup as several:
            error = first_error(several)  # callers expect the error itself, with the traceback of its cause
            raise error from error.__cause__


async def _play_model(sitting: _SynthSitting, model: EvalModel) -> None:
    """Play the three rounds of a model; each depends on what the one before has stored."""
    units = SynthUnits(sitting.settings, sitting.sets, sitting.store, model.label, sitting.repeat_broken)
    tokenizer = load_tokenizer(model)
    engines = _engines(sitting, model, tokenizer)
    renderers = {one.label: engines[stage_label(one.label, TIR)].renderer for one in sitting.sets}
    settings = sitting.settings
    room = min(engine.settings.max_completion_length for engine in engines.values()) // 2
    backend: list[Backend] = []

    async def play(missing: Sequence[Unit]) -> None:
        if not missing:
            return
        if not backend:  # nothing is loaded where nothing is missing
            backend.append(open_recorded(model, tokenizer, sitting.cache))
            for engine in engines.values():
                engine.backend = backend[0]
        limits: Any = (settings.concurrency, settings.limits, sitting.progress)
        runner = EvalRunner(backend[0], engines, sitting.store, *limits)
        if sitting.workers:
            runner = RayEvalRunner(backend[0], engines, sitting.store, *limits, workers=sitting.workers)
        await runner.play(missing)

    await play(units.direct())
    await play(units.tir())
    hinted, counts = units.hinted(renderers, room)
    add_counts(sitting.hints, counts)
    await play(hinted)


def _engines(sitting: _SynthSitting, model: EvalModel, tokenizer: Any) -> dict[str, Engine]:
    """Return an engine for each environment and stage, without a backend so far."""
    endpoint = model.kind == "endpoint"
    context = None if endpoint else context_length(model.model_id)
    rollout = sitting.settings.play.rollout_settings(context, endpoint=endpoint)
    template = sitting.settings.chat_template_kwargs
    unloaded: Any = SimpleNamespace(wants_messages=endpoint)  # all that is asked of a backend before it is there
    engines = {}
    for one in sitting.sets:
        for number, stage in enumerate(STAGES):
            planned = one.stage(stage)
            own = replace(rollout, seed=rollout.seed + _SEED_OF_STAGE * number)
            engines[planned.label] = Engine(unloaded, tokenizer, planned.env, own, template)
    return engines


def _stored_facts(folder: Path, settings: SynthSettings, resume: bool) -> dict[str, Any]:
    """Return the facts of a folder that is continued, else nothing.

    Raises:
        FileExistsError: it must not be written to.
        ValueError: it has other settings.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--output {str(folder)!r} is a file; give a folder")
    facts = read_facts(folder / FACTS) if (folder / FACTS).is_file() else {}
    begun = (folder / ROWS).is_file() and (folder / ROWS).stat().st_size > 0
    if (facts and facts.get("kind") != SYNTH) or (begun and not facts):
        raise FileExistsError(f"{str(folder)!r} holds another run; give another folder with --output")
    if begun and not resume:
        raise FileExistsError(f"{str(folder)!r} holds samples: add --resume to go on, or give another folder")
    if begun:
        refuse_other_settings(facts["settings"], settings.play)
    return facts if begun else {}


def _facts(
    folder: Path, settings: SynthSettings, stored: dict[str, Any], sets: Iterable[QuestionSet]
) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "name": folder.resolve().name,
        "kind": SYNTH,
        "status": "running",
        "started": stored.get("started") or now,
        "sittings": stored.get("sittings", 0) + 1,
        "environments": {stage_label(one.label, stage): one.stage(stage).facts() for one in sets for stage in STAGES},
        "models": settings.models,
        "samples": max(settings.direct, settings.tir),
        "algorithm": settings.play.algorithm,
        "settings": settings.play.as_dict(),
        "synthesis": settings.as_dict(),
        "versions": versions(),
    }


@contextlib.contextmanager
def _recorded(folder: Path, facts: dict[str, Any]) -> Iterator[None]:
    """Keep run.json true: running, then how it ended."""
    status = "failed"
    write_facts(folder / FACTS, facts)
    try:
        yield
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        write_facts(folder / FACTS, facts | {"status": status})


def stored_settings(folder: Path) -> SynthSettings:
    """Return the settings of a folder that holds samples.

    Raises:
        FileNotFoundError: it holds none.
    """
    facts = read_facts(folder / FACTS) if (folder / FACTS).is_file() else {}
    if facts.get("kind") != SYNTH:
        raise FileNotFoundError(f"no synthesis in {str(folder)!r} to go on with; give the --output of `arpo synth`")
    return SynthSettings.from_dict(json.loads(json.dumps(facts["synthesis"])))
