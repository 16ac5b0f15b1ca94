"""The system prompts: what they name, and that their own examples ask for nothing."""

import itertools
import pickle
import re

import pytest

from arpo_env.env import ToolEnv
from arpo_env.protocols import make_protocol
from arpo_env.protocols.arpo_tags import ArpoTags
from arpo_env.protocols.protocol import Language, Malformed, Style
from arpo_env.tools.tool import JsonSchema
from tests.arpo_env.protocols.schemas import ADD, BOTH, NOW, PYTHON, SEARCH

SETS = [[], [PYTHON], [SEARCH], BOTH, [ADD, NOW]]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
STYLES: tuple[Style, ...] = ("short", "paper")
CASES = list(itertools.product(SETS, LANGUAGES, STYLES))


def test_the_short_prompt_for_python_is_the_one_the_small_models_were_trained_on() -> None:
    assert ArpoTags().system_prompt([PYTHON]) == (
        "Think in <think> </think>. Run Python in <python> </python>; variables stay alive. "
        "The output comes in <result> </result>. Answer in <answer> \\boxed{} </answer>."
    )


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


def test_a_wrong_language_or_style_is_answered_with_what_there_is() -> None:
    for name in ("arpo-tags", "hermes"):
        with pytest.raises(ValueError, match="unknown language 'de'; available: en, zh"):
            make_protocol(name).system_prompt([], "de")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="unknown prompt style 'long'; available: short, paper"):
            make_protocol(name).system_prompt([], "en", "long")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["Solve it with <python>.", "请用 <python> 解答。", "Éclair!"])
def test_instructions_of_ones_own_are_shown_as_they_are_in_every_protocol(text: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", prompt=text)
    for one in (env, env.spawn(), env.with_protocol("hermes"), pickle.loads(pickle.dumps(env))):
        assert one.messages(one.tasks.task(0))[0] == {"role": "system", "content": text}
    with pytest.raises(ValueError, match="unknown prompt style 'long'; available: short, paper, or a text of several"):
        ToolEnv("arpo/Arithmetic-v0", prompt="long")
