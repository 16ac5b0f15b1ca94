"""The cold start: demonstrations from the real environment, and a model that learns the format from them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig
from arpo_trainer.run import sft_run
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.sft_run import demonstrated_traces, demonstrations
from arpo_trainer.sft.plain_trace import ModelTurn
from arpo_trainer.sft.trace_data import IGNORED
from tests.arpo_trainer.quick_settings import ON_CPU


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


def test_weights_that_were_trained_anew_are_started_anew(
    byte_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sft_run, "cache_directory", lambda: tmp_path)
    folder, revisions, load = tmp_path / "model", list[str](), AutoModelForCausalLM.from_pretrained
    shutil.copytree(byte_lm, folder)

    def loaded(path: str, **options: Any) -> Any:
        revisions.append(options["revision"])
        return load(path, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    run = RunArguments(model=str(folder), cold_start_examples=1, cold_start_tool_share=0.0, cold_start_epochs=1)
    args = ARPOConfig(**ON_CPU, output_dir=str(tmp_path / "run"), num_generations=2, per_device_train_batch_size=2)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def started() -> torch.Tensor:
        made = sft_run.cold_started_model(run, args, ToolEnv("arpo/Arithmetic-v0"), str(folder), tokenizer)
        head: torch.Tensor = load(made).lm_head.weight
        return head

    first = started()
    assert torch.equal(started(), first)
    assert revisions == ["main"]  # the second time it was in the cache
    other = load(folder)
    other.lm_head.weight.data.zero_()
    other.save_pretrained(folder)
    assert started().abs().max() < 0.01 < first.abs().max()
    args.model_init_kwargs = {"revision": "v2"}
    started()
    assert revisions == ["main", "main", "v2"]
