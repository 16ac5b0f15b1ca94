"""Packed trees have the loss and every gradient of flat rows, under each loss that a policy can be trained with."""

from pathlib import Path

import pytest

from arpo_trainer.algorithms.losses import LOSS_TYPES, LOSSES
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.packing.batches import assert_equal_gradients, gradients, weights
from tests.arpo_trainer.packing.test_trl import inputs
from tests.arpo_trainer.training.test_trl_options import made


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
