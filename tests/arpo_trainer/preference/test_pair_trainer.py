"""`PairTrainer`: TRL's loss on pairs of ids, by hand; results of tools are context, and nothing else."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_trainer.preference.dpo_run import PairTrainer, configure_dpo, make_pair_trainer
from arpo_trainer.preference.pairs import PairSettings, PreferencePair, pairs_of_task
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.preference.made_trees import random_tree

BETA = 0.1


def random_pairs(count: int) -> list[PreferencePair]:
    trees = [[random_tree(random.Random(seed), 6)] for seed in range(8 * count)]
    return [one for tree in trees for one in pairs_of_task("t", tree, PairSettings(pairs_per_task=1))][:count]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_policy(tmp_path_factory.mktemp("dpo-policy"))


@pytest.fixture(scope="module")
def byte_tokenizer(policy: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(policy)


def trainer_of(pairs: list[PreferencePair], policy: Path, tokenizer: Any, folder: Path, **more: Any) -> PairTrainer:
    settings = {"model": str(policy), "output_dir": str(folder), "gradient_checkpointing": False, "beta": BETA}
    settings |= {
        "per_device_train_batch_size": len(pairs),
        "save_strategy": "no",
        "bf16": False,
        "disable_tqdm": True,
        **more,
    }
    args = configure_dpo(settings)[1]
    args.model_init_kwargs = {"dtype": "float32"}
    return make_pair_trainer(str(policy), tokenizer, pairs, args)


def loss_and_gradients(trainer: PairTrainer, pairs: list[PreferencePair]) -> tuple[float, list[torch.Tensor]]:
    columns = ("prompt_ids", "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask")
    batch = trainer.data_collator([{name: getattr(one, name) for name in columns} for one in pairs])
    loss = trainer.compute_loss(trainer.model, batch)
    return loss.item(), list(torch.autograd.grad(loss, list(trainer.model.parameters())))


def log_prob(model: Any, prompt: list[int], ids: list[int], mask: list[int]) -> torch.Tensor:
    """The log-probability of the tokens of the model, each from its logits."""
    logits = model.forward(torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
    own = [logits[len(prompt) + n - 1, token] for n, token in enumerate(ids) if mask[n]]
    return torch.stack(own).sum()


def by_hand(model: Any, reference: Any, pairs: list[PreferencePair]) -> torch.Tensor:
    losses = []
    for one in pairs:
        sides = ((one.chosen_ids, one.chosen_mask), (one.rejected_ids, one.rejected_mask))
        chosen, rejected = (log_prob(model, one.prompt_ids, *side) for side in sides)
        with torch.no_grad():
            first, second = (log_prob(reference, one.prompt_ids, *side) for side in sides)
        losses.append(-torch.nn.functional.logsigmoid(BETA * (chosen - first - (rejected - second))))
    return torch.stack(losses).mean()


def shaken(trainer: PairTrainer) -> None:
    """Move the policy away from its reference, so that the loss depends on what is scored."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)


def test_loss_and_gradient_are_those_computed_by_hand(policy: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    pairs = random_pairs(6)
    assert any(0 in one.chosen_mask for one in pairs)
    assert any(one.shared for one in pairs)
    trainer = trainer_of(pairs, policy, byte_tokenizer, tmp_path)
    shaken(trainer)
    reference, plain = (AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32) for _ in range(2))
    plain.load_state_dict(trainer.model.state_dict())
    loss, gradients = loss_and_gradients(trainer, pairs)
    expected = by_hand(plain, reference, pairs)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    wanted = torch.autograd.grad(expected, list(plain.parameters()))
    for got, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-3)


WHOLE = ("sigmoid", "ipo", "sft", "hinge")


@pytest.mark.parametrize("loss", WHOLE)
def test_what_two_continuations_share_cancels_or_is_refused(
    policy: Path, byte_tokenizer: Any, tmp_path: Path, loss: str
) -> None:
    """The pair up to the fork has the loss and the gradient of the two whole trajectories, or it is not learnt from."""
    trees = [random_tree(random.Random(seed), 6) for seed in range(40)]
    settings = PairSettings(pair_kind="fork", pairs_per_task=1)
    forked = [one for tree in trees for one in pairs_of_task("t", [tree], settings)][:3]
    assert len(forked) == 3

    def whole(one: PreferencePair) -> PreferencePair:
        start = len(one.prompt_ids) - one.shared
        shared = one.prompt_ids[start:]
        ids = {f"{side}_ids": shared + getattr(one, f"{side}_ids") for side in ("chosen", "rejected")}
        # all shared tokens are scored here, also those of tools: they cancel, too
        masks = {f"{side}_mask": [1] * len(shared) + getattr(one, f"{side}_mask") for side in ("chosen", "rejected")}
        return replace(one, prompt_ids=one.prompt_ids[:start], shared=0, **ids, **masks)

    trainer = trainer_of([whole(one) for one in forked], policy, byte_tokenizer, tmp_path, loss_type=[loss])
    shaken(trainer)
    short, full = loss_and_gradients(trainer, forked), loss_and_gradients(trainer, [whole(one) for one in forked])
    differs = abs(short[0] - full[0]) > 1e-4
    if differs:
        with pytest.raises(ValueError, match=f"loss_type='{loss}' with pairs from trees.*algorithm: grpo"):
            trainer_of(forked, policy, byte_tokenizer, tmp_path, loss_type=[loss])
        with pytest.raises(ValueError, match="with pairs from trees"):
            configure_dpo({"model": str(policy), "algorithm": "arpo", "loss_type": ["sigmoid", loss]})
        return
    trainer_of(forked, policy, byte_tokenizer, tmp_path, loss_type=[loss])
    for got, want in zip(short[1], full[1], strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("settings", [{}, {"precompute_ref_log_probs": True}], ids=["copy", "precomputed"])
def test_the_reference_is_the_policy_before_the_round(
    settings: dict[str, Any], policy: Path, byte_tokenizer: Any, tmp_path: Path
) -> None:
    pairs = random_pairs(4)
    trainer = trainer_of(pairs, policy, byte_tokenizer, tmp_path, max_steps=3, learning_rate=1e-2, **settings)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "train_loss" in entry][-1]
    assert log["train_loss"] < 0.69
    batch = next(iter(trainer.get_train_dataloader()))
    trained = trainer.compute_loss(trainer.model, batch).item()
    trainer.model.load_state_dict(type(trainer.model).from_pretrained(policy, dtype=torch.float32).state_dict())
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(0.693147, abs=1e-5)
    assert trained < 0.6


def test_ids_of_another_tokenizer_are_refused(policy: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    [pair] = random_pairs(1)
    with pytest.raises(ValueError, match="token id 49000, and the model has 258 tokens"):
        trainer_of([replace(pair, prompt_ids=[49000])], policy, byte_tokenizer, tmp_path)
