"""Where a rollout's time went: the events of its timelines, added up.

A trajectory's life runs from its first event's start to its last one's end. Each moment of it is work of some kind,
waiting for something, or neither ("other": the engine's own bookkeeping). What this module does not do: record (the
engine does), or draw (see `timeline_view`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from arpo_trainer.timeline import Event
from arpo_trainer.tree import RolloutTree

WAITS = ("start", "settle")  # kinds of event that are nothing but waiting
Interval = tuple[float, float]


@dataclass
class TimeUse:
    """Seconds of some trajectories, summed over them, by what they were spent on.

    Attributes:
        trajectories: that have a timeline.
        life: seconds from first to last event.
        working: kind -> seconds, without the waiting; a fork made while its trajectory generates is not counted.
        waiting: kind -> seconds; of "start" and "settle" all of it.
        tools: name -> seconds of the calls, without the waiting.
        calls: name -> calls that ran and came back; one shared by branches is one call.
        tokens: generated.
        context: tokens of context given to the backend.
        cached: tokens of it that did not have to be computed again.
        retries: of whatever failed and was tried again.
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
        """Return what part of the trajectories' life went into what; together 1.

        Returns:
            "generate", "tool NAME", "reset", ... for work, "wait KIND" for waiting, "other" for the rest; only what
            there was, the largest first.
        """
        work = {kind: seconds for kind, seconds in self.working.items() if kind != "tool"}
        work |= {f"tool {name}": seconds for name, seconds in self.tools.items()}
        work |= {f"wait {kind}": seconds for kind, seconds in self.waiting.items()}
        work["other"] = max(0.0, self.life - sum(work.values()))
        least = 1e-9 * self.life  # rounding leaves crumbs
        found = [(name, seconds / self.life) for name, seconds in work.items() if seconds > least]
        return dict(sorted(found, key=lambda entry: -entry[1]))


def time_use(trees: Iterable[RolloutTree]) -> TimeUse:
    """Add up the timelines of trees; those without one are left out."""
    use = TimeUse()
    for tree in trees:
        for events in by_trajectory(tree).values():
            _add(use, events)
    return use


def by_trajectory(tree: RolloutTree) -> dict[int, list[Event]]:
    """Return the events of each trajectory in the order they began."""
    found: dict[int, list[Event]] = {}
    for event in sorted(tree.timeline, key=lambda event: (event.start, event.end)):
        found.setdefault(event.trajectory, []).append(event)
    return found


def waiting_seconds(event: Event) -> float:
    """Return how much of an event, from its start on, was waiting."""
    length = max(0.0, event.end - event.start)
    return length if event.kind in WAITS else min(max(0.0, event.waited), length)


def generating(trees: Iterable[RolloutTree]) -> list[Interval]:
    """Return when requests were being generated, waiting left out: one interval a request."""
    events = (event for tree in trees for event in tree.timeline if event.kind == "generate")
    return [(event.start + waiting_seconds(event), event.end) for event in events]


def concurrency(intervals: Iterable[Interval]) -> list[tuple[float, int]]:
    """Return how many intervals are open, as steps: (from when on, how many), in order of time."""
    changes: Counter[float] = Counter()
    for start, end in intervals:
        if end > start:
            changes[start] += 1
            changes[end] -= 1
    steps: list[tuple[float, int]] = []
    level = 0
    for moment in sorted(moment for moment, change in changes.items() if change):
        level += changes[moment]
        steps.append((moment, level))
    return steps


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """Return for how long at least one of the intervals was open."""
    steps = concurrency(intervals)
    return sum(after[0] - now[0] for now, after in itertools.pairwise(steps) if now[1])


def wall_seconds(trees: Iterable[RolloutTree]) -> float:
    """Return how long the rollout took, from its begin to the end of its last event."""
    return max((event.end for tree in trees for event in tree.timeline), default=0.0)


def _add(use: TimeUse, events: Sequence[Event]) -> None:
    use.trajectories += 1
    use.life += max(event.end for event in events) - min(event.start for event in events)
    for event in events:
        waited = waiting_seconds(event)
        worked = max(0.0, event.end - event.start - waited)
        if event.kind == "fork":
            worked = max(0.0, worked - _overlap(event, events))
        if waited:
            use.waiting[event.kind] += waited
        if event.kind not in WAITS:
            use.working[event.kind] += worked
        if event.kind == "tool":
            use.tools[event.name or "tool"] += worked
            use.calls[event.name or "tool"] += event.status not in ("", "refused")
        use.tokens += event.tokens
        use.context += event.context
        use.cached += event.cached
        use.retries += event.kind == "retry"


def _overlap(fork: Event, events: Sequence[Event]) -> float:
    """Return for how long something else of the same trajectory went on during a fork."""
    others = [(max(fork.start, event.start), min(fork.end, event.end)) for event in events if event.kind != "fork"]
    return busy_seconds(others)
