"""The grader interface: `Grader.grade(answer, task)` returns a `Score`, or raises `GradingError` if undecided."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from arpo_env.errors import GradingError as GradingError
from envs_registry import Task


@dataclass(frozen=True)
class Score:
    """How right an answer is.

    Attributes:
        value: in [0, 1].
        parts: what it was made of, by name, such as `em` and `f1`.
    """

    value: float
    parts: dict[str, float] = field(default_factory=dict)


class Grader(ABC):
    """Compares an answer with the gold answers of its task."""

    @abstractmethod
    async def grade(self, answer: str, task: Task) -> Score:
        """Score an answer.

        Raises:
            GradingError: it could not be decided.
        """

    async def close(self) -> None:  # noqa: B027  (most graders hold nothing)
        """Give back what the grader holds; may be called twice."""
