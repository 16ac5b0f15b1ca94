"""How a rollout went, as rows of a table: scores, branches, tool calls, waits, speed.

What this module does not do: play (see `rollout_command`), or name each number for a log (see `rollout_metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arpo_trainer.tree import RolloutTree


def summary_table(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return how a rollout went, as rows of a table: what, and how much."""
    from arpo_trainer.rollout.metrics import invalid_causes, rollout_metrics

    seen = rollout_metrics(trees)
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    causes = ", ".join(f"{name} {count}" for name, count in invalid_causes(trajectories).items())
    names = sorted(name.removeprefix("tool_calls/") for name in seen if name.startswith("tool_calls/"))
    calls = [f"{name} {seen[f'tool_calls/{name}']:.0f} ({seen[f'tool_seconds/{name}']:.2f} s)" for name in names]
    waits = [f"{name[5:]} {value:.2f} s" for name, value in seen.items() if name.startswith("wait/") and value >= 0.005]
    kept = seen["branches"] + seen["top_ups"]
    return [
        ("TASKS", f"{len(trees)}, {len(trajectories)} trajectories"),
        ("NOT SCORED", causes or "none"),
        *_scores(trees),
        ("BRANCHES", f"{seen['branches']:.0f} of {kept:.0f} that were kept for them; depth {seen['depth']:.0f}"
                     if kept else "none: all started at the prompt"),
        *([("FORKS", f"branches differ in reward at {100 * seen['fork_contrast']:.0f} % of them; "
                     f"on average after result {seen['fork_result']:.1f}")] if "fork_contrast" in seen else []),
        ("TOOL CALLS", ", ".join(calls) or "none"),
        *([("WITHHELD", f"{seen['withheld']:.0f} results did not fit: raise max_completion_length")]
          if seen["withheld"] else []),
        ("WAITS", ", ".join(waits) + " a trajectory" if waits else "none"),
        ("WAITING", f"{100 * seen.get('wait_share', 0):.1f} % of a trajectory's life"),
        ("MODEL", f"{seen['tokens_generated']:,.0f} tokens, {seen.get('tokens_per_second', 0):,.0f} a second; "
                  f"idle {100 * seen.get('model_idle', 0):.1f} %; "
                  f"context from cache {100 * seen.get('cache_hits', 0):.1f} %"),
    ]  # fmt: skip


def _scores(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return reward and accuracy, with 95 % intervals over the tasks: trajectories of one task are not independent."""
    from arpo_trainer.training.evaluation import bootstrap_interval, wilson_interval

    scored = [[t for t in tree.trajectories if t.valid] for tree in trees]
    scored = [valid for valid in scored if valid]
    if not scored:
        return []
    rewards = [_mean([t.reward or 0.0 for t in valid]) for valid in scored]
    right = [[float(t.components.get("accuracy", 0.0) >= 1.0) for t in valid] for valid in scored]
    shares = [_mean(of) for of in right]
    single = all(len(tree.trajectories) == 1 for tree in trees)
    low, high = wilson_interval(sum(shares), len(shares)) if single else bootstrap_interval(shares)
    rows = [("REWARD", _with_interval(_mean(rewards), *bootstrap_interval(rewards), len(scored))),
            ("ACCURACY", _with_interval(_mean(shares), low, high, len(scored)))]  # fmt: skip
    if not single:
        rows.append(("SOLVED", f"{sum(any(of) for of in right)} of {len(scored)} tasks at least once"))
    return rows


def _with_interval(value: float, low: float, high: float, tasks: int) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}], 95 % over tasks" if tasks > 1 else f"{value:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
