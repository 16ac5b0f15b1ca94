"""What is known where an episode may branch: at once (`Point`), and once all paths have ended (`Candidate`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Point:
    """What is known where an episode may branch.

    Attributes:
        entropy: H of the measured segment.
        baseline: H of the segment it is compared with, on the same scale.
        consecutive: l, the number of consecutive high-entropy steps just before.
        uniform: a random number in [0, 1) that belongs to this point.
    """

    entropy: float
    baseline: float
    consecutive: int = 0
    uniform: float = 0.0

    @property
    def delta(self) -> float:
        """The rise of entropy, dH."""
        return self.entropy - self.baseline


@dataclass(frozen=True)
class Candidate:
    """A point that waits for branches, with what is known once all paths have ended.

    Attributes:
        point: as it was scored.
        logprobs: of what the model wrote on the path after the point, when it was sampled: one tuple per turn.
        branches: number of branches that the present ranking has given to the point so far.
    """

    point: Point
    logprobs: tuple[tuple[float, ...], ...] = ()
    branches: int = 0


class BranchSettings(Protocol):
    """The settings that branch functions read; the names are those of `ARPOConfig`."""

    @property
    def branch_alpha(self) -> float:
        """alpha: base of the score, or probability."""

    @property
    def branch_beta(self) -> float:
        """beta: weight of the rise of entropy."""

    @property
    def branch_threshold(self) -> float:
        """tau: threshold of the score."""

    @property
    def branch_penalty(self) -> float:
        """Slope of AEPO's penalty, and AT2PO's deduction per branch."""
