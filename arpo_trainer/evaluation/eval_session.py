"""Runs an evaluation from its settings into a folder: `run_evaluation`.

    settings = EvalSettings(("arpo/GSM8K-v0",), {"split": "test"}, tasks=100, samples=4)
    run = run_evaluation(settings, [EvalModel("smollm2", "transformers", "smollm2-135m")], "evals/gsm8k")
    run.facts["status"], len(run.rows)

A folder that already holds episodes is continued with `resume=True`: only what is missing is played.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

from tqdm import tqdm

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_env.event_loop import run
from arpo_env.search.search_backend import search_price
from arpo_trainer.backends.base import Backend, GenerationError, ServerSetupError
from arpo_trainer.costs.estimate import search_backend
from arpo_trainer.evaluation import episode_store, eval_settings
from arpo_trainer.evaluation.eval_metrics import usage_of, write_results
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
from arpo_trainer.evaluation.eval_shard import EvalShard, refuse_other_count
from arpo_trainer.evaluation.suites import SuiteRow, environment_rows
from arpo_trainer.folder_lock import refuse_earlier
from arpo_trainer.inference_tools import ChatHelper, InferenceSettings, InferenceTools, open_inference_tools
from arpo_trainer.make_env import known_id, make_env
from arpo_trainer.models import resolve_model, weight_files
from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, GroupJob
from arpo_trainer.ray_rollouts.rollout_workers import RolloutWorkers
from arpo_trainer.report.run_data import read_facts, recorded, write_facts
from arpo_trainer.rollout.engine import UNSEEN, Engine, Group, only_first_error
from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits, check_limits
from arpo_trainer.rollout.model_protocol import with_model_protocol
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.recorder import versions
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from envs_registry.spec import get_spec, has_spec

logger = logging.getLogger(__name__)
FAILURES_IN_A_ROW = 20


@dataclass(frozen=True)
class Unit:
    """One unit to play: its task, the task's position in its environment, and ids that its first turn begins with."""

    key: episode_store.UnitKey
    task: Task
    index: int
    opening: tuple[int, ...] = ()


@dataclass
class EvalRunner:
    """Plays units with one model, many at once, and stores each as soon as it has ended.

    The units of all environments share one queue, so that the last slow episodes of one set do not leave the model
    idle. A unit's random numbers depend on its task and sample alone.
    """

    backend: Backend  # generates the turns; the engines use the same
    engines: Mapping[str, Engine]  # by the label of the environment
    store: episode_store.EpisodeStore
    concurrency: int = 64  # maximum number of trajectories at once
    # maximum number of operations of one kind at once, over all environments; see `ConcurrencyLimits`
    limits: Mapping[str, int] = field(default_factory=dict)
    on_row: Callable[[episode_store.UnitRow], object] | None = None  # called with each row after it was stored
    _failed: list[tuple[Unit, RolloutTree, GenerationError]] = field(default_factory=list)

    @property
    def per_unit(self) -> int:
        """The number of trajectories of the largest unit."""
        return max((engine.settings.num_generations for engine in self.engines.values()), default=1)

    async def play(self, units: Iterable[Unit]) -> None:
        """Play units in their order.

        What fails in an environment, and single failures of the model, are stored with the unit.

        Raises:
            GenerationError: the model failed `FAILURES_IN_A_ROW` times without a success in between, or once if its
                server has to be started differently, or it has never generated anything. These units are not stored,
                so that a resumed run plays them.
        """
        limits = ConcurrencyLimits({"trajectory": max(self.concurrency, self.per_unit), **self.limits})
        queue = iter(units)
        await self.backend.begin()
        try:
            with only_first_error():
                async with asyncio.TaskGroup() as workers:
                    # as many units as may run at once: those that wait hold no prompt and no environment
                    for _ in range(max(1, self.concurrency // self.per_unit)):
                        workers.create_task(self._work(queue, limits))
        finally:
            await self.backend.end()
        self._end()

    async def _work(self, queue: Iterator[Unit], limits: ConcurrencyLimits) -> None:
        for unit in queue:
            # the seeds of a group depend on these two numbers
            group = Group(self.engines[unit.key.env], limits, unit.task, unit.key.sample, unit.index, unit.opening)
            if error := await group.grow_or_fail():
                self._model_failed(unit, group.tree, error)
            else:
                self._played(unit, group.tree)

    def _played(self, unit: Unit, tree: RolloutTree) -> None:
        self._store_failed()  # the model works for this one, so that the failures are theirs
        self._store(unit, tree)

    def _store(self, unit: Unit, tree: RolloutTree) -> None:
        row = self.store.add(unit.key, unit.index, tree)
        if self.on_row:
            self.on_row(row)

    def _store_failed(self) -> None:
        """Store the units in which the model failed."""
        failed, self._failed = self._failed, []
        for unit, tree, _ in failed:
            self._store(unit, tree)

    def _end(self) -> None:
        """Store the units in which the model failed at the end, unless nothing was ever generated."""
        if self._failed and not any(span.kind == "model" for _, tree, _ in self._failed for span in tree.spans):
            model = self._failed[-1][0].key.model
            # as with a wrong address or name: the folder is left free for the command that is right
            if all(key.model != model for key in self.store.rows):
                self._give_up(f"failed in all {len(self._failed)} units; the last error")
        self._store_failed()

    def _model_failed(self, unit: Unit, tree: RolloutTree, error: GenerationError) -> None:
        logger.warning("the model failed for %s of %s: %s", unit.key.task, unit.key.env, error)
        self._failed.append((unit, tree, error))
        if isinstance(error, ServerSetupError):
            self._give_up("failed")
        if len(self._failed) >= FAILURES_IN_A_ROW:
            self._give_up(f"failed {FAILURES_IN_A_ROW} times in a row; the last error")

    def _give_up(self, failed: str) -> NoReturn:
        unit, _, error = self._failed[-1]
        self._failed = []
        scored = "What was scored is stored: mend the cause, and go on with --resume"
        cure = scored if self.store.rows else "Nothing is stored: mend the cause, and give the command again"
        raise type(error)(f"the model {unit.key.model} {failed}: {error}. {cure}") from error


@dataclass
class RayEvalRunner(EvalRunner):
    """Plays units on rollout workers (Ray); this process stores what they played, and nobody else writes.

    `concurrency` is divided over the workers, each of which plays at least one unit at a time; `limits` hold for each
    worker. A unit that is lost with its worker is played again, and stored once.
    """

    workers: RolloutWorkers = field(kw_only=True)

    async def play(self, units: Iterable[Unit]) -> None:
        """Play units in their order; see `EvalRunner.play`.

        Raises:
            GenerationError: the model failed again and again.
            TypeError: the backend or an environment cannot be sent to the workers.
            RolloutWorkerError: a worker cannot play, or none is left.
        """
        units = list(units)
        if not units:
            return
        labels = list(dict.fromkeys(unit.key.env for unit in units))
        engines = [self.engines[label] for label in labels]
        first, envs = engines[0], tuple(engine.env for engine in engines)
        tools = tools_for_actors(first.inference)
        parts = EngineParts(self.backend, first.tokenizer, envs, first.chat_template_kwargs, tools)
        places = max(self.concurrency // self.workers.actors.count, self.per_unit)
        jobs = [GroupJob(u.task, u.key.sample, u.index, labels.index(u.key.env), u.opening) for u in units]

        await self.backend.begin()
        try:
            await self.workers.play(
                parts,
                [engine.settings for engine in engines],
                {"trajectory": places, **self.limits},
                jobs,
                lambda number, tree: self._played(units[number], tree),
                lambda number, tree, error: self._model_failed(units[number], tree, error),
            )
        finally:
            await self.backend.end()
        self._end()


def runner_of(workers: RolloutWorkers | None, *parts: Any) -> EvalRunner:
    """Return what plays units, with the parts of an `EvalRunner`: this process, or rollout workers."""
    return RayEvalRunner(*parts, workers=workers) if workers else EvalRunner(*parts)


def tools_for_actors(inference: InferenceTools | None) -> InferenceSettings | None:
    """Return tools with the address of their model, whose default may be another one in the environment of a node."""
    if inference is None or not isinstance(inference.helper, ChatHelper):
        return inference.settings if inference else None
    return replace(inference.settings, url=inference.helper.chat.base_url)


@dataclass
class PlannedEnv:
    """An environment of an evaluation."""

    label: str  # its name in tables and files: the id without "arpo/"
    env_id: str
    options: dict[str, Any]  # with which it was made
    metric: str  # the measure that is compared with published numbers
    subset: str  # which part of the set the tasks are, in words
    env: ToolEnv
    count: int  # number of tasks

    def facts(self) -> dict[str, Any]:
        """Return the environment as plain data for run.json."""
        shown = {name: value for name, value in self.options.items() if name not in ("cache", "cache_mode")}
        return {
            "id": self.env_id,
            "options": shown,
            "tasks": self.count,
            "size": self.env.tasks.size,
            "split": shown.get("split"),
            # of the hub's data set, for the comparison with other runs
            "revision": getattr(getattr(self.env.tasks, "tasks", self.env.tasks), "revision", ""),
            "metric": self.metric,
            "subset": self.subset,
            "licence": self.env.env_spec.licence,
            "search_price": _search_price(self.env),
        }


def _search_price(env: ToolEnv) -> float | None:
    """Return the price of 1,000 searches in US dollars; 0 without a search tool, None if it is not known."""
    price = search_price(search_backend(env)) if "search" in env.tools else None
    return price.usd if price else None if "search" in env.tools else 0.0


@contextlib.contextmanager
def plan_environments(settings: EvalSettings, cache: Cache | None = None) -> Iterator[list[PlannedEnv]]:
    """Make the environments of an evaluation, whose services `cache` records and replays; close them afterwards.

    Raises:
        UnknownEnvError: a name is neither a suite nor an environment.
        ValueError: an option is invalid, or the tasks are endless and no number is set.
        RuntimeError: a service is not configured.
    """
    with contextlib.ExitStack() as opened:
        planned = []
        rows = environment_rows(settings.environments)
        # a suite may mix sets with and without a search or a judge: each takes what it can use of these
        useless = [name for name in _USED_BY if not any(_uses(name, row, settings) for row in rows)]
        for row in rows:
            given = {n: v for n, v in settings.env_options.items() if n in useless or _uses(n, row, settings)}
            options = {**row.options, **given}
            env = make_env(row.env, {**options, **({"cache": cache} if cache else {})})
            opened.callback(env.close)
            env.check()
            label = row.env.rpartition(":")[2].removeprefix("arpo/")
            count = task_count(label, env, settings.tasks, row.tasks)
            planned.append(PlannedEnv(label, row.env, options, row.metric, row.subset, env, count))
        yield planned


_USED_BY = ("search", "judge_model")


def _uses(name: str, row: SuiteRow, settings: EvalSettings) -> bool:
    """Return whether the environment of a row can use an option, of those that not all can."""
    env_id, options = known_id(row.env), {**row.options, **settings.env_options}
    if name not in _USED_BY or not has_spec(env_id):
        return True
    spec = get_spec(env_id)
    if name == "search":
        return "search" in (options.get("tools") or spec.tools)
    return bool((options.get("scorer") or spec.scorer) == "judge")


def missing_units(
    planned: Sequence[PlannedEnv],
    model: str,
    settings: EvalSettings,
    store: episode_store.EpisodeStore,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
) -> list[Unit]:
    """Return the units of a model that have to be played, or broke, the first sample of each task before the second."""
    units, numbers = [], itertools.count()
    for one in planned:
        first = settings.first_task
        tasks = {number: one.env.tasks.task(number) for number in range(first, first + one.count)}
        if len({task.id for task in tasks.values()}) < len(tasks):
            raise ValueError(f"two tasks of {one.label} have the same id; give each its own")
        for sample, (index, task) in itertools.product(range(settings.samples), tasks.items()):
            number = next(numbers)
            if shard is not None and not shard.owns(number):
                continue
            key = episode_store.UnitKey(model, one.label, task.id, sample)
            row = store.rows.get(key)
            if row is not None and row.question != task.question:
                raise ValueError(
                    f"the tasks of {one.label} have changed since the run began: {task.id!r} asked "
                    f"{row.question[:80]!r}, and asks {task.question[:80]!r}. Evaluate into another folder"
                )
            if (row is not None and row.broken) if repeat_broken else row is None:
                units.append(Unit(key, task, index))
    return units


def task_count(label: str, env: ToolEnv, wanted: int | None, usual: int | None) -> int:
    """Return how many tasks are played: what is wanted, else what is usual, and no more than there are."""
    sizes = [size for size in (wanted or usual, env.tasks.size) if size is not None]
    if not sizes:
        raise ValueError(f"{label} has endless tasks: say how many to play, such as --tasks 100")
    return min(sizes)


@contextlib.contextmanager
def progress(total: int | None = None) -> Iterator[Callable[[episode_store.UnitRow], object]]:
    """Show on standard error how many units of a run were played; yields what takes each row that was stored."""
    broken = tokens = 0
    seconds = 0.5 if sys.stderr.isatty() else 30.0  # in a log file each state stays
    with tqdm(total=total, desc="playing", unit="unit", mininterval=seconds, disable=total == 0) as bar:

        def add(row: episode_store.UnitRow) -> None:
            nonlocal broken, tokens
            broken, tokens = broken + row.broken, tokens + row.generated
            rate = tokens / max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"{broken} broken, {rate:,.0f} tokens/s", refresh=False)
            bar.update()

        yield add


def run_evaluation(
    settings: EvalSettings,
    models: Sequence[EvalModel],
    output: str | Path,
    *,
    resume: bool = False,
    repeat_broken: bool = False,
    shard: EvalShard | None = None,
    workers: RolloutWorkers | None = None,
) -> episode_store.EvalRun:
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
        eval_settings.check_for_workers(models, settings.cache)
    folder, models = shard_folder(output, shard), eval_settings.labelled(models)
    settings = replace(settings, models={model.label: model.facts() for model in models})
    stored = stored_facts(folder, settings, resume or repeat_broken)
    if repeat_broken and not stored:
        if not (folder / episode_store.FACTS).is_file():
            raise FileNotFoundError(f"no evaluation in {str(folder)!r} to repeat anything of")
        repeat_broken = False  # all of it broke, so that nothing was stored
    if settings.cache and settings.cache_mode == "replay" and not Path(settings.cache).is_file():
        raise FileNotFoundError(
            f"no recording {settings.cache!r} to replay; make it by the same command without replay"
        )
    with contextlib.ExitStack() as held:
        cache: Cache | None = None
        if settings.cache:
            cache = held.enter_context(contextlib.closing(Cache(settings.cache, settings.cache_mode or "record")))
        planned = held.enter_context(plan_environments(settings, cache))
        blind = next((model for model in models if model.kind != "endpoint"), None)
        if blind and any(one.env.services.show_images for one in planned):  # before weights are loaded
            raise ValueError(UNSEEN.format(model=f"{blind.label!r} (a model of kind {blind.kind!r})"))
        # all environments share the limits
        check_limits(settings.limits, sorted({tool for one in planned for tool in one.env.tools}))
        store = held.enter_context(episode_store.EpisodeStore(folder))
        shard = EvalShard.of(stored) or shard
        facts = facts_of(folder, settings, planned, stored, shard)
        missing = {
            model: missing_units(planned, model.label, settings, store, repeat_broken, shard) for model in models
        }
        if resume and not repeat_broken and (broken := sum(row.broken for row in store.rows.values())):
            logger.warning("%d broken ones are not played again: arpo eval retry %s", broken, folder)
        with _recording(folder, facts, store):
            played = [model for model, units in missing.items() if units]
            warn_of_new_weights(played, facts["started"])
            for model in played:
                resolve_model(model.model_id)  # all of them before the first, which may take hours
            environments = [(one, 0) for one in planned]
            engines = {model: unloaded_engines(environments, model, settings, facts, cache) for model in played}
            with progress(sum(map(len, missing.values()))) as add:
                for model in played:
                    own = engines.pop(model)  # nothing here refers to a model that was played
                    backend = open_for(own, model, cache, settings.concurrency)
                    keep_protocols(folder, facts, model.label, own)
                    runner = runner_of(workers, backend, own, store, settings.concurrency, settings.limits, add)
                    run(runner.play(missing[model]))
                    del own, backend, runner
                    eval_settings.free_memory()
    return episode_store.load_eval_run(folder)


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
    if (Path(output) / episode_store.FACTS).is_file() and not folder.exists():
        raise FileExistsError(f"{str(output)!r} holds an evaluation; give shards another folder with --output")
    return folder


def broken_share(found: episode_store.EvalRun) -> float:
    """Return the share of episodes that have no score because something broke."""
    episodes = [episode for row in found.rows for episode in row.episodes]
    return sum(episode.reward is None for episode in episodes) / len(episodes) if episodes else 0.0


def unloaded_engines(
    planned: Iterable[tuple[PlannedEnv, int]],
    model: EvalModel,
    settings: EvalSettings,
    facts: Mapping[str, Any],
    cache: Cache | None,
) -> dict[str, Engine]:
    """Return an engine for each environment, by its label, without a backend so far: `open_for` gives them one.

    The number of an environment is added to the seed. A protocol that the model cannot have is refused.
    """
    tokenizer, template = eval_settings.load_tokenizer(model), settings.chat_template_kwargs
    rollout = eval_settings.rollout_of(model, settings)
    tools = open_inference_tools(settings.inference_settings, cache)
    # all that is asked of a backend before it is there
    unloaded: Any = SimpleNamespace(wants_messages=model.kind == "endpoint")
    engines = {}
    for one, number in planned:
        own = replace(rollout, seed=rollout.seed + number)
        env = begun_env(one, model, facts, own, tokenizer, template)
        engines[one.label] = Engine(unloaded, tokenizer, env, own, template, inference=tools)
    return engines


def open_for(engines: Mapping[str, Engine], model: EvalModel, cache: Cache | None, concurrency: int) -> Backend:
    """Open the model of some engines: with a cache it is recorded, or replayed from it without loading weights."""
    from arpo_trainer.backends.recorded import RecordedBackend

    tokenizer = next(iter(engines.values())).tokenizer
    replayed = cache is not None and cache.mode == "replay"
    backend: Any = None if replayed else eval_settings.open_backend(model, tokenizer, concurrency)
    if cache is not None:
        # by its path: labels of different runs may be equal, as in "checkpoint-100"
        name, messages = model.name or model.model_id, model.kind == "endpoint"
        backend = RecordedBackend(backend, cache, name, messages=messages)
    for engine in engines.values():
        engine.backend = backend
    return cast(Backend, backend)


def begun_env(
    planned: PlannedEnv,
    model: EvalModel,
    facts: Mapping[str, Any],
    rollout: RolloutSettings,
    tokenizer: Any,
    template: Mapping[str, Any],
) -> ToolEnv:
    """Return an environment with the protocol that a model begins the run with, or began it: that does not change."""
    begun = facts["protocols"].get(model.label, {}).get(planned.label)
    env = planned.env.with_protocol(begun) if begun and not planned.env.protocol_given else planned.env
    return with_model_protocol(env, rollout, tokenizer, template, model.endpoint)


def keep_protocols(folder: Path, facts: dict[str, Any], model: str, engines: Mapping[str, Engine]) -> None:
    """Note in run.json which protocols a model plays with, before it does."""
    facts["protocols"][model] = {label: engine.env.protocol.name for label, engine in engines.items()}
    write_facts(folder / episode_store.FACTS, facts)


def stored_facts(folder: Path, settings: EvalSettings, resume: bool, kind: str = episode_store.KIND) -> dict[str, Any]:
    """Return run.json of an earlier sitting, or {}; refuse folders of anything else than a run of this kind."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--output {str(folder)!r} is a file; give a folder")
    facts = read_facts(folder / episode_store.FACTS) if (folder / episode_store.FACTS).is_file() else {}
    if facts and facts.get("kind") != kind:
        raise FileExistsError(f"{str(folder)!r} holds another run; give another folder with --output")
    if not (folder / episode_store.ROWS).is_file() or not (folder / episode_store.ROWS).stat().st_size:
        return {}  # nothing has been played
    if not facts:
        raise FileExistsError(
            f"{str(folder)!r} has episodes, but no {episode_store.FACTS} that says of what; give another folder"
        )
    if not resume:
        refuse_earlier(folder, [episode_store.ROWS])
    # the parts of an evaluation must have one size; a synthesis chooses from what there is
    eval_settings.refuse_other_settings(
        facts["settings"], settings, sharded=kind == episode_store.KIND and "shard" in facts
    )
    return facts


def facts_of(
    folder: Path, settings: EvalSettings, planned: Sequence[PlannedEnv], stored: dict[str, Any], shard: EvalShard | None
) -> dict[str, Any]:
    """Return what run.json says of a sitting; `stored` is what an earlier one left."""
    part = {"shard": asdict(shard)} if shard else {}
    # an earlier release kept none, and played each environment with its own
    earlier = {label: {one.label: one.env.protocol.name for one in planned} for label in settings.models}
    return part | {
        "name": folder.resolve().name,
        "kind": episode_store.KIND,
        "started": stored.get("started") or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": stored.get("seconds", 0.0),
        "sittings": stored.get("sittings", 0) + 1,
        "environments": {one.label: one.facts() for one in planned},
        "models": settings.models,
        "samples": settings.samples,
        "protocols": stored.get("protocols", earlier if stored else {}),
        "algorithm": settings.algorithm,
        "settings": settings.as_dict(),
        "versions": versions(),
    }


def warn_of_new_weights(models: Iterable[EvalModel], started: str) -> None:
    """Warn of folders to which weights were written since a run began: what it has may be of another model."""
    began = datetime.datetime.fromisoformat(started).timestamp()
    for model in models:
        if model.kind != "endpoint" and any(file.stat().st_mtime > began for file in weight_files(model.model_id)):
            logger.warning(
                "the weights in %s were written after this run began (%s): if they are other ones, its episodes are of "
                "two models; evaluate them into another folder",
                *(model.model_id, started),
            )


@contextlib.contextmanager
def _recording(folder: Path, facts: dict[str, Any], store: episode_store.EpisodeStore) -> Iterator[None]:
    """Keep run.json true; results are written however it ends."""
    try:
        with recorded(folder / episode_store.FACTS, facts):
            yield
    finally:
        rows = list(store.rows.values())
        facts["usage"] = usage_of(facts, rows)
        write_facts(folder / episode_store.FACTS, facts)
        write_results(folder, rows, facts)
