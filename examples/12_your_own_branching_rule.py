"""Branch where your own rule says so: a function of what is known after a tool result, and two rows in tables.

Run it: MODEL=Qwen/Qwen2.5-0.5B-Instruct python examples/12_your_own_branching_rule.py
"""

import asyncio
import os

import gymnasium as gym
from transformers import AutoModelForCausalLM, AutoTokenizer

import arpo_env
from arpo_trainer import Engine, RolloutSettings, TransformersBackend
from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod, BranchSettings
from arpo_trainer.algorithms.registry import ALGORITHMS, Algorithm
from arpo_trainer.tree import Decision

gym.register_envs(arpo_env)


def unsure(point: Decision, settings: BranchSettings) -> Decision:
    """Branch where the model is unsure how to go on, whether or not its entropy rose."""
    return point.scored(point.entropy, threshold=0.1, branch=point.entropy > 0.1)


BRANCHES["unsure"] = BranchMethod(unsure)
ALGORITHMS["unsure"] = Algorithm(budget="arpo", branch="unsure")  # ARPOConfig(algorithm="unsure") trains with it

model = os.environ.get("MODEL", "Qwen/Qwen2.5-0.5B-Instruct")
tokenizer = AutoTokenizer.from_pretrained(model)
backend = TransformersBackend(AutoModelForCausalLM.from_pretrained(model), tokenizer)
env = gym.make("arpo/Arithmetic-v0", level=3)
settings = RolloutSettings(algorithm="unsure", num_generations=8, initial_rollouts=4, max_turn_length=64)
[tree] = asyncio.run(Engine(backend, tokenizer, env, settings).rollout([env.unwrapped.tasks.task(0)]))

for span in tree.spans:
    if span.decision:
        print(f"score {span.decision.score:.2f}: {span.decision.branches} branches ({span.decision.reason})")
print([trajectory.origin for trajectory in tree.trajectories])
