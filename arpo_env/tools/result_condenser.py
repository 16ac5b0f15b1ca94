"""`ResultCondenser`: another model condenses a long result of a tool to what the agent needs.

The auxiliary model of DeepAgent (arXiv 2510.21618) first says what the agent is after, from its last ten steps, and
then chooses from the result. Here one request does both. With a cache the replies are recorded, and equal requests, as
those of branches that saw the same, get the same reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from arpo_env.chat_model import ChatModel
from arpo_env.text import Fence, cut_middle

_STEPS, _STEP_CHARACTERS = 10, 2_000
_CHARACTERS = 100_000  # of the result; more is cut in the middle
_PROMPT = """\
An agent called a tool. The result is too long for the agent, so you condense it. Work out from the agent's last steps \
what it needs the result for. Then write down what serves that, in at most {limit} characters. Copy names, numbers, \
identifiers, units and dates exactly as they stand. Add nothing that is not in the result, and do not go on in the \
agent's place. If nothing serves, say in one sentence what the result holds.

{rule}

The agent's last steps:
{steps}

The call:
{call}

The result:
{result}

Write the condensed result and nothing else."""


class ResultCondenser:
    """Condenses results with a chat model. Many episodes may share it.

    Args:
        chat: the model; with a cache its replies are recorded.
        limit: results with more characters are condensed.
        max_tokens: of a reply, reasoning included.
    """

    def __init__(self, chat: ChatModel, limit: int, max_tokens: int = 4096) -> None:
        self.chat, self.limit, self.max_tokens = chat, limit, max_tokens

    async def condense(self, name: str, arguments: Mapping[str, object], steps: Sequence[str], text: str) -> str:
        """Return a result as the agent is shown it; one that is not too long stays as it is.

        Args:
            name: of the tool.
            arguments: of the call.
            steps: what the agent wrote and read before the call.
            text: the result.

        Raises:
            ServiceError: the model failed or wrote nothing; the sample is void then.
        """
        if len(text) <= self.limit:
            return text
        prompt = self._prompt(name, arguments, steps, text)
        reply = await self.chat.complete([{"role": "user", "content": prompt}], max_tokens=self.max_tokens)
        note = f"(condensed by another model from {len(text):,} characters)"
        return f"{cut_middle(reply, self.limit)}\n{note}"

    def _prompt(self, name: str, arguments: Mapping[str, object], steps: Sequence[str], text: str) -> str:
        last = "\n\n".join(cut_middle(step.strip(), _STEP_CHARACTERS) for step in steps[-_STEPS:]) or "-"
        call = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False, sort_keys=True, default=str)
        result = cut_middle(text, _CHARACTERS)
        fence = Fence([last, call, result])
        return _PROMPT.format(
            limit=self.limit,
            rule=fence.rule,
            steps=fence.around(last),
            call=fence.around(call),
            result=fence.around(result),
        )
