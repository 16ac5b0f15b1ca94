"""Agreement of two graders on the same answers: Cohen's kappa (Cohen 1960), and the answers on which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Agreement:
    """How far two graders agree.

    Attributes:
        share: share of answers with the same verdict.
        kappa: agreement beyond chance: 1 is perfect, 0 is what chance gives. 1 if both always give the same verdict.
        disagreements: ids of the answers with different verdicts, in the order of the first grader.
        answers: number of answers that both graded.
    """

    share: float
    kappa: float
    disagreements: list[str]
    answers: int


def agreement(first: Mapping[str, Hashable], second: Mapping[str, Hashable]) -> Agreement:
    """Compare the verdicts of two graders, by the id of the answer; answers that only one of them graded do not count.

    Raises:
        ValueError: they graded no answer in common.
    """
    names = [name for name in first if name in second]
    if not names:
        raise ValueError("the two graders have no answer in common")
    differing = [name for name in names if first[name] != second[name]]
    share = 1.0 - len(differing) / len(names)
    ones, others = Counter(first[name] for name in names), Counter(second[name] for name in names)
    chance = sum(count * others[verdict] for verdict, count in ones.items()) / len(names) ** 2
    kappa = 1.0 if chance == 1.0 else (share - chance) / (1.0 - chance)
    return Agreement(share, kappa, differing, len(names))
