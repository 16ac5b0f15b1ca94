"""Tools at inference time in trees that branch: each path is one that its tools allow, and timing decides nothing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from arpo_trainer.inference_tools import TOOLS, InferenceSettings
from arpo_trainer.report.html_report import tree_svg
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import ABANDONED, FAILED, REWRITTEN, WORKED, RolloutTree
from benchmarks.ray_world import without_times
from envs_registry import Task
from tests.arpo_trainer.inference_tools.scripted_samples import ScriptedHelper, ScriptedTurns, play, toy_env
from tests.arpo_trainer.inference_tools.test_random_traces import check, random_reply, tagged_turn

TOOLS_ONCE = InferenceSettings(debugger=1, backtracer=1, refiner=1, refine_above=150)
TASKS = [Task(f"t{n}", f"What is {n} + {n}?", (str(2 * n),), kind="math") for n in range(12)]


def grown(algorithm: str, tokenizer: Any, pace: int) -> tuple[list[RolloutTree], ScriptedTurns]:
    policy = ScriptedTurns(
        tokenizer, lambda request: tagged_turn(random.Random(request.seed)), pace=random.Random(pace)
    )
    helper = ScriptedHelper(lambda prompt, seed: random_reply(prompt, random.Random(seed)))
    env = toy_env(max_turns=8, max_tool_calls=5)
    size = {"num_generations": 6, "initial_rollouts": 2, "max_completion_length": 400}
    return play(env, policy, helper, TASKS, TOOLS_ONCE, algorithm=algorithm, **size), policy


@pytest.mark.parametrize("algorithm", ["arpo", "aepo", "benchmarks.laboratory.paper_rows:treerl"])
def test_a_tree_stays_one(algorithm: str, tokenizer: Any) -> None:
    trees, policy = grown(algorithm, tokenizer, pace=1)
    env, used, shared = toy_env(), Counter[str](), 0
    renderer = Renderer(tokenizer, env.protocol)
    for tree in trees:
        below = tree.leaves_below()
        for span, leaves in zip(tree.spans, below, strict=True):
            assert bool(leaves) != span.has_outcome(ABANDONED)
            assert span.parent is None or span.parent < span.index
        for number in range(len(tree.trajectories)):
            assert tree.trajectories[number].valid
            check(tree, renderer, env.schemas, number)
            marks = [mark for span in tree.path(number) for mark in span.interventions or ()]
            once = Counter(mark["tool"] for mark in marks if mark["outcome"] in (WORKED, FAILED))
            assert max(once.values(), default=0) <= 1
            used.update(once)
        shared += sum(
            len(leaves) > 1 and bool(span.interventions) for span, leaves in zip(tree.spans, below, strict=True)
        )
        assert RolloutTree.from_json(tree.to_json()) == tree
        tree_svg(tree)
    assert all(used[tool] > 5 for tool in TOOLS), used
    assert any(trajectory.origin == "branch" for tree in trees for trajectory in tree.trajectories)
    assert shared
    assert any(span.has_outcome(REWRITTEN) for tree in trees for span in tree.spans)
    rollout_metrics(trees)
    before = [(tree, at) for tree in trees for at in (None, *(s.index for s in tree.spans if s.kind == "environment"))]
    contexts = {(*tree.context(at),) for tree, at in before}
    assert {request.ids for request in policy.seen} <= contexts
    for one, other in zip(trees, grown(algorithm, tokenizer, pace=2)[0], strict=True):
        assert without_times(one) == without_times(other)
