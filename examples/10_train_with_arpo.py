"""Train a model with ARPO: every task is played as a tree of trajectories that branches after tool results.

Run it: MODEL=Qwen/Qwen2.5-0.5B-Instruct STEPS=20 python examples/10_train_with_arpo.py
"""

import os

import gymnasium as gym
import torch

import arpo_env
from arpo_trainer import ARPOConfig, ARPOTrainer

gym.register_envs(arpo_env)

args = ARPOConfig(  # TRL's GRPOConfig, and how trees grow
    output_dir="runs/arpo",
    max_steps=int(os.environ.get("STEPS", "20")),
    num_generations=8,  # M, the trajectories of a task
    initial_rollouts=4,  # N, those that start at the prompt; the others are branches
    per_device_train_batch_size=8,
    max_completion_length=512,
    use_cpu=not torch.cuda.is_available(),
)
env = gym.make("arpo/Arithmetic-v0", level=3)
trainer = ARPOTrainer(os.environ.get("MODEL", "Qwen/Qwen2.5-0.5B-Instruct"), env, args=args)
trainer.train()
trainer.save_model("runs/arpo/model")
for trajectory in trainer.trees[0].trajectories:
    print(trajectory.origin, trajectory.tool_calls, "tool calls, reward", trajectory.reward)
