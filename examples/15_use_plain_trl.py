"""Use an environment from plain TRL: `GRPOTrainer` plays it by `environment_factory`, without trees and forks.

Run it: MODEL=Qwen/Qwen3-0.6B STEPS=20 python examples/15_use_plain_trl.py (the model has to know tool calls)
"""

import os

from trl import GRPOConfig, GRPOTrainer

from arpo_env.adapters.trl import trl_spec

spec = trl_spec("arpo/Arithmetic-v0", level=3, limit=100)  # the first 100 tasks of an endless source
args = GRPOConfig(
    "runs/trl",
    max_steps=int(os.environ.get("STEPS", "20")),
    max_tool_calling_iterations=spec.max_tool_calling_iterations,  # as many turns as the environment gives
    bf16=False,  # runs without a GPU, too
)
GRPOTrainer(os.environ.get("MODEL", "Qwen/Qwen3-0.6B"), args=args, **spec.kwargs).train()
