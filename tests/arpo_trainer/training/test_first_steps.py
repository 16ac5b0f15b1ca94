"""What a user of TRL tries first: each works, or is refused with the cure before a model is loaded."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import Trainer, TrainingArguments
from trl import GRPOConfig

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.training.task_data import as_env, with_tasks
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer

ID = "arpo/Arithmetic-v0"
SMALL = {"num_generations": 2, "per_device_train_batch_size": 2, "max_completion_length": 12, "max_steps": 1}
SMALL |= {"learning_rate": 1e-2, "save_strategy": "no", "report_to": [], "gradient_checkpointing": False}
ASKED, ANSWER = "What is 2 + 3?", "5"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    for part in (tiny_model(), tiny_tokenizer()):
        part.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "env", [ID, lambda: gym.make(ID), ToolEnv(ID).factory, ToolEnv(ID)], ids=["id", "function", "factory", "env"]
)
def test_an_environment_is_named_made_or_given(env: Any) -> None:
    assert as_env(env, "env").env_spec.id == ID


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": ASKED, "answer": ANSWER},
        {"prompt": [{"role": "user", "content": ASKED}], "solution": rf"2 + 3 = \\boxed{{{ANSWER}}}"},
        {"problem": ASKED, "prompt": "Solve it.", "answer": ANSWER, "solution": "Count."},
    ],
)
@pytest.mark.parametrize("kind", [list, Dataset.from_list, lambda rows: Dataset.from_list(rows).to_iterable_dataset()])
def test_rows_become_tasks_of_the_environment(row: dict[str, Any], kind: Any) -> None:
    env = ToolEnv(ID)
    [found] = with_tasks(kind([{**row, "hint": "fingers"}]), env, "train_dataset")
    task = json.loads(found["task"])
    assert (task["question"], task["answers"], task["kind"]) == (ASKED, [ANSWER], "math")
    assert [message["role"] for message in found["prompt"]] == ["system", "user"]
    assert found["hint"] == "fingers"
    assert list(with_tasks([found], env, "train_dataset")) == [found]  # rows that are tasks stay as they are


def test_a_grpo_config_and_rows_train_with_a_reward_function(model: Path, isolation: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def length(completions: list[Any], **columns: Any) -> list[float]:
        seen.append({"completions": completions, **columns})
        return [float(len(turns[0]["content"])) for turns in completions]

    args = GRPOConfig(output_dir=str(tmp_path / "out"), use_cpu=True, beta=0.5, **SMALL)
    rows = [{"prompt": ASKED, "answer": ANSWER}]
    trainer = ARPOTrainer(model, ID, length, args, rows, eval_dataset=rows, overlap="allow")
    trainer.train()
    assert seen[0]["answer"] == [ANSWER] * 2
    assert trainer.trees[0].task["question"] == ASKED
    usual = ARPOConfig(output_dir=str(tmp_path), use_cpu=True)
    kept = ("vllm_importance_sampling_mode", "logging_steps", "bf16")  # TRL's defaults do not replace ours
    assert [getattr(trainer.args, name) for name in kept] == [getattr(usual, name) for name in kept]
    assert (trainer.args.beta, trainer.args.num_generations) == (0.5, 2)
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["beta"] == 0.5
    [row] = map(json.loads, (tmp_path / "out" / "metrics.jsonl").read_text().splitlines())
    assert row["reward"] == row["rewards/length/mean"] > 0  # what is learned from, not the environment's


SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED}]


@pytest.mark.parametrize(
    ("given", "error", "cure"),
    [
        ({"env": None}, TypeError, "its id such as 'arpo/GSM8K-v0'"),
        ({"env": lambda completions: [1.0]}, TypeError, "Reward functions are reward_funcs"),
        ({"env": lambda: gym.make("CartPole-v1")}, TypeError, "got function, which makes a "),
        ({"env": gym.wrappers.TimeLimit(gym.make(ID), 3)}, TypeError, r"Pass `env.unwrapped`"),
        ({"args": TrainingArguments(use_cpu=True)}, TypeError, "args must be an ARPOConfig"),
        ({"train_dataset": "trl-lib/DeepMath-103K"}, TypeError, "datasets.load_dataset.NAME, split='train'"),
        ({"train_dataset": DatasetDict(train=Dataset.from_list([{}]))}, TypeError, r"as in train_dataset\['train'\]"),
        ({"train_dataset": []}, TypeError, "there is none"),
        ({"train_dataset": ["text"]}, TypeError, "rows that are dictionaries"),
        ({"train_dataset": [{"prompt": ASKED}]}, ValueError, "row 0: no column 'answer' or .*; it has 'prompt'"),
        ({"train_dataset": [{"text": ASKED, "answer": "5"}]}, ValueError, "row 0: no column 'question' or"),
        ({"train_dataset": [{"prompt": SYSTEM, "answer": "5"}]}, ValueError, "leave the messages of the system"),
        ({"model": "./nowhere"}, FileNotFoundError, "folder './nowhere' does not exist"),
        ({"model": torch.nn.Module()}, ValueError, "give processing_class"),
        ({"args": {"push_to_hub": True}}, ConnectionError, "push_to_hub=True, and HF_HUB_OFFLINE is set"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_is_loaded(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], cure: str
) -> None:
    if isinstance(module := given.get("model"), torch.nn.Module):
        module.name_or_path = ""  # type: ignore[assignment]
    if not isinstance(args := given.get("args", {}), TrainingArguments):
        args = ARPOConfig(output_dir=str(tmp_path), use_cpu=True, **args)
    with pytest.raises(error, match=cure):
        ARPOTrainer(**{"model": "owner/not-here", "env": ID, **given, "args": args})


def test_a_hub_that_fails_at_the_end_leaves_the_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("gone")

    monkeypatch.setattr("arpo_trainer.training.trainer.offline", str)
    monkeypatch.setattr(Trainer, "init_hf_repo", lambda self: setattr(self, "hub_model_id", "me/mine"))
    monkeypatch.setattr(Trainer, "push_to_hub", failing)
    trainer = ARPOTrainer(model, ID, args=ARPOConfig(str(tmp_path), use_cpu=True, push_to_hub=True, **SMALL))
    trainer.save_model(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert "not pushed (ConnectionResetError: gone); push it with: hf upload me/mine" in caplog.text
