"""What every trajectory did and waited for, as plain intervals of wall time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Event:
    """One interval of one trajectory; a trajectory's events do not overlap, except forks made while it generates.

    Attributes:
        trajectory: its number in the tree.
        kind: "start" (a place among the running trajectories), "reset", "generate", "tool", "answer" (grading),
            "fork", "settle" (a branch that waits until the branches before it in order are decided), "retry".
        start: seconds since the rollout began.
        end: likewise.
        waited: seconds, from `start` on, of waiting for a place: behind a limit, or in the backend's queue.
        name: of the tool, or of the error that was retried.
        status: of a tool's result, or how a generation ended ("stop", "eos", "length").
        tokens: generated.
        cached: context tokens the backend did not compute again.
        context: context tokens it was given.
        copies: of a fork: environments that were copied.
        until: of a fork: when its copies were no longer held for later, because the branches started or were refused.
    """

    trajectory: int
    kind: str
    start: float
    end: float
    waited: float = 0.0
    name: str = ""
    status: str = ""
    tokens: int = 0
    cached: int = 0
    context: int = 0
    copies: int = 0
    until: float = 0.0
