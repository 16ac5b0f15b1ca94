"""Metrics of a rollout: one flat dictionary per step.

`ARPOTrainer` logs them with the prefix `arpo/`; metrics.jsonl and the report have them without it. `completion_metrics`
are those that TRL has names for.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from arpo_env.episode import FOLD
from arpo_trainer.tree import Event, RolloutTree, Trajectory

WAITS = ("start", "settle")  # kinds of events that are only waiting
Interval = tuple[float, float]
_WAITS = ("start", "generate", "tool", "settle")
_EQUAL = 1e-9  # closer rewards are equal

# How the time of a rollout was used. The lifetime of a trajectory is from the start of its first event to the end of
# its last one. Each moment of it is work of some kind, waiting, or neither ("other": bookkeeping of the engine).


@dataclass
class TimeUse:
    """Seconds of some trajectories by use, summed over the trajectories.

    Attributes:
        trajectories: number of trajectories with a timeline.
        life: seconds of lifetime.
        working: kind -> seconds without waiting; a fork made while its trajectory generates is not counted.
        waiting: kind -> seconds of waiting.
        tools: name -> seconds of the calls without waiting.
        calls: name -> number of calls that returned; a call shared by branches is one.
        context: number of context tokens given to the backend, of which `cached` were not computed again.
    """

    trajectories: int = 0
    life: float = 0.0
    working: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waiting: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tools: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    context: int = 0
    cached: int = 0
    retries: int = 0

    @property
    def waited(self) -> float:
        """Seconds of waiting of any kind."""
        return sum(self.waiting.values())

    def shares(self) -> dict[str, float]:
        """Return the shares of the lifetime above 0 by use ("generate", "tool NAME", "wait KIND", ..., "other")."""
        work = {kind: seconds for kind, seconds in self.working.items() if kind != "tool"}
        work |= {f"tool {name}": seconds for name, seconds in self.tools.items()}
        work |= {f"wait {kind}": seconds for kind, seconds in self.waiting.items()}
        work["other"] = max(0.0, self.life - sum(work.values()))
        least = 1e-9 * self.life  # smaller shares are rounding errors
        found = [(name, seconds / self.life) for name, seconds in work.items() if seconds > least]
        return dict(sorted(found, key=lambda entry: -entry[1]))


def time_use(trees: Iterable[RolloutTree]) -> TimeUse:
    """Sum the timelines of trees; trees without one are left out."""
    use = TimeUse()
    for tree in trees:
        for events in by_trajectory(tree).values():
            _add(use, events)
    return use


def by_trajectory(tree: RolloutTree) -> dict[int, list[Event]]:
    """Return the events of each trajectory in the order of their starts."""
    found: dict[int, list[Event]] = {}
    for event in sorted(tree.timeline, key=lambda event: (event.start, event.end)):
        found.setdefault(event.trajectory, []).append(event)
    return found


def waiting_seconds(event: Event) -> float:
    """Return the seconds of waiting at the start of an event."""
    length = max(0.0, event.end - event.start)
    return length if event.kind in WAITS else min(max(0.0, event.waited), length)


def generating(trees: Iterable[RolloutTree]) -> list[Interval]:
    """Return the intervals in which requests were being generated, without waiting: one per request."""
    events = (event for tree in trees for event in tree.timeline if event.kind == "generate")
    return [(event.start + waiting_seconds(event), event.end) for event in events]


def concurrency(intervals: Iterable[Interval]) -> list[tuple[float, int]]:
    """Return the number of open intervals as steps (time, number from then on), in order of time."""
    changes: Counter[float] = Counter()
    for start, end in intervals:
        if end > start:
            changes[start] += 1  # changes at the same moment cancel out, so touching intervals make no step
            changes[end] -= 1
    steps: list[tuple[float, int]] = []
    level = 0
    for moment in sorted(moment for moment, change in changes.items() if change):
        level += changes[moment]
        steps.append((moment, level))
    return steps


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """Return the seconds during which at least one interval was open."""
    steps = concurrency(intervals)
    return sum(after[0] - now[0] for now, after in itertools.pairwise(steps) if now[1])


def wall_seconds(trees: Iterable[RolloutTree]) -> float:
    """Return the seconds from the beginning of the rollout to the end of its last event."""
    return max((event.end for tree in trees for event in tree.timeline), default=0.0)


def _add(use: TimeUse, events: Sequence[Event]) -> None:
    use.trajectories += 1
    use.life += max(event.end for event in events) - min(event.start for event in events)
    for event in events:
        waited = waiting_seconds(event)
        worked = max(0.0, event.end - event.start - waited)
        if event.kind == "fork":  # forks are made while the trajectory generates, and must not count twice
            worked = max(0.0, worked - _overlap(event, events))
        if waited:
            use.waiting[event.kind] += waited
        if event.kind not in WAITS:
            use.working[event.kind] += worked
        if event.kind == "tool":
            use.tools[event.name or "tool"] += worked
            # a call without a status did not return, and a refused one did not run
            use.calls[event.name or "tool"] += event.status not in ("", "refused")
        if event.kind != "helper":  # its tokens are of another request, often of another model
            use.tokens += event.tokens
            use.context += event.context
            use.cached += event.cached
        use.retries += event.kind == "retry"


def _overlap(fork: Event, events: Sequence[Event]) -> float:
    """Return the seconds during a fork in which the same trajectory did something else."""
    others = [(max(fork.start, event.start), min(fork.end, event.end)) for event in events if event.kind != "fork"]
    return busy_seconds(others)


def rollout_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Summarise the trees of one rollout.

    Returns:
        Finite numbers under these names:

        | name | meaning |
        |---|---|
        | `reward`, `accuracy`, `tool_calls` | the policy's: means over prompts, and in each over the independent \
samples that could be scored, which are the planned roots (`RolloutTree.samples`). Absent if there was none |
        | `reward_leaves`, `accuracy_leaves` | means over all trajectories that could be scored, which count a \
beginning as often as it was branched; absent where none is a branch or top-up |
        | `entropy` | mean nats per token of the model, shared tokens once; absent where an endpoint gives none |
        | `entropy_first`, `entropy_after_tool` | the same over first turns and over turns after a result |
        | `delta_entropy` | mean rise of the entropy at decisions (`entropy.entropy_level`) |
        | `decisions_passed` | share of the decisions that branched, or would have with more budget or quota |
        | `fork_contrast` | share of the forks whose branches differ in value: the mean reward of the trajectories \
below a branch. Only forks whose branches all have a value; absent without such forks |
        | `fork_result` | mean number of the result that branches leave after; 1 is the first. Absent without branches |
        | `branches_after/N` | number of branches that leave after the N-th result of their path |
        | `roots`, `branches`, `top_ups` | number of trajectories by how they began |
        | `branch_budget_used` | share of the reserve that became branches; the rest becomes top-ups |
        | `depth` | maximum number of forks between a trajectory and the prompt |
        | `invalid`, `invalid/CAUSE` | trajectories that could not be scored, in all and by cause |
        | `folds`, `folds_failed` | mean number of folds along a trajectory, and attempts whose memory could not be \
used; absent where nothing was tried |
        | `tokens_unique`, `tokens_copied` | tokens after the prompt: shared ones once, and with all copies |
        | `tokens_generated` | tokens that the model generated, shared ones once |
        | `tool_calls/NAME` | calls of a tool that ran; a call shared by branches is one |
        | `tool_seconds/NAME` | seconds that they took, without waiting for a place |

        And, if the trees have a timeline:

        | name | meaning |
        |---|---|
        | `wait/KIND` | mean seconds of waiting per trajectory: for a place (`start`), in the backend (`generate`), \
behind the limit of a tool (`tool`), for earlier branch requests (`settle`), and others |
        | `wait_share` | share of the trajectories' lifetime spent waiting |
        | `model_idle` | share of the rollout during which nothing was being generated |
        | `tokens_per_second` | generated tokens per second during which something was being generated |
        | `cache_hits` | share of the context tokens that were found in a cache |
        | `withheld` | number of results that did not fit into the context and were not shown |
        | `retries` | number of failures that were retried |
        | `copies_held` | most copies of episodes that one group held for undecided branches |
        | `copies_unused` | number of copies that became no branch |
    """
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    use, causes = time_use(trees), invalid_causes(trajectories)
    return {
        **_scores(trees),
        **_tokens(trees),
        **_branching(trees, trajectories),
        "invalid": causes.total(),
        **{f"invalid/{cause}": causes[cause] for cause in sorted(causes)},
        **_folds(trees, trajectories),
        "withheld": sum(bool(span.tool and span.tool.get("withheld")) for tree in trees for span in tree.spans),
        # timelines also know calls whose results were never appended
        **({**_tools(use), **_timing(trees, use)} if use.trajectories else {}),
    }


def completion_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Return what TRL logs of completions under `completions/`, over the trajectories that did not fail.

    TRL counts completions without an end token as clipped. Here turns end at stop strings, so clipped trajectories are
    those cut off by a limit of tokens, turns or calls; terminated ones gave an answer, or stopped without one.
    """
    every = [(tree, number) for tree in trees for number in range(len(tree.trajectories))]
    ended = [(tree, number) for tree, number in every if tree.trajectories[number].outcome != "failed"]
    clipped = [tree.trajectories[number].outcome == "truncated" for tree, number in ended]
    lengths = [sum(tree.row(number).mask) for tree, number in ended]
    terminated = [length for length, cut in zip(lengths, clipped, strict=True) if not cut]
    metrics = {"clipped_ratio": _mean(clipped)}
    for name, some in (("length", lengths), ("terminated_length", terminated)):
        metrics |= {
            f"mean_{name}": _mean(some),
            f"min_{name}": min(some, default=0),
            f"max_{name}": max(some, default=0),
        }
    return metrics


def branch_depth(tree: RolloutTree, number: int) -> int:
    """Return the number of forks between a trajectory and the prompt."""
    depth, parent = 0, tree.trajectories[number].parent
    while parent is not None:
        depth, parent = depth + 1, tree.trajectories[parent].parent
    return depth


def invalid_causes(trajectories: Iterable[Trajectory]) -> Counter[str]:
    """Count the trajectories without a reward by type of error; those without an error are "unscored"."""
    errors = (trajectory.error or "" for trajectory in trajectories if not trajectory.valid)
    return Counter(match[1] if (match := re.match(r"(\w{1,40}):", error)) else "unscored" for error in errors)


def mean_of_samples(trees: Sequence[RolloutTree], values: Sequence[Sequence[float | None]]) -> float | None:
    """Return the mean over trees, and in each over its independent samples, so that every prompt counts alike.

    `values` has one for each trajectory of each tree; None is left out. None is returned if no sample has a value.
    """
    chosen = [[group[number] for number in tree.samples()] for tree, group in zip(trees, values, strict=True)]
    means = [statistics.fmean(known) for group in chosen if (known := [value for value in group if value is not None])]
    return statistics.fmean(means) if means else None


_SCORES: dict[str, Callable[[Trajectory], float]] = {
    "reward": lambda trajectory: trajectory.reward or 0.0,
    "accuracy": lambda trajectory: trajectory.components.get("accuracy", 0.0),
    "tool_calls": lambda trajectory: trajectory.tool_calls,
}


def _scores(trees: Sequence[RolloutTree]) -> dict[str, float]:
    found, grown = {}, any(one.origin != "root" for tree in trees for one in tree.trajectories)
    for name, of in _SCORES.items():
        values = [[of(one) if one.valid else None for one in tree.trajectories] for tree in trees]
        if (mean := mean_of_samples(trees, values)) is not None:
            found[name] = mean
        leaves = [value for group in values for value in group if value is not None]
        if grown and leaves and name != "tool_calls":
            found[f"{name}_leaves"] = statistics.fmean(leaves)
    return found


def _tokens(trees: Sequence[RolloutTree]) -> dict[str, float]:
    model = [span for tree in trees for span in tree.spans if span.kind == "model"]
    known = [span for span in model if span.measured]
    # turns and results alternate, so a turn without a parent is a first one, and all others follow a result
    entropies = {
        "entropy": _mean(entropy for span in known for entropy in span.entropies),
        "entropy_first": _mean(entropy for span in known if span.parent is None for entropy in span.entropies),
        "entropy_after_tool": _mean(e for span in known if span.parent is not None for e in span.entropies),
    }
    return {
        **(entropies if known else {}),
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
        "decisions_passed": _mean(decision.passed for decision in decisions),
        **_forks(trees),
        "roots": origins["root"],
        "branches": origins["branch"],
        "top_ups": origins["top-up"],
        "branch_budget_used": _share(origins["branch"], origins["branch"] + origins["top-up"]),
        "depth": max(depths, default=0),
    }


def _forks(trees: Sequence[RolloutTree]) -> dict[str, float]:
    contrasts = [contrast for tree in trees for contrast in fork_contrasts(tree) if contrast is not None]
    after = [result for tree in trees for result in fork_results(tree)]
    counts = Counter(after)
    return {
        **({"fork_contrast": _mean(contrasts)} if contrasts else {}),
        **({"fork_result": _mean(after)} if after else {}),
        **{f"branches_after/{result}": counts[result] for result in sorted(counts)},
    }


def fork_contrasts(tree: RolloutTree) -> list[bool | None]:
    """Return for each fork, in the order of the spans, whether the paths that leave it differ in value.

    The value of a path is the mean reward of the trajectories below it, whatever forks there are among them. None where
    one of the paths has no trajectory with a reward.
    """
    siblings: dict[int, dict[int, list[float]]] = {}
    forks = {trajectory.fork_span for trajectory in tree.trajectories if trajectory.fork_span is not None}
    for number, trajectory in enumerate(tree.trajectories):
        path = [span.index for span in tree.path(number)]
        for place, span in enumerate(path):
            if span in forks:
                # a trajectory may end at the fork itself
                below = path[place + 1] if place + 1 < len(path) else -1 - number
                rewards = siblings.setdefault(span, {}).setdefault(below, [])
                rewards += [trajectory.reward] if trajectory.reward is not None else []
    return [_differ(list(siblings[fork].values())) for fork in sorted(siblings)]


def _differ(siblings: Sequence[Sequence[float]]) -> bool | None:
    if not all(siblings):
        return None
    values = [statistics.fmean(rewards) for rewards in siblings]
    return max(values) - min(values) > _EQUAL


def fork_results(tree: RolloutTree) -> list[int]:
    """Return for each branch the number of the tool result after which it leaves; 1 is the first of its path."""
    forks = [trajectory.fork_span for trajectory in tree.trajectories if trajectory.fork_span is not None]
    return [sum(span.is_result for span in tree.path_to(fork)) for fork in forks]


def _folds(trees: Sequence[RolloutTree], trajectories: Sequence[Trajectory]) -> dict[str, float]:
    calls = [span for tree in trees for span in tree.spans if span.tool and span.tool.get("name") == FOLD]
    if not calls:
        return {}
    made = sum(tree.folds(number) for tree in trees for number in range(len(tree.trajectories)))
    failed = sum(span.kind != "fold" and span.is_result for span in calls)
    return {"folds": made / len(trajectories), "folds_failed": failed}


def _tools(use: TimeUse) -> dict[str, float]:
    # `folds` counts folds, which are no calls of a tool
    calls = {f"tool_calls/{name}": float(use.calls[name]) for name in sorted(use.calls) if name != FOLD}
    return calls | {f"tool_seconds/{name}": use.tools[name] for name in sorted(use.tools)}


def _timing(trees: Sequence[RolloutTree], use: TimeUse) -> dict[str, float]:
    busy, wall = busy_seconds(generating(trees)), wall_seconds(trees)
    # the usual kinds are logged also when they are 0, so that their curves have no gaps
    kinds = [*_WAITS, *sorted(set(use.waiting) - set(_WAITS))]
    return {
        **{f"wait/{kind}": use.waiting.get(kind, 0.0) / use.trajectories for kind in kinds},
        "wait_share": _share(use.waited, use.life),
        "model_idle": _share(wall - busy, wall),
        "tokens_per_second": _share(use.tokens, busy),
        "cache_hits": _share(use.cached, use.context),
        "retries": use.retries,
        **_copies(trees),
    }


def _copies(trees: Sequence[RolloutTree]) -> dict[str, float]:
    held, made, branches = [], 0, 0
    for tree in trees:
        forks = [event for event in tree.timeline if event.kind == "fork"]
        intervals = [(event.end, event.until) for event in forks for _ in range(event.copies)]
        # a copy is held from the end of the fork until its branch starts or is denied
        held.append(max((count for _, count in concurrency(intervals)), default=0))
        made += len(intervals)
        branches += sum(trajectory.origin == "branch" for trajectory in tree.trajectories)
    return {"copies_held": max(held, default=0), "copies_unused": max(0, made - branches)}


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else 0.0
