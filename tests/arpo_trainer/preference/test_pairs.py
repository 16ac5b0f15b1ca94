"""Pairs: made of right and wrong trajectories, with the ids and masks of their rows, and read back from files."""

import dataclasses
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_trainer.preference.dpo_run import PairTrainer, configure_dpo, make_pair_trainer
from arpo_trainer.preference.pairs import PairData, PairSettings, PreferencePair, pairs_of_task, read_pairs
from arpo_trainer.tree import RolloutTree
from tests.arpo_trainer.preference.made_trees import random_tree

BETA = 0.1
PAIR = PreferencePair("t", [1, 2], 0, [3, 4], [1, 0], [5], [1], 1.0, 0.0)


def whole_rows(trees: list[RolloutTree], right: bool) -> list[tuple[list[int], list[int]]]:
    """Prompt and row of each trajectory that is right, or wrong, as ids and masks."""
    return [
        (tree.prompt_ids + row.ids, [0] * len(tree.prompt_ids) + row.mask)
        for tree in trees
        for number, reward in enumerate(tree.rewards)
        if reward is not None and (reward >= 1) == right
        for row in [tree.row(number)]
    ]


def test_pairs_are_rows_of_the_trees_and_no_trajectory_is_in_two() -> None:
    seen, forks = 0, 0
    for seed in range(300):
        rng = random.Random(seed)
        trees = [random_tree(rng) for _ in range(rng.randint(1, 3))]
        for tree in trees:
            tree.prompt_ids = trees[0].prompt_ids
        pairs = pairs_of_task("t", trees, PairSettings(pairs_per_task=3), seed)
        assert pairs == pairs_of_task("t", trees, PairSettings(pairs_per_task=3), seed)
        assert len(pairs) <= 3
        for side, rows in (("chosen", whole_rows(trees, True)), ("rejected", whole_rows(trees, False))):
            found = [(one.prompt_ids + getattr(one, f"{side}_ids"), getattr(one, f"{side}_mask")) for one in pairs]
            for ids, mask in found:
                [own] = {tuple(row[-len(mask) :]) for whole, row in rows if whole == ids}
                assert list(own) == mask
            assert len({tuple(ids) for ids, _ in found}) == len(found)
        assert all(one.chosen_reward >= 1 > one.rejected_reward for one in pairs)
        seen, forks = seen + len(pairs), forks + sum(one.shared > 0 for one in pairs)
    assert seen > 200
    assert forks > 50


def test_the_sides_of_a_pair_are_what_the_model_saw_after_a_fold() -> None:
    folded = 0
    for seed in range(200):
        tree = random_tree(random.Random(seed), 6, folds=True)
        numbers = range(len(tree.trajectories))
        seen = {tuple(tree.context(tree.trajectories[number].leaf)): tree.folds(number) for number in numbers}
        for one in pairs_of_task("t", [tree], PairSettings()):
            assert tuple(one.prompt_ids + one.rejected_ids) in seen
            folded += seen[tuple(one.prompt_ids + one.chosen_ids)]
            assert one.shared < len(one.prompt_ids)
    assert folded > 10


def test_tasks_without_pairs_and_pairs_that_are_too_long_are_counted() -> None:
    data, tree = PairData(), random_tree(random.Random(1), 2)
    for rewards, longest in (((1.0, 0.0), None), ((None, None), None), ((1.0, 0.0), 3)):
        tree.trajectories[0].reward, tree.trajectories[1].reward = rewards
        data.add("t", [tree], PairSettings(), 0, longest)
    assert (len(data.pairs), data.too_long, data.facts()["outcomes"]["nothing scored"]) == (1, 1, 1)


ROW = dataclasses.asdict(PAIR)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chosen_mask": [1]}, "chosen_mask must have a 0 or a 1 for each of the 2 chosen_ids"),
        ({"rejected_mask": [0]}, "no token of the model"),
        ({"chosen_ids": [3, "4"]}, "chosen_ids must be lists of whole numbers"),
        ({"chosen": "text"}, "unexpected keyword argument 'chosen'"),
        ({"prompt_ids": []}, "has no prompt"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW, {**ROW, **change})))
    with pytest.raises(ValueError, match=r"pairs\.jsonl, line 2: not a pair of token ids") as found:
        read_pairs(path)
    assert words in str(found.value)


def random_pairs(count: int) -> list[PreferencePair]:
    trees = [[random_tree(random.Random(seed), 6)] for seed in range(8 * count)]
    return [one for tree in trees for one in pairs_of_task("t", tree, PairSettings(pairs_per_task=1))][:count]


def trainer_of(pairs: list[PreferencePair], byte_lm: Path, tokenizer: Any, folder: Path, **more: Any) -> PairTrainer:
    settings = {"model": str(byte_lm), "output_dir": str(folder), "gradient_checkpointing": False, "beta": BETA}
    settings |= {"per_device_train_batch_size": len(pairs), "save_strategy": "no", "bf16": False, "disable_tqdm": True}
    args = configure_dpo({**settings, **more})[1]
    args.model_init_kwargs = {"dtype": "float32"}
    return make_pair_trainer(str(byte_lm), tokenizer, pairs, args)


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


def test_loss_and_gradient_are_those_computed_by_hand(byte_lm: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    pairs = random_pairs(6)
    assert any(0 in one.chosen_mask for one in pairs)
    assert any(one.shared for one in pairs)
    trainer = trainer_of(pairs, byte_lm, byte_tokenizer, tmp_path)
    shaken(trainer)
    reference, plain = (AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32) for _ in range(2))
    plain.load_state_dict(trainer.model.state_dict())
    loss, gradients = loss_and_gradients(trainer, pairs)
    expected = by_hand(plain, reference, pairs)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    wanted = torch.autograd.grad(expected, list(plain.parameters()))
    for got, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("loss", ["sigmoid", "ipo", "sft", "hinge"])
def test_what_a_pair_shares_cancels_or_is_refused(
    byte_lm: Path, byte_tokenizer: Any, tmp_path: Path, loss: str
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

    trainer = trainer_of([whole(one) for one in forked], byte_lm, byte_tokenizer, tmp_path, loss_type=[loss])
    shaken(trainer)
    short, full = loss_and_gradients(trainer, forked), loss_and_gradients(trainer, [whole(one) for one in forked])
    if abs(short[0] - full[0]) > 1e-4:
        with pytest.raises(ValueError, match=f"loss_type='{loss}' with pairs from trees.*algorithm: grpo"):
            trainer_of(forked, byte_lm, byte_tokenizer, tmp_path, loss_type=[loss])
        with pytest.raises(ValueError, match="with pairs from trees"):
            configure_dpo({"model": str(byte_lm), "algorithm": "arpo", "loss_type": ["sigmoid", loss]})
        return
    trainer_of(forked, byte_lm, byte_tokenizer, tmp_path, loss_type=[loss])
    for got, want in zip(short[1], full[1], strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("settings", [{}, {"precompute_ref_log_probs": True}], ids=["copy", "precomputed"])
def test_the_reference_is_the_first_policy(settings: Any, byte_lm: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    pairs = random_pairs(4)
    trainer = trainer_of(pairs, byte_lm, byte_tokenizer, tmp_path, max_steps=3, learning_rate=1e-2, **settings)
    trainer.train()
    batch = next(iter(trainer.get_train_dataloader()))
    trained = trainer.compute_loss(trainer.model, batch).item()
    trainer.model.load_state_dict(type(trainer.model).from_pretrained(byte_lm, dtype=torch.float32).state_dict())
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(0.693147, abs=1e-5)
    assert trained < 0.6


def test_ids_of_another_tokenizer_are_refused(byte_lm: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    [pair] = random_pairs(1)
    with pytest.raises(ValueError, match="token id 49000, and the model has 258 tokens"):
        trainer_of([replace(pair, prompt_ids=[49000])], byte_lm, byte_tokenizer, tmp_path)
