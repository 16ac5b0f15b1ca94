"""Evaluation: suites of environments, models, stored episodes, metrics, re-scoring and comparisons.

from arpo_trainer.evaluation import EvalModel, EvalSettings, run_evaluation
settings = EvalSettings(("arpo/GSM8K-v0",), tasks=100, samples=4)
run = run_evaluation(settings, [EvalModel("smollm2", "transformers", "smollm2-135m")], "evals/gsm8k")
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.eval_metrics import results
    from arpo_trainer.evaluation.eval_session import run_evaluation
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
    from arpo_trainer.evaluation.suites import preset, suite

__all__ = [
    "EvalModel",
    "EvalSettings",
    "load_eval_run",
    "preset",
    "results",
    "run_evaluation",
    "suite",
]

__getattr__ = lazy_names(__name__, naming_extras)
