"""Use an environment from plain TRL: `GRPOTrainer` plays it by `environment_factory`, without trees and forks.

Run it: MODEL=Qwen/Qwen3-0.6B STEPS=20 python examples/15_use_plain_trl.py (the model has to know tool calls)
"""

import json
import os

import gymnasium as gym
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

env = gym.make("arpo_env:arpo/Arithmetic-v0", level=3, protocol="hermes", max_turns=99, max_tool_calls=99).unwrapped


class Episode:  # TRL makes one for each trajectory; its public methods are the tools
    def __init__(self):
        self.env = env.spawn()

    def reset(self, index, **row):
        self.env.reset(options={"index": index})

    def python(self, code: str) -> str:
        """Run Python code; variables stay alive.

        Args:
            code: The source; the value of a last expression is shown.
        """
        call = json.dumps({"name": "python", "arguments": {"code": code}})
        return self.env.step(f"<tool_call>{call}</tool_call>")[-1]["results"][0]


def reward(environments, completions, **rest):
    return [one.env.step(turns[-1].get("content") or "")[1] for one, turns in zip(environments, completions)]


rows = Dataset.from_list([{"prompt": env.messages(env.tasks.task(i)), "index": i} for i in range(100)])
args = GRPOConfig("runs/trl", max_steps=int(os.environ.get("STEPS", "20")), bf16=False)  # runs without a GPU, too
model = os.environ.get("MODEL", "Qwen/Qwen3-0.6B")
GRPOTrainer(model, reward, args=args, train_dataset=rows, environment_factory=Episode).train()
