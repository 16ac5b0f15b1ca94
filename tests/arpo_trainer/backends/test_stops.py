"""Stop strings in streams of tokens."""

from __future__ import annotations

from typing import Any

import pytest

from arpo_trainer.backends.stop_strings import StopFinder


def pieces(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text, a byte each."""
    return [
        tokenizer.convert_tokens_to_ids(character) for character in tokenizer.tokenize(text) for character in character
    ]


@pytest.mark.parametrize("text", ["a </python> b", "x </pyt</python>", "день.\n</python> и", "</python>"])
def test_the_end_is_the_token_that_completes_the_string(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    wanted = next(n for n in range(1, len(ids) + 1) if "</python>" in tokenizer.decode(ids[:n]))
    finder = StopFinder(tokenizer, ["</search>", "</python>"])
    assert finder.end(ids) == wanted
    assert next(n for n in range(1, len(ids) + 1) if finder.end(ids[:n], n - 1)) == wanted


def test_a_string_of_wide_characters_is_found_byte_by_byte(tokenizer: Any) -> None:
    ids = pieces(tokenizer, "конец 終わり")
    assert len(ids) > 2 * len("конец")
    end = StopFinder(tokenizer, ["конец"]).end(ids)
    assert end is not None
    assert tokenizer.decode(ids[:end]) == "конец"
    assert StopFinder(tokenizer, ["終わり"]).end(ids, len(ids) - 1) == len(ids)


def test_nothing_is_found_where_nothing_is(tokenizer: Any) -> None:
    ids = tokenizer.encode("</pythoN> and </ python>", add_special_tokens=False)
    assert StopFinder(tokenizer, ["</python>"]).end(ids) is None
    assert StopFinder(tokenizer, []).end(ids) is None
