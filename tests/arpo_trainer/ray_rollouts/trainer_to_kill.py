"""A process that plays on rollout workers of its own Ray for ever, with Python in sandboxes; the test kills it."""

from __future__ import annotations

import sys
from typing import Any

from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers
from benchmarks.ray_world import SleepingPolicy, tree_settings
from benchmarks.rollout_world import small_tokenizer


class Caller(SleepingPolicy):
    """Calls Python at every turn."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        made = await super().generate(request, on_window)
        ids = self.tokenizer("<think>c</think><python>print(1)</python>", add_special_tokens=False)["input_ids"]
        return Generation(ids, [-0.1] * len(ids), [1.0] * len(ids), made.finish)


def main(folder: str) -> None:
    """Say the address, the workers and that they play; then play on."""
    tokenizer = small_tokenizer()
    with RolloutWorkers(2, ray_options={"_temp_dir": folder, "object_store_memory": 100_000_000}) as workers:
        env = ToolEnv("arpo/Arithmetic-v0")
        engine = RayEngine(Caller(tokenizer, 0.3, 64), tokenizer, env, tree_settings(), workers=workers)

        def say(text: Any) -> None:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

        import ray

        say(ray.get_runtime_context().gcs_address)
        for name in workers.nodes():
            say(name)
        engine.on_tree = lambda tree: say([trajectory.tool_calls for trajectory in tree.trajectories])
        while True:
            run(engine.rollout([env.tasks.task(number) for number in range(4)]))


if __name__ == "__main__":
    main(sys.argv[1])
