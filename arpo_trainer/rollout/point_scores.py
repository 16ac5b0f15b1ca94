"""Scores of the points of one group: measures turns, draws random numbers from the seed, and asks the branch method."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from arpo_trainer.algorithms.branching import BranchMethod, Point, Score
from arpo_trainer.algorithms.entropy import entropy_level, segment_entropy
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import Decision

NO_WIDTH = "branch_width is 1"


class PointScorer:
    """Scores the points of one group.

    Args:
        settings: of the rollout.
        seed_name: what the draws of the group are made from.
        vocabulary: V of the tokenizer; only the published entropy measure depends on it.
    """

    def __init__(self, settings: RolloutSettings, seed_name: str, vocabulary: int) -> None:
        self.settings, self.seed_name, self.vocabulary = settings, seed_name, vocabulary
        self.method: BranchMethod | None = settings.parts.method
        self.published = self.method is not None and self.method.published

    def entropy(self, entropies: Sequence[float]) -> float:
        """Return H of a turn from the entropies of its tokens, in nats, shape (n,)."""
        window = self.settings.entropy_window
        if self.published:
            return segment_entropy(entropies, self.vocabulary, window, "sum")
        return entropy_level(entropies, window)

    def uniform(self, *place: object) -> float:
        """Return the random number in [0, 1) that belongs to a place of the tree."""
        name = "/".join(map(str, (self.seed_name, "branch", *place)))
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest()) / 2.0**56

    def scores(self, path: str, clock: int, point: Point, copies: int) -> list[Score]:
        """Return the scores of the copies that may leave a path's point in a round, each with its random number."""
        assert self.method is not None
        return [
            self.method.score(replace(point, uniform=self.uniform(path, clock, copy)), self.settings)
            for copy in range(copies)
        ]

    def decision(self, point: Point, scores: Sequence[Score]) -> Decision:
        """Record the first score that branches, or else the first one."""
        none = Score(0.0, self.settings.branch_threshold, False, "" if self.settings.branch_width > 1 else NO_WIDTH)
        said = next((score for score in scores if score.branch), scores[0] if scores else none)
        return Decision(point.entropy, point.delta, said.value, said.threshold, 0, said.reason, point.consecutive)
