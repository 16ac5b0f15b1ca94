"""Pairs in a JSONL file, one per line, and the count of what became of the tasks.

A file is written as a whole under another name and then renamed, so that it is complete whenever it is there. What was
sampled is kept apart, in the folder of an evaluation, which is appended to; the same samples give the same pairs.

    write_pairs("pairs.jsonl", pairs)
    pairs = read_pairs("pairs.jsonl")
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from arpo_trainer.preference.pairs import PairSettings, PreferencePair, pairs_of_task
from arpo_trainer.tree import RolloutTree

PAIRED, ALL_RIGHT, ALL_WRONG, UNSCORED, UNFIT = OUTCOMES = (
    "with pairs",
    "all right",
    "all wrong",
    "nothing scored",
    "right and wrong, but no pair that fits",
)
_NAMES = [entry.name for entry in fields(PreferencePair)]
_LISTS = [name for name in _NAMES if name.endswith(("_ids", "_mask"))]


@dataclass
class PairData:
    """The pairs of a round, and what became of its tasks.

    Attributes:
        pairs: the pairs.
        tasks: number of tasks by outcome, one of `OUTCOMES`.
        too_long: pairs that were dropped for their length.
        trajectories: number of trajectories that have a reward.
        right: number of those that could be chosen.
    """

    pairs: list[PreferencePair] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    trajectories: int = 0
    right: int = 0

    def add(self, task: str, trees: Sequence[RolloutTree], settings: PairSettings, max_length: int | None) -> None:
        """Add the pairs of a task.

        Args:
            task: id of the task.
            trees: what was played.
            settings: how trajectories are paired.
            max_length: most tokens of a side with its prompt; longer pairs are dropped, since a cut one has no answer.
        """
        rewards = [reward for tree in trees for reward in tree.rewards if reward is not None]
        right = sum(reward >= settings.chosen_reward for reward in rewards)
        self.trajectories += len(rewards)
        self.right += right
        found = pairs_of_task(task, trees, settings)
        kept = [pair for pair in found if max_length is None or pair.tokens <= max_length]
        self.too_long += len(found) - len(kept)
        self.pairs += kept
        self.tasks[_outcome(len(rewards), right, bool(kept))] += 1

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        sides = [(pair.chosen_mask, pair.rejected_mask) for pair in self.pairs]
        return {
            "tasks": sum(self.tasks.values()),
            "outcomes": {name: self.tasks[name] for name in OUTCOMES if self.tasks[name]},
            "trajectories": self.trajectories,
            "right": self.right,
            "pairs": len(self.pairs),
            "pairs_from_forks": sum(pair.shared > 0 for pair in self.pairs),
            "too_long": self.too_long,
            "learnt_tokens": sum(sum(one) + sum(two) for one, two in sides),
            "masked_tokens": sum(one.count(0) + two.count(0) for one, two in sides),
        }

    def words(self) -> str:
        """Return in one line what there is."""
        facts = self.facts()
        outcomes = ", ".join(f"{count} {name}" for name, count in facts["outcomes"].items()) or "no task"
        dropped = f"; {self.too_long} pairs dropped as too long" if self.too_long else ""
        forks = f" ({facts['pairs_from_forks']} from forks)" if facts["pairs_from_forks"] else ""
        return f"{facts['pairs']} pairs{forks} of {facts['tasks']} tasks: {outcomes}{dropped}"


def _outcome(scored: int, right: int, paired: bool) -> str:
    if not scored:
        return UNSCORED
    if paired:
        return PAIRED
    return ALL_RIGHT if right == scored else ALL_WRONG if right == 0 else UNFIT


def write_pairs(path: str | Path, pairs: Iterable[PreferencePair]) -> None:
    """Write pairs; the file appears when it is complete."""
    path = Path(path)
    scratch = path.with_name(f"{path.name}.unfinished")
    with scratch.open("w", encoding="utf-8") as file:
        for pair in pairs:
            file.write(json.dumps(asdict(pair), ensure_ascii=False, separators=(",", ":")) + "\n")
    os.replace(scratch, path)


def read_pairs(path: str | Path) -> list[PreferencePair]:
    """Read what `write_pairs` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not a pair; names the file, the line and what is wrong.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file of pairs {str(path)!r}; `arpo dpo` writes one as pairs.jsonl")
    pairs = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                pairs.append(_pair(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a pair of token ids ({error})") from error
    return pairs


def _pair(row: Any) -> PreferencePair:
    if not isinstance(row, dict) or set(row) != set(_NAMES):
        raise ValueError(f"expected an object with {', '.join(_NAMES)}")
    for name in _LISTS:
        if not isinstance(row[name], list) or not all(type(token) is int and token >= 0 for token in row[name]):
            raise ValueError(f"{name} must be a list of whole numbers of at least 0")
    return PreferencePair(**row)
