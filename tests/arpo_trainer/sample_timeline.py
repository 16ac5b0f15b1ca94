"""Trees with timelines, made up as the engine would record them: for tests, and to look at the page."""

import random
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.tree import Decision, Event, RolloutTree, Trajectory

WORDS = [
    *("the", "list", "holds", "seven", "items", "so", "I", "sum", "them", "and", "look", "at", "what", "comes"),
    "back",
]
TOOLS = ("python", "search")


@dataclass
class Sampler:
    """Plays one tree: starts, turns with a queue before them, tools with a limit, forks while a turn goes on."""

    tree: RolloutTree
    rng: random.Random
    turns: int
    reserve: int
    events: list[Event] = field(default_factory=list)

    def play(self, number: int, now: float, node: int | None, turn: int) -> None:
        while True:
            began, now = now, now + self.rng.expovariate(4) + self.rng.uniform(0.3, 1.5)
            waited, context = self.rng.uniform(0, 0.2), 200 + 300 * turn
            model = self.add(node, "model", "call" if turn + 1 < self.turns else "answer")
            counts = {"tokens": len(self.tree.spans[model].ids), "cached": context if turn else 0, "context": context}
            self.event(number, "generate", began, now, waited, status="stop", **counts)
            if node is not None and self.tree.spans[node].decision is None:
                grows = self.reserve > 0 and self.rng.random() < 0.6
                self.tree.spans[node].decision = Decision(0.3, 0.1, 0.52, 0.5, int(grows), "as the dice fell")
                if grows:
                    self.branch(number, node, began + waited + 0.05, turn)
            if turn + 1 == self.turns:
                break
            name, seconds = self.rng.choice(TOOLS), self.rng.paretovariate(1.3) / 4
            waited = self.rng.choice((0.0, 0.0, 0.4))
            status = "error" if self.rng.random() < 0.1 else "ok"
            self.event(number, "tool", now, now + waited + seconds, waited, name, status)
            now += waited + seconds
            node, turn = self.add(model, "environment", name, tool={"name": name, "status": status}), turn + 1
        self.event(number, "answer", now, now + 0.03)
        self.tree.trajectories[number].leaf = model
        self.tree.trajectories[number].reward = float(self.rng.random() < 0.4)
        self.tree.trajectories[number].outcome = "answered"

    def branch(self, parent: int, node: int, now: float, turn: int) -> None:
        self.reserve -= 1
        self.event(parent, "fork", now, now + 0.08)
        number = len(self.tree.trajectories)
        self.tree.trajectories.append(Trajectory(node, "branch", parent, node))
        settled = now + 0.08 + self.rng.expovariate(3)
        self.event(number, "settle", now + 0.08, settled, settled - now - 0.08)
        self.play(number, settled, node, turn)

    def add(self, parent: int | None, kind: str, about: str, **fields: object) -> int:
        ids = list(range(self.rng.randint(20, 90)))
        text = f"<{about}> {' '.join(self.rng.choices(WORDS, k=len(ids)))}"
        numbers = {"logprobs": [-0.5] * len(ids), "entropies": [0.5] * len(ids)} if kind == "model" else {}
        return self.tree.add_span(parent, kind, ids, text=text, **numbers, **fields).index  # type: ignore[arg-type]

    def event(self, *fields: Any, **more: Any) -> None:
        self.events.append(Event(*fields, **more))


def sample_tree(group: int = 0, roots: int = 3, branches: int = 2, turns: int = 3, step: int = 1) -> RolloutTree:
    """A tree of `roots` roots, at most `branches` branches, top-ups for what is left, and one lost session."""
    task = {"id": f"t{group}", "question": "How long is the list that the code makes?", "answers": ["7"]}
    tree = RolloutTree([1, 2, 3], task=task, meta={"step": step, "group": group, "algorithm": "arpo"})
    sampler = Sampler(tree, random.Random(group), turns, branches)
    for start in range(roots):
        _start(sampler, "root", 0.0, 0.05 * start + 0.2 * (group % 4))
    left, sampler.reserve = sampler.reserve, 0
    for _ in range(left):
        _start(sampler, "top-up", max(event.end for event in sampler.events), 0.0)
    lost = tree.trajectories[-1]
    lost.reward, lost.outcome, lost.error = None, "failed", "SessionLost: the container is gone"
    tree.timeline = sampler.events
    return tree


def _start(sampler: Sampler, origin: str, now: float, waited: float) -> None:
    number = len(sampler.tree.trajectories)
    sampler.tree.trajectories.append(Trajectory(-1, origin))  # type: ignore[arg-type]
    sampler.event(number, "start", now, now + waited, waited)
    sampler.event(number, "reset", now + waited, now + waited + 0.1)
    if number == 1:
        sampler.event(number, "retry", now + waited + 0.1, now + waited + 0.4, 0.0, "SessionLost")
        waited += 0.3
    sampler.play(number, now + waited + 0.1, None, 0)
