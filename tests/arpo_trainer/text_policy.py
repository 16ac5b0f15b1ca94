"""What policies that tests make up have in common: they keep nothing, and write texts in the ids of a tokenizer."""

from typing import Any

from arpo_trainer.backends.base import Generation, OnWindow, Request


class TextPolicy:
    """A backend without a model; a subclass says in `generate` what it writes."""

    tokenizer: Any
    trains, wants_messages = True, False

    async def begin(self) -> None: ...

    async def end(self) -> None: ...

    def said(self, request: Request, text: str, entropy: float, on_window: OnWindow | None = None) -> Generation:
        """Write a text as far as there is room, with this entropy at each of its tokens."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][: request.max_tokens]
        if on_window:
            on_window([entropy] * min(len(ids), request.window))
        finish: Any = "stop" if len(ids) < request.max_tokens else "length"
        return Generation(ids, [-0.1] * len(ids), [entropy] * len(ids), finish)
