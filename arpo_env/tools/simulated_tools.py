"""Tools that a model plays: it reads the document and the arguments of a call, and answers as the API would.

DeepAgent trains with simulated APIs, since real ones cost money, change and break. A chat model with a cache records
its answers, so that a run can be replayed without it; equal calls then get equal answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arpo_env.chat_model import ChatModel
from arpo_env.text import Fence, cut_middle
from arpo_env.tools.tool_document import ToolDocument

_LONGEST = 12_000  # characters of a document or of arguments that the model is shown
_PROMPT = """\
You stand in for an API. Read its document and the arguments of a call, and write what the API would return: one \
JSON value and nothing else. Make up plausible data where you do not know it, in the form that the document describes. \
If the arguments do not fit the document, return {{"error": "..."}} with what is wrong.

{rule}

Document of the API:
{document}

Arguments of the call:
{arguments}"""


class SimulatedTools:
    """Answers the calls of tools by a model.

    Args:
        chat: the model; with a cache its answers are recorded.
        documents: of the tools.
        max_tokens: limit of an answer.
    """

    def __init__(self, chat: ChatModel, documents: Sequence[ToolDocument], max_tokens: int = 1024) -> None:
        self._chat, self._max_tokens = chat, max_tokens
        self._documents = {document.name: document for document in documents}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what the model answers for the tool.

        Raises:
            ServiceError: the model failed or refused; the sample is void then.
            ValueError: there is no such tool.
        """
        if name not in self._documents:
            raise ValueError(f"there is no tool {name!r}")
        document = json.dumps(self._documents[name].schema["function"], ensure_ascii=False, sort_keys=True)
        given = json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True)
        fence = Fence([document, given])
        shown = [fence.around(cut_middle(text, _LONGEST)) for text in (document, given)]
        prompt = _PROMPT.format(rule=fence.rule, document=shown[0], arguments=shown[1])
        return await self._chat.complete([{"role": "user", "content": prompt}], max_tokens=self._max_tokens)
