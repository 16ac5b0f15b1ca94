"""Folds in rollouts: what the model goes on from, forks on both sides, broken memories, and what traces keep."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_trainer import RolloutTree
from arpo_trainer.rollout.live_trajectory import PlayedTurn, replay
from tests.arpo_trainer.folding_policy import FoldingPolicy, fold_call, memory, multihop, play

WINDOW = 4300
BRANCHING = {"algorithm": "arpo", "num_generations": 4, "initial_rollouts": 2}


@pytest.fixture(scope="module")
def folded(byte_tokenizer: Any) -> tuple[list[RolloutTree], FoldingPolicy]:
    """Trees of four hops that branch and fold, and the policy that played them."""
    env, tasks, queries = multihop(folds=3)
    policy = FoldingPolicy(byte_tokenizer, tasks, queries)
    return play(policy, env, tasks, WINDOW, **BRANCHING), policy


def test_answers_stay_in_reach_three_windows_away(byte_tokenizer: Any) -> None:
    env, tasks, queries = multihop(folds=3)
    trees = play(FoldingPolicy(byte_tokenizer, tasks, queries), env, tasks, WINDOW)
    for tree in trees:
        written = sum(len(span.ids) for span in tree.spans if span.kind != "fold")
        assert written >= 3 * WINDOW
        assert tree.folds(0) == 3
        assert max(len(tree.context(span.index)) for span in tree.spans) <= len(tree.prompt_ids) + WINDOW
    assert [tree.trajectories[0].components["accuracy"] for tree in trees] == [1.0] * len(tasks)
    env, tasks, queries = multihop(folds=0)
    plain = play(FoldingPolicy(byte_tokenizer, tasks, queries, folds=False), env, tasks, WINDOW)
    assert [tree.trajectories[0].components["accuracy"] for tree in plain] == [0.0] * len(tasks)


def test_the_model_goes_on_from_the_question_and_the_memories_alone(folded: Any) -> None:
    trees, policy = folded
    contexts = {tuple(tree.context(None)) for tree in trees}
    contexts |= {tuple(tree.context(span.index)) for tree in trees for span in tree.spans if span.kind != "model"}
    assert {request.ids for request in policy.seen} == contexts
    fold = next(span for span in trees[0].spans if span.kind == "fold")
    assert trees[0].context(fold.index) == fold.ids
    assert trees[0].task["question"] in fold.text
    assert json.dumps(fold.tool["memory"]["episodic"]) in fold.text


def test_branches_start_on_both_sides_of_a_fold(folded: Any) -> None:
    trees, policy = folded
    env, tasks, queries = multihop(folds=3)
    after = FoldingPolicy(policy.tokenizer, tasks, queries, unsure="[assistant] ")
    for some, kind in ((trees, "environment"), (play(after, env, tasks, WINDOW, **BRANCHING), "fold")):
        forks = [tree.spans[t.fork_span] for tree in some for t in tree.trajectories if t.fork_span is not None]
        assert {span.kind for span in forks} == {kind}
        assert all(t.valid and t.components["accuracy"] == 1.0 for tree in some for t in tree.trajectories)


def test_traces_keep_folds_and_rows_mask_them(folded: Any) -> None:
    for tree in folded[0]:
        assert RolloutTree.from_json(tree.to_json()) == tree
        for number in range(len(tree.trajectories)):
            row = tree.row(number)
            marked = [own for own, fold in zip(row.mask, row.fold, strict=True) if fold]
            assert sum(marked) == 0
            assert len(marked) == sum(len(span.ids) for span in tree.path(number) if span.kind == "fold")


OLD = """{"prompt_ids":[1,2],"spans":[{"index":0,"parent":null,"kind":"model","ids":[3],"logprobs":[-0.1],
"entropies":[0.5],"text":"a","finish":"stop","tool":null,"decision":null}],"trajectories":[{"leaf":0,"origin":"root",
"parent":null,"fork_span":null,"reward":1.0,"components":{},"outcome":"truncated","error":null,"answer":null,
"tool_calls":0}],"task":{},"prompt":"p","meta":{},"timeline":[]}"""


def test_an_old_trace_loads() -> None:
    tree = RolloutTree.from_json(OLD.replace("\n", ""))
    assert RolloutTree.from_json(tree.to_json()) == tree
    assert "fold" not in tree.to_json()
    assert (tree.folds(0), tree.row(0).fold, tree.context(0)) == (0, [0], [1, 2, 3])


class Script(FoldingPolicy):
    """Writes given turns, whatever it reads."""

    turns: Sequence[str] = ()

    def turn(self, text: str, seed: int) -> str:
        return self.turns[min(len(self.seen), len(self.turns)) - 1]


def scripted(byte_tokenizer: Any, turns: Sequence[str], window: int = WINDOW) -> RolloutTree:
    env, tasks, queries = multihop(folds=1, count=1)
    policy = Script(byte_tokenizer, tasks, queries)
    policy.turns = turns
    return play(policy, env, tasks, window)[0]


ANSWER = "<think>a</think><answer>\\boxed{1}</answer>"
GOOD = memory(1, "q")


def test_memories_that_leave_no_room_are_refused(byte_tokenizer: Any) -> None:
    long = fold_call(memory(60, "q"))  # the new prompt has white space in its JSON, so it is longer
    tree = scripted(byte_tokenizer, [long, ANSWER], window=len(long) + 300)
    assert [span.kind for span in tree.path(0)] == ["model", "environment", "model"]
    assert "do not fit into the context" in tree.spans[1].text
    assert tree.trajectories[0].outcome == "answered"


def test_a_lost_environment_is_replayed_with_its_folds() -> None:
    env, [task], _ = multihop(folds=2, count=1)
    history = []
    env.reset(options={"task": task})
    for turn, withheld in ((fold_call(GOOD), True), ("<search>a</search>", False), (fold_call(GOOD), False)):
        result, *_ = env.step(turn)
        if withheld:
            env.withhold_result()
            result = env.episode.turns[-1].result
        history.append(PlayedTurn(turn, 4000, result, withheld))
    again = env.spawn()
    asyncio.run(replay(again, task, history))
    assert [turn.memory for turn in again.episode.turns] == [None, None, GOOD]
    assert again.context() == env.context()
    assert [call.status for turn in again.episode.turns for call in turn.calls] == ["error", "ok", "ok"]


def test_an_episode_is_replayed_whose_refused_memories_left_no_room_to_say_so() -> None:
    env, [task], _ = multihop(folds=2, count=1)
    env.reset(options={"task": task})
    env.step(fold_call(GOOD))
    assert env.withhold_result() != env.withhold_result()  # a shorter notice
    again = env.spawn()
    asyncio.run(replay(again, task, [PlayedTurn(fold_call(GOOD), 4000, env.episode.turns[-1].result, withheld=True)]))
    assert again.episode.turns[0].memory is None
