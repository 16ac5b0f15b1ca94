"""Where time went: every second counted once, as work or as waiting; and what the metrics make of it."""

import math

import pytest

from arpo_trainer.rollout.metrics import busy_seconds, concurrency, generating, rollout_metrics, time_use, wall_seconds
from arpo_trainer.tree import Event, RolloutTree, Trajectory
from tests.arpo_trainer.sample_timeline import sample_tree


def timed_tree() -> RolloutTree:
    """A root that waits, generates, forks meanwhile and calls a tool; and its branch."""
    tree = RolloutTree([1, 2], meta={"group": 0})
    span = tree.add_span(None, "model", [3, 4], logprobs=[-1.0, -1.0], entropies=[0.5, 0.5]).index
    result = tree.add_span(span, "environment", [5], tool={"name": "python", "status": "ok", "seconds": 1.5}).index
    tree.trajectories = [Trajectory(result, reward=1.0), Trajectory(result, "branch", 0, result, reward=0.0)]
    tree.timeline = [
        Event(0, "start", 0.0, 1.0, 1.0),
        Event(0, "generate", 1.0, 3.0, 0.5, status="stop", tokens=30, cached=40, context=100),
        Event(0, "fork", 2.0, 3.5),
        Event(0, "tool", 3.5, 6.0, 1.0, "python", "ok"),
        Event(0, "retry", 6.0, 6.5, name="SessionLost"),
        Event(1, "settle", 3.5, 4.0),
        Event(1, "generate", 4.0, 5.0, tokens=10, cached=60, context=100),
        Event(1, "tool", 5.0, 5.1, 0.0, "python", "refused"),
    ]
    return tree


def test_every_second_is_work_or_waiting() -> None:
    use = time_use([timed_tree()])
    assert use.trajectories == 2
    assert use.life == pytest.approx(6.5 + 1.6)
    assert use.waiting == pytest.approx({"start": 1.0, "generate": 0.5, "tool": 1.0, "settle": 0.5})
    assert use.working == pytest.approx({"generate": 2.5, "fork": 0.5, "tool": 1.6, "retry": 0.5})
    assert sum(use.shares().values()) == pytest.approx(1.0)
    assert use.calls == {"python": 1}  # the other was refused
    tree = timed_tree()
    tree.timeline.append(Event(0, "helper", 6.5, 7.0, name="debugger", tokens=5, cached=3, context=9))
    use = time_use([tree])  # tokens are those of the policy
    assert (use.tokens, use.cached, use.context) == (40, 100, 200)
    assert use.working["helper"] == pytest.approx(0.5)


def test_concurrency_counts_what_overlaps() -> None:
    intervals = [(0.0, 2.0), (1.0, 3.0), (3.0, 4.0), (6.0, 7.0), (8.0, 8.0)]
    assert concurrency(intervals) == [(0.0, 1), (1.0, 2), (2.0, 1), (4.0, 0), (6.0, 1), (7.0, 0)]
    assert busy_seconds(intervals) == 5.0


def test_metrics_of_the_timeline() -> None:
    trees = [timed_tree()]
    assert sorted(generating(trees)) == [(1.5, 3.0), (4.0, 5.0)]  # without the time in a queue
    assert wall_seconds(trees) == 6.5
    metrics = rollout_metrics(trees)
    assert metrics["wait/generate"] == pytest.approx(0.25)
    assert metrics["wait/settle"] == pytest.approx(0.25)
    assert metrics["wait_share"] == pytest.approx(3.0 / 8.1)
    assert metrics["model_idle"] == pytest.approx(4.0 / 6.5)
    assert metrics["tokens_per_second"] == pytest.approx(40 / 2.5)
    assert metrics["cache_hits"] == 0.5
    assert metrics["retries"] == 1
    assert (metrics["tool_calls/python"], metrics["tool_seconds/python"]) == (1, pytest.approx(1.6))


def test_failures_are_counted_by_cause() -> None:
    tree = timed_tree()
    tree.trajectories[0].error, tree.trajectories[0].reward = "SessionLost: gone", None
    tree.trajectories[1].reward = None
    metrics = rollout_metrics([tree])
    assert (metrics["invalid"], metrics["invalid/SessionLost"], metrics["invalid/unscored"]) == (2, 1, 1)


@pytest.mark.parametrize("trees", [[], [RolloutTree([1])], [sample_tree()]])
def test_every_number_is_finite(trees: list[RolloutTree]) -> None:
    metrics = rollout_metrics(trees)
    assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in metrics.values())
