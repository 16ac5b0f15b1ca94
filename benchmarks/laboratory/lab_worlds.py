"""The worlds of the action `compare`, a row for each name of `--envs`, with environment, policies and limits.

short, long-critical, long-many, stochastic    levels of `arpo/Bifurcation-v0`, with tiny policies
arithmetic, multihop                           tasks of several calls of a tool, with a small real model
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.validation import check_name
from benchmarks.laboratory.cold_policy import TASKS, ColdPolicySettings, calls_of
from benchmarks.laboratory.lab_policy import PolicySettings, StartSettings, world_env
from envs_registry.generated.bifurcation import LEVELS, BifurcationSource, knob_names

Knobs = dict[str, Any]


@dataclass(frozen=True)
class LabWorld:
    """A row.

    Attributes:
        policy: what a policy to start from is made of; it takes `level`, `knobs` and settings of its own.
        knobs: names of the knobs.
        env: makes the environment from the knobs, and from options such as `split`.
        calls: returns how many calls a task needs, from the knobs.
        turn: tokens of a call.
        seen: tokens of a call and its result.
        settings: fields of `ARPOConfig` that replace those of all runs.
        gpu: train on a GPU where there is one.
        max_rows: most trajectories that are decoded at once.
        prefix_tokens: most tokens whose keys and values are kept for later turns. Both bound the memory; results do not
            depend on them but by rounding.
    """

    policy: type[StartSettings]
    knobs: tuple[str, ...]
    env: Callable[..., ToolEnv]
    calls: Callable[[Knobs], int]
    turn: int
    seen: int
    settings: dict[str, Any] = field(default_factory=dict)
    gpu: bool = False
    max_rows: int = 512
    prefix_tokens: int = 400_000

    def start(self, name: str, knobs: Knobs, given: dict[str, Any]) -> StartSettings:
        """Return the settings of a policy to start from.

        Args:
            name: of the world.
            knobs: of the world.
            given: settings that replace the defaults.

        Raises:
            ValueError: a value is out of range.
        """
        return self.policy(level=name, knobs=knobs, **given)  # type: ignore[call-arg]

    def policy_names(self) -> list[str]:
        """Return the settings of the policy to start from, apart from the world."""
        return [each.name for each in fields(self.policy) if each.name not in ("level", "knobs")]  # type: ignore[arg-type]

    def expected(self, knobs: Knobs) -> dict[str, int]:
        """Return what a trajectory is expected to cost."""
        calls = self.calls(knobs)
        return {
            "trajectories": 1,
            "tool_calls": calls,
            "sampled_tokens": self.turn * (calls + 1),
            "update_tokens": self.seen * calls,
        }


def lab_world(name: str) -> LabWorld:
    """Return the row of a name.

    Raises:
        ValueError: there is none; the error has the nearest name.
    """
    check_name("environment", name, list(WORLDS))
    return WORLDS[name]


def _doors(level: str) -> LabWorld:
    return LabWorld(
        PolicySettings,
        tuple(knob_names()),
        lambda knobs, **options: world_env(level, knobs, **options),
        lambda knobs: BifurcationSource(level=level, **knobs).settings.rooms,
        turn=3,
        seen=9,
    )


def _tools(name: str, turn: int, seen: int, **settings: Any) -> LabWorld:
    tasks = TASKS[name]
    return LabWorld(
        ColdPolicySettings,
        tuple(tasks.options),
        tasks.make,
        lambda knobs: calls_of(tasks.make(knobs)),
        turn=turn,
        seen=seen,
        settings={"bf16": True, **settings},
        gpu=True,
        max_rows=64,
        prefix_tokens=49_152,  # of SmolLM2-135M 46 kB each in float32
    )


WORLDS: dict[str, LabWorld] = {
    **{level: _doors(level) for level in LEVELS},
    "arithmetic": _tools(
        "arithmetic", 10, 25, learning_rate=2e-6, max_turn_length=24, max_completion_length=240, entropy_window=4
    ),
    "multihop": _tools(
        "multihop", 12, 120, learning_rate=2e-6, max_turn_length=32, max_completion_length=900, entropy_window=4
    ),
}
