"""Trees for tests of credit methods: one with a nested fork, worked out by hand in the tests, and random ones."""

from __future__ import annotations

import math
import random

from arpo_trainer import RolloutTree
from arpo_trainer.tree import Trajectory

NESTED = [8.0, 2.0, 0.0, 4.0, 99.0]
"""The advantages that go with `nested`."""
PROBABILITIES = (0.1, 0.4, 0.2)
"""Those of the gold answer in `nested`: at the prompt, after r1, after r3."""


def measure(tree: RolloutTree, *probabilities: float) -> None:
    """Set the gold answer's probability at the prompt, and after each result in the order of the spans."""
    first, *rest = map(math.log, probabilities)
    tree.answer_logprob = first
    results = [span for span in tree.spans if span.kind != "model"]
    for span, value in zip(results, rest, strict=True):
        span.answer_logprob = value


def turn(tree: RolloutTree, parent: int | None, length: int = 1) -> int:
    """A turn of the model."""
    zeros = [0.0] * length
    return tree.add_span(parent, "model", [7] * length, logprobs=zeros, entropies=zeros).index


def result(tree: RolloutTree, parent: int, token: int) -> int:
    """A tool's result."""
    return tree.add_span(parent, "environment", [token], tool={"name": "python"}).index


def nested() -> RolloutTree:
    """Turns m (m0 of two tokens, the others of one), results r, and the advantage of each leaf.

    prompt -+- m0 - r1 -+- m2 - r3 -+- m4    trajectory 0, root      8
            |           |           +- m5    trajectory 3, branch    4
            |           +- m6                trajectory 2, branch    0
            |           +- m7                trajectory 4, branch    invalid
            +- m8                            trajectory 1, root      2
    """
    tree = RolloutTree([1])
    first = result(tree, turn(tree, None, 2), 20)
    second = result(tree, turn(tree, first), 21)
    m4, m5, m6, m7 = turn(tree, second), turn(tree, second), turn(tree, first), turn(tree, first)
    tree.trajectories = [
        Trajectory(m4, reward=0.0, answer="a"),
        Trajectory(turn(tree, None), reward=0.0, answer="a"),
        Trajectory(m6, "branch", 0, first, reward=0.0, answer="b"),
        Trajectory(m5, "branch", 0, second, reward=0.0, answer="b"),
        Trajectory(m7, "branch", 0, first, reward=None),
    ]
    measure(tree, *PROBABILITIES)
    return tree


def random_tree(seed: int) -> tuple[RolloutTree, list[float]]:
    """A tree of roots and branches, and rewards; some trajectories are invalid, some end where others go on."""
    rng = random.Random(seed)
    tree = RolloutTree([1])
    for _ in range(rng.randint(1, 9)):
        forked = [span.index for span in tree.spans if span.kind == "environment"]
        parent = rng.choice(forked) if forked and rng.random() < 0.7 else None
        leaf = _continued(tree, parent, rng)
        valid = rng.random() < 0.8
        tree.trajectories.append(
            Trajectory(
                leaf,
                "root" if parent is None else "branch",
                None if parent is None else 0,
                parent,
                reward=float(rng.randint(0, 3)) if valid else None,
                answer=rng.choice(["a", "b", None]),
            )
        )
    measure(tree, *(rng.uniform(0.1, 0.9) for span in [None, *tree.spans] if span is None or span.kind != "model"))
    return tree, [rng.gauss(0.0, 1.0) for _ in tree.trajectories]


def _continued(tree: RolloutTree, state: int | None, rng: random.Random) -> int:
    while True:
        last = turn(tree, state, rng.randint(1, 3))
        if rng.random() < 0.4:
            return last
        state = result(tree, last, rng.randrange(2))
        if rng.random() < 0.1:  # out of tokens after a result, behind which branches may leave
            return state
