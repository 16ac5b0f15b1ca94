"""Packed updates are flat ones, for every loss. Rows that can change no weight are left out, and nothing notices."""

from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_trainer.packing import packed_logps
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.packing.batches import assert_equal_gradients, gradients, inputs, weights
from tests.arpo_trainer.training.test_trl_options import made, same_rollout
from tests.arpo_trainer.training.test_trl_options import weights as parameters

FORMS = ("packs", "padding_free")
LOSSES: list[dict[str, Any]] = [{"loss_type": name} for name in ("grpo", "dapo", "dr_grpo", "cispo", "sapo", "vespo")]
LOSSES.append({"loss_type": "grpo", "importance_sampling_level": "sequence"})
# with these, rows without advantages have a gradient or are counted
NEED_ALL_ROWS = [{"loss_type": "bnpo"}, {"beta": 0.3}, {"entropy_coef": 0.1}]
NEED_ALL_ROWS += [{"top_entropy_quantile": 0.4}, {"off_policy_mask_threshold": 0.5}]


def ready(byte_lm: Path, folder: Path, settings: dict[str, Any], training: bool = True) -> Any:
    trainer, _ = made(byte_lm, folder, packing=False, **settings)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train(training)
    return trainer


def rows(seed: int, plain: bool = False) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
    """A micro-batch, and which of its rows have no advantage, and no token that counts."""
    batch = inputs(seed)
    number = torch.arange(len(batch["advantages"])) % 3
    silent, masked = number == 0, number == 1
    if plain:  # on-policy, with one advantage a row
        del batch["old_per_token_logps"], batch["tool_mask"]
        batch["advantages"] = weights(silent.shape, 2).masked_fill(silent, 0)
        batch["completion_mask"] = batch["completion_mask"] * ~masked[:, None]
    else:
        batch["advantages"][silent] *= 1 - batch["tool_mask"][silent]  # left where no token counts
        batch["tool_mask"][masked] = 0
    counted = batch["completion_mask"] * batch.get("tool_mask", 1)
    return batch, silent, ~counted.any(dim=1)  # a short row may be masked by chance


def joined(batch: dict[str, Any], part: str) -> torch.Tensor:
    return torch.cat([batch[f"prompt_{part}"], batch[f"completion_{part}"]], dim=1)


def step(trainer: Any, batch: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor], int, dict[str, list[float]]]:
    """The loss, its gradients, how many positions the model has seen, and all metrics, which are then forgotten."""
    seen, embedding = list[int](), trainer.model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda _, given, __: seen.append(given[0].numel()))
    loss = trainer._compute_loss(trainer.model, batch)
    hook.remove()
    loss.backward()
    metrics = {name: list(values) for name, values in trainer._metrics[trainer.mode].items()}
    trainer._metrics[trainer.mode].clear()
    return loss.item(), gradients(trainer.model), sum(seen), metrics


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("settings", [*LOSSES, *NEED_ALL_ROWS], ids=str)
def test_no_gradient_changes(byte_lm: Path, tmp_path: Path, settings: dict[str, Any], plain: bool) -> None:
    trainer, (batch, silent, masked) = ready(byte_lm, tmp_path, settings), rows(8 if plain else 6, plain)
    wanted, gone = step(trainer, batch), masked if settings in NEED_ALL_ROWS else masked | silent
    if not plain:  # a ratio of e^190 is infinite in float32, and 0 times it is no number
        batch["old_per_token_logps"] = batch["old_per_token_logps"].masked_fill(gone[:, None], -200.0)
    mask = joined(batch, "mask") * ~gone[:, None]
    counted = (batch["completion_mask"] * batch.get("tool_mask", 1))[~gone]
    for form in FORMS:
        trainer.packs, trainer.padding_free = form == "packs", form == "padding_free"
        loss, found, positions, metrics = step(trainer, batch)
        assert loss == pytest.approx(wanted[0], abs=1e-5, rel=1e-5)
        assert_equal_gradients(wanted[1], found)
        how = {"compute_entropy": True, "share": form == "packs"}
        alone = packed_logps(trainer.model, joined(batch, "ids"), mask, counted.shape[1], **how)
        assert positions == alone.computed
        assert metrics["arpo/packing"] == [pytest.approx(mask[~gone].sum().item() / positions)]
        entropy = (alone.entropies[~gone] * counted).sum() / counted.sum()
        assert metrics["entropy"] == [pytest.approx(entropy.item())]


@pytest.mark.parametrize("form", FORMS)
def test_silent_rows_alone_have_zero_gradients_and_no_metrics(byte_lm: Path, tmp_path: Path, form: str) -> None:
    trainer, batch = ready(byte_lm, tmp_path, {}), rows(6)[0]
    setattr(trainer, form, True)
    batch["advantages"] *= 0
    for known in ({}, {"entropy": [0.7], "arpo/packing": [2.0, 3.0]}):
        trainer._metrics["train"].update({name: list(values) for name, values in known.items()})
        _, found, positions, metrics = step(trainer, batch)
        assert found.keys() == parameters(trainer).keys()
        assert not any(gradient.any() for gradient in found.values())
        assert (positions, metrics) == (1, known)


def test_an_evaluation_leaves_nothing_out(byte_lm: Path, tmp_path: Path) -> None:
    trainer, batch = ready(byte_lm, tmp_path, {}, training=False), rows(6)[0]
    loss, _, _, metrics = step(trainer, batch)
    trainer.packs = True
    found, _, positions, measured = step(trainer, batch)
    assert found == pytest.approx(loss, abs=1e-5)
    for name, values in metrics.items():
        assert measured[name] == pytest.approx(values, abs=1e-5)
    ids, mask = joined(batch, "ids"), joined(batch, "mask")
    assert positions == packed_logps(trainer.model, ids, mask, batch["advantages"].shape[1]).computed


def test_the_balancing_loss_of_experts_is_of_all_rows(byte_lm: Path, tmp_path: Path) -> None:
    trainer, batch = ready(byte_lm, tmp_path, {}), rows(6)[0]
    trainer.packs = trainer.aux_loss_enabled = True
    assert trainer.before_loss(batch)["completion_mask"].sum() == batch["completion_mask"].sum()


def two_equal_groups(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [reward if number % 8 < 4 else 0.5 for number, reward in enumerate(letter_reward(completion_ids))]


def test_updates_of_silent_groups_move_weights_by_momentum_alone(byte_lm: Path, tmp_path: Path) -> None:
    """Four updates of one rollout, each of a group; the rewards of two groups are equal."""
    settings = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "max_steps": 4, "learning_rate": 1e-3}
    runs = [made(byte_lm, tmp_path, reward=two_equal_groups, packing=way, **settings) for way in (False, True)]
    (flat, one), (packed, two) = runs
    before = parameters(flat)
    assert [run.train().global_step for run in (flat, packed)] == [4, 4]
    assert same_rollout(flat, packed)
    silent = [not any(gradient.any() for gradient in gradients.values()) for gradients in one.steps]
    assert sum(silent) == 2
    assert silent != [True, True, False, False]  # one of them has momentum
    for number, (wanted, found) in enumerate(zip(one.steps, two.steps, strict=True)):
        assert wanted.keys() == found.keys() == before.keys()
        if silent[number]:
            assert not any(gradient.any() for gradient in found.values())
        else:
            assert_equal_gradients(wanted, found, 1e-4)
        assert ("entropy" in one.logs[number], "entropy" in two.logs[number]) == (True, not silent[number])
    # Adam makes steps of full size from rounding errors, too: hence a larger tolerance
    moved = [{name: after - before[name] for name, after in parameters(run).items()} for run in (flat, packed)]
    assert_equal_gradients(*moved, 1e-2)
