"""The chain refiner: asks a model to shorten the thoughts of an over-long chain.

    texts = await shortened_turns(helper, question, [("<think>long</think><python>1</python>", "1"), ...], seed=0)

Only what stands between `<think>` and `</think>` is rewritten. Calls, answers, tags and results are not: the published
code had a model rewrite prompt and response as one text, and lost the chat template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arpo_env.text import Fence, cut_middle
from arpo_trainer.inference_tools.helper_model import Helper, HelperFailed

_THOUGHT = re.compile(r"(?<=<think>)(?:(?!</?think>).)*(?=</think>)", re.DOTALL)
_CONTEXT = 1000  # characters of a turn's call and result that the model is shown
_SCHEMA = {
    "type": "object",
    "properties": {
        "thoughts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
                "required": ["number", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["thoughts"],
    "additionalProperties": False,
}
_PROMPT = """\
Someone works on the question below in steps: thoughts, then a call of a tool, then its result. The thoughts have \
become too long. Shorten each of them to what the following steps and the answer need: keep facts, numbers, names, \
decisions and open questions; drop repetitions, detours and doubts that were settled. Do not add anything, and do not \
answer.

{rule}

The question:
{question}

The steps, as JSON. "then" is shown for context only:
{steps}

Reply with JSON alone: {{"thoughts": [{{"number": 1, "text": "the shortened thought"}}, ...]}}"""


async def shortened_turns(helper: Helper, question: str, turns: Sequence[tuple[str, str]], seed: int) -> list[str]:
    """Return the turns with shorter thoughts.

    Args:
        helper: the model that is asked.
        question: of the task.
        turns: the text of each turn of the policy, and of its result.
        seed: of the sample.

    Returns:
        One text for each turn; a thought that the model left out, or did not shorten, is as it was.

    Raises:
        HelperFailed: there is no thought, no reply, or none of its thoughts is shorter.
    """
    steps = list(_steps(turns))
    if not any(step["thought"].strip() for step in steps):
        raise HelperFailed("there are no thoughts to shorten")
    quoted = json.dumps(steps, ensure_ascii=False, indent=1)
    fence = Fence([question, quoted])
    prompt = _PROMPT.format(rule=fence.rule, question=fence.around(question), steps=fence.around(quoted))
    reply = await helper.complete([{"role": "user", "content": prompt}], seed, _SCHEMA)
    return with_thoughts([text for text, _ in turns], read_thoughts(reply))


def read_thoughts(reply: str) -> dict[int, str]:
    """Return number -> thought of a reply.

    Raises:
        HelperFailed: the reply has no such JSON.
    """
    try:
        data = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
        return {int(entry["number"]): entry["text"] for entry in data["thoughts"] if isinstance(entry["text"], str)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HelperFailed(f"the reply is not the JSON that was asked for ({error!r}): {reply[:80]!r}") from error


def with_thoughts(texts: Sequence[str], thoughts: Mapping[int, str]) -> list[str]:
    """Return texts with some of their thoughts replaced by shorter ones.

    Args:
        texts: of the turns.
        thoughts: number of a thought, counted from 1 over all turns -> its new text.

    Raises:
        HelperFailed: no thought became shorter.
    """
    number, found = 0, []

    def replaced(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        new = thoughts.get(number, "").strip()
        # a tag in a thought could end it, or open a call
        usable = 0 < len(new) < len(match[0].strip()) and "<" not in new
        return new if usable else match[0]

    for text in texts:
        found.append(_THOUGHT.sub(replaced, text))
    if found == list(texts):
        raise HelperFailed("no thought became shorter")
    return found


def _steps(turns: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    number = 0
    for text, result in turns:
        matches = list(_THOUGHT.finditer(text))
        for match in matches:
            number += 1
            after = text[match.end() :].removeprefix("</think>") + result if match is matches[-1] else ""
            yield {"number": number, "thought": match[0], "then": cut_middle(after, _CONTEXT)}
