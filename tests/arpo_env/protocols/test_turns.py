"""What a turn asks for, read from that turn alone: in the tags, and in the calls of the models' chat templates."""

import pytest

from arpo_env.chat_messages import turn_text
from arpo_env.protocols.arpo_tags import ArpoTags
from arpo_env.protocols.chat_template import Hermes, Llama3
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, Protocol, ToolCall, ToolCalls
from tests.arpo_env.protocols.schemas import ADD, ALL, BOTH, NOW

RUN = '<tool_call>\n{"name": "python", "arguments": {"code": "1 + 1"}}\n</tool_call>'
LLAMA = '{"name": "python", "parameters": {"code": "1 + 1"}}'
PYTHON_CALL = ToolCall("python", {"code": "1 + 1"})


def hermes(arguments: str, name: str = "python") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def call(name: str, **arguments: object) -> ToolCalls:
    return ToolCalls((ToolCall(name, arguments),))


def boxed(text: str) -> Answer:
    return Answer(text, boxed=True)


TOOLS = {ArpoTags: [*BOTH, ADD, NOW], Hermes: ALL, Llama3: ALL}
READ = {
    ArpoTags: [
        ("<think>t</think><python>\n1 + 1\n</python>", call("python", code="1 + 1")),
        ("<answer> \\boxed{7} </answer>", boxed("7")),
        ("<answer>The answer is \\[ \\boxed{\\frac{1}{2}} \\]</answer>", boxed("\\frac{1}{2}")),
        ("<answer>7</answer>", Answer("7", boxed=False)),
        *(("I stop here.", Nothing()), ("<python>never closed", Nothing())),
        ("<python>1</python> and <answer>\\boxed{2}</answer>", call("python", code="1")),
        ("<answer>\\boxed{2}</answer><python>1</python>", boxed("2")),
        ("<think>I can use <python>.</think><python>b</python>", call("python", code="b")),
        ("<python>print('<think>')</python>", call("python", code="print('<think>')")),
        ("<<python>1</python>", call("python", code="1")),
        # a tool that a string cannot fill takes JSON
        *(('<add>{"a": 1, "b": 2.5}</add>', call("add", a=1, b=2.5)), ("<now></now>", call("now"))),
    ],
    Hermes: [
        (f"I run it.\n{RUN}<|im_end|>", ToolCalls((PYTHON_CALL,))),
        (f"<think>\nWell, <tool_call> ...\n</think>\n\n{RUN}", ToolCalls((PYTHON_CALL,))),
        (f"a thought that the prompt opened {RUN}</think>\n{RUN}", ToolCalls((PYTHON_CALL,))),
        (f"<think>a</think>{RUN}<think>b</think>{RUN}", ToolCalls((PYTHON_CALL, PYTHON_CALL))),
        (
            f'{RUN}\n<tool_call>{{"name": "search", "arguments": {{"query": "q", "k": 2}}}}</tool_call>',
            ToolCalls((PYTHON_CALL, ToolCall("search", {"query": "q", "k": 2}))),
        ),
        *((hermes(f'{{"code": "{code}"}}'), call("python", code=code)) for code in ("a\nb", "</tool_call>")),
        ('<tool_call>{"name": "now"}</tool_call>', call("now")),
        *(("\\boxed {3}, no: \\boxed{a{b}c}.", boxed("a{b}c")), ("\\boxed{\\boxed{5}} \\boxed{2", boxed("5"))),
        ("\\boxed{1", Answer("\\boxed{1", boxed=False)),
        ("<think>\\boxed{3}</think> It is 4. <|im_end|>", Answer("It is 4.", boxed=False)),
        *(("<think>\\boxed{3}</think>", Nothing()), ("", Nothing())),
    ],
    Llama3: [
        (f"\n{LLAMA}\n<|eot_id|>", ToolCalls((PYTHON_CALL,))),
        (f"I look.<|python_tag|>{LLAMA}", ToolCalls((PYTHON_CALL,))),
        (f"<think><|python_tag|></think>{LLAMA}", ToolCalls((PYTHON_CALL,))),
        ('{"type": "function", "name": "now", "parameters": {}}', ToolCalls((ToolCall("now", {}),))),
        ('{"name": "python", "parameters": {"code": "<think>"}}', call("python", code="<think>")),
        ('{"name": "Ada", "born": 1815}', Answer('{"name": "Ada", "born": 1815}', boxed=False)),
        (f"The call would be {LLAMA}", Answer(f"The call would be {LLAMA}", boxed=False)),
        (f"<think>{LLAMA}", Nothing()),
        ("\\boxed{1}<|eot_id|>", Answer("1", boxed=True)),
    ],
}
TOLD = {
    ArpoTags: [
        *(("1 + 1</python>", "closed but not opened"), ("<python> </python>", "was empty")),
        ("<python>a <python>b</python>", "inside python, which is still open"),
        ("<python>print('<answer>\\boxed{1}</answer>')</python>", "inside python, which is still open"),
        ("<think>I could run <python>1</python>.</think><answer>\\boxed{1}</answer>", "inside a thought"),
        ("<think>it is <answer>\\boxed{1}</answer>", "inside a thought"),
        *(("<serch>q</serch>", "no tool 'serch'; did you mean search?"), ("<python>'\ud800'</python>", "surrogate")),
        ("<browse>q</browse> \n", "no tool 'browse'. The tools are: search, python"),
        *(
            ('<add>{"a": 1}</add>', "add needs b"),
            ('<add>{"a": 1, "b": 2} and more</add>', "one JSON object between the tags"),
        ),
    ],
    Hermes: [
        (f"<think>I call {RUN}", "inside a thought; close the thought first"),
        (f"{RUN}</tool_call>", "closed but not opened"),
        *((RUN.removesuffix("</tool_call>"), "was not closed"), ("<tool_call>{'name': 1}</tool_call>", "character 1")),
        ("<tool_call>python(1)</tool_call>", "a call is a JSON object, this begins with 'python(1)"),
        ('<tool_call>{"name": "python", "parameters": {}}</tool_call>', "this has the keys: 'name', 'parameters'"),
        (hermes('"1"'), "must be a JSON object, not string"),
        (
            hermes('{"cod": 1, "k": true}', "search"),
            "search needs query; search has no argument 'cod'; it takes query (string), k (integer); "
            "the argument k of search must be integer, not boolean",
        ),
        (hermes('{"code": 1}'), "the argument code of python must be string, not integer"),
        (hermes('{"query": "q", "k": NaN}', "search"), "NaN is no JSON number"),
        *((hermes('{"a": 1, "b": 1e999}', "add"), "out of range"), (hermes('{"code": "\\ud800"}'), "surrogate")),
        (hermes('{"a": 1, "b": %s}' % ("9" * 5000), "add"), "too long"),
        (hermes('{"levels": [1, "2"]}', "mark"), "must be array of integer"),
        (hermes('{"code": "1", "code": "2"}'), "stands twice"),
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
    ],
}


@pytest.mark.parametrize(("protocol", "text", "action"), [(one, *row) for one, rows in READ.items() for row in rows])
def test_a_turn_is_read(protocol: type[Protocol], text: str, action: object) -> None:
    assert protocol().parse(text, TOOLS[protocol]) == action


@pytest.mark.parametrize(("protocol", "text", "told"), [(one, *row) for one, rows in TOLD.items() for row in rows])
def test_what_cannot_be_read_is_told(protocol: type[Protocol], text: str, told: str) -> None:
    action = protocol().parse(text, TOOLS[protocol])
    assert isinstance(action, Malformed)
    assert told in action.reason
    # the model is shown what it says
    assert protocol is not ArpoTags or ArpoTags().defuse(action.reason) == action.reason


@pytest.mark.parametrize(
    "text", ["<think>a</think><python>1</python>", "<think>a<python>1</python>", "1</python>", "<answer>1</answer>"]
)
def test_what_comes_after_the_end_of_a_turn_changes_nothing(text: str) -> None:
    rest = "</think><answer>\\boxed{2}</answer><python>2</python><think>"
    assert ArpoTags().parse(text + rest, BOTH) == ArpoTags().parse(text, BOTH)


@pytest.mark.parametrize("name", ["answer", "think", "result", "has space", "x" * 65])
def test_a_tool_that_cannot_be_a_tag_is_refused(name: str) -> None:
    tool = {"type": "function", "function": {"name": name, "parameters": {}}}
    with pytest.raises(ValueError, match="rename it"):
        ArpoTags().system_prompt([tool])


WELL_FORMED = {
    ArpoTags: [
        (["<think>a</think><python>1</python>", "<think>b</think><answer>\\boxed{1}</answer>"], True),
        (["<answer>\\boxed{1}</answer>"], False),  # nobody thought
        (["<think>a</think><answer>1</answer><answer>2</answer>"], False),
        (["<think>I use <python> now.</think><python>1</python>", "<answer>\\boxed{1}</answer>"], True),
        (["<think>a</think><python>'<think><result>'</python>", "<answer>\\boxed{1}</answer>"], True),
        (["<think>a</think><result>\n1\n</result><answer>\\boxed{1}</answer>"], False),  # made up
        # a thought ends in its own turn
        *((["</think><think><answer>1</answer>"], False), (["<think>a", "</think><answer>1</answer>"], False)),
    ],
    Hermes: [
        ([RUN, "\\boxed{2}"], True),
        ([f"<think>a <tool_response></think>{RUN}", "b</think> \\boxed{2}"], True),
        ([f"<think>a{RUN}", "\\boxed{2}"], False),
        ([f"{RUN}<tool_response>2</tool_response>\\boxed{{2}}"], False),  # made up
        (["a</think>b</think>"], False),
    ],
}


@pytest.mark.parametrize(
    ("protocol", "turns", "fine"), [(one, *row) for one, rows in WELL_FORMED.items() for row in rows]
)
def test_well_formed(protocol: type[Protocol], turns: list[str], fine: bool) -> None:
    assert protocol().well_formed(turns) is fine


def test_the_thought_of_a_served_turn_ends_where_the_server_says() -> None:
    message = {"reasoning_content": f"It ends with </think>, then {RUN}.", "content": "\\boxed{2}"}
    turn = turn_text(message, Hermes())
    assert Hermes().parse(turn, BOTH) == Answer("2", boxed=True)
    assert Hermes().well_formed([turn])
