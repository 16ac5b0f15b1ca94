"""`MemoryWriter`: another model writes the memories of a fold, as in DeepAgent (arXiv 2510.21618).

It sees the question, the documents of the tools, the memories so far and what happened since the last fold, and is
asked for the three memories at once. What the policy wrote and read is marked as data.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arpo_env.memory_folding.memory import MEMORIES, Memory, MemoryFormatError, check_part
from arpo_env.protocols.parse_tool_calls import UnreadableCall, read_object
from arpo_env.text import Fence, cut_middle
from arpo_env.tools.function_schema import JsonSchema

if TYPE_CHECKING:
    from arpo_env.chat_model import ChatModel

_CHARACTERS = 100_000  # of the history; more is cut in the middle
_ASKED = {
    "episodic": "the episodic memory: what the task is, the events that matter with their outcomes, and how far the "
    "work has come. Keep every fact that was found and may still be needed, with names and numbers",
    "working": "the working memory: the goal at hand, what stands in its way, and the next actions",
    "tool": "the tool memory: for each tool that was used, how often it worked, the parameters that worked, the errors "
    "it gave, what its results look like, and what was learned about it; then rules for its use",
}
_PROMPT = """\
You keep the memory of an agent that works on a question with tools. Its context is full: all that it will know from \
now on is the question and what you write. Write {asked}.

{rule}

The question:
{question}

The tools, as JSON:
{tools}

The memories of the work before, as JSON:
{memory}

What the agent wants to keep above all:
{focus}

What the agent wrote and read since then:
{history}

Reply with one JSON object of exactly this schema, and nothing else:
{schema}"""


@dataclass(frozen=True)
class FoldedHistory:
    """What a memory is written from.

    Attributes:
        question: of the task.
        tools: schemas of the tools.
        memory: of the fold before; None if there is none.
        text: what the policy wrote and read since then.
        focus: what the policy wants to keep.
    """

    question: str
    tools: Sequence[JsonSchema]
    memory: Memory | None
    text: str
    focus: str = ""


class MemoryWriter:
    """Writes memories with a chat model.

    Args:
        chat: the model; its cache records the replies.
        max_tokens: of each reply, reasoning included.
    """

    def __init__(self, chat: ChatModel, max_tokens: int = 4096) -> None:
        self.chat, self.max_tokens = chat, max_tokens

    async def write(self, history: FoldedHistory) -> Memory:
        """Return the three memories.

        Raises:
            MemoryFormatError: a reply is not JSON or breaks its schema.
            ServiceError: the model failed.
        """
        parts = await asyncio.gather(*(self._part(name, history) for name in MEMORIES))
        return dict(zip(MEMORIES, parts, strict=True))

    async def _part(self, name: str, history: FoldedHistory) -> Any:
        messages = [{"role": "user", "content": _prompt(name, history)}]
        reply = await self.chat.complete(messages, max_tokens=self.max_tokens, json_schema=MEMORIES[name])
        # models like to put JSON into a code block, whatever they are told
        start, end = reply.find("{"), reply.rfind("}") + 1
        try:
            value, _ = read_object(reply[:end], max(start, 0))
        except UnreadableCall as error:
            raise MemoryFormatError(f"the {name} memory is not a JSON object: {error}") from error
        return check_part(name, value)


def _prompt(name: str, history: FoldedHistory) -> str:
    text, tools = cut_middle(history.text, _CHARACTERS), json.dumps(list(history.tools), ensure_ascii=False)
    memory = json.dumps(history.memory, ensure_ascii=False) if history.memory else "none"
    fence = Fence([history.question, tools, memory, history.focus, text])
    return _PROMPT.format(
        asked=_ASKED[name],
        rule=fence.rule,
        question=fence.around(history.question),
        tools=fence.around(tools),
        memory=fence.around(memory),
        focus=fence.around(history.focus or "nothing in particular"),
        history=fence.around(text),
        schema=json.dumps(MEMORIES[name], ensure_ascii=False),
    )
