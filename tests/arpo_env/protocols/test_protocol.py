"""What all protocols share: the actions, the prompts, and the table of names."""

import itertools
import pickle
import re
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.protocols import PROTOCOLS, make_protocol, register_protocol
from arpo_env.protocols.arpo_tags import ArpoTags
from arpo_env.protocols.protocol import Language, Malformed, Nothing, Protocol, Style, ToolCall, ToolCalls
from arpo_env.tools.tool import JsonSchema, function_schema
from tests.arpo_env.protocols.schemas import ADD, BOTH, NOW, PYTHON, SEARCH


class Loud(ArpoTags):
    """The tags, and an instruction of its own."""

    name = "loud"

    def __init__(self, word: str = "Shout.") -> None:
        self.word = word

    def system_prompt(self, *given: Any) -> str:
        return f"{self.word} {super().system_prompt(*given)}"


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
    def again(name: str) -> type[Protocol]:
        return type("Again", (Loud,), {"name": name})

    for _ in range(2):  # as when its module is loaded again
        register_protocol("twice", again("twice"))
    other = type("Other", (Loud,), {"name": "hermes"})
    for name in ("twice", "hermes"):
        with pytest.raises(ValueError, match=r"exists already.*overwrite=True"):
            register_protocol(name, other)
    register_protocol("hermes", other, overwrite=True)
    assert isinstance(make_protocol("hermes"), Loud)

    class Mine(ArpoTags):  # by the name of the tags, a model trained with it would later be played with the tags
        pass

    with pytest.raises(ValueError, match="is not a protocol: object lacks name, native"):
        register_protocol("mine", object)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="registered as 'mine' has the name 'arpo-tags'"):
        register_protocol("mine", Mine)
    for given in (Mine, Mine()):
        with pytest.raises(ValueError, match="Mine has the name 'arpo-tags' of another protocol"):
            ToolEnv("arpo/Arithmetic-v0", protocol=given)  # type: ignore[arg-type]


def fold_thought(focus: str = "") -> str:
    """Fold."""
    return focus


@pytest.mark.parametrize(("content", "arguments"), [(" the names ", {"focus": "the names"}), ("", {})])
def test_deepagents_fold_has_a_tag_of_its_own(content: str, arguments: dict[str, str]) -> None:
    """Memories in it are read by tests/arpo_env/tools/test_tool_search.py."""
    protocol, schema = make_protocol("deepagent"), function_schema(fold_thought)
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
    for name, given in itertools.product(("arpo-tags", "hermes"), (("de", "short"), ("en", "long"))):
        with pytest.raises(ValueError, match=r"unknown language 'de'; .*en, zh|unknown prompt style 'long'; .*paper"):
            make_protocol(name).system_prompt([], *given)  # type: ignore[arg-type]


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
