"""`make_grader` returns a grader by name."""

from __future__ import annotations

from typing import Any

from arpo_env.grading.choice_grader import ChoiceGrader, GaiaGrader
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_grader import MathGrader
from arpo_env.grading.qa_grader import ExactGrader, QaGrader
from arpo_env.nearest_name import nearest_hint
from envs_registry import Task

NAMES = ("auto", "math", "qa", "em", "mcq", "gaia", "judge")


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


def make_grader(name: str = "auto", **options: Any) -> Grader:
    """Return a grader.

    Args:
        name: "auto" (by the task's kind), "math", "qa", "em", "mcq", "gaia" or "judge".
        options: options of that grader: `pool` for "math" and "auto"; `chat` (a `ChatModel` or a model name) and
            `cache` for "judge".

    Raises:
        ValueError: the name is unknown, or "judge" was chosen without a model.
    """
    match name:
        case "auto":
            return KindGrader({"math": MathGrader(**options), "qa": QaGrader(), "mcq": ChoiceGrader(**options)})
        case "math":
            return MathGrader(**options)
        case "qa":
            return QaGrader(**options)
        case "em":
            return ExactGrader(**options)
        case "mcq":
            return ChoiceGrader(**options)
        case "gaia":
            return GaiaGrader(**options)
        case "judge":
            judge = _make_judge(**options)
            return KindGrader({"math": judge, "qa": judge, "mcq": ChoiceGrader()})
    check_name(name)
    raise AssertionError(name)


def check_name(name: str) -> None:
    """Check that a grader of this name exists.

    Raises:
        ValueError: there is none.
    """
    if name not in NAMES:
        raise ValueError(f"unknown grader {name!r}; available: {', '.join(NAMES)}{nearest_hint(name, NAMES)}")


def _make_judge(chat: Any = None, cache: Any = None) -> Grader:
    import importlib

    if chat is None:
        raise ValueError(
            "scorer='judge' needs a chat model: set OPENAI_BASE_URL and OPENAI_API_KEY and name the model "
            "(judge_model='...'), or use scorer='qa' (EM and F1), which needs none"
        )
    if isinstance(chat, str):
        chat = importlib.import_module("arpo_env.chat_model").ChatModel(chat)
    judge: Grader = importlib.import_module("arpo_env.grading.llm_judge").Judge(chat, cache=cache)
    return judge
