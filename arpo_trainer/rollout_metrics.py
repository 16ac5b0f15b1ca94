"""What a rollout looked like, in numbers: one flat dictionary a step.

`ARPOTrainer` logs them under `arpo/`; metrics.jsonl and the report have them without it.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from arpo_trainer.time_use import TimeUse, busy_seconds, generating, time_use, wall_seconds
from arpo_trainer.tree import RolloutTree, Trajectory

_WAITS = ("start", "generate", "tool", "settle")


def rollout_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Summarise the trees of one rollout.

    Returns:
        Finite numbers, by these names:

        | name | what it says |
        |---|---|
        | `reward`, `accuracy`, `tool_calls` | means over the trajectories that could be scored |
        | `entropy` | mean nats a token of the model, shared ones once |
        | `entropy_first`, `entropy_after_tool` | the same over first turns, and over turns after a result |
        | `delta_entropy` | mean rise of the entropy at decisions, in units of ln V |
        | `decisions_branched` | share of the decisions that branched |
        | `roots`, `branches`, `top_ups` | trajectories by how they began |
        | `branch_budget_used` | share of the reserve that became branches; what is left becomes top-ups |
        | `depth`, `depth_mean` | forks between a trajectory and the prompt: the most, and the mean |
        | `invalid`, `invalid/CAUSE` | trajectories that could not be scored, in all and by what broke |
        | `tokens_unique`, `tokens_copied` | after the prompt: shared ones once, and written out |
        | `tokens_generated` | tokens the model wrote, shared ones once |
        | `tool_calls/NAME` | calls of a tool that ran, in all; one shared by branches is one call |
        | `tool_seconds/NAME` | seconds they took in all, without waiting for a place |

        And, where the trees have a timeline:

        | name | what it says |
        |---|---|
        | `wait/KIND` | mean seconds a trajectory waited: for a place (`start`), in the backend's queue (`generate`), \
behind a tool's limit (`tool`), for branches before it in order (`settle`); others where there are any |
        | `wait_share` | share of the trajectories' life that was waiting |
        | `model_idle` | share of the rollout during which nothing was being generated |
        | `tokens_per_second` | generated tokens, a second in which something was being generated |
        | `cache_hits` | share of the context tokens that were not computed again |
        | `withheld` | results that did not fit into the context and were not shown |
        | `retries` | failures that were tried again |
    """
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    use = time_use(trees)
    return {
        **_scores(trajectories),
        **_tokens(trees),
        **_branching(trees, trajectories),
        **_invalid(trajectories),
        "withheld": sum(bool(span.tool and span.tool.get("withheld")) for tree in trees for span in tree.spans),
        **(_tools(use) if use.trajectories else _tools_of_spans(trees)),
        **(_timing(trees, use) if use.trajectories else {}),
    }


def branch_depth(tree: RolloutTree, number: int) -> int:
    """Return how many forks lie between a trajectory and the prompt."""
    depth, parent = 0, tree.trajectories[number].parent
    while parent is not None:
        depth, parent = depth + 1, tree.trajectories[parent].parent
    return depth


def invalid_causes(trajectories: Iterable[Trajectory]) -> Counter[str]:
    """Count the trajectories without a reward by the type of error; "unscored" are those without one."""
    errors = (trajectory.error or "" for trajectory in trajectories if not trajectory.valid)
    return Counter(match[1] if (match := re.match(r"(\w{1,40}):", error)) else "unscored" for error in errors)


def _scores(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    valid = [trajectory for trajectory in trajectories if trajectory.valid]
    return {
        "reward": _mean(trajectory.reward or 0.0 for trajectory in valid),
        "accuracy": _mean(trajectory.components.get("accuracy", 0.0) for trajectory in valid),
        "tool_calls": _mean(trajectory.tool_calls for trajectory in valid),
    }


def _tokens(trees: Sequence[RolloutTree]) -> dict[str, float]:
    model = [span for tree in trees for span in tree.spans if span.kind == "model"]
    return {
        "entropy": _mean(entropy for span in model for entropy in span.entropies),
        "entropy_first": _mean(entropy for span in model if span.parent is None for entropy in span.entropies),
        "entropy_after_tool": _mean(e for span in model if span.parent is not None for e in span.entropies),
        "tokens_unique": sum(tree.unique_tokens() for tree in trees),
        "tokens_copied": sum(tree.copied_tokens() for tree in trees),
        "tokens_generated": sum(len(span.ids) for span in model),
    }


def _branching(trees: Sequence[RolloutTree], trajectories: Sequence[Trajectory]) -> dict[str, float]:
    origins = Counter(trajectory.origin for trajectory in trajectories)
    decisions = [span.decision for tree in trees for span in tree.spans if span.decision]
    depths = [branch_depth(tree, number) for tree in trees for number in range(len(tree.trajectories))]
    return {
        "delta_entropy": _mean(decision.delta for decision in decisions),
        "decisions_branched": _mean(decision.branches > 0 for decision in decisions),
        "roots": origins["root"],
        "branches": origins["branch"],
        "top_ups": origins["top-up"],
        "branch_budget_used": _share(origins["branch"], origins["branch"] + origins["top-up"]),
        "depth": max(depths, default=0),
        "depth_mean": _mean(depths),
    }


def _invalid(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    causes = invalid_causes(trajectories)
    return {"invalid": causes.total(), **{f"invalid/{cause}": causes[cause] for cause in sorted(causes)}}


def _tools(use: TimeUse) -> dict[str, float]:
    calls = {f"tool_calls/{name}": float(use.calls[name]) for name in sorted(use.calls)}
    return calls | {f"tool_seconds/{name}": use.tools[name] for name in sorted(use.tools)}


def _tools_of_spans(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Count from the results in the trees; calls whose result was not appended are missed."""
    use = TimeUse()
    for tool in (span.tool for tree in trees for span in tree.spans):
        if tool and tool.get("status") != "refused":
            use.calls[tool["name"]] += 1
            use.tools[tool["name"]] += tool.get("seconds", 0.0)
    return _tools(use)


def _timing(trees: Sequence[RolloutTree], use: TimeUse) -> dict[str, float]:
    busy, wall = busy_seconds(generating(trees)), wall_seconds(trees)
    kinds = [*_WAITS, *sorted(set(use.waiting) - set(_WAITS))]
    return {
        **{f"wait/{kind}": use.waiting.get(kind, 0.0) / use.trajectories for kind in kinds},
        "wait_share": _share(use.waited, use.life),
        "model_idle": _share(wall - busy, wall),
        "tokens_per_second": _share(use.tokens, busy),
        "cache_hits": _share(use.cached, use.context),
        "retries": use.retries,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0
