"""Pairs: made of right and wrong trajectories, with the ids and masks of their rows, and read back from files."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.preference.pairs import PairData, PairSettings, PreferencePair, pairs_of_task, read_pairs, write_pairs
from arpo_trainer.tree import RolloutTree
from tests.arpo_trainer.preference.made_trees import random_tree

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


def test_outcomes_of_tasks_are_counted() -> None:
    data, settings = PairData(), PairSettings()
    for rewards in ([1.0, 0.0], [1.0, 1.1], [0.0, -1.0], [None, None]):
        tree = random_tree(random.Random(1), 2)
        for trajectory, reward in zip(tree.trajectories, rewards, strict=True):
            trajectory.reward = reward
        data.add("t", [tree], settings, 0, None)
    assert data.facts()["outcomes"] == {"with pairs": 1, "all right": 1, "all wrong": 1, "nothing scored": 1}
    assert (data.right, data.trajectories) == (3, 6)
    assert data.words() == "1 pairs of 4 tasks: 1 with pairs, 1 all right, 1 all wrong, 1 nothing scored"
    tree.trajectories[0].reward, tree.trajectories[1].reward = 1.0, 0.0
    data.add("t", [tree], settings, 0, 3)
    assert (data.too_long, len(data.pairs)) == (1, 1)


def test_pairs_survive_their_file(tmp_path: Path) -> None:
    pairs = [one for seed in range(50) for one in pairs_of_task(f"ü{seed}", [random_tree(random.Random(seed))], PairSettings())]  # fmt: skip # noqa: E501
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs


ROW = {name: getattr(PAIR, name) for name in PairData.__annotations__ and PreferencePair.__annotations__}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chosen_mask": [1]}, "chosen_mask must have a 0 or a 1 for each of the 2 chosen_ids"),
        ({"rejected_mask": [0]}, "no token of the model"),
        ({"chosen_ids": [3, "4"]}, "chosen_ids must be a list of whole numbers"),
        ({"chosen": "text"}, "expected an object with task, prompt_ids"),
        ({"prompt_ids": []}, "has no prompt"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW, {**ROW, **change})))
    with pytest.raises(ValueError, match=r"pairs\.jsonl, line 2: not a pair of token ids") as found:
        read_pairs(path)
    assert words in str(found.value)
    with pytest.raises(FileNotFoundError, match=r"no file of pairs .*other"):
        read_pairs(tmp_path / "other")
