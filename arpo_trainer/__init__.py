"""Plays episodes as trees, learns from the trees, evaluates and draws them.

from arpo_trainer import ARPOConfig, ARPOTrainer
trainer = ARPOTrainer("model-folder", env, args=ARPOConfig(output_dir="out", num_generations=8))
trainer.train()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arpo_trainer.advantages import group_advantages
    from arpo_trainer.attribution import token_advantages
    from arpo_trainer.backends import TransformersBackend
    from arpo_trainer.branching import branch_score
    from arpo_trainer.budgets import split_budget
    from arpo_trainer.config import ARPOConfig
    from arpo_trainer.engine import Engine
    from arpo_trainer.evaluation import evaluate
    from arpo_trainer.generation import Backend, Generation, Request
    from arpo_trainer.report import write_report
    from arpo_trainer.rewards import env_reward
    from arpo_trainer.settings import RolloutSettings
    from arpo_trainer.trainer import ARPOTrainer
    from arpo_trainer.tree import RolloutTree, read_traces, write_traces

__all__ = [
    "ARPOConfig",
    "ARPOTrainer",
    "Backend",
    "Engine",
    "Generation",
    "Request",
    "RolloutSettings",
    "RolloutTree",
    "TransformersBackend",
    "branch_score",
    "env_reward",
    "evaluate",
    "group_advantages",
    "read_traces",
    "split_budget",
    "token_advantages",
    "write_report",
    "write_traces",
]

_HOMES = {
    "ARPOConfig": "config",
    "ARPOTrainer": "trainer",
    "Backend": "generation",
    "Engine": "engine",
    "Generation": "generation",
    "Request": "generation",
    "RolloutSettings": "settings",
    "RolloutTree": "tree",
    "TransformersBackend": "backends",
    "branch_score": "branching",
    "env_reward": "rewards",
    "evaluate": "evaluation",
    "group_advantages": "advantages",
    "read_traces": "tree",
    "split_budget": "budgets",
    "token_advantages": "attribution",
    "write_report": "report",
    "write_traces": "tree",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: the command line works without torch."""
    from arpo_trainer.extras import public_name

    return public_name(__name__, _HOMES, name)
