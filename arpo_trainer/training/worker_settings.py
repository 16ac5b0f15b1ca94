"""`RolloutWorkerSettings`: the settings of `ARPOConfig` for rollouts on Ray, and the engine that they ask for."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.optional_dependencies import require
from arpo_trainer.rollout.distributed import rank_count, this_rank
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.training.process_count import planned_processes
from arpo_trainer.validation import check_types

logger = logging.getLogger(__name__)


@dataclass
class RolloutWorkerSettings:
    """Settings for rollouts on Ray; they are fields of `ARPOConfig`."""

    rollout_workers: int = field(
        default=0,
        metadata={
            "help": "Ray actors that play the groups, over all training processes; 0 plays them in the training "
            "processes, or with `ray_address` on one actor for each node (and at least one for each training process). "
            "It needs `vllm_mode: server`."
        },
    )
    ray_address: str | None = field(
        default=None,
        metadata={
            "help": "Address of the Ray cluster, 'HOST:PORT' or 'auto'. Default: with `rollout_workers` the variable "
            "RAY_ADDRESS, or else Ray is started on this machine."
        },
    )
    rollout_worker_cpus: float = field(default=1.0, metadata={"help": "CPUs that an actor asks Ray for."})
    rollout_worker_resources: dict[str, float] | str | None = field(
        default=None,
        metadata={"help": 'Custom resources of Ray that an actor asks for, to choose its nodes: {"sandbox": 1}.'},
    )
    rollout_worker_timeout: float = field(
        default=300.0, metadata={"help": "Most seconds until all actors run, and until a lost one is replaced."}
    )

    @property
    def uses_workers(self) -> bool:
        """Whether Ray actors play the groups."""
        return bool(self.rollout_workers) or self.ray_address is not None

    def check_workers(self, processes: int) -> None:
        """Refuse settings that cannot work.

        Args:
            processes: number of training processes.

        Raises:
            ValueError: names the setting and the cure.
            ModuleNotFoundError: Ray is not installed.
        """
        check_types(self, RolloutWorkerSettings.__annotations__)
        if self.rollout_workers < 0 or self.rollout_worker_cpus < 0 or self.rollout_worker_timeout <= 0:
            raise ValueError(
                "rollout_workers and rollout_worker_cpus must be at least 0 and rollout_worker_timeout above 0, got "
                f"{self.rollout_workers}, {self.rollout_worker_cpus:g} and {self.rollout_worker_timeout:g}"
            )
        self.worker_resources()
        if not self.uses_workers:
            return
        if not (getattr(self, "use_vllm", False) and getattr(self, "vllm_mode", "") == "server"):
            raise ValueError(
                "rollout workers generate on a server, which gets the weights of the trainer: set use_vllm: true and "
                "vllm_mode: server, or leave rollout_workers and ray_address out"
            )
        if not planned_processes():  # a dry run may be on a machine without Ray
            require("ray")
        if 0 < self.rollout_workers < processes:
            raise ValueError(
                f"rollout_workers={self.rollout_workers} are fewer than the {processes} training processes, each of "
                f"which plays its groups on workers of its own: take {processes} or more"
            )

    def worker_resources(self) -> dict[str, float]:
        """Return the custom resources of an actor.

        Raises:
            ValueError: they are no numbers by name.
        """
        given: Any = self.rollout_worker_resources or {}
        try:
            given = json.loads(given) if isinstance(given, str) else given
            return {str(name): float(amount) for name, amount in given.items()}
        except (ValueError, TypeError, AttributeError):
            raise ValueError(
                f"rollout_worker_resources={given!r}: give a number by name, as in {{'sandbox': 1}}"
            ) from None


def on_workers(engine: Engine, args: RolloutWorkerSettings) -> Engine:
    """Return an engine with the same parts that plays on Ray actors, or the engine itself if none are asked for.

    The actors are divided over the training processes; each process starts its own.

    Raises:
        RuntimeError: the cluster cannot be used, or not all actors could be started.
    """
    if not args.uses_workers:
        return engine
    from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers

    count, rank, ranks = args.rollout_workers, this_rank(), rank_count()
    workers = RolloutWorkers(
        count // ranks + (rank < count % ranks),
        args.ray_address,
        cpus=args.rollout_worker_cpus,
        resources=args.worker_resources(),
        start_timeout=args.rollout_worker_timeout,
        sharers=ranks,
    )
    logger.info("rollout workers: %s", ", ".join(workers.nodes()))
    parts: Mapping[str, Any] = {name: getattr(engine, name) for name in ("backend", "tokenizer", "env", "settings")}
    return RayEngine(**parts, chat_template_kwargs=engine.chat_template_kwargs, limits=engine.limits, workers=workers)
