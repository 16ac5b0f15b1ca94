"""What we use of TRL's inside is still there, and still does what we rely on."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer
from arpo_trainer.padding import trim_padding
from tests.arpo_trainer.test_trainer import GROUP, config


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_signatures_are_the_ones_we_wrap() -> None:
    assert "rollout_func" in parameters(GRPOTrainer.__init__)
    assert parameters(GRPOTrainer._generate_and_score_completions) == ["self", "inputs"]
    assert parameters(GRPOTrainer._compute_loss) == ["self", "model", "inputs"]


class Probe(ARPOTrainer):
    """Looks at what TRL hands over and takes back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.losses: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.inputs = inputs
        return super()._generate_and_score_completions(inputs)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.losses.append(inputs)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss


@pytest.fixture(scope="module")
def probe(tiny_policy: Path, tokenizer: Any, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """A trainer after one step."""
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    model = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
    args = config(tmp_path_factory.mktemp("probe"), max_steps=1)
    trainer = Probe(model, env, args=args, processing_class=tokenizer)
    trainer.train()
    return trainer


def test_rows_arrive_repeated_and_contiguous(probe: Probe) -> None:
    tasks = [row["task"] for row in probe.inputs]
    assert len(tasks) == 2 * GROUP
    assert all(len(set(tasks[start : start + GROUP])) == 1 for start in (0, GROUP))
    assert probe.inputs[0]["prompt"][-1]["role"] == "user"


def test_token_advantages_and_masks_reach_the_loss_row_by_row(probe: Probe) -> None:
    """They survive TRL's shuffle and split: each row still has the advantages of its own tokens."""
    wanted = {}
    for group, tree in enumerate(probe.trees):
        for number in range(GROUP):
            wanted[tuple(tree.row(number).ids)] = (group, tree.row(number).mask)
    assert len(probe.losses) == 2
    for inputs in probe.losses:
        assert inputs["advantages"].shape == inputs["completion_ids"].shape
        for ids, mask, real in zip(
            inputs["completion_ids"], inputs["tool_mask"], inputs["completion_mask"], strict=True
        ):
            n = int(real.sum())
            assert wanted[tuple(ids[:n].tolist())][1] == mask[:n].tolist()


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_per_token_advantages_are_per_row_ones_where_they_are_equal(probe: Probe, loss_type: str) -> None:
    probe.loss_type = loss_type
    inputs = dict(probe.losses[0])
    inputs["advantages"] = torch.linspace(-1, 1, len(inputs["completion_ids"]))
    model = probe.model.train()
    results = []
    for advantages in (inputs["advantages"], inputs["advantages"][:, None].expand_as(inputs["completion_ids"])):
        model.zero_grad()
        loss = GRPOTrainer._compute_loss(probe, model, {**inputs, "advantages": advantages})
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-6)


def test_cutting_padding_off_changes_neither_loss_nor_gradient(probe: Probe) -> None:
    inputs = dict(probe.losses[0])
    longer = {"completion_ids": 7, "completion_mask": 0, "tool_mask": 1, "advantages": 3.0}
    for name, filler in longer.items():
        extra = torch.full((len(inputs[name]), 9), filler, dtype=inputs[name].dtype)
        inputs[name] = torch.cat([inputs[name], extra], dim=1)
    for name, filler in {"prompt_ids": 7, "prompt_mask": 0}.items():
        extra = torch.full((len(inputs[name]), 5), filler, dtype=inputs[name].dtype)
        inputs[name] = torch.cat([extra, inputs[name]], dim=1)
    model = probe.model.train()
    results = []
    for compute in (GRPOTrainer._compute_loss, ARPOTrainer._compute_loss):
        model.zero_grad()
        loss = compute(probe, model, inputs)
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-5)
    assert trim_padding(inputs)["completion_ids"].shape[1] <= inputs["completion_ids"].shape[1] - 9


def test_masked_tokens_get_no_gradient(probe: Probe) -> None:
    """The loss does not depend on the advantage of a token that the environment wrote."""
    inputs = next(inputs for inputs in probe.losses if (inputs["tool_mask"] == 0).any())
    changed = torch.where(inputs["tool_mask"] == 0, 100.0, inputs["advantages"])
    with torch.no_grad():
        plain = GRPOTrainer._compute_loss(probe, probe.model, inputs)
        other = GRPOTrainer._compute_loss(probe, probe.model, {**inputs, "advantages": changed})
    assert plain.item() == pytest.approx(other.item(), abs=1e-6)
