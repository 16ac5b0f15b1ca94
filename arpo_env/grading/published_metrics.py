r"""The published metrics, including their bugs, for comparison with printed numbers rather than for accurate grading.

The training reward and the evaluation script normalise differently: the reward deletes ASCII punctuation (so "-9"
equals "9" and "1.2" equals "12"), the evaluation keeps it (so "Paris." is not "Paris"). Both are reproduced. Source:
ARPO's deep_research.py, metrics.py, math_equivalence.py, llm_evaluator_sds.py, evaluator.py.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

_CLOSED = ("yes", "no", "noanswer")


def reward_f1(prediction: str, golds: Sequence[str]) -> float:
    """Return the token F1 of the training reward, the maximum over the gold answers."""
    mine = _normalised(prediction, punctuation=False)
    best = 0.0
    for gold in golds:
        other = _normalised(gold, punctuation=False)
        # yes, no and noanswer earn nothing in part
        if mine != other and (mine in _CLOSED or other in _CLOSED):
            continue
        best = max(best, _token_f1(mine, other))
    return best


def evaluation_scores(prediction: str, gold: str, task: str) -> dict[str, float]:
    """Return `em`, `acc` (gold contained in the prediction) and `f1` of the evaluation script.

    Args:
        prediction: the answer.
        gold: one gold answer.
        task: "qa" (articles are removed) or "math" (articles are kept).
    """
    mine, other = (_normalised(text, punctuation=True, articles=task == "math") for text in (prediction, gold))
    return {"em": float(mine == other), "acc": float(other in mine), "f1": _token_f1(mine, other)}


def judge_says_correct(reply: str) -> bool:
    """Parse a judge's reply as the evaluation script does: by substrings, so "not incorrect" counts as wrong."""
    reply = reply.lower()
    return "correct" in reply and not any(word in reply for word in ("incorrect", "wrong", "not correct"))


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


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from `c` correct of `n` samples; for n = k, "any was correct".

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def strings_equivalent(first: str, second: str) -> bool:
    """Compare answers as the evaluation script does: as normalised LaTeX strings, without symbolic checks."""
    try:
        return _latex_string(first) == _latex_string(second)
    except (ValueError, IndexError):
        return first == second  # the published code compares the raw strings if its normalisation raises


def _normalised(text: str, *, punctuation: bool, articles: bool = False) -> str:
    text = text.lower()
    if not punctuation:
        text = "".join(letter for letter in text if letter not in string.punctuation)
    if not articles:
        text = re.sub(r"\b(a|an|the)\b", " ", text)
    return " ".join(text.split())


def _token_f1(mine: str, other: str) -> float:
    first, second = mine.split(), other.split()
    same = sum((Counter(first) & Counter(second)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(first), same / len(second)
    return 2 * precision * recall / (precision + recall)


def _latex_string(text: str) -> str:
    for old, new in (("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", "")):
        text = text.replace(old, new)
    for gone in ("\\right", "^{\\circ}", "^\\circ", "\\$"):
        text = text.replace(gone, "")
    if "\\text{ " in text:
        text, _unit = text.split("\\text{ ")
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    text = sides[1] if len(sides) == 2 and len(sides[0]) <= 2 else text
    text = _short_fractions(_short_roots(text).replace(" ", ""))
    text = "\\frac{1}{2}" if text == "0.5" else text
    slash = re.fullmatch(r"(0|-?[1-9]\d*)/(0|-?[1-9]\d*)", text)
    return f"\\frac{{{slash[1]}}}{{{slash[2]}}}" if slash else text


def _short_roots(text: str) -> str:
    first, *rest = text.split("\\sqrt")
    return first + "".join("\\sqrt" + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}") for part in rest)


def _short_fractions(text: str) -> str:
    first, *rest = text.split("\\frac")
    if any(not part.startswith("{") and len(part) < 2 for part in rest):
        return text
    return first + "".join("\\frac" + _fraction(part) for part in rest)


def _fraction(part: str) -> str:
    if part.startswith("{"):
        return part
    bottom = part[1:] if part[1] == "{" else f"{{{part[1]}}}{part[2:]}"
    return f"{{{part[0]}}}{bottom}"
