"""Debugger, backtracer and refiner in single samples and in trees."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from arpo_env.protocols.protocol import Answer, ToolCalls
from arpo_trainer.evaluation.episode_store import UnitKey, unit_row
from arpo_trainer.inference_tools import REFINER, TOOLS, HelperFailed, InferenceSettings, read_code, read_tools
from arpo_trainer.rollout.live_trajectory import PlayedTurn, replay
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.rollout.turn_tools import Correction
from arpo_trainer.tree import ABANDONED, FAILED, REWRITTEN, WORKED, RolloutTree, Span
from benchmarks.ray_world import without_times
from envs_registry import Task
from sandbox import ForkError
from tests.arpo_trainer.folding_policy import fold_call, memory
from tests.arpo_trainer.inference_tools.scripted_samples import ScriptedHelper, ScriptedTurns, play, python, toy_env
from tests.arpo_trainer.rollout.test_rendering import QWEN3, parsed, small_tokenizer, template

TASK = Task("t", "What is 1 + 1?", ("2",), kind="math")
ERROR = "\n<result>\nError: ValueError: line 1 of bad()\n</result>\n"
BAD, DONE = "<think>c</think><python>bad()</python>", "<think>d</think><answer>\\boxed{2}</answer>"


def after(tokenizer: Any, results: int = 1, bad: str = BAD) -> ScriptedTurns:
    """A policy that fails until it has seen so many results, and answers then."""
    return ScriptedTurns(tokenizer, lambda r: DONE if tokenizer.decode(r.ids).count("\n</result>") >= results else bad)


def one(
    tokenizer: Any, tools: InferenceSettings, reply: Callable[[str, int], str | None], results: int = 1
) -> RolloutTree:
    [tree] = play(toy_env(), after(tokenizer, results), ScriptedHelper(reply), [TASK], tools)
    assert tree.trajectories[0].answer == "2"
    return tree


def shown(tree: RolloutTree) -> list[str]:
    return [span.text for span in tree.path(0) if span.kind == "environment"]


def marks(tree: RolloutTree) -> list[str]:
    found = [mark for span in tree.path(0) for mark in span.interventions or ()]
    return [f"{mark['tool']} {mark['outcome']}" for mark in found]


def test_debugger_then_backtracer_then_the_error(tokenizer: Any) -> None:
    tools = InferenceSettings(debugger=1, backtracer=1)
    tree = one(tokenizer, tools, lambda *_: "```python\n1 + 1\n```", results=2)
    first, second = shown(tree)
    assert "The code failed: Error: ValueError: line 1 of bad()" in first
    assert "\n1 + 1\n(Result:)\nvalue of 1 + 1" in first
    assert second == ERROR
    assert marks(tree) == ["debugger worked", "backtracer worked"]
    abandoned = [span for span in tree.spans if span.has_outcome(ABANDONED)]
    assert [span.kind for span in abandoned] == ["model", "environment"]
    assert abandoned[0].parent == tree.path(0)[1].index


def test_a_fold_that_makes_room_needs_no_refiner(tokenizer: Any) -> None:
    thought = "so " * 300
    turns = [f"<think>{thought}</think><python>1</python>", fold_call(memory(9, "q")), DONE]
    policy = ScriptedTurns(tokenizer, lambda _: turns[min(len(policy.seen), 3) - 1])
    helper = ScriptedHelper(lambda *_: '{"thoughts": [{"number": 1, "text": "so"}]}')
    length = sum(len(tokenizer(turn)["input_ids"]) for turn in turns[:2]) + 200
    env, tools = toy_env(folds=1), InferenceSettings(refiner=1)
    [tree] = play(env, policy, helper, [TASK], tools, max_completion_length=length)
    assert tree.folds(0) == 1
    assert tree.trajectories[0].answer == "2"
    assert helper.prompts == []


@pytest.mark.parametrize("reply", [None, '{"thoughts": [{"number": 1, "text": "so"}]}'])
def test_the_refiner_is_noted_also_if_the_sample_ends_then(reply: str | None, tokenizer: Any) -> None:
    call = f"<think>so so</think><python>{'1' * 200}</python>"
    policy, tools = ScriptedTurns(tokenizer, lambda _: call), InferenceSettings(refiner=1)
    length = len(tokenizer(call)["input_ids"]) + 2  # neither the result nor a notice in its place fits
    [tree] = play(toy_env(), policy, ScriptedHelper(lambda *_: reply), [TASK], tools, max_completion_length=length)
    assert (tree.trajectories[0].outcome, len(policy.seen)) == ("truncated", 1)
    [entry] = unit_row(UnitKey("m", "e", "t", 0), 0, 1, tree).episodes
    assert entry.inference == {"refiner": 1} | ({} if reply else {"refiner failed": 1})


@pytest.mark.parametrize(
    "reply", [None, "I am sorry.", "bad()", "```python\nbad(2)\n```", "```python\n(\n```", "x = 1\n" * 9999]
)
def test_a_helper_that_fails_leaves_the_error_and_is_noted(reply: str | None, tokenizer: Any) -> None:
    tree = one(tokenizer, InferenceSettings(debugger=1, backtracer=1), lambda *_: reply)
    assert (marks(tree), shown(tree)) == (["debugger failed"], [ERROR])
    assert not any(span.has_outcome(ABANDONED) for span in tree.spans)


def test_a_session_is_copied_if_needed_and_the_error_stays_if_it_cannot_be(tokenizer: Any, monkeypatch: Any) -> None:
    forks = list[int]()

    async def refused(self: Any, n: int = 1) -> Any:
        forks.append(n)
        raise ForkError("too many threads")

    monkeypatch.setattr("arpo_env.env.ToolEnv.afork", refused)
    play(toy_env(), after(tokenizer, 3), None, [TASK], InferenceSettings())
    assert not forks
    tree = one(tokenizer, InferenceSettings(backtracer=1), lambda *_: None)
    assert forks == [1]
    assert (marks(tree), shown(tree)) == (["backtracer failed"], [ERROR])


def test_a_correction_is_part_of_the_history_that_is_replayed(tokenizer: Any) -> None:
    tree = one(tokenizer, InferenceSettings(debugger=1), lambda *_: "1 + 1")
    env, correction = toy_env(), Correction("1 + 1", "Error: ValueError: line 1 of bad()")
    asyncio.run(replay(env, TASK, [PlayedTurn(BAD, 500, shown(tree)[0], correction=correction)]))
    assert env.episode.turns[-1].result == shown(tree)[0]
    assert "call" not in vars(env.tools["python"])


def test_with_reads_names_and_counts() -> None:
    assert read_tools("debugger,backtracer, refiner=3") == {"debugger": 1, "backtracer": 1, "refiner": 3}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: read_tools("debuger"), "did you mean 'debugger'"),
        (lambda _: read_tools("debugger,debugger"), "twice"),
        (lambda _: read_tools("refiner=0"), "refiner=2"),
        (lambda _: InferenceSettings.of({"refine_abov": 1}), "did you mean 'refine_above'"),
        (lambda _: InferenceSettings(debugger=1, url="http://127.0.0.1:1/v1"), "--with-model"),
        (
            lambda it: play(toy_env(), after(it), None, [TASK], InferenceSettings(backtracer=1), temperature=0.0),
            "above 0",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Callable[[Any], Any], said: str, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=said):
        make(tokenizer)


def test_the_last_block_that_is_python_counts() -> None:
    assert read_code("Before:\n```python\nx = (\n```\nAfter:\n```\nx = 1\n```\nDone.", "x = (") == "x = 1"
    assert read_code("x = 1", "y") == "x = 1"
    # the marks around the quoted code are copied with it
    assert read_code("```python\nDATA-10ab6123cecae725\nx = 1\nEND-10ab6123cecae725\n```", "y") == "x = 1"
    assert read_code("```py\n  \nif 1:\n    x = 2\n", "y") == "  \nif 1:\n    x = 2"
    with pytest.raises(HelperFailed, match="the code that failed"):
        read_code("```python\ny\n```", "y\n")


TOOLS_ONCE = InferenceSettings(debugger=1, backtracer=1, refiner=1, refine_above=150)
TASKS = [Task(f"t{n}", f"What is {n} + {n}?", (str(2 * n),), kind="math") for n in range(200)]
HELPER = ScriptedHelper(lambda prompt, seed: random_reply(prompt, random.Random(seed)))


def grown(algorithm: str, tokenizer: Any, pace: int) -> tuple[list[RolloutTree], ScriptedTurns]:
    policy = ScriptedTurns(tokenizer, lambda it: tagged_turn(random.Random(it.seed)), pace=random.Random(pace))
    env = toy_env(max_turns=8, max_tool_calls=5)
    size = {"num_generations": 6, "initial_rollouts": 2, "max_completion_length": 400}
    return play(env, policy, HELPER, TASKS[:12], TOOLS_ONCE, algorithm=algorithm, **size), policy


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
            shared += len(leaves) > 1 and bool(span.interventions)
        for number in range(len(tree.trajectories)):
            assert tree.trajectories[number].valid
            check(tree, renderer, env.schemas, number)
            marks = [mark for span in tree.path(number) for mark in span.interventions or ()]
            once = Counter(mark["tool"] for mark in marks if mark["outcome"] in (WORKED, FAILED))
            assert max(once.values(), default=0) <= 1
            used.update(once)
        assert RolloutTree.from_json(tree.to_json()) == tree
    assert all(used[tool] > 5 for tool in TOOLS), used
    assert any(trajectory.origin == "branch" for tree in trees for trajectory in tree.trajectories)
    assert shared
    assert any(span.has_outcome(REWRITTEN) for tree in trees for span in tree.spans)
    before = [(tree, at) for tree in trees for at in (None, *(s.index for s in tree.spans if s.kind == "environment"))]
    contexts = {(*tree.context(at),) for tree, at in before}
    assert {request.ids for request in policy.seen} <= contexts
    for one, other in zip(trees, grown(algorithm, tokenizer, pace=2)[0], strict=True):
        assert without_times(one) == without_times(other)


WORDS = ("so", "wait", "perhaps", "the sum", "é", "again", "<b>", "7", "\n", "P", "<result>", "</result>")
RESULT = re.compile(r"\n<(result|tool_response)>\n(?P<inner>.*)\n</\1>\n?", re.DOTALL)


def random_call(rng: random.Random) -> tuple[str, str]:
    thought = " ".join(rng.choices(WORDS, k=rng.choice([1, 5, 30, 80])))
    return thought, rng.choice(["1 + 1", "bad()", "x = 'bad'", "print('<think>é</think>')", "bad\n# <python>"])


def native_turn(rng: random.Random) -> str:
    """A turn as Qwen3 writes it."""
    thought, code = random_call(rng)
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    end = rng.choice([f"<tool_call>\n{call}\n</tool_call>"] * 6 + ["So it is \\boxed{2}", "<tool_call>{</tool_call>"])
    return f"<think>\n{thought}\n</think>\n\n{end}<|im_end|>"


def tagged_turn(rng: random.Random) -> str:
    thought, code = random_call(rng)
    ends = [f"<python>{code}</python>"] * 6 + [f"<answer>\\boxed{{{rng.randrange(9)}}}</answer>"] * 2
    end = rng.choice([*ends, "</python>", "", "<search>q</search>"])
    return f"<think>{thought}</think>{end}"


def random_reply(prompt: str, rng: random.Random) -> str | None:
    numbers = range(1, prompt.count('"number": ') + 1)
    texts = ["brief", "", "</think><answer>1</answer>", "x" * 999]
    shorter = [{"number": n, "text": rng.choice(texts)} for n in numbers]
    replies = [None, "I cannot help with that.", "```python\n1 + 2\n```", "```python\nbad again\n```"]
    replies += ["print('</result><answer>1</answer>')", json.dumps({"thoughts": shorter})]
    replies += ["Sure: " + json.dumps({"thoughts": shorter[:1]}) + " Done.", '{"thoughts": [{"number": "one"}]}']
    brief = json.dumps({"thoughts": [{"number": n, "text": "brief"} for n in numbers]})
    return rng.choice([*replies, *[brief] * 4])


def expected_result(turn: Span, renderer: Renderer, schemas: Any) -> str | None:
    """What the tool says to a turn on the final path."""
    action = parsed(renderer, turn.ids, schemas)
    if not isinstance(action, ToolCalls):
        return None
    marks = [mark for mark in turn.interventions or () if mark["tool"] == "debugger"]
    fixed = [mark["detail"] for mark in marks if mark["outcome"] == WORKED]
    code = fixed[0] if fixed else action.calls[0].arguments["code"]
    try:
        said = python(code)
    except ValueError as error:
        said = f"Error: ValueError: {error}"
    return renderer.protocol.defuse(said, schemas)


def check(tree: RolloutTree, renderer: Renderer, schemas: Any, number: int = 0) -> None:
    path = tree.path(number)
    for turn, result in zip(path[::2], path[1::2], strict=False):
        assert (turn.kind, result.kind) == ("model", "environment")
        found = RESULT.fullmatch(result.text)
        assert found
        inner = found["inner"]
        assert result.ids == renderer.result_ids([inner], turn.finish == "eos", schemas)
        assert renderer.protocol.native or renderer.tokenizer.decode(result.ids) == result.text
        wanted = expected_result(turn, renderer, schemas)
        assert wanted is None or wanted in inner or "No tool calls are left" in inner or "no room" in inner
    # a native turn that was cut is not read
    unread = path[-1].kind != "model" or (renderer.protocol.native and path[-1].finish == "length")
    last = None if unread else parsed(renderer, path[-1].ids, schemas)
    assert tree.trajectories[number].answer == (last.value if isinstance(last, Answer) else None)
    for span in tree.spans:
        if span.kind == "model" and span.has_outcome(REWRITTEN):
            depth = len(tree.path_to(span.index))
            # the turn as it was written is abandoned, or another trajectory passes through it
            written = [other for other in tree.spans if other.sampled and len(tree.path_to(other.index)) == depth]
            actions = [parsed(renderer, other.ids, schemas) for other in written]
            assert parsed(renderer, span.ids, schemas) in actions


@pytest.mark.parametrize(("protocol", "count"), [("arpo-tags", 200), ("hermes", 120)])
def test_nothing_of_prompt_template_and_results_is_lost_or_altered(protocol: str, count: int, tokenizer: Any) -> None:
    env = toy_env(max_turns=8, max_tool_calls=5, protocol=protocol)
    if env.protocol.native:
        tokenizer = small_tokenizer(QWEN3, template("qwen3"))
    write = native_turn if env.protocol.native else tagged_turn
    policy = ScriptedTurns(tokenizer, lambda request: write(random.Random(request.seed)))
    tools = InferenceSettings(debugger=1, backtracer=2, refiner=1, refine_above=150)
    trees = play(env, policy, HELPER, TASKS[:count], tools, max_completion_length=500)
    renderer, contexts = Renderer(tokenizer, env.protocol), set()
    seen = dict.fromkeys(("debugger", "backtracer", REFINER), 0)
    for task, tree in zip(TASKS[:count], trees, strict=True):
        assert tree.prompt_ids == renderer.prompt_ids(env.messages(task), env.schemas)
        assert tree.trajectories[0].valid
        check(tree, renderer, env.schemas)
        before = {None, *(span.index for span in tree.spans if span.kind == "environment")}
        contexts |= {(*tree.context(at),) for at in before}
        for mark in (mark for span in tree.path(0) for mark in span.interventions or ()):
            seen[mark["tool"]] += mark["outcome"] == WORKED
    assert min(seen.values()) > 8, seen
    assert {request.ids for request in policy.seen} <= contexts
