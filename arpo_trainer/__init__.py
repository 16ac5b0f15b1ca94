"""Plays episodes as trees, learns from the trees, evaluates and draws them.

from arpo_trainer import ARPOConfig, ARPOTrainer
trainer = ARPOTrainer("model-folder", env, args=ARPOConfig(output_dir="out", num_generations=8))
trainer.train()
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.algorithms.advantages import group_advantages
    from arpo_trainer.algorithms.branching import branch_score
    from arpo_trainer.algorithms.credit import token_advantages
    from arpo_trainer.algorithms.registry import split_budget
    from arpo_trainer.backends import TransformersBackend
    from arpo_trainer.backends.base import Backend, Generation, Request
    from arpo_trainer.report.html_report import tree_svg, write_report
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.rollout.settings import RolloutSettings
    from arpo_trainer.training.config import ARPOConfig
    from arpo_trainer.training.evaluation import evaluate
    from arpo_trainer.training.recorder import RunRecorder
    from arpo_trainer.training.rollout_batch import env_reward
    from arpo_trainer.training.trainer import ARPOTrainer
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
    "RunRecorder",
    "TransformersBackend",
    "branch_score",
    "env_reward",
    "evaluate",
    "group_advantages",
    "read_traces",
    "split_budget",
    "token_advantages",
    "tree_svg",
    "write_report",
    "write_traces",
]

__getattr__ = lazy_names(__name__, naming_extras)
