"""`RayEngine`: an engine whose groups are played by rollout workers; its trees are those of an `Engine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arpo_trainer.ray_rollouts.rollout_actor import EngineParts, GroupJob
from arpo_trainer.ray_rollouts.rollout_workers import RolloutWorkers
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.tree import RolloutTree
from envs_registry import Task


@dataclass
class RayEngine(Engine):
    """Plays tasks as trees on Ray.

        workers = RolloutWorkers(4, address="10.0.0.1:6379")
        engine = RayEngine(backend, tokenizer, env, settings, workers=workers)
        trees = run(engine.rollout(tasks))

    It takes the place of an `Engine` wherever one plays: in a trainer, in `evaluate`, or alone. The backend has to
    pickle and to generate elsewhere, such as `VLLMServerBackend`; each worker has its own copy, and that of this
    process only frames the rollout. `limits` hold for each worker. `on_trajectory` is called when the tree arrives.

    Attributes:
        workers: play the groups; several engines may share them.
        replayed: groups that were played again so far, because their worker was lost.

    Raises:
        ValueError: tools at inference time are given, which workers do not have.
    """

    workers: RolloutWorkers = field(kw_only=True)
    replayed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inference is not None:
            raise ValueError("rollout workers have no tools at inference time: use an Engine in this process")

    async def play(self, tasks: Sequence[Task], step: int = 0, first_group: int = 0) -> list[RolloutTree]:
        """Play each task as a tree, on whichever worker has a place; see `Engine.play`.

        Raises:
            GenerationError: the model failed.
            RolloutWorkerError: no worker can play, or one group ends its workers again and again.
        """
        trees: dict[int, RolloutTree] = {}

        def take(number: int, tree: RolloutTree) -> None:
            trees[number] = tree
            for _ in tree.trajectories if self.on_trajectory else ():
                self.on_trajectory()  # type: ignore[misc]  # checked one line above
            if self.on_tree:
                self.on_tree(tree)

        parts = EngineParts(self.backend, self.tokenizer, (self.env,), self.chat_template_kwargs)
        # of the trainer's backend this sends the weights to the servers
        await self.begin()
        try:
            jobs = [GroupJob(task, step, first_group + number) for number, task in enumerate(tasks)]
            done = await self.workers.play(parts, [self.settings], dict(self.limits), jobs, take)
        finally:
            await self.backend.end()
        self.replayed += done.replayed
        self.backend.time.seconds += done.generate_seconds
        self.tool_time.seconds += done.tool_seconds
        return [trees[number] for number in range(len(tasks))]
