"""How many characters of a turn's text each token wrote, so that a page can colour the text by entropy.

A trace has a turn's token ids and its text, not the text of each token. With the model's tokenizer the text is divided
exactly; where the pieces do not add up to the text (a tokenizer that changes spaces), nothing is said.

    widths = TokenWidths.of_model("models/smollm2")
    widths and widths(span.ids, span.text)          # [3, 1, 5, ...] or None
"""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.demo_model import DEMO_MODEL, demo_model_folder

logger = logging.getLogger(__name__)
_FILE = "tokenizer.json"
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
    def of_model(cls, model: str | Path | None) -> TokenWidths | None:
        """Return those of a model: a folder, or a name whose files are in the cache; nothing is downloaded.

        None if it has no tokenizer.json that can be read, or `tokenizers` is not installed.
        """
        path = _tokenizer_file(model) if model else None
        if path is None or importlib.util.find_spec("tokenizers") is None:
            return None
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            logger.warning("%s cannot be read (%s): texts are not coloured by entropy", path, error)
            return None
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


def _tokenizer_file(model: str | Path) -> Path | None:
    folder = demo_model_folder() if model == DEMO_MODEL else Path(model)
    if (path := folder / _FILE).is_file():
        return path
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(str(model), _FILE)
    except HFValidationError:  # a folder that is gone is no name of a model
        return None
    return Path(cached) if isinstance(cached, str) else None


def utf16(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
