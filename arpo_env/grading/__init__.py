"""Graders compare answers with gold answers. `make_grader` returns one by name; undecided ones raise `GradingError`."""

from arpo_env.errors import GradingError
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.grader_registry import make_grader

__all__ = ["Grader", "GradingError", "Score", "make_grader"]
