r"""The published code's reward of a whole response text, including its bugs: `reference_reward`.

ARPO, AEPO and Tool-Star share it. `arpo_env.rewards` has the rewards that judge an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arpo_env.grading.published_metrics import reward_f1

MULTI_TOOL_BONUS = 0.1


@dataclass(frozen=True)
class ReferenceReward:
    """The result of the published text reward.

    Attributes:
        score: the reward.
        reason: the reason in one word (our names).
        answer: the extracted answer, or "".
        f1: token F1 of the answer.
    """

    score: float
    reason: str
    answer: str = ""
    f1: float = 0.0


def reference_reward(text: str, golds: str | Sequence[str]) -> ReferenceReward:
    """Return the published reward of a whole response text including tool results, with the published bugs.

    Args:
        text: everything after the prompt.
        golds: one gold answer, or several.
    """
    fault = _format_fault(text)
    if fault:
        return ReferenceReward(-1.0, fault)
    answer = _boxed_as_published(text[text.find("<answer>") + len("<answer>") : text.find("</answer>")])
    if answer is None:
        return ReferenceReward(-1.0, "no_boxed")
    f1 = reward_f1(answer, [golds] if isinstance(golds, str) else golds)
    if f1 <= 0:
        return ReferenceReward(0.0, "wrong", answer)
    # As published: the tags count wherever they are, even in the result of a tool.
    if "</search>" in text and "</python>" in text:
        return ReferenceReward(f1 + MULTI_TOOL_BONUS, "multi_tool", answer, f1)
    return ReferenceReward(f1, "correct", answer, f1)


def _format_fault(text: str) -> str:
    thoughts = text.count("<think>")
    if thoughts != text.count("</think>"):
        return "think_unpaired"
    if thoughts == 0:
        return "think_missing"
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return "answer_count"
    for tool in ("search", "python"):
        if fault := _call_fault(text, tool):
            return fault
    start, end = text.find("<answer>"), text.find("</answer>")
    if start > end:
        return "answer_order"
    return "" if "\\boxed{" in text[start:end] and "}" in text[start:end] else "no_boxed"


def _call_fault(text: str, tool: str) -> str:
    position = 0
    while (start := text.find(f"<{tool}>", position)) != -1:
        end, result = text.find(f"</{tool}>", start), text.find("<result>", start)
        close = text.find("</result>", result) if result != -1 else -1
        if -1 in (end, result, close):
            return f"{tool}_incomplete"
        if not start < end < result < close:
            return f"{tool}_order"
        # Behind the result, since the tags of this tool within it are no further calls.
        position = close
    return ""


def _boxed_as_published(text: str) -> str | None:
    r"""Return the last box; after "\boxed " with a space, everything up to a dollar sign. None where theirs raises."""
    if "\\boxed " in text:
        return text.split("\\boxed ")[-1].split("$")[0]
    start = text.rfind("\\boxed")
    depth = 0
    for position in range(start, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if text[position] == "}" and depth == 0:
            return text[start + len("\\boxed{") : position] if text.startswith("\\boxed{", start) else None
    return None
