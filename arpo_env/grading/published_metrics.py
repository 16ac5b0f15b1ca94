"""Published metrics, including their bugs, for comparison with printed numbers rather than for accurate grading."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from itertools import repeat

from arpo_env.grading.grader import Grader, Score
from envs_registry import Task

_CLOSED = ("yes", "no", "noanswer")


def reward_f1(prediction: str, golds: Sequence[str]) -> float:
    """Return the token F1 of the training reward, the maximum over the gold answers.

    It deletes ASCII punctuation, so "-9" equals "9" and "1.2" equals "12". Source: ARPO's deep_research.py.
    """
    mine = _normalised(prediction)
    best = 0.0
    for gold in golds:
        other = _normalised(gold)
        # yes, no and noanswer earn nothing in part
        if mine != other and (mine in _CLOSED or other in _CLOSED):
            continue
        first, second = mine.split(), other.split()
        if same := (Counter(first) & Counter(second)).total():
            precision, recall = same / len(first), same / len(second)
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


def _normalised(text: str) -> str:
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def tool_productivity(accuracy: float, mean_tool_calls: float) -> float:
    """Return ARPO's tool productivity: accuracy in [0, 1] * T / (T + 0.1) * 100, with T mean calls per sample."""
    return accuracy * mean_tool_calls / (mean_tool_calls + 0.1) * 100


def tool_star_m1m2(usage: float, accuracy: float, mean_tool_calls: float) -> float:
    """Return Tool-Star's "m1m2": share of samples with a tool * accuracy / (T + 0.1) * 100, T mean calls per sample.

    It falls with the calls, the opposite of ARPO's `tool_productivity`. Source: evaluate.py of Tool-Star.
    """
    return usage * accuracy / (mean_tool_calls + 0.1) * 100


def answers_per_call(correct: float, tool_calls: float) -> float:
    """Return what Tool-Star's evaluate.py calls tool productivity: right answers per call; 0 without calls."""
    return correct / tool_calls if tool_calls > 0 else 0.0


class GaiaGrader(Grader):
    """GAIA: numbers are compared as numbers, lists item by item, other answers by letters and digits.

    Source: the rules of GAIA's official scorer, implemented from scratch.
    """

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 if the answer matches one of the gold answers."""
        return Score(float(any(gaia_match(answer, gold) for gold in task.answers)))


def gaia_match(answer: str, gold: str) -> bool:
    """Return whether an answer matches a gold answer; the form of the gold answer decides how they are compared."""
    if re.search("[,;]", gold):  # a list, as in the official scorer
        wanted, given = (re.split("[,;]", text) for text in (gold, answer))
        return len(wanted) == len(given) and all(map(_same_item, given, wanted, repeat(True)))
    return _same_item(answer, gold) if _gaia_text(gold) else answer.strip() == gold.strip()


def _same_item(answer: str, gold: str, punctuation: bool = False) -> bool:
    if (number := _float(gold)) is not None:
        return _float(re.sub("[$%,]", "", answer)) == number
    return _gaia_text(answer, punctuation) == _gaia_text(gold, punctuation)


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    # "nan" is a word here; as a number it would equal nothing, not even itself
    return None if math.isnan(number) else number


def _gaia_text(text: str, punctuation: bool = False) -> str:
    squeezed = re.sub(r"\s", "", text).lower()
    return squeezed if punctuation else squeezed.translate(str.maketrans("", "", string.punctuation))
