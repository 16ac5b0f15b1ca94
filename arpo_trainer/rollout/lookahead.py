"""Lookahead and pruning: a branch whose first turn is nearly that of a sister is dropped, and a fresh root replaces it.

LATR (2510.24302): where several next tokens are likely, each gets a branch; after r tokens a branch whose edit distance
to its parent, over r, is below tau_ed is pruned (`rollout_filter_edit_dist_thres`, 0.4 in its scripts). Here a branch
is a fork after a tool's result, where ARPO's score passes, the lookahead is the first turn, and the threshold is
`branch_distance`. Its default is 0.1, because different calls of one tool share most of their tokens. In the paper a
branch is compared with its parent alone, one that has ended is kept, and another branch may take the place of a pruned
one. Left out: branching on each likely token, ROUGE-L as another measure, and the ratio by which branches and plain
samples are mixed over the training.

The tokens of a dropped turn are in no span. `RolloutTree.meta` counts them, so that costs are exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.tree import DISCARDED, PRUNED, RolloutTree


class Lookahead:
    """Compares the first turns of the branches of one group with those of their sisters.

    The sisters are the original's next turn and the branches of the same point with a lower number that were kept. A
    branch waits until these are known, so that timing decides nothing.

    Args:
        tree: of the group; it records what was dropped.
        distance: least distance of two sisters (`edit_distance`); nearer ones are dropped.
    """

    def __init__(self, tree: RolloutTree, distance: float) -> None:
        self.tree, self.distance = tree, distance
        self.tree.meta[DISCARDED] = 0
        self._forked: dict[str, int] = {}  # the turn that a branch starts with, by its name
        self._turns: dict[tuple[str, int], asyncio.Future[Sequence[int] | None]] = {}

    def forked(self, branch: LiveTrajectory) -> None:
        """Note that a branch starts."""
        self._forked[branch.name] = branch.turn

    async def drops(self, trajectory: LiveTrajectory, ids: Sequence[int]) -> bool:
        """Return whether a trajectory, which has just written a turn, is dropped, and record it.

        Args:
            trajectory: before the turn is added to it.
            ids: of the turn.
        """
        known = self._turn(trajectory.name, trajectory.turn)
        if known.done():  # generated again by a tool at inference time; what was written first was compared
            return False
        near = self._forked.get(trajectory.name) == trajectory.turn and await self._near_sister(trajectory, ids)
        known.set_result(None if near else ids)
        if near:
            self._record(trajectory, len(ids))
        return near

    def ended(self, trajectory: LiveTrajectory) -> None:
        """Note that a trajectory has ended: nobody waits for a turn that it has not written."""
        known = self._turn(trajectory.name, trajectory.turn)
        if not known.done():
            known.set_result(None)

    async def _near_sister(self, branch: LiveTrajectory, ids: Sequence[int]) -> bool:
        # the name is that of the original, the round of the point, and the number of the copy
        origin, clock, copy = branch.name.rsplit(".", 2)
        sisters = [origin, *(f"{origin}.{clock}.{number}" for number in range(int(copy)))]
        for sister in sisters:
            other = await self._turn(sister, branch.turn)
            if other is not None and edit_distance(ids, other) < self.distance:
                return True
        return False

    def _turn(self, name: str, turn: int) -> asyncio.Future[Sequence[int] | None]:
        """Return the ids of a turn, once they are known; None for a dropped one."""
        return self._turns.setdefault((name, turn), asyncio.get_running_loop().create_future())

    def _record(self, branch: LiveTrajectory, tokens: int) -> None:
        self.tree.meta[DISCARDED] += tokens
        fork = self.tree.trajectories[branch.number].fork_span
        decision = self.tree.spans[fork].decision if fork is not None else None
        assert decision is not None  # a branch leaves where one was taken
        decision.branches -= 1
        if not decision.branches:
            decision.reason = PRUNED


def edit_distance(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the Levenshtein distance of two sequences over the length of the longer one, 0 to 1; 0 for empty ones."""
    if not one or not other:
        return float(bool(one or other))
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        above, row = row, [i]
        for j, right in enumerate(other):
            row.append(min(above[j] + (left != right), above[j + 1] + 1, row[j] + 1))
    return row[-1] / max(len(one), len(other))
