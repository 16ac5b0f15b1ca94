"""Greedy evaluation and its intervals."""

from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.training.evaluation import evaluate, summarise
from arpo_trainer.tree import RolloutTree, Trajectory
from sandbox import SessionLost


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


def test_an_answer_that_is_right_in_part_counts_in_the_reward_only() -> None:
    tree = answered(0.5)
    tree.trajectories[0].components = {"accuracy": 0.5, "f1": 0.5, "em": 0.0}
    result = summarise([tree, answered(1.0)], "before")
    assert (result.reward, result.accuracy) == (0.75, 0.5)
    assert result.by_level == {"1": {"n": 2, "accuracy": 0.5}}
    assert [sample["correct"] for sample in result.samples] == [False, True]


def test_nothing_scored_is_an_error() -> None:
    with pytest.raises(ValueError, match="none of 1 trajectories could be scored"):
        summarise([answered(None)], "before")


def test_evaluation_is_greedy_and_repeats(env: ToolEnv, tokenizer: object, tiny_model: object) -> None:
    from arpo_trainer.backends import TransformersBackend

    engine = Engine(TransformersBackend(tiny_model, tokenizer), tokenizer, env, RolloutSettings(max_turn_length=24))
    tasks = [env.tasks.task(number) for number in range(4)]
    ticks: list[int] = []
    first = evaluate(engine, tasks, "once", on_task=lambda: ticks.append(1))
    again = evaluate(engine, tasks, "again")
    assert [sample["text"] for sample in first.samples] == [sample["text"] for sample in again.samples]
    assert len(ticks) == 4
    assert engine.settings.temperature == 1.0


def test_tasks_that_broke_are_counted_and_said(
    env: ToolEnv, tokenizer: object, tiny_model: object, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Half of them: a rollout to learn from would stop there."""
    from arpo_trainer.backends import TransformersBackend

    engine = Engine(TransformersBackend(tiny_model, tokenizer), tokenizer, env, RolloutSettings(max_turn_length=24))
    tasks = [env.tasks.task(number) for number in range(2)]
    real = ToolEnv.astep

    async def failing(self: ToolEnv, action: str) -> Any:
        if self.episode.task.id == tasks[0].id:
            raise SessionLost("the container is gone")
        return await real(self, action)

    monkeypatch.setattr(ToolEnv, "astep", failing)
    result = evaluate(engine, tasks, "step 3")
    assert (result.n, result.invalid) == (1, 1)
    assert (
        "'step 3': 1 of 2 tasks could not be scored; the first error: SessionLost: the container is gone" in caplog.text
    )


def test_an_evaluation_sees_the_weights_as_they_are_now(env: ToolEnv, tokenizer: object, tiny_model: object) -> None:
    import torch

    from arpo_trainer.backends import TransformersBackend

    engine = Engine(TransformersBackend(tiny_model, tokenizer), tokenizer, env, RolloutSettings(max_turn_length=24))
    tasks = [env.tasks.task(number) for number in range(2)]
    evaluate(engine, tasks, "before")
    with torch.no_grad():
        for weight in tiny_model.parameters():  # type: ignore[attr-defined]
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    after = evaluate(engine, tasks, "after")
    fresh = Engine(TransformersBackend(tiny_model, tokenizer), tokenizer, env, engine.settings)
    assert [s["text"] for s in after.samples] == [s["text"] for s in evaluate(fresh, tasks, "fresh").samples]
