"""`GridRun`: one training run of a comparison, and how users write its parts on the command line.

parse_algorithm("arpo")                                        # the algorithm as published
parse_algorithm("arpo:branch_alpha=0.6,initial_rollouts=4")    # with settings of its own
parse_algorithm("again=grpo")                                  # under another name
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import benchmarks.laboratory.paper_rows  # noqa: F401  (registers rows)
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import check_name

# axis -> the total in a run's curve, in the words of tables
AXES = {
    "tokens": "sampled_tokens",
    "calls": "tool_calls",
    "trajectories": "trajectories",
    "update_tokens": "update_tokens",
}
AXIS_LABELS = {
    "tokens": "sampled tokens",
    "calls": "executed tool calls",
    "trajectories": "trajectories",
    "update_tokens": "update tokens",
}
OFFSET = "seed_offset"
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")
_LABEL = re.compile(r"[^/\\\s_][^/\\\s]*")  # legends leave out what begins with an underscore
_LONGEST = 80  # of a folder's name, apart from what tells it from others


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm of a comparison.

    Attributes:
        label: its name in tables and figures; unique in a comparison.
        algorithm: its row in the table of algorithms.
        settings: settings that only its runs have; `seed_offset` is added to their seeds, for an algorithm that is
            compared with itself.
    """

    label: str
    algorithm: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GridRun:
    """One training run of a comparison.

    Attributes:
        label: name of the algorithm in tables and figures.
        algorithm: its row in the table of algorithms.
        env: name of the environment.
        seed: of everything that is drawn in the run.
        budget: total cost by axis, such as {"tokens": 20000}; the run ends when one is spent.
        settings: of the trainer and the policy.
    """

    label: str
    algorithm: str
    env: str
    seed: int
    budget: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells the runs of a comparison apart."""
        return self.label, self.env, self.seed

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"{self.label}, {self.env}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """A name for the run's folder: short, without special characters, and no other run's."""
        name = f"{self.label}-{self.env}-{self.seed}"
        plain = re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII)
        if plain == name and len(name) <= _LONGEST:
            return name
        return f"{plain[:_LONGEST]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"

    def as_dict(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return asdict(self)


def parse_algorithm(text: str) -> AlgorithmChoice:
    """Read `algorithm`, `algorithm:name=value,...` or `label=algorithm:name=value,...`; values are YAML.

    Without a label of its own an algorithm with settings is labelled by the whole text.

    Raises:
        ValueError: the algorithm is unknown, a setting is not `name=value`, or the label has a space or a slash or
            begins with an underscore.
    """
    head, colon, tail = text.partition(":")
    label, sign, algorithm = head.partition("=")
    if not sign:
        label, algorithm = text, head
    check_name(f"--algorithms {text}: the algorithm", algorithm, list(ALGORITHMS))
    if not _LABEL.fullmatch(label):
        raise ValueError(
            f"--algorithms {text!r}: a label has neither spaces nor slashes, and begins with no underscore; "
            "write label=algorithm:..."
        )
    if colon and not tail:
        raise ValueError(f"--algorithms {text}: settings are missing after the colon, such as {head}:branch_alpha=0.6")
    settings = parse_assignments(_OUTSIDE_BRACKETS.split(tail), f"--algorithms {head}:") if tail else {}
    return AlgorithmChoice(label, algorithm, settings)


def parse_seeds(texts: Sequence[str]) -> list[int]:
    """Read seeds: one number N is the first N seeds; several are the seeds themselves; `5-9` is a range.

    Raises:
        ValueError: a text is not a whole number of at least 0, or a seed is given twice.
    """
    for text in texts:
        if not re.fullmatch(r"\d+(-\d+)?", text):
            raise ValueError(f"--seeds {text}: write how many (10), the seeds (0 1 2), or a range (5-9)")
    if len(texts) == 1 and "-" not in texts[0]:
        if texts[0] == "0":
            raise ValueError("--seeds 0: no seed; one number says how many, and 0-0 is seed 0 alone")
        return list(range(int(texts[0])))
    seeds: list[int] = []
    for text in texts:
        first, _, last = text.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    refuse_repeats("seed", seeds)
    return seeds


def parse_budget(texts: Iterable[str]) -> dict[str, int]:
    """Read budgets such as `tokens=20000`.

    Raises:
        ValueError: the axis is unknown, or the number is not a whole one above 0.
    """
    found: dict[str, int] = {}
    for axis, value in parse_assignments(texts, "--budget").items():
        check_name("--budget: the axis of cost", axis, list(AXES))
        if type(value) is not int or value < 1:
            raise ValueError(f"--budget {axis}={value}: write a whole number above 0, such as {axis}=20000")
        found[axis] = value
    return found


def refuse_repeats(what: str, given: Iterable[Any]) -> None:
    """Refuse values that are given twice.

    Raises:
        ValueError: names them.
    """
    twice = [str(value) for value, count in Counter(given).items() if count > 1]
    if twice:
        raise ValueError(f"{what} given twice: {', '.join(twice)}")


def make_specs(
    algorithms: Sequence[AlgorithmChoice],
    envs: Sequence[str],
    seeds: Sequence[int],
    budget: Mapping[str, int],
    settings: Mapping[str, Any],
) -> list[GridRun]:
    """Return the runs of a grid, seed by seed, so that a grid that is not finished has all algorithms.

    Raises:
        ValueError: a label, an environment or a seed is given twice.
    """
    for what, given in (("algorithm", [one.label for one in algorithms]), ("environment", envs), ("seed", seeds)):
        refuse_repeats(what, given)
    return [
        GridRun(one.label, one.algorithm, env, seed + _offset(one), dict(budget), _settings_of(one, settings))
        for seed in seeds
        for env in envs
        for one in algorithms
    ]


def _offset(one: AlgorithmChoice) -> int:
    offset = one.settings.get(OFFSET, 0)
    if type(offset) is not int or offset < 0:
        raise ValueError(f"{one.label}: {OFFSET}={offset!r} is added to seeds; write a whole number such as 1000")
    return offset


def _settings_of(one: AlgorithmChoice, common: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**common, **one.settings}.items() if name != OFFSET}
