"""Greedy evaluation and its intervals."""

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
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.training.evaluation import evaluate, evaluation_tasks, summarise
from arpo_trainer.tree import RolloutTree, Trajectory
from sandbox import SessionLost
from tests.arpo_trainer.training.test_trainer import config


def answered(reward: float | None, level: str = "1") -> RolloutTree:
    tree = RolloutTree([1], task={"id": "t", "question": "q", "answers": ["1"], "level": level})
    span = tree.add_span(None, "model", [5], logprobs=[0.0], entropies=[0.0], text="x")
    right = {"accuracy": float(reward == 1.0)}
    tree.trajectories = [Trajectory(span.index, reward=reward, components=right, tool_calls=2)]
    return tree


def test_summary_counts_levels_and_leaves_the_invalid_out() -> None:
    result = summarise([answered(1.0), answered(0.0, "2"), answered(-1.0, "2"), answered(None)], "before")
    assert (result.n, result.invalid) == (3, 1)
    assert result.reward == pytest.approx(0.0)
    assert result.accuracy == pytest.approx(1 / 3)
    assert result.by_level == {"1": {"n": 1, "accuracy": 1.0}, "2": {"n": 2, "accuracy": 0.0}}
    assert [sample["correct"] for sample in result.samples] == [True, False, False]
    assert "accuracy 0.33" in str(result)
    with pytest.raises(ValueError, match="none of 1 trajectories could be scored"):
        summarise([answered(None)], "before")


def test_an_answer_that_is_right_in_part_counts_in_the_reward_only() -> None:
    tree = answered(0.5)
    tree.trajectories[0].components = {"accuracy": 0.5, "f1": 0.5, "em": 0.0}
    result = summarise([tree, answered(1.0)], "before")
    assert (result.reward, result.accuracy, result.by_level["1"]["accuracy"]) == (0.75, 0.5, 0.5)
    assert [sample["correct"] for sample in result.samples] == [False, True]


@pytest.fixture
def engine(env: ToolEnv, tokenizer: Any, tiny_model: Any) -> Engine:
    return Engine(TransformersBackend(tiny_model, tokenizer), tokenizer, env, RolloutSettings(max_turn_length=24))


def test_evaluation_is_greedy_and_repeats(engine: Engine) -> None:
    tasks = [engine.env.tasks.task(number) for number in range(4)]
    ticks: list[int] = []
    first = evaluate(engine, tasks, "once", on_task=lambda: ticks.append(1))
    again = evaluate(engine, tasks, "again")
    assert [sample["text"] for sample in first.samples] == [sample["text"] for sample in again.samples]
    assert len(ticks) == 4
    assert engine.settings.temperature == 1.0


def test_tasks_that_broke_are_said(engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Half of them: a rollout to learn from would stop there."""
    tasks = [engine.env.tasks.task(number) for number in range(2)]
    real = ToolEnv.astep

    async def failing(self: ToolEnv, action: str) -> Any:
        if self.episode.task.id == tasks[0].id:
            raise SessionLost("the container is gone")
        return await real(self, action)

    monkeypatch.setattr(ToolEnv, "astep", failing)
    result = evaluate(engine, tasks, "step 3")
    assert (result.n, result.invalid) == (1, 1)
    assert "'step 3': 1 of 2 tasks could not be scored; the first error: SessionLost" in caplog.text


STEPS, TASKS = 3, 6


@pytest.fixture(scope="module")
def trained(tiny_policy: Path, tokenizer: Any, isolation: str, tmp_path_factory: Any) -> tuple[ARPOTrainer, Path]:
    """A run that evaluates and saves after each step, and loads the best at its end."""
    folder = tmp_path_factory.mktemp("evaluated")
    settings = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    best = {"save_only_model": True, "load_best_model_at_end": True, "metric_for_best_model": "reward"}
    args = config(folder, max_steps=STEPS, **settings, **best)
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    held_out = {"eval_env": ToolEnv("arpo/Arithmetic-v0", level=3, split="test", max_turns=1), "eval_tasks": TASKS}
    trainer = ARPOTrainer(model, env, args=args, processing_class=tokenizer, **held_out)
    trainer.train()
    return trainer, folder


def test_each_step_is_evaluated_logged_and_recorded(trained: tuple[ARPOTrainer, Path]) -> None:
    """Numbers of a rollout do not slip into an evaluation's row, nor the other way round."""
    trainer, folder = trained
    steps = [row for row in trainer.state.log_history if "arpo/reward" in row]
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert not any("eval_accuracy" in row for row in steps)
    logged = [row for row in trainer.state.log_history if "eval_accuracy" in row]
    assert [row["step"] for row in logged] == [1, 2, 3]
    assert [row["eval_reward"] for row in logged] == [e.reward for e in trainer.evaluations]
    written = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    assert [(row["name"], row["n"]) for row in written] == [(f"step {step}", TASKS) for step in (1, 2, 3)]


def test_the_best_checkpoint_is_the_model_in_the_end(trained: tuple[ARPOTrainer, Path]) -> None:
    trainer, folder = trained
    rewards = [evaluation.reward for evaluation in trainer.evaluations]
    best = 1 + rewards.index(max(rewards))
    assert trainer.state.best_model_checkpoint == str(folder / f"checkpoint-{best}")
    saved = load_file(folder / f"checkpoint-{best}" / "model.safetensors")
    model = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    assert all(torch.equal(model[name], saved[name]) for name in saved)


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
    texts = [sample["text"] for evaluation in trainer.evaluations for sample in evaluation.samples]
    assert texts
    assert not any("<answer>" in text.partition("</result>")[2] for text in texts)
    assert any(0 in tree.row(n).mask for tree in trainer.trees for n in range(4))


def test_tasks_without_end_need_a_number(isolation: str) -> None:
    for count, said in ((None, "endless tasks: set how many"), (0, "at least 1, got 0")):
        with pytest.raises(ValueError, match=said):
            evaluation_tasks(ToolEnv("arpo/Arithmetic-v0"), count)


def test_the_best_is_the_most_accurate_unless_told_and_groups_may_have_any_size(tmp_path: Path) -> None:
    args = config(tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="best")
    assert (args.metric_for_best_model, args.greater_is_better) == ("accuracy", True)
    # TRL wants evaluation batches of whole groups, though ours has none
    args = config(tmp_path, eval_strategy="steps", num_generations=12, per_device_train_batch_size=12)
    assert args.per_device_eval_batch_size % 12 == 0
