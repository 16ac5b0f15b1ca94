"""Trees as the published methods grow them, by the real engine: complete, without leaks, exact in their costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, RolloutSettings, RolloutTree
from arpo_trainer.algorithms.branching import BRANCHES, RANKED, BranchMethod, BranchSettings, entropy_level
from arpo_trainer.algorithms.registry import ALGORITHMS, get_algorithm
from arpo_trainer.tree import Decision, Span
from tests.arpo_trainer.rollout.test_rollouts import families, make_env, play

NEW = ["spread", "vine", "treerl", "at2po", "treepo", "arpo-turn-end"]


@pytest.fixture
def open_envs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the environments that are made and closed."""
    counts = Counter[str]()
    spawn, fork, close = ToolEnv.spawn, ToolEnv.afork, ToolEnv.aclose
    closed: set[int] = set()

    def spawned(self: ToolEnv) -> ToolEnv:
        counts.update(open=1, made=1)
        return spawn(self)

    async def forked(self: ToolEnv, n: int) -> list[ToolEnv]:
        counts.update(open=n, made=n)
        return await fork(self, n)

    async def gone(self: ToolEnv) -> None:
        counts["open"] -= id(self) not in closed
        closed.add(id(self))
        kept.append(self)  # so that no other environment gets its id
        await close(self)

    kept: list[ToolEnv] = []
    for name, function in (("spawn", spawned), ("afork", forked), ("aclose", gone)):
        monkeypatch.setattr(ToolEnv, name, function)
    return counts


def grow(tokenizer: Any, branch: str, **settings: Any) -> list[RolloutTree]:
    return play(tokenizer, groups=1, env=make_env(), branch=branch, **settings)


@pytest.mark.parametrize("branch", NEW)
def test_groups_are_complete_within_their_quota_and_leave_nothing_open(
    tokenizer: Any, branch: str, open_envs: Counter[str]
) -> None:
    for seed in range(2):
        (tree,) = grow(tokenizer, branch, branch_width=3, seed=seed)
        assert len(tree.trajectories) == 8
        assert open_envs["open"] == 0
        assert open_envs["made"] >= 8 * (seed + 1)
        assert not BRANCHES[branch].quota or max(families(tree).values()) <= 2
        places = Counter(trajectory.fork_span for trajectory in tree.trajectories if trajectory.origin == "branch")
        decided = {span.index: span.decision.branches for span in tree.spans if span.decision}
        assert {place: count for place, count in decided.items() if count} == dict(places)
        if BRANCHES[branch].roots_only:
            origins = [tree.trajectories[t.parent].origin for t in tree.trajectories if t.parent is not None]
            assert set(origins) <= {"root"}


def test_spread_places_its_forks_evenly(tokenizer: Any) -> None:
    (tree,) = grow(tokenizer, "spread", branch_width=4, num_generations=12, branch_quota=0)
    roots = [number for number, trajectory in enumerate(tree.trajectories) if trajectory.origin == "root"]
    counts = [span.decision.branches for number in roots for span in tree.path(number) if span.decision]
    assert sum(counts) == 9
    assert max(counts) - min(counts) <= 1


def test_candidates_tell_how_their_paths_went_on(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Decision] = []

    def spy(points: Sequence[Decision], settings: BranchSettings) -> list[float]:
        if not seen:
            seen.extend(points)
        return [point.uniform for point in points]

    def everywhere(point: Decision, settings: BranchSettings) -> Decision:
        return point.scored(0.0, 0.0, True, RANKED)

    monkeypatch.setitem(BRANCHES, "spy", BranchMethod(everywhere, best=True, rank=spy))
    (tree,) = grow(tokenizer, "spy")
    expected = []
    for number, trajectory in enumerate(tree.trajectories):
        if trajectory.origin == "root":
            path = tree.path(number)
            expected += [told(path, place) for place in range(len(path)) if path[place].decision]
    assert expected
    found = [(point.later, point.entropy, point.branches) for point in seen]
    assert sorted(found) == sorted(expected)


def told(path: list[Span], place: int) -> tuple[Any, ...]:
    """What a candidate says of the point after this span of a path."""
    decision = path[place].decision
    assert decision is not None
    return tuple(tuple(span.logprobs) for span in path[place + 1 :] if span.kind == "model"), decision.entropy, 0


def levels(tree: RolloutTree, span: Span) -> tuple[float, float]:
    """H of the first turn of a result's path and of the turn before it."""
    turns = [step for step in tree.path_to(span.index) if step.kind == "model"]
    return entropy_level(turns[0].entropies), entropy_level(turns[-1].entropies)


def test_the_rise_may_be_measured_against_the_turn_before(tokenizer: Any) -> None:
    for baseline in ("root", "previous"):
        (tree,) = grow(tokenizer, "arpo", branch_baseline=baseline, branch_alpha=0.6)
        points = [span for span in tree.spans if span.decision]
        assert any(tree.trajectories[0].leaf != span.index for span in points)
        for span in points:
            compared = levels(tree, span)[baseline == "previous"]
            assert span.decision is not None
            assert span.decision.delta == pytest.approx(span.decision.entropy - compared)


def test_the_turn_before_the_result_may_be_measured(tokenizer: Any) -> None:
    (tree,) = grow(tokenizer, "arpo-turn-end", branch_alpha=0.6)
    points = [(span, span.decision) for span in tree.spans if span.decision]
    assert points
    for span, decision in points:
        first, before = levels(tree, span)
        assert decision.entropy == pytest.approx(before)
        assert decision.delta == pytest.approx(before - first)


def test_settings_that_say_nothing_to_a_branch_method_are_refused() -> None:
    with pytest.raises(ValueError, match=r"branch_baseline must be one of 'root', 'previous'; not 'rot'.*'root'"):
        RolloutSettings(branch_baseline="rot")
    with pytest.raises(ValueError, match="branch_baseline='previous' does not go with branch 'arpo-reference'"):
        RolloutSettings(branch="arpo-reference", branch_baseline="previous")


def test_an_algorithm_has_its_own_attribution_unless_another_is_given(tmp_path: Path) -> None:
    def attribution(**given: Any) -> str | None:
        args = ARPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **given)
        return args.attribution

    assert attribution() == "soft"
    assert attribution(algorithm="at2po") == ALGORITHMS["at2po"].attribution == "at2po"
    assert attribution(algorithm="at2po", attribution="hard") == "hard"
    assert get_algorithm("at2po", branch="spread").attribution == "at2po"
