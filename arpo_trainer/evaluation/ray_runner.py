"""`RayEvalRunner`: plays units on rollout workers (Ray); this process stores what they played, and nobody else writes.

A worker has its own backend and environments, and hands trees back. A unit is stored when its tree has arrived, so one
that is lost with its worker is played again and stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from arpo_trainer.backends.base import GenerationError
from arpo_trainer.evaluation.eval_models import SERVED, EvalModel
from arpo_trainer.evaluation.eval_runner import EvalRunner, Unit
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.inference_tools.helper_model import ChatHelper, InferenceTools
from arpo_trainer.inference_tools.inference_settings import InferenceSettings
from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, GroupJob
from arpo_trainer.ray_rollouts.rollout_workers import RolloutWorkers
from arpo_trainer.tree import RolloutTree


@dataclass
class RayEvalRunner(EvalRunner):
    """Plays units with one model on rollout workers.

    `concurrency` is divided over the workers, each of which plays at least one unit at a time. `limits` hold for each
    worker, over all environments.

    Attributes:
        workers: play the units; several runners may share them.
    """

    workers: RolloutWorkers = field(kw_only=True)

    @property
    def running(self) -> int:
        """The number of trajectories that are being played, over all that share the workers."""
        return self.workers.playing * self.per_unit

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
        first = engines[0]
        envs = tuple(engine.env for engine in engines)
        tools = tools_for_actors(first.inference)
        parts = EngineParts(self.backend, first.tokenizer, envs, first.chat_template_kwargs, tools)
        places = max(self.concurrency // self.workers.actors.count, self.per_unit)
        jobs = [GroupJob(u.task, u.key.sample, u.index, labels.index(u.key.env), u.opening) for u in units]

        def take(number: int, tree: RolloutTree) -> None:
            self._played(units[number], tree)

        def failed(number: int, tree: RolloutTree, error: GenerationError) -> None:
            self._model_failed(units[number], tree, error)

        await self.backend.begin()
        try:
            settings, limits = [engine.settings for engine in engines], {"trajectory": places, **self.limits}
            await self.workers.play(parts, settings, limits, jobs, take, failed)
        finally:
            await self.backend.end()
        self._store_failed()


def tools_for_actors(inference: InferenceTools | None) -> InferenceSettings | None:
    """Return tools with the address of their model, whose default may be another one in the environment of a node."""
    if inference is None or not isinstance(inference.helper, ChatHelper):
        return inference.settings if inference else None
    return replace(inference.settings, url=inference.helper.chat.base_url)


def check_for_workers(settings: EvalSettings, models: Sequence[EvalModel]) -> None:
    """Refuse what rollout workers cannot play.

    Raises:
        ValueError: a model is in this process, or everything is to be recorded.
    """
    for model in models:
        if model.kind not in SERVED:
            raise ValueError(
                f"rollout workers (--ray, --rollout-workers) reach no model of this process, and {model.label!r} would "
                f"be one ({model.kind}): serve it with vLLM and give --vllm-server URL, or give an --endpoint"
            )
    if settings.cache:
        raise ValueError(
            f"rollout workers cannot share the recording {settings.cache!r}, which is a file of one machine: leave out "
            "--cache, or play without --ray and --rollout-workers (with --shard on several machines)"
        )
