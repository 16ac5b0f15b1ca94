"""Graders compare answers with gold answers. `make_grader` returns one by name; undecided ones raise `GradingError`.

A new grader is one row of `GRADERS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from arpo_env.errors import GradingError
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_grader import ChoiceGrader, MathGrader
from arpo_env.grading.published_metrics import GaiaGrader
from arpo_env.grading.qa_grader import QaGrader
from envs_registry import Task
from envs_registry.nearest_name import nearest_hint

__all__ = ["Grader", "GradingError", "Score", "make_grader"]


class KindGrader(Grader):
    """Grades each task with the grader of its kind.

    Args:
        graders: graders by `Task.kind`.
    """

    def __init__(self, graders: dict[str, Grader]) -> None:
        self.graders = graders

    async def grade(self, answer: str, task: Task) -> Score:
        """Score an answer with the grader of its task's kind."""
        return await self.graders[task.kind].grade(answer, task)

    async def close(self) -> None:
        """Close the graders."""
        for grader in self.graders.values():
            await grader.close()


def _by_kind(**options: Any) -> Grader:
    return KindGrader({"math": MathGrader(**options), "qa": QaGrader(), "mcq": ChoiceGrader(**options)})


def _judge(chat: Any = None, cache: Any = None) -> Grader:
    if chat is None:
        raise ValueError(
            "scorer='judge' needs a chat model: set OPENAI_BASE_URL and OPENAI_API_KEY and name the model "
            "(judge_model='...'), or use scorer='qa' (EM and F1), which needs none"
        )
    if isinstance(chat, str):
        chat = importlib.import_module("arpo_env.chat_model").ChatModel(chat)
    judge: Grader = importlib.import_module("arpo_env.grading.llm_judge").Judge(chat, cache=cache)
    return KindGrader({"math": judge, "qa": judge, "mcq": ChoiceGrader()})


GRADERS: dict[str, Callable[..., Grader]] = {
    "auto": _by_kind,
    "math": MathGrader,
    "qa": QaGrader,
    "em": partial(QaGrader, exact=True),
    "mcq": ChoiceGrader,
    "gaia": GaiaGrader,
    "judge": _judge,
}


def make_grader(name: str = "auto", **options: Any) -> Grader:
    """Return a grader.

    Args:
        name: one of `GRADERS`: "auto" (by the task's kind), "math", "qa", "em", "mcq", "gaia", "judge".
        options: options of that grader: `pool` for "math" and "auto"; `chat` (a `ChatModel` or a model name) and
            `cache` for "judge".

    Raises:
        ValueError: the name is unknown, or "judge" was chosen without a model.
    """
    check_name(name)
    return GRADERS[name](**options)


def check_name(name: str) -> None:
    """Check that a grader of this name exists."""
    if name not in GRADERS:
        raise ValueError(f"unknown grader {name!r}; available: {', '.join(GRADERS)}{nearest_hint(name, GRADERS)}")
