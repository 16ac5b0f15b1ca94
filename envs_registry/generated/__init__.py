"""Generated tasks: endless, seeded, and licensed as this package. Each generator is a module, imported at first use."""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Collection
from typing import Any

from envs_registry.sources import register_source
from envs_registry.spec import EnvSpec, register

SPLITS = ("train", "test")
_TEST_SHARE = 10  # one question in ten belongs to the test split


def check_split(name: str, split: str) -> None:
    """Raise ValueError if a generator has no such split."""
    if split not in SPLITS:
        raise ValueError(f"{name} has the splits {' and '.join(SPLITS)}, not {split!r}")


def in_split(text: str, split: str) -> bool:
    """Return whether what a text says belongs to a split; no text belongs to both."""
    # A checksum and not hash(), whose value for a text differs between processes.
    return (zlib.crc32(text.encode()) % _TEST_SHARE == 0) == (split == "test")


def levels_of(name: str, level: int | str, known: Collection[int]) -> list[int]:
    """Return the levels that "mixed", one of them, or several as in "2,3" mean."""
    if level == "mixed":
        return list(known)
    parts = [part.strip() for part in str(level).split(",")]
    if not all(part.isdecimal() and int(part) in known for part in parts):
        shown = ", ".join(map(str, known))
        raise ValueError(f"{name} has the levels {shown}, 'mixed', or several as in '2,3'; not {level!r}")
    return list(dict.fromkeys(map(int, parts)))


def _measured(module: str, name: str, episode: Any) -> float:
    value: float = getattr(importlib.import_module(f"{__name__}.{module}"), name)(episode)
    return value


_endless = functools.partial(EnvSpec, size="endless", licence="MIT")
GENERATED = (
    _endless(
        id="arpo/Arithmetic-v0",
        source="arithmetic",
        description="generated arithmetic in six levels that needs Python, some of it over several calls",
        scorer="math",
        levels=("1", "2", "3", "4", "5", "6"),
    ),
    _endless(
        id="arpo/Bifurcation-v0",
        source="bifurcation",
        description="generated corridors of doors with a few decisions that are known to matter, to compare algorithms",
        tools=("go",),
        reward={"key": (functools.partial(_measured, "bifurcation", "key_quality"), 1.0)},
        scorer="em",
        max_turns=64,
        max_tool_calls=63,
        levels=("short", "long-critical", "long-many", "stochastic"),
    ),
    _endless(
        id="arpo/MultiHop-v0",
        source="multihop",
        description="generated questions of two to four hops over an invented world that comes with its passages",
        tools=("search",),
        scorer="em",  # answers are names and years; a part of a name must not count
        max_turns=8,
        max_tool_calls=6,
        levels=("2", "3", "4"),
    ),
    _endless(
        id="arpo/ToolWorld-v0",
        source="toolworld",
        description="generated questions that take one to three of 1,250 tools, which have to be found first",
        tools=("tool_search",),
        protocol="deepagent",
        reward={"accuracy": 1.0, "right_calls": (functools.partial(_measured, "toolworld", "right_calls"), 0.0)},
        scorer="em",
        max_turns=51,  # DeepAgent's 50 actions, and the answer
        max_tool_calls=50,
        levels=("1", "2", "3"),
    ),
)

GENERATORS = tuple(spec.source for spec in GENERATED)
for _source in GENERATORS:
    register_source(_source, f"{__name__}.{_source}")
register(GENERATED)
