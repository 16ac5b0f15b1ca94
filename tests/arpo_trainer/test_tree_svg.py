"""The picture of a tree: one box per span, a curve to each branch, and text that stays text."""

from typing import Any
from xml.etree import ElementTree

import pytest

from arpo_trainer import RolloutTree, tree_svg
from arpo_trainer.tree import Trajectory

SVG = "{http://www.w3.org/2000/svg}"


def a_tree() -> RolloutTree:
    """Two roots, of which the first calls a tool and has a branch after its result."""
    tree = RolloutTree([1, 2], task={"question": "Is 1 < 2 & 3 > 2?"})

    def turn(parent: int | None, text: str, entropy: float = 0.0) -> int:
        ids = list(range(20))
        return tree.add_span(parent, "model", ids, logprobs=[0.0] * 20, entropies=[entropy] * 20, text=text).index

    call = turn(None, "<think>So.</think><python>1 < 2</python>")
    tool: dict[str, Any] = {"name": "python", "status": "ok", "seconds": 0.1}
    result = tree.add_span(call, "environment", [7] * 20, text="\n<result>\nTrue\n</result>\n", tool=tool).index
    ends = [turn(result, "<answer>yes</answer>", 2.0), turn(None, "<answer>no</answer>"), turn(result, "perhaps")]
    tree.trajectories = [
        Trajectory(ends[0], reward=1.0),
        Trajectory(ends[1], reward=None, error="gone"),
        Trajectory(ends[2], "branch", parent=0, fork_span=result, reward=-1.0),
    ]
    return tree


@pytest.fixture
def picture() -> ElementTree.Element:
    return ElementTree.fromstring(tree_svg(a_tree(), width=900))


def boxes(picture: ElementTree.Element) -> list[ElementTree.Element]:
    return [box for box in picture.iter(f"{SVG}rect") if box.get("class")]


def test_a_shared_span_is_drawn_once_and_rows_are_trajectories(picture: ElementTree.Element) -> None:
    assert [box.get("class") for box in boxes(picture)] == ["model", "environment", "model", "model", "model"]
    first = float(boxes(picture)[0].get("y", ""))
    assert [(float(box.get("y", "")) - first) / 34 for box in boxes(picture)] == [0, 0, 0, 1, 2]


def test_a_curve_leads_to_each_branch(picture: ElementTree.Element) -> None:
    assert len(picture.findall(f".//{SVG}path[@class='branch']")) == 1


def test_texts_are_text_and_say_what_a_trajectory_earned(picture: ElementTree.Element) -> None:
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert {
        "Is 1 < 2 & 3 > 2?",
        "1 < 2",
        "python: True",
        "yes",
        "reward 1, root",
        "no reward, root",
        "reward -1, branch",
    } <= set(texts)
    titles = [title.text for title in picture.iter(f"{SVG}title")]
    assert titles[0] == "model, 20 tokens\n<think>So.</think><python>1 < 2</python>"
