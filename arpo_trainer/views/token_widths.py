"""How many characters of a turn's text each token wrote, so that a page can colour the text by entropy.

A trace has a turn's token ids and its text, not the text of each token. With the model's tokenizer the text is divided
exactly; where the pieces do not add up to the text (a tokenizer that changes spaces), nothing is said.

    widths = TokenWidths.of_model("models/smollm2")
    widths and widths(span.ids, span.text)          # [3, 1, 5, ...] or None
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_UNFINISHED = "\ufffd"  # what a decoder writes for a part of a character
_LONGEST = 12  # tokens of one character


class TokenWidths:
    """Divides texts into tokens.

    Args:
        decode: returns the text of token ids, special tokens included.
    """

    def __init__(self, decode: Any) -> None:
        self._decode = decode
        self._one = functools.lru_cache(maxsize=200_000)(lambda token: decode([token]))

    @classmethod
    def of_model(cls, folder: str | Path | None) -> TokenWidths | None:
        """Return those of a model's folder; None if it has no tokenizer.json or `tokenizers` is not installed."""
        path = Path(folder, "tokenizer.json") if folder else None
        if path is None or not path.is_file() or importlib.util.find_spec("tokenizers") is None:
            return None
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        return cls(functools.partial(tokenizer.decode, skip_special_tokens=False))

    def __call__(self, ids: Sequence[int], text: str) -> list[int] | None:
        """Return the length of each token's text in UTF-16 units, as browsers count; None if they do not fit `text`.

        Of the tokens of one character the last one has its length.
        """
        widths: list[int] = []
        held: list[int] = []
        position = 0
        for token in ids:
            held.append(token)
            piece: str = self._one(token) if len(held) == 1 else self._decode(held)
            if piece.endswith(_UNFINISHED) and not text.startswith(piece, position) and len(held) < _LONGEST:
                widths.append(0)
                continue
            if not text.startswith(piece, position):
                if not piece.startswith(text[position:]):
                    return None
                piece = text[position:]  # a stop string ended the text within this token, or it ends the turn unseen
            widths.append(utf16(piece))
            position, held = position + len(piece), []
        return widths if position == len(text) and not held else None


def utf16(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
