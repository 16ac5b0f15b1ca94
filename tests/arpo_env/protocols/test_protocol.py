"""What all protocols share: the actions, the box, and the table of names."""

import itertools
import json
import pickle
import re
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.protocols import PROTOCOLS, make_protocol, register_protocol
from arpo_env.protocols.arpo_tags import ArpoTags
from arpo_env.protocols.protocol import Language, Malformed, Nothing, Protocol, Style, ToolCall, ToolCalls, last_boxed
from arpo_env.tools.tool import JsonSchema, function_schema
from tests.arpo_env.protocols.schemas import ADD, BOTH, NOW, PYTHON, SEARCH


@pytest.mark.parametrize(
    ("text", "box"),
    [
        *(("\\boxed{1} \\boxed{a{b}c}", "a{b}c"), ("\\boxed{1", None), ("\\boxed {3}", "3")),
        *(("\\boxed{1} \\boxed{2", "1"), ("\\boxed{\\boxed{5}}", "5")),
    ],
)
def test_last_boxed(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


class Loud(ArpoTags):
    """The tags, and an instruction of its own."""

    name = "loud"

    def __init__(self, word: str = "Shout.") -> None:
        self.word = word

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        return f"{self.word} {super().system_prompt(tools, language, style)}"


@pytest.mark.usefixtures("own_names")
def test_a_protocol_of_your_own_is_taken_by_name_as_a_class_and_as_an_instance() -> None:
    assert [make_protocol(name).name for name in PROTOCOLS] == list(PROTOCOLS)
    register_protocol("loud", Loud)
    for given, word in (("loud", "Shout. "), (Loud, "Shout. "), (Loud("Scream."), "Scream. ")):
        assert ToolEnv("arpo/Arithmetic-v0", protocol=given).system_prompt.startswith(word)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="did you mean 'loud'"):
        make_protocol("lowd")


@pytest.mark.usefixtures("own_names")
def test_a_protocol_is_registered_once_and_with_a_name_of_its_own() -> None:
    class Quiet(Loud):
        name = "hermes"

    def again() -> type[Protocol]:
        class Twice(Loud):
            name = "twice"

        return Twice

    for _ in range(2):
        register_protocol("twice", again())
    for name in ("twice", "hermes"):
        with pytest.raises(ValueError, match=r"exists already.*overwrite=True"):
            register_protocol(name, Quiet)
    register_protocol("hermes", Quiet, overwrite=True)
    assert isinstance(make_protocol("hermes"), Quiet)

    class Mine(ArpoTags):  # by the name of the tags, a model trained with it would later be played with the tags
        pass

    with pytest.raises(ValueError, match="is not a protocol: object lacks name, native"):
        register_protocol("mine", object)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="registered as 'mine' has the name 'arpo-tags': write a name"):
        register_protocol("mine", Mine)
    for given in (Mine, Mine()):
        with pytest.raises(ValueError, match="Mine has the name 'arpo-tags' of another protocol"):
            ToolEnv("arpo/Arithmetic-v0", protocol=given)  # type: ignore[arg-type]


THOUGHT: dict[str, Any] = {"episodic": {}, "working": {"a": 1}}


def fold_thought(focus: str = "") -> str:
    """Fold."""
    return focus


def thought(episodic: dict, working: dict) -> str:  # type: ignore[type-arg]
    """Fold."""
    return f"{episodic}{working}"


@pytest.mark.parametrize(
    ("content", "schema", "arguments"),
    [
        (" the names ", function_schema(fold_thought), {"focus": "the names"}),
        ("", function_schema(fold_thought), {}),
        (json.dumps(THOUGHT), function_schema(thought, "fold_thought"), THOUGHT),
    ],
)
def test_deepagents_fold_has_a_tag_of_its_own(content: str, schema: JsonSchema, arguments: Any) -> None:
    protocol = make_protocol("deepagent")
    turn = f"<think>It is long. <fold_thought>{content}</fold_thought>"
    assert protocol.parse(turn, [schema]) == ToolCalls((ToolCall("fold_thought", arguments),))
    assert "</fold_thought>" in protocol.stop_strings([schema])
    assert protocol.stop_strings([]) == ["</tool_call>"]
    assert isinstance(protocol.parse(turn, []), Nothing)  # without such a tool it is only text


SETS = [[], [PYTHON], [SEARCH], BOTH, [ADD, NOW]]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
STYLES: tuple[Style, ...] = ("short", "paper")
CASES = list(itertools.product(SETS, LANGUAGES, STYLES))


def test_the_short_prompt_for_python_is_that_of_the_small_models_and_a_wrong_language_or_style_is_refused() -> None:
    assert ArpoTags().system_prompt([PYTHON]) == (
        "Think in <think> </think>. Run Python in <python> </python>; variables stay alive. "
        "The output comes in <result> </result>. Answer in <answer> \\boxed{} </answer>."
    )
    for name in ("arpo-tags", "hermes"):
        with pytest.raises(ValueError, match="unknown language 'de'; available: en, zh"):
            make_protocol(name).system_prompt([], "de")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="unknown prompt style 'long'; available: short, paper"):
            make_protocol(name).system_prompt([], "en", "long")  # type: ignore[arg-type]


@pytest.mark.parametrize(("tools", "language", "style"), CASES)
def test_a_prompt_names_the_tags_of_the_tools_there_are_and_no_others(
    tools: list[JsonSchema], language: Language, style: Style
) -> None:
    prompt = ArpoTags().system_prompt(tools, language, style)
    names = {tool["function"]["name"] for tool in tools}
    assert set(re.findall(r"</(\w+)>", prompt)) == names | {"think", "answer"} | ({"result"} if tools else set())
    assert "\\boxed{" in prompt


@pytest.mark.parametrize(("tools", "language", "style"), CASES)
def test_closing_what_the_prompt_opened_runs_nothing(tools: list[JsonSchema], language: Language, style: Style) -> None:
    for stop in ArpoTags().stop_strings(tools):
        assert stop in ArpoTags().system_prompt(tools, language, style)
        assert isinstance(ArpoTags().parse(f"as shown {stop}", tools), Malformed)


@pytest.mark.parametrize("text", ["请用 <python> 解答。", "Éclair!"])
def test_instructions_of_ones_own_are_shown_as_they_are_in_every_protocol(text: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", prompt=text)
    for one in (env, env.spawn(), env.with_protocol("hermes"), pickle.loads(pickle.dumps(env))):
        assert one.messages(one.tasks.task(0))[0] == {"role": "system", "content": text}
    with pytest.raises(ValueError, match="unknown prompt style 'long'; available: short, paper, or a text of several"):
        ToolEnv("arpo/Arithmetic-v0", prompt="long")
