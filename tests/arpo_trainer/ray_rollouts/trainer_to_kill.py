"""A process that plays on a rollout worker of its own Ray for ever, with Python in sandboxes; the test kills it."""

import sys
from typing import Any

from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers
from benchmarks.ray_world import tree_settings
from benchmarks.rollout_world import small_tokenizer
from tests.arpo_trainer.ray_rollouts.policies import Caller


def main(folder: str) -> None:
    """Say the address, the worker and that it plays; then play on."""
    import ray

    tokenizer = small_tokenizer()
    ray.init("local", include_dashboard=False, log_to_driver=False, _temp_dir=folder, object_store_memory=100_000_000)
    with RolloutWorkers(1) as workers:
        env = ToolEnv("arpo/Arithmetic-v0")
        engine = RayEngine(Caller(tokenizer, 0.3, 64), tokenizer, env, tree_settings(), workers=workers)

        def say(text: Any) -> None:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

        say(ray.get_runtime_context().gcs_address)
        for name in workers.nodes():
            say(name)
        engine.on_tree = lambda tree: say([trajectory.tool_calls for trajectory in tree.trajectories])
        while True:
            run(engine.rollout([env.tasks.task(number) for number in range(4)]))


if __name__ == "__main__":
    main(sys.argv[1])
