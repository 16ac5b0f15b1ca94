"""Where the published backtracer cuts a text, with its faults, to compare with: ours works on spans, not on text.

Source: Tool-Star's evaluation/tools/rollback_code.py and evaluation/utils.py; the second shadows the first and runs.
"""

from __future__ import annotations

_CALL, _THOUGHT_END, _BLANKS = "<python>", "</think>", " \n"


def documented_rollback(text: str) -> str:
    """Return the text up to the line before the last call; "" without a line break, so that the prompt is lost."""
    call = text.rfind(_CALL)
    if call < 0:
        return text
    before = text[:call].rstrip(_BLANKS).removesuffix(_THOUGHT_END).rstrip(_BLANKS)
    return before[: before.rfind("\n") + 1]


def effective_rollback(text: str) -> str:
    """Return the text up to the sentence or line before the last call; "" where there is neither."""
    call = text.rfind(_CALL)
    if call < 0:
        return text
    before = text[:call].removesuffix(_THOUGHT_END).rstrip(_BLANKS)
    ends = (before.rfind("\n") + 1, before.rfind(". ") + 2 if ". " in before else 0)
    return text[: max(ends)]
