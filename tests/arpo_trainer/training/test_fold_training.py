"""Training through folds: every token has the gradient of the context it was sampled from, packed or flat."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arpo_trainer import RolloutTree
from arpo_trainer.algorithms.credit import token_advantages
from arpo_trainer.training.packed_trainer import cut_at_folds
from arpo_trainer.training.rollout_batch import RolloutBatch, pad_rows
from arpo_trainer.tree import Trajectory
from tests.arpo_trainer.exact_model import make_exact
from tests.arpo_trainer.folding_policy import FoldingPolicy, multihop
from tests.arpo_trainer.packing.batches import columns, gradients, pad
from tests.arpo_trainer.training.test_trl_options import made

LOSSES = ("grpo", "dapo", "bnpo", "dr_grpo")


@pytest.fixture(scope="module")
def trainer(byte_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer in float64 that packs if asked to."""
    made_one, _ = made(byte_lm, tmp_path_factory.mktemp("run"), packing=True)
    make_exact(made_one.model, made_one.temperature)
    made_one.current_gradient_accumulation_steps = 1
    return made_one


def random_tree(seed: int, kept: bool) -> RolloutTree:
    """A random tree with folds; their new prompts are all that came before, or the first and a few random tokens."""
    rng = np.random.default_rng(seed)

    def ids(most: int) -> list[int]:
        return [int(number) for number in rng.integers(0, 250, rng.integers(1, most))]

    tree = RolloutTree(ids(6))
    ends: list[int | None] = [None]
    for _ in range(4):
        node = ends[rng.integers(len(ends))]
        for _ in range(rng.integers(1, 4)):
            written = ids(5)
            noise = rng.normal(-4, 0.3, len(written)).tolist()
            node = tree.add_span(node, "model", written, logprobs=noise, entropies=[1.0] * len(written)).index
            read, fold = ids(5), rng.random() < 0.5
            prompt = tree.context(node) + read if kept else tree.prompt_ids + read
            node = tree.add_span(node, "fold" if fold else "environment", prompt if fold else read).index
            ends.append(node)
        tree.trajectories.append(Trajectory(node, reward=float(rng.normal())))
    return tree


def unfolded(tree: RolloutTree) -> RolloutTree:
    """The same tree whose folds are plain results: what the new prompts added to the old history."""
    plain = RolloutTree(tree.prompt_ids, trajectories=tree.trajectories)
    for span in tree.spans:
        fold = span.kind == "fold"
        ids = span.ids[len(tree.context(span.parent)) :] if fold else span.ids
        kind: Any = "environment" if fold else span.kind
        plain.add_span(span.parent, kind, ids, logprobs=span.logprobs, entropies=span.entropies)
    return plain


def batch_of(trees: Sequence[RolloutTree]) -> dict[str, Any]:
    """The rows of trees as TRL pads them, with the advantages of their tokens."""
    rolled = RolloutBatch(list(trees))
    rows = range(sum(len(tree.trajectories) for tree in trees))
    lists = rolled.trl_rows(rows)
    ids = columns(*pad(list(zip(lists["prompt_ids"], lists["completion_ids"], strict=True))))
    like = ids["completion_ids"]
    advantages = [
        row for tree in trees for row in token_advantages(tree, [t.reward or 0 for t in tree.trajectories], "soft")
    ]
    batch = ids | {
        "tool_mask": pad_rows(lists["env_mask"], like),
        "advantages": pad_rows(advantages, like.double()),
        "old_per_token_logps": pad_rows(lists["logprobs"], like.double()),
        "num_items_in_batch": torch.tensor(sum(map(sum, lists["env_mask"]))),
    }
    folds = rolled.fold_mask(rows, like.shape[1])
    return batch if folds is None else {**batch, "fold_mask": folds}


def loss_and_gradients(trainer: Any, trees: Sequence[RolloutTree]) -> tuple[float, dict[str, torch.Tensor]]:
    loss = trainer._compute_loss(trainer.model.train(), batch_of(trees))
    loss.backward()
    return loss.item(), gradients(trainer.model)


def assert_same(one: tuple[float, dict[str, torch.Tensor]], other: tuple[float, dict[str, torch.Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-12)
    for name, value in one[1].items():
        torch.testing.assert_close(value, other[1][name], atol=1e-12, rtol=1e-9)
    assert any(value.abs().max() > 1e-4 for value in one[1].values())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_fold_that_leaves_nothing_out_changes_no_gradient(trainer: Any, seed: int, packed: bool) -> None:
    trainer.packs, trainer.loss_type = packed, LOSSES[seed % len(LOSSES)]
    trainer.importance_sampling_level = "sequence" if seed > 3 else "token"
    trees = [random_tree(2 * seed, kept=True), random_tree(2 * seed + 1, kept=True)]
    assert any(span.kind == "fold" for tree in trees for span in tree.spans)
    assert_same(loss_and_gradients(trainer, trees), loss_and_gradients(trainer, [unfolded(tree) for tree in trees]))


@pytest.mark.parametrize("seed", range(6))
def test_packed_equals_flat_with_folds(trainer: Any, seed: int) -> None:
    trainer.loss_type, found = LOSSES[seed % len(LOSSES)], []
    for trainer.packs in (False, True):
        found.append(loss_and_gradients(trainer, [random_tree(seed, kept=False), random_tree(seed + 50, kept=False)]))
    assert_same(*found)


@pytest.mark.parametrize("packed", [False, True])
def test_a_token_is_read_in_the_context_it_was_sampled_from(trainer: Any, packed: bool) -> None:
    trainer.packs = packed
    trees = [random_tree(seed, kept=False) for seed in range(3)]
    batch, seen = batch_of(trees), []
    trainer.logps_seen = lambda logps, inputs: seen.append(logps.detach())
    try:
        trainer._compute_loss(trainer.model, batch)
    finally:
        del trainer.logps_seen
    rows = [(tree, number) for tree in trees for number in range(len(tree.trajectories))]
    for (tree, number), logps in zip(rows, seen[0], strict=True):
        column = 0
        for span in tree.path(number):
            own = logps[column : column + len(span.ids)]
            column += len(span.ids)
            if span.kind == "model":
                before = tree.context(span.parent)
                with torch.no_grad():
                    logits = trainer.model(input_ids=torch.tensor([before + span.ids])).logits[0]
                told = (logits / trainer.temperature).log_softmax(-1)[len(before) - 1 : -1]
                torch.testing.assert_close(own, told.gather(1, torch.tensor(span.ids)[:, None])[:, 0])


def test_rows_that_keep_processes_in_step_change_nothing(trainer: Any) -> None:
    trainer.packs, trainer.loss_type, found = False, "dapo", []
    trees = [random_tree(seed, kept=False) for seed in range(2)]
    for extra in (0, 3):
        trainer._joint_rows = lambda rows, size, extra=extra: rows + extra
        found.append(loss_and_gradients(trainer, trees))
    del trainer._joint_rows
    assert_same(*found)


def test_many_tokens_in_half_precision_are_finite_where_nothing_was_sampled() -> None:
    folds = torch.zeros(2, 40, dtype=torch.long)
    folds[0, 10:20] = 1
    segments = cut_at_folds(torch.ones(2, 42, dtype=torch.long), torch.ones(2, 42, dtype=torch.long), folds)
    joined = segments.join(torch.full((len(segments), segments.width), -2000.0, dtype=torch.float16))
    assert torch.equal(joined, (folds - 1) * torch.tensor(2000.0, dtype=torch.float16))


class Wandering(FoldingPolicy):
    """Thinks something else in each trajectory."""

    def turn(self, text: str, seed: int) -> str:
        return super().turn(text, seed).replace("<think>", f"<think>{seed} ", 1)


@pytest.mark.parametrize("packing", [False, True])
def test_a_run_learns_from_episodes_that_fold(byte_lm: Path, tmp_path: Path, packing: bool) -> None:
    """Two passes over one rollout in TRL's own loop: log pi_old goes the same way as log pi."""
    env, tasks, queries = multihop(folds=1, count=2, level=2, result_characters=300, search_results=2)
    size = {"algorithm": "arpo", "num_generations": 2, "initial_rollouts": 1, "per_device_train_batch_size": 2}
    size |= {"max_completion_length": 3000, "max_turn_length": None, "num_iterations": 2, "max_steps": 2}
    trainer, _ = made(byte_lm, tmp_path, env=env, packing=packing, **size)
    trainer.engine.backend = Wandering(trainer.engine.tokenizer, tasks, queries)
    trainer.train()
    history = trainer.state.log_history
    assert history[0]["arpo/folds"] == 1
    # the first pass has the weights of the rollout, so no ratio is clipped; the second one has others
    assert [entry["clip_ratio/region_mean"] > 0 for entry in history[:2]] == [False, True]
    assert {t.origin for tree in trainer.trees for t in tree.trajectories} >= {"root", "branch"}
