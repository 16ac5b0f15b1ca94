"""Compare the trajectories of a group in your own way: a function from rewards to advantages, and a row in a table.

Run it: MODEL=Qwen/Qwen2.5-0.5B-Instruct STEPS=20 python examples/13_your_own_advantage.py
"""

import os
import statistics
from collections.abc import Sequence

import gymnasium as gym
import torch

import arpo_env
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.algorithms.advantages import ADVANTAGES, Rewards

gym.register_envs(arpo_env)


def above_median(groups: Sequence[Rewards], lengths: object, starts: object) -> list[list[float]]:
    """Return each reward minus the median of its group, and 0 for a trajectory that failed (None)."""
    medians = [statistics.median([reward for reward in group if reward is not None] or [0.0]) for group in groups]
    return [[0.0 if reward is None else reward - middle for reward in group] for group, middle in zip(groups, medians)]


ADVANTAGES["above-median"] = above_median

args = ARPOConfig(
    output_dir="runs/advantage",
    max_steps=int(os.environ.get("STEPS", "20")),
    advantage="above-median",
    num_generations=8,
    per_device_train_batch_size=8,
    use_cpu=not torch.cuda.is_available(),
)
env = gym.make("arpo/Arithmetic-v0", level=3)
trainer = ARPOTrainer(os.environ.get("MODEL", "Qwen/Qwen2.5-0.5B-Instruct"), env, args=args)
trainer.train()
rewards = trainer.trees[0].rewards
print("rewards", rewards, "advantages", above_median([rewards], None, None)[0])
