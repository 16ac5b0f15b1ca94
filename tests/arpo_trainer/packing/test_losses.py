"""Packed trees have the loss and every gradient of flat rows, under each loss that a policy can be trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from arpo_trainer.algorithms.losses import LOSS_TYPES, LOSSES
from arpo_trainer.packing import packed_logps
from tests.arpo_trainer.algorithms.explicit_losses import Aggregation, aggregate, per_token
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.packing.batches import (
    assert_equal_gradients,
    flat,
    gradients,
    random_batch,
    tiny_model,
    weights,
)
from tests.arpo_trainer.packing.test_trl import inputs
from tests.arpo_trainer.training.test_trl_options import made

TREES = range(20)


def with_lora(model: Any) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    )


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_every_loss_on_twenty_random_trees(kind: str, lora: bool) -> None:
    model = with_lora(tiny_model(kind)) if lora else tiny_model(kind)
    ways = get_args(Aggregation)
    for seed in TREES:
        ids, mask, keep = random_batch(seed)
        both = flat(model, ids, mask, keep)[0], packed_logps(model, ids, mask, keep).logps
        shape = both[0].shape
        own = mask[:, -keep:] * (weights(shape, seed) < 1)  # some are the environment's
        anchors, advantages = both[0].detach() + 0.3 * weights(shape, seed + 1), weights(shape, seed + 2)
        for number, loss in enumerate(LOSSES.values()):
            if (lora or kind != "llama") and (seed + number) % 3:
                continue  # each loss on seven of the trees
            values, found = [], []
            for logps in both:
                value = aggregate(
                    per_token(loss, logps - anchors, advantages, own), own, ways[(seed + number) % len(ways)]
                )
                value.backward(retain_graph=True)
                values.append(value.item())
                found.append(gradients(model))
            assert values[0] == pytest.approx(values[1], abs=1e-5, rel=1e-5)
            assert_equal_gradients(*found)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_policy(tmp_path_factory.mktemp("bytes"))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_through_the_trainer(policy: Path, tmp_path: Path, name: str) -> None:
    """Anchors are moved after a packed pass as after a flat one."""
    way = LOSS_TYPES[list(LOSSES).index(name) % len(LOSS_TYPES)]
    trainer, _ = made(policy, tmp_path, policy_loss=name, packing=True, num_iterations=2, loss_type=way)
    trainer.current_gradient_accumulation_steps = 1
    model, batch, found, values = trainer.model.train(), inputs(6), [], []
    batch["old_per_token_logps"] = 1.5 * weights(batch["advantages"].shape, 3) - 7  # far off, mostly above the bounds
    for trainer.packs in (True, False):
        value = trainer._compute_loss(model, batch)
        value.backward()
        values.append(value.item())
        found.append(gradients(model))
    assert values[0] == pytest.approx(values[1], abs=1e-5, rel=1e-5)
    assert_equal_gradients(*found)
    moved = trainer._metrics["train"].get("arpo/kept_gradients", [0.0, 0.0])
    assert (moved[0] > 0) == (LOSSES[name].clip != "ppo")
    assert moved[0] == moved[1]
