"""Rows of each format: read, checked, dropped by cause, rewritten in other protocols, and masked."""

import asyncio
import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpo_env import ToolEnv
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Answer, ToolCalls
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.run.arguments import SFTArguments
from arpo_trainer.run.sft_run import write_rows
from arpo_trainer.sft.plain_trace import CAUSES, ModelTurn, ToolResults, Trace, as_messages
from arpo_trainer.sft.trace_data import (
    IGNORED,
    TraceSettings,
    _add_results,
    examples_of,
    read_trace_files,
    read_traces_of,
)
from arpo_trainer.synthesis.sample_checks import training_row
from arpo_trainer.tree import RolloutTree
from tests.arpo_trainer.folding_policy import FoldingPolicy, multihop, play
from tests.arpo_trainer.rollout.test_engine import FindingPolicy, solution
from tests.arpo_trainer.sft.rows import FORMATS, SYSTEM, bytes_of, encoding, episode, tree

PROTOCOLS = ("arpo-tags", "hermes", "llama3")
SCHEMAS = TraceSettings().schemas()


def rows_of(form: str, count: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    return [FORMATS[form](rng) for _ in range(count)]


def read(rows: list[Any], **options: Any) -> Any:
    return read_traces_of(((f"row {number}", row) for number, row in enumerate(rows)), TraceSettings(**options))


def said(trace: Trace, protocol: str) -> tuple[list[tuple[str, str]], list[str], str]:
    """The calls, the results and the answer of a trace, as its protocol reads them."""
    calls, results, answer = [], [], ""
    for turn in trace.turns:
        if isinstance(turn, ToolResults):
            results += turn.texts
            continue
        action = make_protocol(protocol).parse(turn.text, SCHEMAS)
        if isinstance(action, ToolCalls):
            calls += [(call.name, next(iter(call.arguments.values()))) for call in action.calls]
        else:
            assert isinstance(action, Answer)
            answer = action.value
    return calls, results, answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("form", FORMATS)
def test_each_format_has_the_same_calls_results_and_answers_in_each_protocol(form: str, protocol: str) -> None:
    rng = random.Random(3)
    meant = [episode(rng) for _ in range(60)]
    kept = read(rows_of(form, 60, seed=3), protocol=protocol)
    # a row without calls and tags says nothing of its protocol, so its text is no answer in tags
    without = [number for number, (_, calls, *_) in enumerate(meant) if not calls]
    unsure = set(without) if protocol == "arpo-tags" and form in ("messages", "observed") else set()
    assert kept.dropped == ({"no answer": len(unsure)} if unsure else {})
    for trace, (question, calls, _, answer) in zip(
        kept.traces, (one for number, one in enumerate(meant) if number not in unsure), strict=True
    ):
        assert trace.question == question
        found, results, last = said(trace, protocol)
        assert found == [(tool, content) for _, tool, content, _ in calls]
        assert results == [result for *_, result in calls]
        assert last == answer


def test_the_prompt_that_explains_tags_is_replaced_in_native_protocols() -> None:
    given: tuple[Any, ...] = ({}, {"protocol": "hermes"}, {"prompt": "paper"})
    tags, native, paper = (read(rows_of("sharegpt", 1), **options).traces[0].system for options in given)
    assert (tags, paper) == (SYSTEM, make_protocol("arpo-tags").system_prompt(SCHEMAS, "en", "paper"))
    assert native
    assert "<answer>" not in native


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_written_rows_read_back_as_the_same_traces(protocol: str, tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows_of("sharegpt", 40)) + '{"conversations": [{"fro')
    data = write_rows(SFTArguments(data=str(source), protocol=protocol), tmp_path / "out.jsonl")
    with pytest.raises(FileExistsError, match="is there already"):
        write_rows(SFTArguments(data=str(source), protocol=protocol), source)
    assert data.dropped == {"not a row": 1}
    back = read_trace_files([tmp_path / "out.jsonl"], TraceSettings(protocol=protocol))
    assert not back.dropped
    assert [said(trace, protocol) for trace in back.traces] == [said(trace, protocol) for trace in data.traces]
    assert [trace.messages for trace in back.traces] == [trace.messages for trace in data.traces]


# what is done to the model's text of a published row, and the causes that the row may then be dropped for
CORRUPTIONS: dict[str, tuple[Any, set[str]]] = {
    "thought not closed": (lambda text: text.replace("</think>", "", 1), {"call cannot be parsed", "cut off",
                                                                         "tags do not balance"}),
    "thought not opened": (lambda text: "<b>" + text.replace("<think>", "", 1), {"tags do not balance"}),
    "answer removed": (lambda text: text.partition("<answer>")[0], {"no answer"}),
    "answer empty": (lambda text: text.partition("<answer>")[0] + "<answer> </answer>", {"no answer"}),
    "cut in the answer": (lambda text: text.partition("</answer>")[0], {"cut off"}),
    "two answers": (lambda text: text + "<answer>2</answer>", {"answer before the end"}),
    "own result": (lambda text: "<think>a</think><result>\n1\n</result>" + text, {"result without call"}),
    "call in a thought": (lambda text: "<think>a <python>1</python> b</think>" + text, {"call cannot be parsed"}),
    "empty call": (lambda text: "<python></python><result>1</result>" + text, {"call cannot be parsed"}),
    "no result": (lambda text: "<python>1</python>" + text, {"call without result"}),
    "ends with a result": (lambda text: text.partition("<answer>")[0] + "<python>1</python><result>1</result>",
                           {"cut off"}),
}  # fmt: skip
ROWS: dict[str, tuple[Any, str]] = {
    "unknown role": (lambda row: row["conversations"][1].update({"from": "boss"}), "unknown role"),
    "second question": (lambda row: row["conversations"].append({"from": "human", "value": "And?"}), "second question"),
    "no question": (lambda row: row["conversations"].pop(0), "no question"),
    "no turn": (lambda row: row["conversations"].pop(1), "no model turn"),
    "wrong type": (lambda row: row["conversations"][1].update({"value": 3}), "not a row"),
    "no list": (lambda row: row.update({"conversations": "text"}), "not a row"),
}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), kinds=st.lists(st.sampled_from([*CORRUPTIONS, *ROWS, ""]), min_size=1, max_size=8))
def test_corrupted_rows_are_dropped_and_counted_by_cause(seed: int, kinds: list[str]) -> None:
    rows = copy.deepcopy(rows_of("sharegpt", len(kinds), seed))
    for row, kind in zip(rows, kinds, strict=True):
        if kind in CORRUPTIONS:
            row["conversations"][1]["value"] = CORRUPTIONS[kind][0](row["conversations"][1]["value"])
        elif kind:
            ROWS[kind][0](row)
    data = read(rows)
    assert data.rows == len(kinds)
    assert len(data.traces) == kinds.count("")
    allowed = [CORRUPTIONS[kind][1] if kind in CORRUPTIONS else {ROWS[kind][1]} for kind in kinds if kind]
    assert data.dropped.total() == len(allowed)
    assert data.dropped.keys() <= set().union(*allowed) <= CAUSES.keys()
    if not data.traces:
        with pytest.raises(ValueError, match=r"none of .* rows is left"):
            data.require()
    elif allowed:
        with pytest.raises(ValueError, match="strict"):
            data.require(strict=True)


@settings(max_examples=150, deadline=None)
@given(row=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(
    inner, max_size=4) | st.dictionaries(st.sampled_from(["messages", "conversations", "role", "from", "value",
    "content", "tool_calls", "function", "name", "arguments", "spans", "trajectories", "output", "input", "tools"]),
    inner, max_size=5), max_leaves=20))  # fmt: skip
def test_any_row_is_read_or_dropped(row: Any) -> None:
    data = read([row])
    assert data.rows >= 1 or data.dropped == {}
    assert data.dropped.keys() <= CAUSES.keys()


def test_rejection_sampling_keeps_what_scored(tokenizer: Any) -> None:
    rng, encode = random.Random(1), encoding(tokenizer)
    rows = [tree(rng, encode), tree(rng, encode, reward=0.5)]
    rows += [copy.deepcopy(rows[0])]  # the same task once more
    rows[2]["spans"][-2]["text"] = rows[2]["spans"][-2]["text"].replace("Done", "Ready")
    data = read([*rows, rows[0], {"spans": [], "trajectories": [{}]}], max_per_task=1)
    assert data.dropped == {"reward too low": 5, "enough of this task": 1, "duplicate": 1, "not a row": 1}
    (trace,) = data.traces
    (example,) = examples_of(data, Renderer(tokenizer, make_protocol("arpo-tags")), None)
    first = rows[0]
    kept = [span for span in first["spans"] if span["index"] != len(first["spans"]) - 1]
    assert example["input_ids"] == [*first["prompt_ids"], *(number for span in kept for number in span["ids"])]
    assert said(trace, "arpo-tags")[2].isdigit()


@pytest.mark.parametrize("form", ["sharegpt", "messages"])
def test_only_the_model_s_turns_have_labels_and_ids_are_those_of_a_rollout(form: str, tokenizer: Any) -> None:
    renderer = Renderer(tokenizer, make_protocol("arpo-tags"))
    data = read(rows_of(form, 30))
    for trace, example in zip(data.traces, examples_of(data, renderer, None, end_token=False), strict=True):
        ids, labels = example["input_ids"], example["labels"]
        assert all(label in (IGNORED, number) for number, label in zip(ids, labels, strict=True))
        expected = [(number, False) for number in renderer.prompt_ids(trace.messages, SCHEMAS)]
        for turn in trace.turns:
            if isinstance(turn, ModelTurn):
                expected += [(number, True) for number in encoding(tokenizer)(turn.text)]
            else:
                expected += [(number, False) for number in renderer.result_ids(turn.texts, False, SCHEMAS)]
        assert [(number, label != IGNORED) for number, label in zip(ids, labels, strict=True)] == expected
    ended = examples_of(data, renderer, None)
    assert all(example["labels"][-1] == tokenizer.convert_tokens_to_ids("<|im_end|>") for example in ended)


def test_rows_that_are_too_long_are_dropped_whole(tokenizer: Any) -> None:
    data = read(rows_of("sharegpt", 20))
    examples = examples_of(data, Renderer(tokenizer, data.protocol), 90)
    assert 0 < len(examples) == len(data.traces) < 20
    assert data.dropped == {"too long": 20 - len(examples)}
    assert all(len(example["input_ids"]) <= 90 for example in examples)


def test_own_traces_have_a_system_prompt_for_another_tokenizer_and_as_rows(tokenizer: Any) -> None:
    data = read([tree(random.Random(1), bytes_of)])
    (example,) = examples_of(data, Renderer(tokenizer, data.protocol), None)
    opening = data.protocol.system_prompt(SCHEMAS)
    assert opening in tokenizer.decode(example["input_ids"])
    row = as_messages(data.traces[0], data.protocol, SCHEMAS)
    assert row["messages"][0] == {"role": "system", "content": opening}


def test_marks_in_a_result_do_not_tell_the_protocol_of_a_rollout() -> None:
    row = next(made for seed in range(20) if len((made := tree(random.Random(seed), bytes_of))["spans"]) > 3)
    for span in row["spans"]:
        if span["kind"] == "environment":
            span["text"] = "\n<result>\nHermes writes <tool_call> and <tool_response>\n</result>\n"
    assert read([row]).dropped == {"reward too low": 1}


def test_a_rollout_that_reached_the_limit_of_tokens_is_cut_off_in_native_protocols() -> None:
    row = next(made for seed in range(20) if len((made := tree(random.Random(seed), bytes_of))["spans"]) == 2)
    row["spans"][0] |= {"text": "It is \\boxed{4}, sin", "finish": "length"}
    assert read([row], protocol="hermes").dropped == {"cut off": 1, "reward too low": 1}


def test_an_empty_result_between_two_others_is_one_of_them() -> None:
    turns: list[Any] = []
    _add_results(turns, "a\n</tool_response>\n<tool_response>\n\n</tool_response>\n<tool_response>\nb")
    _add_results(turns, "\n<result>\nc\n</result>\n<result>d</result>")
    assert turns == [ToolResults(("a", "", "b", "c", "d"))]


def test_a_long_row_of_results_that_never_end_is_read_in_no_time() -> None:
    began = time.process_time()
    row = {"instruction": "q", "input": "", "output": "<python>1</python><result>" * 20_000}
    assert read([row]).dropped == {"result without call": 1}
    assert time.process_time() - began < 5  # minutes before


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
    twice = RolloutTree.from_json(tree.to_json())
    twice.trajectories *= 2  # rows that two trajectories share are learnt once
    data = read([json.loads(twice.to_json())], min_reward=-1.0, tools=("search",))
    assert (data.rows, dict(data.dropped)) == (8, {"duplicate": 4})
    examples = examples_of(data, Renderer(tokenizer, env.protocol), None)
    path = tree.path(0)
    ends = [path[at - 1] for at, span in enumerate(path) if span.kind == "fold"] + [path[-1]]
    assert [example["input_ids"] for example in examples] == [tree.context(span.index) for span in ends]
    learnt = [label for example in examples for label in example["labels"] if label != IGNORED]
    assert learnt == [token for span in path if span.kind == "model" for token in span.ids]


def test_a_task_has_enough_trajectories_and_not_enough_rows(folded: Any) -> None:
    """Another trajectory, whose memories are others, is left out with all its rows."""
    row = json.loads(folded[0].to_json())
    other = json.loads(json.dumps(row).replace("next hop", "another hop"))
    data = read([row, other], min_reward=-1.0, max_per_task=1)
    assert (len(data.traces), dict(data.dropped)) == (4, {"enough of this task": 4})


@pytest.mark.parametrize("protocol", ["deepagent", "hermes"])
@pytest.mark.parametrize("form", ["sharegpt", "messages"])
def test_rows_with_found_tools_read_back_in_each_protocol(found: Any, protocol: str, form: str) -> None:
    tree, env = found
    [trace] = read([json.loads(tree.to_json())], protocol=protocol, prompt="short", tools=("tool_search",)).traces
    tools = list(env.schemas)
    row = training_row(trace, form, make_protocol(protocol), tools)  # raises if it does not read back
    [again] = read([row], protocol=protocol).traces
    assert "tool_search" in json.dumps(row["tools"])
    assert [type(turn) for turn in again.turns] == [type(turn) for turn in trace.turns]


def test_a_call_of_a_tool_that_no_search_showed_is_dropped(found: Any) -> None:
    row = json.loads(found[0].to_json())
    for span in row["spans"]:
        if (span["tool"] or {}).get("name") == "tool_search":
            span["text"] = "\n<tool_call_result>\nNo tool was found.\n</tool_call_result>\n"
    assert dict(read([row], protocol="deepagent").dropped) == {"call cannot be parsed": 1}
