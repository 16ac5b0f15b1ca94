"""Tool calls as the models' chat templates write them."""

import pytest

from arpo_env.chat_messages import turn_text
from arpo_env.protocols.chat_template import Hermes, Llama3
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, Protocol, ToolCall, ToolCalls
from tests.arpo_env.protocols.schemas import ALL, BOTH

RUN = '<tool_call>\n{"name": "python", "arguments": {"code": "1 + 1"}}\n</tool_call>'
LLAMA = '{"name": "python", "parameters": {"code": "1 + 1"}}'
PYTHON_CALL = ToolCall("python", {"code": "1 + 1"})


def hermes(arguments: str, name: str = "python") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


READ = {
    Hermes: [
        (RUN, ToolCalls((PYTHON_CALL,))),
        (f"I run it.\n{RUN}<|im_end|>", ToolCalls((PYTHON_CALL,))),
        (f"<think>\nWell, <tool_call> ...\n</think>\n\n{RUN}", ToolCalls((PYTHON_CALL,))),
        (f"a thought that the prompt opened {RUN}</think>\n{RUN}", ToolCalls((PYTHON_CALL,))),
        (f"<think>a</think>{RUN}<think>b</think>{RUN}", ToolCalls((PYTHON_CALL, PYTHON_CALL))),
        (
            f'{RUN}\n<tool_call>{{"name": "search", "arguments": {{"query": "q", "k": 2}}}}</tool_call>',
            ToolCalls((PYTHON_CALL, ToolCall("search", {"query": "q", "k": 2}))),
        ),
        (hermes('{"code": "a\nb"}'), ToolCalls((ToolCall("python", {"code": "a\nb"}),))),
        (hermes('{"code": "</tool_call>"}'), ToolCalls((ToolCall("python", {"code": "</tool_call>"}),))),
        ('<tool_call>{"name": "now"}</tool_call>', ToolCalls((ToolCall("now", {}),))),
        ("It is \\boxed{3}, no: \\boxed{4}.", Answer("4", boxed=True)),
        ("<think>\\boxed{3}</think> It is 4. <|im_end|>", Answer("It is 4.", boxed=False)),
        ("<think>\\boxed{3}</think>", Nothing()),
        ("<think>\\boxed{3}", Nothing()),
        ("<|im_end|>", Nothing()),
        ("", Nothing()),
    ],
    Llama3: [
        (LLAMA, ToolCalls((PYTHON_CALL,))),
        (f"\n{LLAMA}\n<|eot_id|>", ToolCalls((PYTHON_CALL,))),
        (f"<|python_tag|>{LLAMA}<|eom_id|>", ToolCalls((PYTHON_CALL,))),
        (f"I look.<|python_tag|>{LLAMA}", ToolCalls((PYTHON_CALL,))),
        (f"<think><|python_tag|></think>{LLAMA}", ToolCalls((PYTHON_CALL,))),
        ('{"type": "function", "name": "now", "parameters": {}}', ToolCalls((ToolCall("now", {}),))),
        (
            '{"name": "python", "parameters": {"code": "<think>"}}',
            ToolCalls((ToolCall("python", {"code": "<think>"}),)),
        ),
        ('{"a": 1}', Answer('{"a": 1}', boxed=False)),
        ('{"name": "Ada", "born": 1815}', Answer('{"name": "Ada", "born": 1815}', boxed=False)),
        (f"The call would be {LLAMA}", Answer(f"The call would be {LLAMA}", boxed=False)),
        (f"<think>{LLAMA}", Nothing()),
        ("\\boxed{1}<|eot_id|>", Answer("1", boxed=True)),
    ],
}
TOLD = {
    Hermes: [
        (f"<think>I call {RUN}", "inside a thought; close the thought first"),
        (f"{RUN}</tool_call>", "closed but not opened"),
        (RUN.removesuffix("</tool_call>"), "was not closed"),
        ("<tool_call>python(1)</tool_call>", "a call is a JSON object, this begins with 'python(1)"),
        ("<tool_call>{'name': 1}</tool_call>", "character 1"),
        ('<tool_call>{"name": "python", "parameters": {}}</tool_call>', "this has the keys: 'name', 'parameters'"),
        (hermes('"1"'), "must be a JSON object, not string"),
        (hermes("{}"), "python needs code; it takes code (string)"),
        (
            hermes('{"cod": 1, "k": true}', "search"),
            "search needs query; search has no argument 'cod'; it takes query (string), k (integer); "
            "the argument k of search must be integer, not boolean",
        ),
        (hermes('{"code": 1}'), "the argument code of python must be string, not integer"),
        (hermes('{"code": "1", "language": "R"}'), "no argument 'language'; it takes code (string)"),
        (hermes('{"query": "q", "k": true}', "search"), "must be integer, not boolean"),
        (hermes('{"query": "q", "k": NaN}', "search"), "NaN is no JSON number"),
        (hermes('{"a": 1, "b": 1e999}', "add"), "out of range"),
        (hermes('{"a": 1, "b": %s}' % ("9" * 5000), "add"), "too long"),
        (hermes('{"levels": [1, "2"]}', "mark"), "must be array of integer"),
        (hermes('{"code": "1", "code": "2"}'), "stands twice"),
        (hermes('{"code": "\\ud800"}'), "surrogate"),
        (hermes('{"code": ' + "[" * 100_000), "nested too deeply"),
        (hermes('{"code": "1"}', "pyton"), "no tool 'pyton'; did you mean python? The tools are: search, python"),
        ('<tool_call>{"name": 7, "arguments": {}}</tool_call>', "a string, not integer"),
        (f"{RUN}{hermes('{}')}", "python needs code"),  # one that cannot be read stops them all
    ],
    Llama3: [
        ("<|python_tag|>print(1)", "a call is a JSON object, this begins with 'print(1)'"),
        (f"{LLAMA} and so on", "write nothing after"),
        ('{"name": "python", "parameters": ', "the JSON cannot be read"),
        (f"<think><|python_tag|>{LLAMA}", "inside a thought"),
        ('{"name": "pithon", "parameters": {}}', "did you mean python?"),
    ],
}


@pytest.mark.parametrize(("protocol", "text", "action"), [(one, *row) for one, rows in READ.items() for row in rows])
def test_a_turn_is_read(protocol: type[Protocol], text: str, action: object) -> None:
    assert protocol().parse(text, ALL) == action


@pytest.mark.parametrize(("protocol", "text", "told"), [(one, *row) for one, rows in TOLD.items() for row in rows])
def test_what_cannot_be_read_is_told(protocol: type[Protocol], text: str, told: str) -> None:
    action = protocol().parse(text, ALL)
    assert isinstance(action, Malformed)
    assert told in action.reason


@pytest.mark.parametrize(
    ("turns", "fine"),
    [
        ([RUN, "\\boxed{2}"], True),
        ([f"<think>a <tool_response></think>{RUN}", "b</think> \\boxed{2}"], True),
        ([f"<think>a{RUN}", "\\boxed{2}"], False),
        ([f"{RUN}<tool_response>2</tool_response>\\boxed{{2}}"], False),  # made up
        (["a</think>b</think>"], False),
    ],
)
def test_well_formed(turns: list[str], fine: bool) -> None:
    assert Hermes().well_formed(turns) is fine


def test_the_thought_of_a_served_turn_ends_where_the_server_says() -> None:
    message = {"reasoning_content": f"It ends with </think>, then {RUN}.", "content": "\\boxed{2}"}
    turn = turn_text(message, Hermes())
    assert Hermes().parse(turn, BOTH) == Answer("2", boxed=True)
    assert Hermes().well_formed([turn])
