"""How the time of a rollout was used: the events of its timelines, summed.

The lifetime of a trajectory is from the start of its first event to the end of its last one. Each moment of it is work
of some kind, waiting, or neither ("other": bookkeeping of the engine). The engine records the events, and
`report.timeline_page` draws them.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from arpo_trainer.timeline import Event
from arpo_trainer.tree import RolloutTree

WAITS = ("start", "settle")  # kinds of events that are only waiting
Interval = tuple[float, float]


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
        tokens: number of generated tokens.
        context: number of context tokens given to the backend.
        cached: number of context tokens that did not have to be computed again.
        retries: number of failures that were retried.
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
        """Return the shares of the lifetime by use; they add up to 1.

        Returns:
            "generate", "tool NAME", "reset", ... for work, "wait KIND" for waiting, "other" for the rest; only shares
            above 0, the largest first.
        """
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
