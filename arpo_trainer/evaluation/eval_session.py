"""Runs an evaluation from its settings into a folder: `run_evaluation`.

    settings = EvalSettings(("arpo/GSM8K-v0",), {"split": "test"}, tasks=100, samples=4)
    run = run_evaluation(settings, [EvalModel("smollm2", "transformers", "smollm2-135m-instruct")], "evals/gsm8k")
    run.facts["status"], len(run.rows)

A folder that already holds episodes is continued with `resume=True`: only what is missing is played.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_env.cache import Cache
from arpo_env.event_loop import run
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.evaluation.episode_store import FACTS, KIND, ROWS, EpisodeStore, EvalRun, load_eval_run
from arpo_trainer.evaluation.eval_metrics import usage_of, write_results
from arpo_trainer.evaluation.eval_models import (
    EvalModel,
    context_length,
    free_memory,
    labelled,
    load_tokenizer,
    open_backend,
)
from arpo_trainer.evaluation.eval_plan import PlannedEnv, missing_units, plan_environments, share_limits
from arpo_trainer.evaluation.eval_runner import EvalRunner, RayEvalRunner, Unit, check_for_workers
from arpo_trainer.evaluation.eval_settings import EvalSettings, refuse_other_settings
from arpo_trainer.evaluation.eval_shard import EvalShard, refuse_other_count
from arpo_trainer.evaluation.live_display import LiveDisplay
from arpo_trainer.inference_tools import open_inference_tools
from arpo_trainer.report.run_data import read_facts, write_facts
from arpo_trainer.rollout.engine import UNSEEN, Engine
from arpo_trainer.training.recorder import versions

if TYPE_CHECKING:
    from arpo_trainer.backends.base import Backend
    from arpo_trainer.ray_rollouts import RolloutWorkers

logger = logging.getLogger(__name__)
Display = Callable[[dict[str, Any], dict[tuple[str, str], int], Sequence[Any], Callable[[], int]], LiveDisplay]


@dataclass
class _Sitting:
    """One call of `run_evaluation`: what it works on."""

    settings: EvalSettings
    models: list[EvalModel]
    planned: list[PlannedEnv]
    store: EpisodeStore
    facts: dict[str, Any]
    cache: Cache | None
    repeat_broken: bool
    shard: EvalShard | None = None
    workers: RolloutWorkers | None = None
    playing: EvalRunner | None = None

    def units(self, model: EvalModel) -> list[Unit]:
        return missing_units(self.planned, model.label, self.settings, self.store, self.repeat_broken, self.shard)

    def running(self) -> int:
        return self.playing.running if self.playing else 0


def run_evaluation(
    settings: EvalSettings,
    models: Sequence[EvalModel],
    output: str | Path,
    *,
    resume: bool = False,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
    workers: RolloutWorkers | None = None,
    display: Display = LiveDisplay,
) -> EvalRun:
    """Play what is missing, and write the results.

    Args:
        settings: what is played.
        models: the models.
        output: the folder.
        resume: go on with a folder that holds episodes.
        repeat_broken: play the units that broke again, and nothing else.
        shard: play only this part, into a folder of its own in `output` (`merge_shards` joins them). A folder that
            holds a shard is continued as this shard.
        workers: play on these; this process alone writes to the folder. The models have to be served.
        display: makes the display of the progress.

    Returns:
        The stored evaluation or shard, those of earlier sittings included.

    Raises:
        FileExistsError: the folder holds episodes, and `resume` is not set, or something else.
        FileNotFoundError: there is nothing to repeat, or no recording to replay.
        ValueError: the folder has other settings, or a setting cannot work.
        GenerationError: the model failed again and again; what was scored is stored.
        RolloutWorkerError: a worker cannot play, or none is left; what was scored is stored.
    """
    if workers is not None:
        check_for_workers(settings, models)
    folder, models = shard_folder(output, shard), labelled(models)
    settings = replace(settings, models={model.label: model.facts() for model in models})
    stored = _stored_facts(folder, settings, resume or repeat_broken)
    if repeat_broken and not stored:
        raise FileNotFoundError(f"no evaluation in {str(folder)!r} to repeat anything of")
    if settings.cache and settings.cache_mode == "replay" and not Path(settings.cache).is_file():
        raise FileNotFoundError(
            f"no recording {settings.cache!r} to replay; make it by the same command without replay"
        )
    with contextlib.ExitStack() as held:
        cache = Cache(settings.cache, settings.cache_mode or "record") if settings.cache else None
        planned = held.enter_context(plan_environments(settings, cache))
        _refuse_blind(models, planned)
        limits = share_limits(settings.limits, planned)
        store = held.enter_context(EpisodeStore(folder))
        # again, now that no other process can write: one may have played while the environments were made
        stored = _stored_facts(folder, settings, resume or repeat_broken)
        shard = EvalShard.of(stored) or shard
        facts = _facts(folder, settings, planned, stored, shard)
        played = replace(settings, limits=limits)
        sitting = _Sitting(played, models, planned, store, facts, cache, repeat_broken, shard, workers)
        with _recording(folder, facts, store):
            _play_all(sitting, display)
        if cache:
            cache.close()
    return load_eval_run(folder)


def _refuse_blind(models: Sequence[EvalModel], planned: Sequence[PlannedEnv]) -> None:
    """Refuse pictures for models that cannot be shown any, before weights are loaded."""
    blind = next((model for model in models if model.kind != "endpoint"), None)
    if blind and any(one.env.services.show_images for one in planned):
        raise ValueError(UNSEEN.format(model=f"{blind.label!r} (a model of kind {blind.kind!r})"))


def shard_folder(output: str | Path, shard: EvalShard | None) -> Path:
    """Return the folder that is written: the output folder, or that of a shard in it.

    Raises:
        FileExistsError: the output folder holds a whole evaluation, and the shard has not begun.
        ValueError: the output folder holds shards of another number.
    """
    if shard is None:
        return Path(output)
    refuse_other_count(output, shard)
    folder = shard.folder(output)
    if (Path(output) / FACTS).is_file() and not folder.exists():
        raise FileExistsError(f"{str(output)!r} holds an evaluation; give shards another folder with --output")
    return folder


def broken_share(found: EvalRun) -> float:
    """Return the share of episodes that have no score because something broke."""
    episodes = [episode for row in found.rows for episode in row.episodes]
    return sum(episode.reward is None for episode in episodes) / len(episodes) if episodes else 0.0


def _play_all(sitting: _Sitting, display: Display) -> None:
    units = {model.label: sitting.units(model) for model in sitting.models}
    for model in sitting.models:
        if units[model.label]:
            resolve_model(model.model_id)  # all of them before the first, which may take hours
    # a resumed run may ask for fewer tasks than are stored
    stored = Counter((key.model, key.env) for key in sitting.store.rows)
    fresh = Counter(
        (u.key.model, u.key.env) for each in units.values() for u in each if u.key not in sitting.store.rows
    )
    pairs = [(model.label, one.label) for model in sitting.models for one in sitting.planned]
    totals = {pair: stored[pair] + fresh[pair] for pair in pairs}
    with display(sitting.facts, totals, list(sitting.store.rows.values()), sitting.running) as shown:
        for model in sitting.models:
            if not units[model.label]:
                continue
            for unit in units[model.label]:
                if unit.key in sitting.store.rows:
                    shown.repeat(sitting.store.rows[unit.key])
            _play_model(sitting, model, units[model.label], shown)
            free_memory()


def _play_model(sitting: _Sitting, model: EvalModel, units: list[Unit], shown: LiveDisplay) -> None:
    tokenizer = load_tokenizer(model)
    # an endpoint has a context of its own; the tokenizer may be that of another model
    context = None if model.kind == "endpoint" else context_length(model.model_id)
    rollout = sitting.settings.rollout_settings(context, endpoint=model.kind == "endpoint")
    backend, template = open_recorded(model, tokenizer, sitting.cache), sitting.settings.chat_template_kwargs
    settings = sitting.settings
    tools = open_inference_tools(settings.inference_settings, sitting.cache)
    engines = {
        one.label: Engine(backend, tokenizer, one.env, rollout, template, inference=tools) for one in sitting.planned
    }
    parts: Any = (backend, engines, sitting.store, settings.concurrency, settings.limits, shown.add)
    sitting.playing = RayEvalRunner(*parts, workers=sitting.workers) if sitting.workers else EvalRunner(*parts)
    try:
        run(sitting.playing.play(units))
    finally:
        sitting.playing = None  # it holds the model


def open_recorded(model: EvalModel, tokenizer: Any, cache: Cache | None) -> Backend:
    """Open a model whose generations are recorded in a cache, or replayed from it without loading weights."""
    from arpo_trainer.backends.recorded import RecordedBackend

    if cache is None:
        return open_backend(model, tokenizer)
    loaded = None if cache.mode == "replay" else open_backend(model, tokenizer)
    return RecordedBackend(loaded, cache, model.recorded_as)


def _stored_facts(folder: Path, settings: EvalSettings, resume: bool) -> dict[str, Any]:
    """Return run.json of an earlier sitting, or {}; refuse folders of anything else."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--output {str(folder)!r} is a file; give a folder")
    facts = read_facts(folder / FACTS) if (folder / FACTS).is_file() else {}
    if facts and facts.get("kind") != KIND:
        raise FileExistsError(f"{str(folder)!r} holds another run; give another folder with --output")
    begun = (folder / ROWS).is_file() and (folder / ROWS).stat().st_size > 0
    if begun and not facts:
        raise FileExistsError(f"{str(folder)!r} has episodes, but no {FACTS} that says of what; give another folder")
    if begun and not resume:
        raise FileExistsError(
            f"{str(folder)!r} holds an evaluation: add --resume to go on with it, or give another folder with --output"
        )
    if begun:
        refuse_other_settings(facts["settings"], settings, sharded=bool(facts.get("shard")))
    return facts if begun else {}


def _facts(
    folder: Path,
    settings: EvalSettings,
    planned: Sequence[PlannedEnv],
    stored: dict[str, Any],
    shard: EvalShard | None,
) -> dict[str, Any]:
    part = {"shard": shard.as_dict()} if shard else {}
    return part | {
        "name": folder.resolve().name,
        "kind": KIND,
        "status": "running",
        "started": stored.get("started") or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": stored.get("seconds", 0.0),
        "sittings": stored.get("sittings", 0) + 1,
        "environments": {one.label: one.facts() for one in planned},
        "models": settings.models,
        "samples": settings.samples,
        "algorithm": settings.algorithm,
        "settings": settings.as_dict(),
        "versions": versions(),
    }


@contextlib.contextmanager
def _recording(folder: Path, facts: dict[str, Any], store: EpisodeStore) -> Iterator[None]:
    """Keep run.json true: running, then how it ended. Results are written in each case."""
    began, before, status = time.time(), facts["seconds"], "failed"
    write_facts(folder / FACTS, facts)
    try:
        yield
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        rows = list(store.rows.values())
        usage = usage_of(facts, rows).as_dict()
        facts |= {"status": status, "seconds": round(before + time.time() - began, 1), "usage": usage}
        write_facts(folder / FACTS, facts)
        write_results(folder, rows, facts)
