"""The summary that `arpo rollout` prints: scores, branches, tool calls, waits and speed.

`rollout.metrics` computes the same numbers under the names of a training log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arpo_trainer.tree import RolloutTree


def summary_table(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return the summary as rows of a table: name, value."""
    from arpo_trainer.rollout.metrics import invalid_causes, rollout_metrics

    seen = rollout_metrics(trees)
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    causes = ", ".join(f"{name} {count}" for name, count in invalid_causes(trajectories).items())
    names = sorted(name.removeprefix("tool_calls/") for name in seen if name.startswith("tool_calls/"))
    calls = [f"{name} {seen[f'tool_calls/{name}']:.0f} ({seen[f'tool_seconds/{name}']:.2f} s)" for name in names]
    # shorter waits would be shown as 0.00 s
    waits = [f"{name[5:]} {value:.2f} s" for name, value in seen.items() if name.startswith("wait/") and value >= 0.005]
    return [
        ("TASKS", f"{len(trees)}, {len(trajectories)} trajectories"),
        ("NOT SCORED", causes or "none"),
        *_scores(trees),
        *_tree_rows(seen),
        ("TOOL CALLS", ", ".join(calls) or "none"),
        *_withheld_rows(seen),
        ("WAITS", ", ".join(waits) + " per trajectory" if waits else "none"),
        ("WAITING", f"{100 * seen.get('wait_share', 0):.1f} % of a trajectory's time"),
        ("MODEL", _model_use(seen)),
    ]


def _tree_rows(seen: Mapping[str, float]) -> list[tuple[str, str]]:
    kept = seen["branches"] + seen["top_ups"]
    if not kept:
        return [("BRANCHES", "none: all trajectories started at the prompt")]
    rows = [("BRANCHES", f"{seen['branches']:.0f} of the {kept:.0f} in the budget; depth {seen['depth']:.0f}")]
    if "fork_contrast" in seen:
        contrast, result = 100 * seen["fork_contrast"], seen["fork_result"]
        rows.append(("FORKS", f"rewards differ at {contrast:.0f} % of them; on average after result {result:.1f}"))
    return rows


def _withheld_rows(seen: Mapping[str, float]) -> list[tuple[str, str]]:
    many = seen["withheld"]
    return [("WITHHELD", f"{many:.0f} results did not fit: raise max_completion_length")] if many else []


def _model_use(seen: Mapping[str, float]) -> str:
    return (
        f"{seen['tokens_generated']:,.0f} tokens, {seen.get('tokens_per_second', 0):,.0f} per second; "
        f"idle {100 * seen.get('model_idle', 0):.1f} %; context from cache {100 * seen.get('cache_hits', 0):.1f} %"
    )


def _scores(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return reward and accuracy of the independent samples, with 95 % intervals over tasks."""
    from arpo_trainer.statistics.intervals import bootstrap_interval, wilson_interval

    samples = [[tree.trajectories[number] for number in tree.samples()] for tree in trees]
    scored = [valid for each in samples if (valid := [t for t in each if t.valid])]
    if not scored:
        return []
    rewards = [_mean([t.reward or 0.0 for t in valid]) for valid in scored]
    # partly right answers do not count, as in evaluations
    right = [[float(t.components.get("accuracy", 0.0) >= 1.0) for t in valid] for valid in scored]
    shares = [_mean(of) for of in right]
    single = all(len(tree.trajectories) == 1 for tree in trees)
    # Wilson's interval is for one yes or no per task; with several trajectories a task has a share
    low, high = wilson_interval(sum(shares), len(shares)) if single else bootstrap_interval(shares)
    rows = [
        ("REWARD", _with_interval(_mean(rewards), *bootstrap_interval(rewards), len(scored))),
        ("ACCURACY", _with_interval(_mean(shares), low, high, len(scored))),
    ]
    if not single:
        solved = sum(any(t.components.get("accuracy", 0.0) >= 1.0 for t in tree.trajectories) for tree in trees)
        rows.append(("SOLVED", f"{solved} of {len(trees)} tasks at least once, branches included"))
    return rows


def _with_interval(value: float, low: float, high: float, tasks: int) -> str:
    # one task tells nothing about the spread between tasks
    return f"{value:.3f} [{low:.3f}, {high:.3f}], 95 % over tasks" if tasks > 1 else f"{value:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
