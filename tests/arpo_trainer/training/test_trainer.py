"""Training end to end: a tiny model, real containers, TRL's own loop."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer, RolloutTree, read_traces
from arpo_trainer.training.task_data import task_dataset
from sandbox import SessionLost
from tests.arpo_trainer.quick_settings import ON_CPU

STEPS = 3
GROUP = 4


def config(folder: Path, **settings: Any) -> ARPOConfig:
    values = {"output_dir": str(folder), "num_generations": GROUP, "initial_rollouts": 2, "attribution": "hard"}
    values |= {"branch_alpha": 0.6}  # above the threshold: every tool result branches while there is budget
    values |= {"per_device_train_batch_size": GROUP, "gradient_accumulation_steps": 2, "max_steps": STEPS}
    values |= {"learning_rate": 1e-3, "max_completion_length": 160, "max_turn_length": 48}
    return ARPOConfig(**ON_CPU | values | settings)


def listener(**hears: Any) -> TrainerCallback:
    """A callback with these methods."""
    one = TrainerCallback()
    vars(one).update(hears)
    return one


class Watched(ARPOTrainer):
    """Keeps each rollout's trees together with what TRL made of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.kept: list[tuple[list[RolloutTree], dict[str, Any]]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.kept.append((self.trees, {k: v.clone() for k, v in output.items() if isinstance(v, torch.Tensor)}))
        return output


@pytest.fixture(scope="module")
def trained(
    tiny_policy: Path, tokenizer: Any, isolation: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Watched, dict[str, torch.Tensor], Path]:
    """Three steps of ARPO with hard attribution: the trainer, the weights before, and the folder."""
    folder = tmp_path_factory.mktemp("run")
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Watched(model, env, args=config(folder), processing_class=tokenizer)
    trainer.train()
    return trainer, before, folder


def test_the_reward_that_is_logged_is_the_policy_s(trained: Any) -> None:
    trainer, _, _ = trained
    rows = [row for row in trainer.state.log_history if "arpo/reward" in row]
    for (trees, _), row in zip(trainer.kept, rows, strict=True):
        roots = [t.reward for tree in trees for t in tree.trajectories if t.origin == "root"]
        assert any(t.origin != "root" for tree in trees for t in tree.trajectories)
        assert row["rewards/env_reward/mean"] == row["reward"] == pytest.approx(statistics.fmean(roots))
        assert row["arpo/reward"] == pytest.approx(row["reward"], abs=1e-6)
    assert any(row["arpo/reward_leaves"] != row["reward"] for row in rows)


def test_the_batch_holds_the_tree_s_tokens_and_masks_the_environment_s(trained: Any) -> None:
    trainer, _, _ = trained
    masked = 0
    for trees, batch in trainer.kept:
        assert [len(tree.trajectories) for tree in trees] == [GROUP, GROUP]
        rows = [tree.row(number) for tree in trees for number in range(GROUP)]
        columns = [batch[name] for name in ("completion_ids", "tool_mask", "completion_mask")]
        for row, ids, mask, real in zip(rows, *columns, strict=True):
            n = len(row.ids)
            assert ids[:n].tolist() == row.ids
            assert mask[:n].tolist() == row.mask  # none was invalid
            assert real.tolist() == [1] * n + [0] * (len(real) - n)
            masked += n - sum(row.mask)
    assert masked > 0


def test_the_sampled_logprobs_are_the_policy_s(trained: Any, tokenizer: Any) -> None:
    """At the first step the weights are those that sampled: TRL's own forward must find the same log-probabilities."""
    trainer, before, _ = trained
    trees, _ = trainer.kept[0]
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    now = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    try:
        for number in range(GROUP):
            tree, row = trees[0], trees[0].row(number)
            with torch.no_grad():
                logits = model(torch.tensor([[*tree.prompt_ids, *row.ids]])).logits[0, len(tree.prompt_ids) - 1 : -1]
            chosen = torch.log_softmax(logits, -1).gather(-1, torch.tensor(row.ids)[:, None])[:, 0]
            mask = torch.tensor(row.mask).bool()
            torch.testing.assert_close(torch.tensor(row.logprobs)[mask], chosen[mask], atol=2e-3, rtol=0)
    finally:
        model.load_state_dict(now)


def test_what_trl_logs_of_completions_tells_the_cut_from_those_that_ended(trained: Any) -> None:
    """Turns end at stop strings, which TRL would take for cut: all of them."""
    trainer, _, _ = trained
    logged = [row for row in trainer.state.log_history if "completions/clipped_ratio" in row]
    ratios = []
    for (trees, _), row in zip(trainer.kept, logged, strict=True):
        outcomes = [trajectory.outcome for tree in trees for trajectory in tree.trajectories]
        ratios.append(outcomes.count("truncated") / len(outcomes))
        assert row["completions/clipped_ratio"] == pytest.approx(ratios[-1])
    assert any(0 < ratio < 1 for ratio in ratios), ratios


def test_the_run_is_written_down_and_reads_back(trained: Any) -> None:
    trainer, _, folder = trained
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2, 3]
    assert all(row["seconds_generate"] > 0 and row["seconds_update"] > 0 for row in metrics)
    assert list(read_traces(folder / "traces.jsonl")) == [tree for trees, _ in trainer.kept for tree in trees]
    facts = json.loads((folder / "run.json").read_text())
    assert facts["status"] == "finished"
    assert facts["versions"]["torch"]
    assert facts["env"] == {"id": "arpo/Arithmetic-v0", "kwargs": {"level": 3, "protocol": "arpo-tags"}}
    assert facts["settings"]["branch_alpha"] == 0.6  # what differs from the defaults
    assert "branch_beta" not in facts["settings"]
    assert "arpo/Arithmetic-v0" in (folder / "report.html").read_text()
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="holds a run"):
        trainer.train()
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept


def test_a_lost_sandbox_masks_its_sample(
    tiny_model: Any, tokenizer: Any, tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = ToolEnv.astep, []

    async def failing(self: ToolEnv, action: str) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise SessionLost("gone")
        return await real(self, action)

    monkeypatch.setattr(ToolEnv, "astep", failing)
    args = config(tmp_path, max_steps=1, algorithm="grpo", retries=0)
    trainer = Watched(tiny_model, ToolEnv("arpo/Arithmetic-v0", level=3), args=args, processing_class=tokenizer)
    trainer.train()
    trees, batch = trainer.kept[0]
    flags = [trajectory.valid for tree in trees for trajectory in tree.trajectories]
    assert flags.count(False) == 1
    assert batch["advantages"][flags.index(False)].abs().max() == 0
    learnt = (batch["completion_mask"] * batch["tool_mask"]).sum(1)  # TRL pads tool_mask with ones
    assert learnt.gt(0).tolist() == flags
    logged = trainer.state.log_history[0]
    assert logged["arpo/invalid"] == 1
    lengths = learnt[flags].tolist()  # what failed has no length, and was not cut off
    assert logged["completions/min_length"] == min(lengths)
    assert logged["completions/mean_length"] == pytest.approx(statistics.fmean(lengths))


def test_evaluations_play_plain_roots(tiny_model: Any, tokenizer: Any, tmp_path: Path, isolation: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    settings = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": GROUP}
    settings |= {"num_generations_eval": 1, "save_strategy": "best", "save_only_model": True}
    args = config(tmp_path, **settings)
    held_out = task_dataset(ToolEnv("arpo/Arithmetic-v0", level=3, split="test", limit=2), args)
    trainer = Watched(tiny_model, env, args=args, processing_class=tokenizer, eval_dataset=held_out)
    trainer.train()
    [evaluated] = [row for row in trainer.state.log_history if "eval_arpo/reward" in row]
    assert evaluated["eval_arpo/branches"] == 0
    assert trainer.state.best_metric == evaluated["eval_arpo/accuracy"]


def test_parts_that_belong_to_the_environment_are_refused(tmp_path: Path, isolation: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0")
    with pytest.raises(TypeError, match="takes no rollout_func"):
        ARPOTrainer("x", env, args=config(tmp_path), rollout_func=print)
    with pytest.raises(ValueError, match="eval_env or eval_dataset: with both"):
        ARPOTrainer("x", env, args=config(tmp_path), eval_env=env, eval_tasks=1, eval_dataset=[{"prompt": "a"}])


def test_tasks_that_are_evaluated_are_not_trained_on(
    tiny_model: Any, tokenizer: Any, tmp_path: Path, isolation: str
) -> None:
    env, args = ToolEnv("arpo/Arithmetic-v0", level=1), config(tmp_path, max_steps=4)
    options = {"args": args, "processing_class": tokenizer, "eval_env": env, "eval_tasks": 3}
    with pytest.raises(ValueError, match=r"3 of 3 evaluation tasks are trained on .*overlap to 'drop'"):
        ARPOTrainer(tiny_model, env, **options)
    tasks = map(env.tasks.task, range(8))
    options["train_dataset"] = [{"question": task.question, "answer": task.answers[0]} for task in tasks]
    for overlap, left in (("drop", 5), ("allow", 8)):
        trainer = ARPOTrainer(tiny_model, env, **options, overlap=overlap)
        assert len(trainer.train_dataset) == left
    assert env.tasks.size is None  # the caller's environment has its tasks still


def test_a_reference_algorithm_shows_results_as_published_in_training_and_evaluation(
    tiny_model: Any, tokenizer: Any, tmp_path: Path, isolation: str
) -> None:
    env, held_out = (ToolEnv("arpo/Arithmetic-v0", level=3, split=split) for split in ("train", "test"))
    args = config(tmp_path, algorithm="arpo-reference", branch_alpha=0.5)
    trainer = ARPOTrainer(tiny_model, env, args=args, processing_class=tokenizer, eval_env=held_out, eval_tasks=1)
    for own, given in ((trainer.env, env), (trainer.engine.env, env), (trainer.eval_env, held_out)):
        assert (own.protocol.name, given.protocol.name) == ("arpo-tags-reference", "arpo-tags")
