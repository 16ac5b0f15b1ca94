"""Training with TRL's vLLM engine in this process: it has the trainer's weights at every step."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import torch

from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_trainer import ARPOTrainer, RolloutTree
from tests.arpo_trainer.training.test_trainer import config
from tests.vllm.conftest import eager_trl

BOUND = 1e-3  # nats, float32 on both sides; measured: up to 1e-4
STEPS = 2


def logprob_error(model: Any, trees: list[RolloutTree]) -> float:
    """Return how far the sampled log-probabilities are from the model's, at most, in nats."""
    worst = 0.0
    for tree in trees:
        for number in range(len(tree.trajectories)):
            row = tree.row(number)
            ids = torch.tensor([[*tree.prompt_ids, *row.ids]])
            with torch.no_grad():
                every = torch.log_softmax(model(input_ids=ids).logits[0, len(tree.prompt_ids) - 1 : -1].float(), -1)
            chosen = every.gather(-1, torch.tensor(row.ids)[:, None])[:, 0]
            sampled = torch.tensor(row.mask, dtype=torch.bool)
            worst = max(worst, (chosen - torch.tensor(row.logprobs))[sampled].abs().max().item())
    return worst


class Compared(ARPOTrainer):
    """Compares each rollout with the weights of its own step and with those before the training."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.errors: list[tuple[float, float]] = []
        self.first: Any = None
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        now = self.accelerator.unwrap_model(self.model)
        self.errors.append((logprob_error(now, self.trees), logprob_error(self.first, self.trees)))
        return output


def play(trainer: Compared) -> tuple[list[RolloutTree], float]:
    """Play two tasks as an evaluation does, not by way of TRL; return the trees and how far off the engine is."""
    trees = run(trainer.engine.rollout([trainer.env.tasks.task(number) for number in range(2)]))
    return trees, logprob_error(trainer.accelerator.unwrap_model(trainer.model), trees)


def test_the_engine_has_the_trainers_weights_before_at_every_and_after_the_last_step(
    tiny_policy: Path, isolation: str, tmp_path: Path
) -> None:
    """Two steps on weights that are not those the engine read when it started."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy, padding_side="left")
    args = config(
        tmp_path,
        use_vllm=True,
        vllm_gpu_memory_utilization=0.1,
        vllm_max_model_length=768,
        max_steps=STEPS,
        learning_rate=5e-3,
    )
    with eager_trl():
        trainer = Compared(model, ToolEnv("arpo/Arithmetic-v0", level=3), args=args, processing_class=tokenizer)
    assert os.environ["MASTER_PORT"] not in ("29500", "23456", "12355", "12345")  # TRL's, which runs would share
    with torch.no_grad():
        model.lm_head.weight.mul_(1.1)
    # loaded anew: TRL has bound the forward of the one it trains, and of its copies, to that one's weights
    trainer.first = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    trainer.first.load_state_dict(model.state_dict())
    trees, before = play(trainer)
    assert any(t.origin == "branch" for tree in trees for t in tree.trajectories)
    assert any(t.tool_calls for tree in trees for t in tree.trajectories)
    trainer.train()
    _, after = play(trainer)
    assert len(trainer.errors) == STEPS
    assert max(before, after, *(now for now, _ in trainer.errors)) < BOUND
    assert all(stale > 30 * BOUND for _, stale in trainer.errors[1:])  # old weights would have been seen
    name = "sampling/sampling_logp_difference/max"  # TRL's own look at it
    seen = [entry[name] for entry in trainer.state.log_history if name in entry]
    assert len(seen) == STEPS
    assert max(seen) < BOUND
