"""Runs of a comparison: costs are those of the trees, budgets end runs, and a seed repeats a run."""

from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.tree import RolloutTree, Trajectory
from benchmarks.laboratory.training_run import CostCounter, RunSpec, root_success, training_run, tree_costs

POLICY: dict[str, Any] = {"demonstrations": 32, "batch_size": 8}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARPO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def hand_made() -> RolloutTree:
    """Two roots, and a branch of the first after its first result; a call of the second was refused.

    prompt (5) - a turn (3) - result (4) - answer (2), right
                                         - answer (3), of the branch, wrong
               - a turn (1) - refusal (2) - answer (1), failed
    """
    tree = RolloutTree([1, 2, 3, 4, 5])

    def model(parent: int | None, count: int) -> int:
        return tree.add_span(parent, "model", [7] * count, logprobs=[0.0] * count, entropies=[0.0] * count).index

    def result(parent: int, count: int, status: str) -> int:
        tool = {"name": "go", "status": status, "seconds": 0.0}
        return tree.add_span(parent, "environment", [8] * count, tool=tool).index

    seen = result(model(None, 3), 4, "error")
    refused = result(model(None, 1), 2, "refused")
    tree.trajectories += [
        Trajectory(model(seen, 2), reward=1.0),
        Trajectory(model(seen, 3), "branch", 0, seen, reward=0.0),
        Trajectory(model(refused, 1), outcome="failed"),
    ]
    return tree


def test_costs_of_a_hand_made_tree_are_exact() -> None:
    costs = {"trajectories": 3, "sampled_tokens": 3 + 1 + 2 + 3 + 1, "tool_calls": 1, "update_tokens": 5 + 16}
    assert tree_costs(hand_made()) == costs
    assert tree_costs(hand_made(), packed=False) == {**costs, "update_tokens": 3 * 5 + (9 + 10 + 4)}
    counter = CostCounter({"tool_calls": 3})
    counter.add([hand_made(), hand_made()])
    assert counter.curve == [
        {"step": 1, **{name: 2 * cost for name, cost in costs.items()}, "success": 1.0, "episodes": 2}
    ]
    assert not counter.spent
    counter.add([hand_made()])
    assert counter.spent


def test_only_valid_planned_roots_count_and_each_prompt_the_same() -> None:
    assert root_success([hand_made()]) == (1.0, 1)
    tree = hand_made()
    tree.trajectories[1].origin = "top-up"  # how many there are depends on how the roots fared
    assert root_success([tree]) == (1.0, 1)
    tree.trajectories[1].origin = "root"
    assert root_success([tree, tree, hand_made()]) == (pytest.approx(2 / 3), 5)
    assert root_success([]) == (0.0, 0)


def test_a_run_ends_with_its_budget_and_is_repeatable(tmp_path: Path) -> None:
    options = {"settings": {"num_generations": 4, "initial_rollouts": 2}, "policy": POLICY, "test_tasks": 2}
    specs = [RunSpec("grpo", "grpo", "short", seed, {"trajectories": 24}, groups=2, **options) for seed in (0, 0, 1)]
    first, again, other = (training_run(spec, tmp_path / str(number)) for number, spec in enumerate(specs))
    assert [point["trajectories"] for point in first["curve"]] == [8, 16, 24]
    assert (first["status"], first["final"]["episodes"]) == ("finished", 8)
    assert first["curve"] == again["curve"]
    assert first["final"] == again["final"]
    assert first["curve"] != other["curve"]
