"""The cold start: demonstrations from the real environment, and a model that learns the format from them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_env import ToolEnv
from arpo_trainer.run.sft_run import cold_start, demonstrated_traces, demonstrations
from arpo_trainer.sft.plain_trace import ModelTurn
from arpo_trainer.sft.trace_data import IGNORED
from tests.conftest import tiny_llama


def test_demonstrations_show_the_tool_s_real_results_and_train_only_the_model_s_turns(
    env: ToolEnv, tokenizer: Any
) -> None:
    source: Any = env.tasks
    for index, example in enumerate(demonstrations(env, tokenizer, demonstrated_traces(env, 4, tool_share=1.0))):
        ids, labels = example["input_ids"], example["labels"]
        assert len(ids) == len(labels)
        learnt = tokenizer.decode([i for i, label in zip(ids, labels, strict=True) if label != IGNORED])
        hidden = tokenizer.decode([i for i, label in zip(ids, labels, strict=True) if label == IGNORED])
        answer = source.task(index).answers[0]
        assert f"<result>\n{answer}\n</result>" in hidden  # the scripted code really computes the answer
        assert learnt.endswith(f"<answer>\\boxed{{{answer}}}</answer>")
        assert "<result>" not in learnt
        assert source.task(index).question in hidden


@pytest.mark.parametrize(
    ("options", "words"), [({"tools": ["search"]}, "solved with 'python'"), ({"protocol": "hermes"}, "writes tags")]
)
def test_what_cannot_be_demonstrated_is_refused(options: dict[str, Any], words: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", **options)
    with pytest.raises(ValueError, match=words):
        next(demonstrated_traces(env, 1))


def test_packed_demonstrations_teach_what_flat_ones_do(tokenizer: Any, tmp_path: Path) -> None:
    shared = list(range(40, 70))
    examples = [
        {"input_ids": [*shared, *range(5, 9 + 3 * n)], "labels": [IGNORED] * 32 + list(range(7, 9 + 3 * n))}
        for n in range(6)
    ]
    weights, passes = [], []
    for packing in (False, "auto"):
        model, seen = tiny_llama(len(tokenizer)), list[int]()
        model.model.register_forward_pre_hook(
            lambda _, __, given, seen=seen: seen.append(given["input_ids"].numel()), with_kwargs=True
        )
        options: dict[str, Any] = {"batch_size": 3, "learning_rate": 1e-3, "bf16": False, "packing": packing}
        cold_start(model, tokenizer, examples, tmp_path / str(packing), **options)
        weights.append(torch.cat([value.detach().flatten() for value in model.parameters()]))
        passes.append(sum(seen))
        assert "forward" not in vars(model)
    untrained = torch.cat([value.detach().flatten() for value in tiny_llama(len(tokenizer)).parameters()])
    assert (weights[0] - weights[1]).norm() < 0.01 * (weights[0] - untrained).norm()
    assert passes[1] < 0.7 * passes[0]


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
    with pytest.raises(ValueError, match="written in protocol 'deepagent'"):
        next(demonstrated_traces(ToolEnv("arpo/ToolWorld-v0", protocol="hermes"), 1))
