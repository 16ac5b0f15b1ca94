"""Graders: is this answer the gold answer? `make_grader` gives one by name; all raise `GradingError` if undecided."""

from arpo_env.errors import GradingError
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.grader_registry import make_grader

__all__ = ["Grader", "GradingError", "Score", "make_grader"]
