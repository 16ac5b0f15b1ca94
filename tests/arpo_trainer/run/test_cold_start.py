"""The cold start: demonstrations from the real environment, and a model that learns the format from them."""

from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.run.sft_run import demonstrated_traces, demonstrations
from arpo_trainer.sft.plain_trace import ModelTurn
from arpo_trainer.sft.trace_data import IGNORED


def test_demonstrations_show_real_results_and_train_only_the_model_s_turns(env: ToolEnv, tokenizer: Any) -> None:
    source: Any = env.tasks
    for index, example in enumerate(demonstrations(env, tokenizer, demonstrated_traces(env, 4, tool_share=1.0))):
        pairs = list(zip(example["input_ids"], example["labels"], strict=True))
        learnt = tokenizer.decode([number for number, label in pairs if label != IGNORED])
        hidden = tokenizer.decode([number for number, label in pairs if label == IGNORED])
        answer = source.task(index).answers[0]
        assert f"<result>\n{answer}\n</result>" in hidden  # the scripted code really computes the answer
        assert learnt.endswith(f"<answer>\\boxed{{{answer}}}</answer>")
        assert "<result>" not in learnt
        assert source.task(index).question in hidden


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        ("arpo/Arithmetic-v0", {"tools": ["search"]}, "solved with 'python'"),
        ("arpo/Arithmetic-v0", {"protocol": "hermes"}, "writes tags"),
        ("arpo/ToolWorld-v0", {"protocol": "hermes"}, "written in protocol 'deepagent'"),
    ],
)
def test_what_cannot_be_demonstrated_is_refused(env: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        next(demonstrated_traces(ToolEnv(env, **options), 1))


def test_tools_that_are_found_are_demonstrated_in_the_protocol_of_their_source(tokenizer: Any) -> None:
    env = ToolEnv("arpo/ToolWorld-v0", level="2", tool_results=3)
    for trace in demonstrated_traces(env, 3, tool_share=1.0):
        turns = [turn.text for turn in trace.turns if isinstance(turn, ModelTurn)]
        assert [turn.count("<tool_search>") for turn in turns] == [1, 0, 1, 0, 0]
    assert env.episode.outcome == "answered"
    [example] = demonstrations(env, tokenizer, demonstrated_traces(env, 1, tool_share=1.0))
    learned = [number for number in example["labels"] if number != IGNORED]
    text = tokenizer.decode(learned)
    assert "<tool_call_result>" not in text
    assert text.count("</tool_call>") == 2
