"""Rollouts ahead: the same trees as without them, one step older weights, nothing played twice or left running."""

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_env.event_loop import background_loop
from arpo_trainer import ARPOConfig, ARPOTrainer, RolloutTree
from arpo_trainer.backends.base import GenerationError
from arpo_trainer.training.overlap_trainer import PlannedRollout, RolloutPlan, StepSizes
from arpo_trainer.training.recorder import RunRecorder
from arpo_trainer.training.task_data import task_rows
from arpo_trainer.tree import Trajectory
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.quick_settings import ON_CPU
from tests.arpo_trainer.training.test_trainer import listener

GROUP = 4


def make(folder: Path, kind: type[ARPOTrainer] = ARPOTrainer, tasks: int = 3, **settings: Any) -> Any:
    """A trainer of a random tiny model in a world of doors; a rollout is one group."""
    env = world_env("short", {"decisions": 1, "routine": 1})
    torch.manual_seed(0)
    rows = task_rows(env, [env.tasks.task(number) for number in range(tasks)])
    values = {"output_dir": str(folder), "algorithm": "aepo", "max_steps": 4, "learning_rate": 1e-2}
    values |= {"num_generations": GROUP, "per_device_train_batch_size": GROUP, "gradient_accumulation_steps": 1}
    values |= {"max_completion_length": 24, "max_turn_length": 6, "entropy_window": 2}
    values |= {"max_rows": 1}  # a turn's numbers do not depend on what is computed with it
    args = ARPOConfig(**ON_CPU | values | settings)
    return kind(tiny_model("0.8M", 0), env, letter_reward, args, rows, processing_class=tiny_tokenizer())


def played(trainer: Any, **more: Any) -> list[list[RolloutTree]]:
    """Train, and return the trees of each rollout."""
    found: list[list[RolloutTree]] = []
    trainer.remove_callback(RunRecorder)  # trainers that are compared share a folder
    trainer.add_callback(listener(on_rollout=found.append))
    trainer.train(**more)
    return found


def words(rollouts: list[list[RolloutTree]]) -> list[Any]:
    """What was sampled, and for which task, step and group."""
    return [
        [(t.task["id"], t.meta["step"], t.meta["group"], [(s.ids, s.logprobs) for s in t.spans]) for t in trees]
        for trees in rollouts
    ]


def logged(trainer: Any, name: str) -> list[float]:
    return [row[f"arpo/{name}"] for row in trainer.state.log_history if f"arpo/{name}" in row]


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in trainer.model.parameters()])


def framed(trainer: Any) -> list[str]:
    """When the backend of a trainer begins and ends a rollout."""
    frames, begin, end = list[str](), trainer.backend.begin, trainer.backend.end

    async def begun() -> None:
        frames.append("begin")
        await begin()

    async def ended() -> None:
        await end()
        frames.append("end")

    trainer.backend.begin, trainer.backend.end = begun, ended
    return frames


def running() -> list[str]:
    """Coroutines of rollouts on the background loop."""
    return [str(task) for task in asyncio.all_tasks(background_loop()) if "signalling" in str(task)]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_iterations": 2, "max_steps": 8},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "max_steps": 4},
        {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 2, "max_steps": 8},
    ],
    ids=["iterations", "accumulation", "steps-per-generation"],
)
def test_with_still_weights_the_trees_are_those_of_no_overlap(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The plan is what TRL's sampler and trainer do, over several passes, whose last steps may be shorter."""
    still = {**settings, "learning_rate": 0.0}
    plain, ahead = [played(make(tmp_path, max_staleness=most, **still)) for most in (0, 8)]
    assert words(ahead) == words(plain)
    assert len(plain) > 3
    assert "asks for other tasks" not in caplog.text  # and so they were played ahead


def test_a_rollout_is_one_step_old_and_the_same_in_every_run(tmp_path: Path) -> None:
    first, second = make(tmp_path, max_staleness=1), make(tmp_path, max_staleness=1)
    frames = framed(first)
    assert words(played(first)) == words(played(second))
    assert frames == ["begin", "end"] * 4  # none is begun that no step would use
    assert torch.equal(weights(first), weights(second))
    assert logged(first, "staleness") == [0, 1, 1, 1]
    assert not running()
    # TRL's importance weights: 1 for the rollout of the present weights, something else for older ones, whose weights
    # would not be the same in every run if they changed while it is played
    means = [row["sampling/sampling_logp_difference/mean"] for row in first.state.log_history if "loss" in row]
    assert means[0] < 1e-5 < min(means[1:])


def test_the_bound_holds_where_a_rollout_serves_several_steps(tmp_path: Path) -> None:
    for most, expected in ((2, [0, 2]), (9, [0, 3])):
        trainer = make(tmp_path, max_staleness=most, num_iterations=3, max_steps=6)
        played(trainer)
        assert logged(trainer, "staleness") == expected


@pytest.mark.parametrize("iterations", [1, 4])  # between two rollouts, and before the next one is due
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path: Path, iterations: int) -> None:
    settings: dict[str, Any] = {"max_staleness": 1, "save_strategy": "steps", "save_steps": 2, "logging_steps": 2}
    settings |= {"num_iterations": iterations, "max_steps": 4 + iterations // 4}
    whole = make(tmp_path / "whole", **settings)
    trees = played(whole)
    resumed = make(tmp_path / "whole", **settings)
    again = played(resumed, resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert words(again) == words(trees[2 // iterations + iterations // 4 :])
    assert torch.equal(weights(whole), weights(resumed))
    assert logged(resumed, "staleness") == logged(whole, "staleness")


def test_a_rollout_of_other_sizes_is_played_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"max_staleness": 1, "save_strategy": "steps", "save_steps": 1}
    make(tmp_path / "run", max_steps=2, **settings).train()
    resumed = make(tmp_path / "run", max_steps=2, num_generations=2, **settings)
    (again,) = played(resumed, resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert [len(tree.trajectories) for tree in again] == [2, 2]
    assert "is played again" in caplog.text


def test_trees_of_another_task_step_group_or_size_are_not_those_of_a_rollout() -> None:
    env = world_env("short")
    tasks = [env.tasks.task(number) for number in range(2)]
    plan, planned = RolloutPlan([], str, StepSizes(1, 1, 1, groups=2, steps=9), GROUP), PlannedRollout(tasks, 3, 4)

    def tree(task: int, step: int, group: int, size: int) -> RolloutTree:
        meta = {"step": step, "group": group}
        return RolloutTree([1], trajectories=[Trajectory(0)] * size, task=tasks[task].as_dict(), meta=meta)

    trees = {each: tree(*each) for each in itertools.product((0, 1), (2, 3), (4, 5), (2, GROUP))}
    assert [each for each in trees if plan.fits(planned, range(1), [trees[each]])] == [(0, 3, 4, GROUP)]
    assert [each for each in trees if plan.fits(planned, range(1, 2), [trees[each]])] == [(1, 3, 5, GROUP)]
    assert not plan.fits(planned, range(2), [trees[0, 3, 4, GROUP]])


def test_an_evaluation_sees_the_present_weights_and_changes_nothing(tmp_path: Path) -> None:
    class Evaluating(ARPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            self.evaluate_tasks("now")
            return loss

    plain, evaluating = (make(tmp_path, kind, max_staleness=1, max_steps=3) for kind in (ARPOTrainer, Evaluating))
    evaluating.eval_env, evaluating.eval_tasks = plain.env, [plain.env.tasks.task(99)]
    frames = framed(evaluating)
    assert words(played(evaluating)) == words(played(plain))
    assert len(evaluating.evaluations) == 3
    # weights are handed over between rollouts and never in one: three to learn from, three to evaluate
    assert frames == ["begin", "end"] * 6


@pytest.mark.parametrize("error", [GenerationError, KeyboardInterrupt])
def test_a_run_that_ends_leaves_nothing_running(tmp_path: Path, error: type[BaseException]) -> None:
    """Its backend fails in the third rollout, or the trainer is interrupted while that is played."""
    trainer = make(tmp_path, max_staleness=1)
    frames, generate, step = framed(trainer), trainer.backend.generate, trainer.training_step

    async def failing(*args: Any, **kwargs: Any) -> Any:
        if frames.count("begin") < 3:
            return await generate(*args, **kwargs)
        await asyncio.sleep(60 if error is KeyboardInterrupt else 0)
        raise GenerationError("the third rollout")

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if frames.count("begin") == 3 and error is KeyboardInterrupt:
            assert running()
            raise error
        return step(*args, **kwargs)

    trainer.backend.generate, trainer.training_step = failing, interrupted
    with pytest.raises(error):
        trainer.train()
    assert not running()
    assert trainer.state.global_step == 2
    assert frames.count("begin") == 3
    assert threading.active_count() < 20


def test_a_data_loader_of_another_order_is_served_without_overlap(tmp_path: Path, caplog: Any) -> None:
    class Reversed(ARPOTrainer):
        def sampler_made(self, sampler: Any) -> Any:
            rows = list(super().sampler_made(sampler))
            return rows[::-1]

    trainer, plain = (make(tmp_path, Reversed, max_staleness=most, tasks=2, max_steps=2) for most in (1, 0))
    assert [t.task["id"] for (t,) in played(trainer)] == [t.task["id"] for (t,) in played(plain)]
    assert "asks for other tasks" in caplog.text
    assert set(logged(trainer, "staleness")) == {0}
