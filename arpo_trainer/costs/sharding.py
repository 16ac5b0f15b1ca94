"""How the processes of a run share a model: whole copies, or shards, as accelerate's launcher or file says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from arpo_trainer.validation import check_name

SHARDINGS = {
    "ddp": (),
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradients"),
    "zero3": ("optimizer", "gradients", "weights"),
    "fsdp": ("optimizer", "gradients", "weights"),
    "fsdp-no-reshard": ("optimizer", "gradients", "weights"),  # weights are whole from forward to backward
}


@dataclass(frozen=True)
class ProcessLayout:
    """How the processes of a run share a model.

    Attributes:
        processes: processes on all machines.
        sharding: a key of SHARDINGS, which names the parts that are divided among the processes.
        offloaded: parts that are in the machine's memory instead of the GPU's.

    Raises:
        ValueError: the sharding is unknown.
    """

    processes: int = 1
    sharding: str = "ddp"
    offloaded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_name("sharding", self.sharding, SHARDINGS)

    @property
    def deepspeed(self) -> bool:
        """Whether DeepSpeed is used."""
        return self.sharding.startswith("zero")

    def share(self, part: str) -> float:
        """Return the share of "weights", "gradients" or "optimizer" that a process has on its device."""
        if part in self.offloaded:
            return 0.0
        return 1 / self.processes if part in SHARDINGS[self.sharding] else 1.0

    @classmethod
    def of(cls, processes: int, environ: Mapping[str, str] = os.environ) -> ProcessLayout:
        """Return the layout that the environment variables of `accelerate launch` describe."""
        if environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            stage = environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
            # stage 0 divides nothing
            return cls(processes, f"zero{stage}" if stage in "123" else "ddp", _deepspeed_offloads(environ))
        if environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
            reshards = environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false"
            # FSDP 1 calls it SHARD_GRAD_OP (2), FSDP 2 not to reshard after forward
            whole = environ.get("FSDP_SHARDING_STRATEGY", "") in ("SHARD_GRAD_OP", "2") or not reshards
            parts = SHARDINGS["fsdp"] if environ.get("FSDP_OFFLOAD_PARAMS", "").lower() == "true" else ()
            return cls(processes, "fsdp-no-reshard" if whole else "fsdp", frozenset(parts))
        return cls(processes)

    @classmethod
    def of_file(cls, processes: int, config: str | Path) -> ProcessLayout:
        """Return the layout that an accelerate configuration file describes."""
        told: dict[str, Any] = yaml.safe_load(Path(config).read_text(encoding="utf-8")) or {}
        kind = str(told.get("distributed_type"))
        environ = {"ACCELERATE_USE_DEEPSPEED": str(kind == "DEEPSPEED"), "ACCELERATE_USE_FSDP": str(kind == "FSDP")}
        deepspeed, fsdp = told.get("deepspeed_config") or {}, told.get("fsdp_config") or {}
        environ |= {f"ACCELERATE_DEEPSPEED_{name.upper()}": str(value) for name, value in deepspeed.items()}
        environ |= {name.upper(): str(value) for name, value in fsdp.items()}
        return cls.of(processes, environ)


def _deepspeed_offloads(environ: Mapping[str, str]) -> frozenset[str]:
    places = {"optimizer": "OPTIMIZER", "weights": "PARAM"}
    told = {part: environ.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE") for part, name in places.items()}
    return frozenset(part for part, device in told.items() if device in ("cpu", "nvme"))
