"""Turns as people read them: the parts of any text, and which token wrote which characters."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arpo_trainer.views.run_page import TokenWidths, turn_parts, utf16

tokenizers = pytest.importorskip("tokenizers")

PIECES = ("<think>", "</think>", "<python>", "</python>", "<answer>", "</answer>", "<tool_call>", "</tool_call>")
TURNS = st.lists(st.sampled_from((*PIECES, '{"name": "f"}', "[TOOL_CALLS]", "<function=g>", " ", "text")), max_size=12)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>So.</think><python>1 + 1</python>", [("thought", "", "So."), ("call", "python", "1 + 1")]),
        ("<think>open", [("thought", "", "open")]),
        ("it ends</think>\n<search> x </search>", [("thought", "", "it ends"), ("call", "search", "x")]),
        ("<python>print('<answer>3</answer>')</python>", [("call", "python", "print('<answer>3</answer>')")]),
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', [("call", "f", '{"name": "f", "arguments": {}}')]),
        ('<tool_call>{"name": "f", oops</tool_call>', [("call", "f", '{"name": "f", oops')]),
        ("<function=f><parameter=a>1</parameter></function>", [("call", "f", "<parameter=a>1</parameter>")]),
        ('[TOOL_CALLS] [{"name": "f"}]', [("call", "f", '[{"name": "f"}]')]),
        ("so \\boxed{3} <answer>3</answer>", [("text", "", "so \\boxed{3}"), ("answer", "", "3")]),
    ],
)
def test_parts_are_told_apart(text: str, parts: list[tuple[str, str, str]]) -> None:
    assert [(part.kind, part.label, text[part.start : part.end]) for part in turn_parts(text)] == parts


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TURNS)
def test_any_text_has_parts_in_order_and_loses_nothing_but_tags(pieces: list[str]) -> None:
    text = "".join(pieces)
    parts = turn_parts(text)
    ends = [0, *(end for part in parts for end in (part.start, part.end)), len(text)]
    assert ends == sorted(ends)
    between = "".join(text[parts[i - 1].end if i else 0 : part.start] for i, part in enumerate(parts))
    between += text[parts[-1].end :] if parts else text
    for piece in (*PIECES, "[TOOL_CALLS]", "<function=g>", "</function>", "<|python_tag|>"):
        between = between.replace(piece, " ")
    assert not between.strip()


def test_a_long_turn_of_tags_takes_linear_time() -> None:
    assert len(turn_parts("<think>" * 200_000)) == 1
    assert len(turn_parts("<answer>x</answer>" * 50_000)) == 50_000


def test_widths_divide_a_text_as_its_tokens_do(served_model: Path) -> None:
    """Of a tokenizer of bytes, whose tokens may be parts of characters."""
    widths = TokenWidths.of_model(served_model)
    assert widths is not None
    tokenizer = tokenizers.Tokenizer.from_file(str(served_model / "tokenizer.json"))
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choices(["apples ", "of", "é", "中", "😀", "\n", "<a>", "x"], k=rng.randrange(1, 30)))
        ids = tokenizer.encode(text).ids
        found = widths(ids, text)
        assert (len(found), sum(found)) == (len(ids), utf16(text))
        units = text.encode("utf-16-le")
        at = 0
        for token, width in zip(ids, found, strict=True):
            piece = units[2 * at : 2 * (at + width)].decode("utf-16-le")
            assert not width or tokenizer.decode([token]) in (piece, "\ufffd" * len(tokenizer.decode([token])))
            at += width
        # the stop string cuts the text, not the tokens
        assert widths(ids, text[:-1]) is None or sum(widths(ids, text[:-1]) or []) == utf16(text[:-1])
    assert widths(ids, text + "more") is None
    assert widths(ids, "other" + text) is None
