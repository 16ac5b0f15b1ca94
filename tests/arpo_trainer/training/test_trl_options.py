"""What TRL's users set, set here: each does what it says, on tiny updates of a random model."""

import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer, RolloutTree
from arpo_trainer.algorithms.credit import CREDITS, Credit, own_advantages
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.packing.batches import assert_equal_gradients
from tests.arpo_trainer.quick_settings import ON_CPU

ROWS = 8
NUMBERS = itertools.count()  # each trainer has a folder of its own


class Gradients(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Keeps the gradients of each update, and counts what it is told."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []
        self.logs: list[dict[str, Any]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.steps.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))


class Watched(ARPOTrainer):
    """Keeps each rollout's batch, with its trees and the policy's log-probabilities at that time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.kept: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.kept.append({**output, "trees": self.trees, "now": scored(self.model, output)})
        return output


def made(
    byte_lm: Path,
    folder: Path,
    peft: Any = None,
    env: ToolEnv | None = None,
    reward: Any = letter_reward,
    **settings: Any,
) -> tuple[Watched, Gradients]:
    """A trainer that rolls out two groups of four a step."""
    values = {"output_dir": str(folder / f"run-{next(NUMBERS)}"), "algorithm": "grpo", "num_generations": 4}
    values |= {"per_device_train_batch_size": ROWS, "gradient_accumulation_steps": 1, "max_steps": 1}
    values |= {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    values |= {"max_completion_length": 24, "max_turn_length": 16}
    watching = Gradients()
    trainer = Watched(
        AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32),
        env or ToolEnv("arpo/Arithmetic-v0", level=1),
        reward_funcs=reward,
        args=ARPOConfig(**ON_CPU | values | settings),
        processing_class=AutoTokenizer.from_pretrained(byte_lm),
        callbacks=[watching],
        peft_config=peft,
    )
    return trainer, watching


def weights(trainer: ARPOTrainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.accelerator.unwrap_model(trainer.model).named_parameters()}


def same_rollout(*trainers: Watched) -> bool:
    one, other = ([t.meta | {"rows": [t.row(n).ids for n in range(4)]} for t in a.kept[0]["trees"]] for a in trainers)
    return one == other


@pytest.mark.parametrize(("loss_type", "checkpointing"), [("dapo", False), ("grpo", True)])
def test_two_micro_batches_have_the_gradients_of_one(
    byte_lm: Path, tmp_path: Path, loss_type: str, checkpointing: bool
) -> None:
    """Also where activations are computed a second time."""
    size = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    again = {"gradient_checkpointing": checkpointing, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    whole, one = made(byte_lm, tmp_path, loss_type=loss_type)
    cut, two = made(byte_lm, tmp_path, loss_type=loss_type, **size, **again)
    whole.train()
    cut.train()
    assert cut.accelerator.unwrap_model(cut.model).is_gradient_checkpointing == checkpointing
    assert same_rollout(whole, cut)
    assert len(one.steps) == len(two.steps) == 1
    assert any(gradient.abs().max() > 1e-4 for gradient in one.steps[0].values())
    assert_equal_gradients(one.steps[0], two.steps[0])


@pytest.mark.parametrize(("updates", "dropout", "warns"), [(2, 0.05, True), (1, 0.05, False), (2, 0.0, False)])
def test_dropout_is_warned_of_where_ratios_would_hear_it(
    byte_lm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, updates: int, dropout: float, warns: bool
) -> None:
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(r=4, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
    made(byte_lm, tmp_path, adapter, num_iterations=updates)
    assert ("drops activations at random, also while" in caplog.text) == warns


LEFT_OUT = (1, 5, 6)  # rows of different numbers in the two groups and micro-batches


def unscored(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    return [None if n in LEFT_OUT else r for n, r in enumerate(letter_reward(completion_ids))]


def make_void(trees: list[RolloutTree]) -> None:
    for row in LEFT_OUT:
        trees[row // 4].trajectories[row % 4].reward = None


def halves(tree: RolloutTree) -> list[list[float]]:
    """Weights of a row that learns nothing from some trajectories, as VinePPO from its branches."""
    group = int(tree.meta["group"])
    return [[float(4 * group + n not in LEFT_OUT)] * len(tree.path(n)) for n in range(len(tree.trajectories))]


@pytest.mark.parametrize(
    ("way", "loss_type"),
    [("void", "dapo"), ("void", "grpo"), ("unscored", "dapo"), ("weightless", "grpo"), ("weightless", "dr_grpo")],
)
def test_what_is_not_learned_from_does_not_change_the_step(
    byte_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str, way: str
) -> None:
    """Advantages and KL are means over the rows that are left, written out by hand."""
    monkeypatch.setitem(CREDITS, "halves", Credit(own_advantages, halves))
    settings = {"loss_type": loss_type, "beta": 0.3, "advantage": "grpo-no-std", "per_device_train_batch_size": 4}
    settings |= {"gradient_accumulation_steps": 2, "attribution": "halves" if way == "weightless" else "soft"}
    trainer, watching = made(byte_lm, tmp_path, reward=unscored if way == "unscored" else letter_reward, **settings)
    watching.on_rollout = make_void if way == "void" else len  # type: ignore[attr-defined]
    torch.manual_seed(0)
    for parameter in trainer.ref_model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    trainer.train()

    batch, model = trainer.kept[0], AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32)
    trees, kept = batch["trees"], [n for n in range(ROWS) if n not in LEFT_OUT]
    rewards = letter_reward([tree.row(n).ids for tree in trees for n in range(4)])
    compared = range(ROWS) if way == "weightless" else kept
    total, tokens = torch.tensor(0.0), 0
    reference = scored(trainer.ref_model, batch)
    logps = scored(model, batch, grad=True)
    for n in kept:
        mask = torch.tensor(trees[n // 4].row(n % 4).mask)
        own, other = logps[n, : len(mask)], reference[n, : len(mask)]
        advantage = rewards[n] - statistics.fmean(rewards[m] for m in compared if m // 4 == n // 4)
        loss = (-advantage * (own - own.detach()).exp() + 0.3 * ((other - own).exp() - (other - own) - 1)) * mask
        total = total + loss.sum() / (int(mask.sum()) if loss_type == "grpo" else 1)
        tokens += int(mask.sum())
    total = total / {"grpo": len(kept), "dapo": tokens, "dr_grpo": len(kept) * 24}[loss_type]
    total.backward()
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert_equal_gradients(wanted, watching.steps[0])


@pytest.mark.parametrize("packing", [False, True])
def test_lora_trains_the_adapter_rolls_out_with_it_and_refers_to_the_model_below(
    byte_lm: Path, tmp_path: Path, packing: bool
) -> None:
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer, watching = made(byte_lm, tmp_path, adapter, beta=0.1, max_steps=2, packing=packing)
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert watching.logs[1]["kl"] > 1e-4
    second = trainer.kept[1]  # rolled out after the first update
    mask = second["completion_mask"] * second["tool_mask"]
    below = scored(AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32), second)
    torch.testing.assert_close(second["ref_per_token_logps"] * mask, below * mask, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(second["sampling_per_token_logps"] * mask, second["now"] * mask, atol=1e-4, rtol=1e-4)
    assert ((below - second["now"]) * mask).abs().max() > 1e-2  # the adapter is heard


def scored(model: Any, batch: dict[str, Any], grad: bool = False) -> torch.Tensor:
    """The log-probabilities of a batch's completions, without TRL."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.set_grad_enabled(grad):
        places = (mask.cumsum(1) - 1).clamp(min=0)
        every = torch.log_softmax(model(input_ids=ids, attention_mask=mask, position_ids=places).logits[:, :-1], -1)
    chosen = every.gather(-1, ids[:, 1:, None])[..., 0]
    return chosen[:, -batch["completion_ids"].shape[1] :]


def test_a_second_pass_is_off_policy_and_aepo_keeps_gradients_there(byte_lm: Path, tmp_path: Path) -> None:
    trainer, watching = made(
        byte_lm, tmp_path, policy_loss="aepo", num_iterations=2, max_steps=2, learning_rate=5e-2, epsilon=0.1
    )
    trainer.train()
    assert len(trainer.kept) == 1
    assert watching.logs[0]["arpo/kept_gradients"] == 0
    assert watching.logs[1]["arpo/kept_gradients"] > 0
    old, now = trainer.kept[0]["old_per_token_logps"], scored(trainer.model, trainer.kept[0])
    mask = trainer.kept[0]["completion_mask"] * trainer.kept[0]["tool_mask"]
    assert ((now - old) * mask).abs().max() > 0.1
    torch.testing.assert_close(old * mask, trainer.kept[0]["now"] * mask)
