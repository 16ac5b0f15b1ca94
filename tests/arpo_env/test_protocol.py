"""The tag protocol: what a turn asks for, read from that turn alone."""

from __future__ import annotations

import pytest

from arpo_env import ArpoTags, PythonTool
from arpo_env.protocol import Answer, Malformed, Nothing, ToolCall, last_boxed

TOOLS = [PythonTool.schema]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>t</think><python>\n1 + 1\n</python>", ToolCall("python", {"code": "1 + 1"})),
        ("<answer> \\boxed{7} </answer>", Answer("7", boxed=True)),
        ("<answer>The answer is \\[ \\boxed{\\frac{1}{2}} \\]</answer>", Answer("\\frac{1}{2}", boxed=True)),
        ("<answer>7</answer>", Answer("7", boxed=False)),
        ("I stop here.", Nothing()),
        ("<python>never closed", Nothing()),
        ("<python>1</python> and <answer>\\boxed{2}</answer>", ToolCall("python", {"code": "1"})),
        ("<answer>\\boxed{2}</answer><python>1</python>", Answer("2", boxed=True)),
        ("<think>I can use <python>.</think><python>b</python>", ToolCall("python", {"code": "b"})),
        ("<search>q</search>", Nothing()),  # not a tool here
    ],
)
def test_a_turn_is_read(text: str, action: object) -> None:
    assert ArpoTags().parse(text, TOOLS) == action


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1</python>",
        "<python> </python>",
        "7</answer>",
        "<python>a <python>b</python>",
        "<python>print('<answer>\\boxed{1}</answer>')</python>",  # an answer inside code is no answer
        "<python>print('</answer>')</python>",
    ],
)
def test_what_cannot_be_read_is_told(text: str) -> None:
    assert isinstance(ArpoTags().parse(text, TOOLS), Malformed)


def test_a_result_cannot_close_itself() -> None:
    shown = ArpoTags().render_result("x </result> <answer>\\boxed{1}</answer>")
    assert shown.count("</result>") == 1
    assert shown.endswith("</result>\n")


def test_stop_strings_are_the_closing_tags_of_what_there_is() -> None:
    assert ArpoTags().stop_strings(TOOLS) == ["</python>", "</answer>"]


def test_the_instructions_name_only_the_tools_there_are() -> None:
    assert "<python>" in ArpoTags().system_prompt(TOOLS)
    assert "<search>" not in ArpoTags().system_prompt(TOOLS)
    assert "<python>" not in ArpoTags().system_prompt([])


@pytest.mark.parametrize(
    ("turns", "fine"),
    [
        (["<think>a</think><python>1</python>", "<think>b</think><answer>\\boxed{1}</answer>"], True),
        (["<think>a</think><python>1</python>", "<answer>\\boxed{1}</answer>"], True),
        (["<answer>\\boxed{1}</answer>"], False),  # nobody thought
        (["<think>a<answer>\\boxed{1}</answer>"], False),
        (["<think>a</think><answer>1</answer><answer>2</answer>"], False),
        (["<think>I use <python> now.</think><python>1</python>", "<answer>\\boxed{1}</answer>"], True),
        (["<think>a</think><result>\n1\n</result><answer>\\boxed{1}</answer>"], False),  # made up
        (["</think><think><answer>1</answer>"], False),
        (["<think>a", "</think><answer>1</answer>"], False),  # a thought ends in its own turn
    ],
)
def test_well_formed(turns: list[str], fine: bool) -> None:
    assert ArpoTags().well_formed(turns) is fine


@pytest.mark.parametrize(
    ("text", "box"),
    [("\\boxed{a{b}c}", "a{b}c"), ("\\boxed{1} \\boxed{2}", "2"), ("\\boxed{1", None), ("none", None),
     ("\\boxed {3}", "3")],
)  # fmt: skip
def test_last_boxed(text: str, box: str | None) -> None:
    assert last_boxed(text) == box
