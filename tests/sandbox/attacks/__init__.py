"""The attack suite: what hostile or clever code tries, by class; `test_sandbox_attacks.py` runs it."""

from __future__ import annotations

from attacks import (
    branches,
    control,
    endless,
    exhaustion,
    files,
    forged,
    forking,
    interpreter,
    kernel,
    kernel_memory,
    leftovers,
    memory,
    network,
    output,
    own_death,
    planted,
    planted_helpers,
    processes,
    reading,
    signals,
    unfair,
    watching,
)
from attacks.attack import Attack

_TABLES = (
    processes.ATTACKS,
    memory.ATTACKS,
    endless.ATTACKS,
    output.ATTACKS,
    files.ATTACKS,
    leftovers.ATTACKS,
    signals.ATTACKS,
    reading.ATTACKS,
    network.ATTACKS,
    kernel.ATTACKS,
    control.ATTACKS,
    interpreter.ATTACKS,
    forking.ATTACKS,
    branches.ATTACKS,
    exhaustion.ATTACKS,
    planted.ATTACKS,
    planted_helpers.ATTACKS,
    kernel_memory.ATTACKS,
    watching.ATTACKS,
    own_death.ATTACKS,
    forged.ATTACKS,
    unfair.ATTACKS,
)
ATTACKS: tuple[Attack, ...] = tuple(attack for table in _TABLES for attack in table)
OF_THE_ISOLATION = (
    "exhaustion",
    "files",
    "kernel",
    "kernel_memory",
    "leftovers",
    "memory",
    "network",
    "processes",
    "reading",
    "signals",
    "watching",
)
"""Kinds of attacks that the walls of a backend contain; the others are contained by the server, the same in each."""

__all__ = ["ATTACKS", "OF_THE_ISOLATION", "Attack"]
