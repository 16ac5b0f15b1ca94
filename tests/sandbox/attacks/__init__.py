"""The attack suite: what hostile or clever code tries, by class; `test_sandbox_attacks.py` runs it."""

from importlib import import_module

from attacks.attack import Attack, written

OF_THE_ISOLATION = (
    *("exhaustion", "files", "kernel", "kernel_memory", "leftovers", "memory"),
    *("network", "processes", "reading", "signals", "watching"),
)
"""Kinds of attacks that the walls of a backend contain; the others are contained by the server, the same in each."""
OF_THE_SERVER = (
    *("endless", "output", "control", "interpreter", "forking", "branches"),
    *("planted", "planted_helpers", "own_death", "forged", "unfair"),
)
ATTACKS: tuple[Attack, ...] = tuple(
    attack for kind in (*OF_THE_ISOLATION, *OF_THE_SERVER) for attack in written(kind, import_module(f"attacks.{kind}"))
)

__all__ = ["ATTACKS", "OF_THE_ISOLATION", "Attack"]
