"""Traces with found tools and with folds: what a rollout sampled is what `arpo sft` learns."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.protocols import make_protocol
from arpo_trainer import RolloutTree
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.trace_data import IGNORED, TraceData, TraceSettings, examples_of, read_traces_of
from arpo_trainer.synthesis.sample_checks import training_row
from tests.arpo_trainer.folding_policy import FoldingPolicy, multihop, play
from tests.arpo_trainer.rollout.test_found_tools import FindingPolicy, solution


def read(tree: RolloutTree, **settings: Any) -> TraceData:
    return read_traces_of([("here", json.loads(tree.to_json()))], TraceSettings(**settings))


@pytest.fixture(scope="module")
def folded(tokenizer: Any) -> tuple[RolloutTree, ToolEnv]:
    """An episode of four hops that folds after each."""
    env, tasks, queries = multihop(folds=3, count=1, result_characters=400, search_results=2, tools=["search"])
    return play(FoldingPolicy(tokenizer, tasks, queries), env, tasks, 4000)[0], env


@pytest.fixture(scope="module")
def found(tokenizer: Any) -> tuple[RolloutTree, ToolEnv]:
    """An episode that finds two tools and calls them."""
    env = ToolEnv("arpo/ToolWorld-v0", level="2", tool_results=3)
    policy = FindingPolicy(tokenizer, solution(env, 0), [0.1] * 5)
    settings = RolloutSettings(num_generations=1, initial_rollouts=1, algorithm="grpo")
    return asyncio.run(Engine(policy, tokenizer, env, settings).rollout([env.tasks.task(0)]))[0], env


def test_each_segment_of_a_folded_trajectory_is_a_row_of_what_was_sampled(folded: Any, tokenizer: Any) -> None:
    tree, env = folded
    data = read(tree, min_reward=-1.0, tools=("search",))
    assert (data.rows, dict(data.dropped)) == (tree.folds(0) + 1, {})
    examples = examples_of(data, Renderer(tokenizer, env.protocol), None)
    path = tree.path(0)
    ends = [path[at - 1] for at, span in enumerate(path) if span.kind == "fold"] + [path[-1]]
    assert [example["input_ids"] for example in examples] == [tree.context(span.index) for span in ends]
    learnt = [label for example in examples for label in example["labels"] if label != IGNORED]
    assert learnt == [token for span in path if span.kind == "model" for token in span.ids]


def test_a_branch_that_folds_later_shares_its_first_rows(folded: Any) -> None:
    tree = RolloutTree.from_json(folded[0].to_json())
    tree.trajectories.append(replace(tree.trajectories[0]))
    data = read(tree, min_reward=-1.0)
    assert (data.rows, dict(data.dropped)) == (8, {"duplicate": 4})


def test_a_task_has_enough_trajectories_and_not_enough_rows(folded: Any) -> None:
    """Another trajectory, whose memories are others, is left out with all its rows."""
    row = json.loads(folded[0].to_json())
    other = json.loads(json.dumps(row).replace("next hop", "another hop"))
    data = read_traces_of([("a", row), ("b", other)], TraceSettings(min_reward=-1.0, max_per_task=1))
    assert (len(data.traces), dict(data.dropped)) == (4, {"enough of this task": 4})


def test_where_all_rewards_are_too_low_the_limit_is_the_cure(folded: Any) -> None:
    with pytest.raises(ValueError, match="Lower min_reward"):
        read(folded[0], min_reward=9.0).require()


def test_calls_of_found_tools_are_learnt_as_they_were_sampled(found: Any, tokenizer: Any) -> None:
    tree, env = found
    data = read(tree, protocol="deepagent")
    assert (len(data.traces), dict(data.dropped)) == (1, {})
    [example] = examples_of(data, Renderer(tokenizer, env.protocol), None)
    assert example["input_ids"] == tree.context(tree.path(0)[-1].index)


@pytest.mark.parametrize("protocol", ["deepagent", "hermes"])
@pytest.mark.parametrize("form", ["sharegpt", "messages"])
def test_rows_with_found_tools_read_back_in_each_protocol(found: Any, protocol: str, form: str) -> None:
    tree, env = found
    [trace] = read(tree, protocol=protocol, prompt="short", tools=("tool_search",)).traces
    tools = list(env.schemas)
    row = training_row(trace, form, make_protocol(protocol), tools)  # raises if it does not read back
    [again] = read_traces_of([("row", row)], TraceSettings(protocol=protocol)).traces
    assert "tool_search" in json.dumps(row["tools"])
    assert [type(turn) for turn in again.turns] == [type(turn) for turn in trace.turns]


def test_a_call_of_a_tool_that_no_search_showed_is_dropped(found: Any) -> None:
    row = json.loads(found[0].to_json())
    for span in row["spans"]:
        if (span["tool"] or {}).get("name") == "tool_search":
            span["text"] = "\n<tool_call_result>\nNo tool was found.\n</tool_call_result>\n"
    data = read_traces_of([("here", row)], TraceSettings(protocol="deepagent"))
    assert dict(data.dropped) == {"call cannot be parsed": 1}
