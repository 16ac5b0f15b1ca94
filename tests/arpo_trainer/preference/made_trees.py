"""Trees of random ids, for pairs: some trajectories fork after a result, some are right."""

import random

from arpo_trainer.tree import RolloutTree, Span, Trajectory


def random_tree(rng: random.Random, trajectories: int = 4, vocabulary: int = 100, folds: bool = False) -> RolloutTree:
    """A tree whose trajectories are calls, results and an answer; some are void, and with `folds` some fold."""
    tree = RolloutTree(_ids(rng, vocabulary), task={"id": "t"})
    for _ in range(trajectories):
        results = [span for span in tree.spans if span.kind == "environment"]
        fork = rng.choice([None, *results])
        leaf = _grown(rng, tree, fork, vocabulary, folds)
        reward = rng.choice([1.1, 1.0, 0.9, 0.0, -1.0, None])
        tree.trajectories.append(Trajectory(leaf.index, reward=reward, fork_span=fork.index if fork else None))
    return tree


def _grown(rng: random.Random, tree: RolloutTree, fork: Span | None, vocabulary: int, folds: bool) -> Span:
    place = fork.index if fork else None
    for _ in range(rng.randint(0, 2)):
        if folds and rng.random() < 0.3:
            place = _model(rng, tree, place, vocabulary).index
            place = tree.add_span(place, "fold", _ids(rng, vocabulary)).index
        place = _model(rng, tree, place, vocabulary).index
        tool = {"name": "python", "status": "ok", "seconds": 0.0}
        place = tree.add_span(place, "environment", _ids(rng, vocabulary), tool=tool).index
    return _model(rng, tree, place, vocabulary)


def _model(rng: random.Random, tree: RolloutTree, place: int | None, vocabulary: int) -> Span:
    ids = _ids(rng, vocabulary)
    return tree.add_span(place, "model", ids, logprobs=[-1.0] * len(ids), entropies=[1.0] * len(ids))


def _ids(rng: random.Random, vocabulary: int) -> list[int]:
    return [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, 5))]
