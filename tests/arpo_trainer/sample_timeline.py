"""Trees with timelines, made up as the engine would record them: for tests, and to look at the page."""

import random
from typing import Any

from arpo_trainer.tree import Decision, Event, RolloutTree, Trajectory

PYTHON = {"name": "python", "status": "ok"}


def sample_tree(group: int = 0, roots: int = 3, branches: int = 2, turns: int = 3, step: int = 1) -> RolloutTree:
    """Roots, of which one was begun again and the last is lost, and branches after the first results of roots."""
    task = {"id": f"t{group}", "question": "How long is the list that the code makes?", "answers": ["7"]}
    tree = RolloutTree([1, 2, 3], task=task, meta={"step": step, "group": group, "algorithm": "arpo"})
    rng = random.Random(group)

    def event(number: int, kind: str, now: float, seconds: float, waited: float = 0.0, **more: Any) -> float:
        tree.timeline.append(Event(number, kind, now, now + waited + seconds, waited, **more))
        return tree.timeline[-1].end

    def play(number: int, now: float, node: int | None) -> None:
        for turn in range(node is not None, turns):
            ids, context = list(range(rng.randint(20, 90))), 200 + 300 * turn
            numbers = {"logprobs": [-0.5] * len(ids), "entropies": [0.5] * len(ids)}
            leaf = tree.add_span(node, "model", ids, text="a turn", **numbers).index
            counts = {"tokens": len(ids), "cached": context if turn else 0, "context": context}
            now = event(number, "generate", now, rng.uniform(0.3, 1.5), rng.uniform(0, 0.2), status="stop", **counts)
            if turn + 1 < turns:
                now = event(number, "tool", now, rng.paretovariate(1.3) / 4, 0.1, **PYTHON)
                node = tree.add_span(leaf, "environment", ids[:20], text="a result", tool={**PYTHON}).index
        event(number, "answer", now, 0.03)
        ended = tree.trajectories[number]
        ended.leaf, ended.reward, ended.outcome = leaf, float(rng.random() < 0.4), "answered"

    for number in range(roots):
        tree.trajectories.append(Trajectory(-1))
        now = event(number, "reset", event(number, "start", 0.0, 0.0, 0.05 * number), 0.1)
        play(number, event(number, "retry", now, 0.3, name="SessionLost") if number == 1 else now, None)
    for number in range(roots, roots + branches):
        parent = number % roots
        node = tree.path(parent)[1].index
        tree.spans[node].decision = Decision(0.3, 0.1, 0.52, 0.5, 1, "entropy rose")
        tree.trajectories.append(Trajectory(-1, "branch", parent, node))
        called = next(each.end for each in tree.timeline if (each.trajectory, each.kind) == (parent, "tool"))
        play(number, event(number, "settle", event(parent, "fork", called, 0.08), 0.0, rng.expovariate(3)), node)
    lost = tree.trajectories[roots - 1]
    lost.reward, lost.outcome, lost.error = None, "failed", "SessionLost: the container is gone"
    return tree
