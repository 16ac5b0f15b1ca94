"""Evaluation on an environment's tasks while training goes on, and the checkpoint that is kept."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer
from arpo_trainer.training.evaluation import evaluation_tasks
from tests.arpo_trainer.training.test_trainer import config

STEPS, TASKS = 3, 6


@pytest.fixture(scope="module")
def trained(tiny_policy: Path, tokenizer: Any, isolation: str, tmp_path_factory: Any) -> tuple[ARPOTrainer, Path]:
    """A run that evaluates and saves after each step, and loads the best at its end."""
    folder = tmp_path_factory.mktemp("evaluated")
    args = config(
        folder,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_only_model=True,
        load_best_model_at_end=True,
        metric_for_best_model="reward",
        max_steps=STEPS,
    )
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    held_out = ToolEnv("arpo/Arithmetic-v0", level=3, split="test", max_turns=1)
    trainer = ARPOTrainer(
        model,
        ToolEnv("arpo/Arithmetic-v0", level=3),
        args=args,
        processing_class=tokenizer,
        eval_env=held_out,
        eval_tasks=TASKS,
    )
    trainer.train()
    return trainer, folder


def test_each_step_is_evaluated_logged_and_recorded(trained: tuple[ARPOTrainer, Path]) -> None:
    trainer, folder = trained
    logged = [row for row in trainer.state.log_history if "eval_accuracy" in row]
    assert [row["step"] for row in logged] == [1, 2, 3]
    assert [row["eval_reward"] for row in logged] == [e.reward for e in trainer.evaluations]
    written = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    assert [(row["name"], row["n"]) for row in written] == [(f"step {step}", TASKS) for step in (1, 2, 3)]


def test_training_steps_keep_their_own_log(trained: tuple[ARPOTrainer, Path]) -> None:
    """Numbers of a rollout do not slip into an evaluation's row, nor the other way round."""
    trainer, _ = trained
    logged = [row for row in trainer.state.log_history if "arpo/reward" in row]
    assert [row["step"] for row in logged] == [1, 2, 3]
    assert not any("eval_accuracy" in row for row in logged)


def test_the_best_checkpoint_is_the_model_in_the_end(trained: tuple[ARPOTrainer, Path]) -> None:
    trainer, folder = trained
    rewards = [evaluation.reward for evaluation in trainer.evaluations]
    best = 1 + rewards.index(max(rewards))
    assert trainer.state.best_model_checkpoint == str(folder / f"checkpoint-{best}")
    weights = {step: load_file(folder / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2, 3)}
    model = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    same = [step for step in weights if all(torch.equal(model[name], weights[step][name]) for name in weights[step])]
    assert same == [best]


def test_an_evaluation_of_too_few_tasks_is_never_the_best(trained: tuple[ARPOTrainer, Path], monkeypatch: Any) -> None:
    """One task that could be scored, and was right, of six."""
    trainer, _ = trained
    few = replace(trainer.evaluations[-1], n=1, invalid=5, accuracy=1.0, reward=9.0)
    monkeypatch.setattr(trainer, "evaluate_tasks", lambda name: few)
    metrics = trainer.evaluate()
    assert (metrics["eval_n"], metrics["eval_invalid"]) == (1, 5)
    assert math.isnan(metrics["eval_accuracy"])
    assert not trainer._determine_best_metric(metrics, None)
    assert "eval_accuracy" not in trainer.state.log_history[-1]


def test_the_evaluation_environment_has_its_own_limits(trained: tuple[ARPOTrainer, Path]) -> None:
    """Training has room for more than the one turn that `max_turns=1` leaves."""
    trainer, _ = trained
    assert all(evaluation.tool_calls <= 1 for evaluation in trainer.evaluations)
    texts = [sample["text"] for evaluation in trainer.evaluations for sample in evaluation.samples]
    assert texts
    assert not any("<answer>" in text.partition("</result>")[2] for text in texts)
    rows = [tree.row(n) for tree in trainer.trees for n in range(4)]
    assert any(0 in row.mask for row in rows)


def test_tasks_without_end_need_a_number(isolation: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0")
    with pytest.raises(ValueError, match="endless tasks: set how many"):
        evaluation_tasks(env, None)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        evaluation_tasks(env, 0)


def test_the_best_is_the_most_accurate_unless_told(tmp_path: Path) -> None:
    args = config(tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="best")
    assert (args.metric_for_best_model, args.greater_is_better) == ("accuracy", True)


def test_groups_of_any_size_can_be_evaluated(tmp_path: Path) -> None:
    """TRL wants evaluation batches of whole groups, though ours has none."""
    args = config(tmp_path, eval_strategy="steps", num_generations=12, per_device_train_batch_size=12)
    assert args.per_device_eval_batch_size % 12 == 0
