"""`make_grader`: a grader by its name."""

from __future__ import annotations

import difflib
from typing import Any

from arpo_env.grading.choice_grader import ChoiceGrader, GaiaGrader
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_grader import MathGrader
from arpo_env.grading.qa_grader import ExactGrader, QaGrader
from envs_registry import Task

NAMES = ("auto", "math", "qa", "em", "mcq", "gaia", "judge")


class KindGrader(Grader):
    """Leaves each task to the grader of its kind.

    Args:
        graders: by `Task.kind`.
    """

    def __init__(self, graders: dict[str, Grader]) -> None:
        self.graders = graders

    async def grade(self, answer: str, task: Task) -> Score:
        """Score an answer as its task's kind asks."""
        return await self.graders[task.kind].grade(answer, task)

    async def close(self) -> None:
        """Close the graders."""
        for grader in self.graders.values():
            await grader.close()


def make_grader(name: str = "auto", **options: Any) -> Grader:
    """Return a grader.

    Args:
        name: "auto" (by the task's kind), "math", "qa", "em", "mcq", "gaia" or "judge".
        options: of that grader: `pool` for "math" and "auto"; `chat` (a `ChatModel` or a model's name) and `cache` for
            "judge".

    Raises:
        ValueError: an unknown name, or "judge" without a model.
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
    """Make sure that there is a grader of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no grader is called {name!r}: there are {', '.join(NAMES)}{hint}")


def _make_judge(chat: Any = None, cache: Any = None) -> Grader:
    import importlib

    if chat is None:
        raise ValueError(
            "scorer 'judge' asks a chat model, and none is set up: set OPENAI_BASE_URL and OPENAI_API_KEY and name the "
            "model (judge_model='...'), or choose scorer='qa' (EM and F1), which needs none"
        )
    if isinstance(chat, str):
        chat = importlib.import_module("arpo_env.net.chat_client").ChatModel(chat)
    judge: Grader = importlib.import_module("arpo_env.grading.llm_judge").Judge(chat, cache=cache)
    return judge
