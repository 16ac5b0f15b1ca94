"""`RolloutTree`: what goes in is checked, what comes out is the same, and it survives being written down."""

import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from arpo_trainer import RolloutTree, read_traces, tree_svg, write_traces
from arpo_trainer.rollout.metrics import branch_depth, rollout_metrics
from arpo_trainer.tree import ABANDONED, Decision, Trajectory


def model(tree: RolloutTree, parent: int | None, ids: list[int]) -> int:
    return tree.add_span(parent, "model", ids, logprobs=[-1.0] * len(ids), entropies=[0.5] * len(ids)).index


def small_tree() -> RolloutTree:
    """prompt - model 0 - result 1 -+- model 2 - result 3 - model 4    (root)
                                    +- model 5                         (branch)
    prompt - model 6                                                   (top-up)
    """
    tree = RolloutTree([1, 2, 3], task={"id": "t", "question": "中?", "answers": ["1"], "level": "2"}, meta={"step": 3})
    call = model(tree, None, [10, 11])
    decision = Decision(0.2, 0.1, 0.52, 0.5, 1, "entropy rose")
    tool: dict[str, Any] = {"name": "python", "status": "ok", "seconds": 0.1}
    result = tree.add_span(call, "environment", [20, 21, 22], text="r", decision=decision, tool=tool).index
    second = model(tree, result, [12])
    third = tree.add_span(second, "environment", [23]).index
    tree.trajectories = [
        Trajectory(model(tree, third, [13, 14]), reward=1.0, components={"accuracy": 1.0}, tool_calls=2),
        Trajectory(model(tree, result, [15]), "branch", 0, result, reward=0.0, tool_calls=1),
        Trajectory(model(tree, None, [16, 17]), "top-up", reward=None, error="SessionLost: gone"),
    ]
    return tree


def test_rows_follow_the_paths() -> None:
    tree = small_tree()
    row = tree.row(0)
    assert row.ids == [10, 11, 20, 21, 22, 12, 23, 13, 14]
    assert row.mask == [1, 1, 0, 0, 0, 1, 0, 1, 1]
    assert row.span == [0, 0, 1, 1, 1, 2, 3, 4, 4]
    assert row.logprobs[2:5] == row.entropies[2:5] == [0.0, 0.0, 0.0]
    assert tree.row(1).ids[:5] == row.ids[:5]


def test_abandoned_spans_are_in_one_order_whatever_the_timing() -> None:
    tails = ([31], [32], [32, 33])
    trees = []
    for order in itertools.permutations(range(3)):
        tree = small_tree()
        for number in order:  # the first span is the same in all
            first = model(tree, 1, [30])
            for left in (first, model(tree, first, tails[number])):
                tree.spans[left].mark("refiner", ABANDONED)
        tree.reorder([0, 1, 2])
        trees.append(tree)
    assert len(trees[0].spans) == 7 + 6
    assert all(tree == trees[0] for tree in trees)


def test_one_trajectory_leaves_spans_in_the_order_of_time() -> None:
    tree = RolloutTree([1])
    for ids in ([9], [8], [7]):
        tree.spans[model(tree, None, ids)].mark("backtracer", ABANDONED)
    tree.trajectories = [Trajectory(model(tree, None, [6]))]
    tree.reorder([0])
    assert [span.ids for span in tree.spans] == [[6], [9], [8], [7]]


def test_counts() -> None:
    tree = small_tree()
    assert (tree.unique_tokens(), tree.copied_tokens()) == (12, 17)
    assert tree.leaves_below() == [[0, 1], [0, 1], [0], [0], [0], [1], [2]]
    assert tree.rewards == [1.0, 0.0, None]
    assert tree.starts() == [0, 0, 6]
    assert branch_depth(tree, 1) == 1


def test_it_survives_being_written_down_and_a_broken_line_is_named(tmp_path: Path) -> None:
    trees = [small_tree(), small_tree()]
    path = tmp_path / "traces.jsonl"
    write_traces(path, trees[:1])
    write_traces(path, trees[1:])
    assert list(read_traces(path)) == trees
    path.write_text(small_tree().to_json() + "\n" + '{"spans": 3}\n')
    with pytest.raises(ValueError, match=r"traces\.jsonl, line 2: not a rollout tree"):
        list(read_traces(path))


def test_half_of_a_surrogate_pair_ends_no_run(tmp_path: Path) -> None:
    tree = small_tree()
    tree.task["question"] = "cut \ud83d"
    write_traces(tmp_path / "traces.jsonl", [tree])
    assert [each.task["question"] for each in read_traces(tmp_path / "traces.jsonl")] == ["cut ?"]


def test_bad_spans_are_refused() -> None:
    tree = RolloutTree([1])
    with pytest.raises(ValueError, match="at least one token"):
        model(tree, None, [])
    with pytest.raises(ValueError, match="needs 2 log-probabilities"):
        tree.add_span(None, "model", [1, 2], logprobs=[0.0], entropies=[0.0])


def test_metrics_of_a_rollout() -> None:
    metrics = rollout_metrics([small_tree()])
    # of the root; the branch shares its beginning, and the invalid one has no reward
    assert (metrics["reward"], metrics["accuracy"], metrics["tool_calls"]) == (1.0, 1.0, 2.0)
    assert (metrics["reward_leaves"], metrics["accuracy_leaves"]) == (0.5, 0.5)
    assert (metrics["roots"], metrics["branches"], metrics["top_ups"], metrics["invalid"]) == (1, 1, 1, 1)
    assert metrics["entropy"] == pytest.approx(0.5)
    assert metrics["delta_entropy"] == pytest.approx(0.1)
    assert (metrics["depth"], metrics["tokens_unique"]) == (1, 12)


SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_draws_shared_spans_once_and_its_texts_are_text() -> None:
    tree = small_tree()
    tree.task["question"] = "Is 1 < 2 & 3 > 2?"
    tree.spans[0].text, tree.spans[4].text = "<think>So.</think><python>1 < 2</python>", "<answer>yes</answer>"
    picture = ElementTree.fromstring(tree_svg(tree, width=900))
    boxes = [box for box in picture.iter(f"{SVG}rect") if box.get("class")]
    kinds = ["model", "environment", "model", "environment", "model", "model", "model"]
    assert [box.get("class") for box in boxes] == kinds
    heights = [float(box.get("y", "")) for box in boxes]
    assert [(height - heights[0]) / 34 for height in heights] == [0, 0, 0, 0, 0, 1, 2]  # a row is a trajectory
    assert len(picture.findall(f".//{SVG}path[@class='branch']")) == 1
    texts = {text.text or "" for text in picture.iter(f"{SVG}text")}
    assert {"Is 1 < 2 & 3 > 2?", "1 < 2", "python: r", "yes", "reward 0, branch", "no reward, top-up"} <= texts
