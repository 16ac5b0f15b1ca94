"""Cuts compute as little as can be, and siblings meet."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from arpo_trainer.packing import Leaves, deal_rows, lay_out, read_leaves, regroup, split_leaves
from tests.arpo_trainer.packing.batches import pad, random_tree


def leaves_of(seed: int, most: int = 7) -> Leaves:
    rng = np.random.default_rng(seed)
    return read_leaves(*pad([([1, 2], row) for row in random_tree(rng, leaves=most)]))


def intervals(count: int) -> Iterator[list[range]]:
    """Every way to cut a sequence."""
    for cuts in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), count]
        yield [range(start, end) for start, end in itertools.pairwise(edges)]


def cost(leaves: Leaves, cuts: list[range]) -> list[int]:
    return [len(lay_out(leaves, cut.start, cut.stop)) for cut in cuts]


@pytest.mark.parametrize("seed", range(12))
def test_no_other_cut_computes_less(seed: int) -> None:
    leaves = leaves_of(seed)
    for budget in (10, 25, 40):
        found = cost(leaves, split_leaves(leaves.lengths, leaves.shared, budget))
        allowed = [
            sizes
            for sizes in (cost(leaves, cuts) for cuts in intervals(len(leaves)))
            if all(size <= max(budget, *leaves.lengths) for size in sizes)
        ]
        alone = max(leaves.lengths) > budget
        assert alone or (sum(found), len(found)) == min((sum(sizes), len(sizes)) for sizes in allowed)


def test_a_leaf_over_the_budget_stands_alone() -> None:
    assert split_leaves([50, 10, 10], [0, 5, 5], 20) == [range(0, 1), range(1, 3)]


def batch(groups: int, size: int, seed: int = 0) -> dict[str, object]:
    """A generation batch of TRL's with some more columns, rows of a group not side by side with their siblings."""
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(groups):
        tree: list[list[int]] = []
        while len(tree) < size:
            tree += random_tree(rng, leaves=size - len(tree))
        rows += [([1, group + 3, 4], tree[i]) for i in rng.permutation(size)]
    ids, mask, keep = pad(rows)
    left = ids.shape[1] - keep
    return {
        "prompt_ids": ids[:, :left],
        "prompt_mask": mask[:, :left],
        "completion_ids": ids[:, left:],
        "completion_mask": mask[:, left:],
        "number": torch.arange(len(rows)),
        "text": [str(i) for i in range(len(rows))],
        "num_items_in_batch": torch.tensor(7),
        "old": None,
    }


def test_groups_stay_together_and_are_shuffled() -> None:
    order = deal_rows(batch(6, 4), torch.Generator().manual_seed(0))
    groups = [set((chunk // 4).tolist()) for chunk in order.split(4)]
    assert all(len(group) == 1 for group in groups)
    assert sorted(order.tolist()) == list(range(24))
    assert groups != sorted(groups, key=min)
    assert torch.equal(order, deal_rows(batch(6, 4), torch.Generator().manual_seed(0)))
    assert not torch.equal(order, deal_rows(batch(6, 4), torch.Generator().manual_seed(1)))


def test_regrouping_moves_whole_rows() -> None:
    whole = batch(2, 4)
    number, text = whole["number"], whole["text"]
    assert isinstance(number, torch.Tensor)
    assert isinstance(text, list)
    parts = [{**whole, "number": number[i : i + 4], "text": text[i : i + 4]} for i in (0, 4)]
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        for part, rows in zip(parts, whole[name].split(4), strict=True):  # type: ignore[attr-defined]
            part[name] = rows
    for part in regroup(parts, torch.Generator().manual_seed(3)):
        numbers = part["number"].tolist()
        assert part["text"] == [str(i) for i in numbers]
        assert torch.equal(part["completion_ids"], whole["completion_ids"][numbers])  # type: ignore[index]
        assert part["num_items_in_batch"] == 7
        assert part["old"] is None
        assert len({i // 4 for i in numbers}) == 1


def test_families_are_not_cut_where_they_fit() -> None:
    """2 + 4 + 2 leaves, cut in two: the four stay together."""
    families = [(3, 2), (4, 4), (5, 2)]
    rows = [([1], [first, 9, 9, 9, 10 + i]) for first, count in families for i in range(count)]
    ids, mask, keep = pad(rows)
    left = ids.shape[1] - keep
    order = deal_rows(
        {
            "prompt_ids": ids[:, :left],
            "prompt_mask": mask[:, :left],
            "completion_ids": ids[:, left:],
            "completion_mask": mask[:, left:],
        },
        torch.Generator(),
    )
    assert sorted(order[:4].tolist()) == [2, 3, 4, 5]
