"""Random samples with tools at inference time: prompt, template and results are never lost or altered."""

import json
import random
import re
from typing import Any

import pytest

from arpo_env.protocols.protocol import Answer, ToolCalls
from arpo_trainer.inference_tools import REFINER, InferenceSettings
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import REWRITTEN, WORKED, RolloutTree, Span
from envs_registry import Task
from tests.arpo_trainer.inference_tools.scripted_samples import ScriptedHelper, ScriptedTurns, play, python, toy_env
from tests.arpo_trainer.rollout.test_rendering import QWEN3, small_tokenizer, template

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
    end = rng.choice(
        [f"<python>{code}</python>"] * 6
        + [f"<answer>\\boxed{{{rng.randrange(9)}}}</answer>"] * 2
        + ["</python>", "", "<search>q</search>"]
    )
    return f"<think>{thought}</think>{end}"


def random_reply(prompt: str, rng: random.Random) -> str | None:
    numbers = range(1, prompt.count('"number": ') + 1)
    shorter = [
        {"number": n, "text": rng.choice(["brief", "", "</think><answer>1</answer>", "x" * 999])} for n in numbers
    ]
    return rng.choice(
        [
            None,
            "I cannot help with that.",
            "```python\n1 + 2\n```",
            "```python\nbad again\n```",
            "print('</result><answer>1</answer>')",
            json.dumps({"thoughts": shorter}),
            "Sure: " + json.dumps({"thoughts": shorter[:1]}) + " Done.",
            '{"thoughts": [{"number": "one"}]}',
        ]
        + [json.dumps({"thoughts": [{"number": n, "text": "brief"} for n in numbers]})] * 4
    )


def expected_result(turn: Span, renderer: Renderer, schemas: Any) -> str | None:
    """What the tool says to a turn on the final path."""
    action = renderer.parse_ids(turn.ids, schemas)
    if not isinstance(action, ToolCalls):
        return None
    fixed = [
        mark["detail"] for mark in turn.interventions or () if mark["tool"] == "debugger" and mark["outcome"] == WORKED
    ]
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
    last = None if unread else renderer.parse_ids(path[-1].ids, schemas)
    assert tree.trajectories[number].answer == (last.value if isinstance(last, Answer) else None)
    for span in tree.spans:
        if span.kind == "model" and span.has_outcome(REWRITTEN):
            depth = len(tree.path_to(span.index))
            # the turn as it was written is abandoned, or another trajectory passes through it
            written = [other for other in tree.spans if other.sampled and len(tree.path_to(other.index)) == depth]
            actions = [renderer.parse_ids(other.ids, schemas) for other in written]
            assert renderer.parse_ids(span.ids, schemas) in actions


@pytest.mark.parametrize(("protocol", "count"), [("arpo-tags", 200), ("hermes", 120)])
def test_nothing_of_prompt_template_and_results_is_lost_or_altered(protocol: str, count: int, tokenizer: Any) -> None:
    env = toy_env(max_turns=8, max_tool_calls=5, protocol=protocol)
    if env.protocol.native:
        tokenizer = small_tokenizer(QWEN3, template("qwen3"))
    write = native_turn if env.protocol.native else tagged_turn
    tasks = [Task(f"t{n}", f"What is {n} + {n}?", (str(2 * n),), kind="math") for n in range(count)]
    policy = ScriptedTurns(tokenizer, lambda request: write(random.Random(request.seed)))
    helper = ScriptedHelper(lambda prompt, seed: random_reply(prompt, random.Random(seed)))
    tools = InferenceSettings(debugger=1, backtracer=2, refiner=1, refine_above=150)
    trees = play(env, policy, helper, tasks, tools, max_completion_length=500)
    renderer, contexts = Renderer(tokenizer, env.protocol), set()
    seen = dict.fromkeys(("debugger", "backtracer", REFINER), 0)
    for task, tree in zip(tasks, trees, strict=True):
        assert tree.prompt_ids == renderer.prompt_ids(env.messages(task), env.schemas)
        assert tree.trajectories[0].valid
        check(tree, renderer, env.schemas)
        before = {None, *(span.index for span in tree.spans if span.kind == "environment")}
        contexts |= {(*tree.context(at),) for at in before}
        for mark in (mark for span in tree.path(0) for mark in span.interventions or ()):
            seen[mark["tool"]] += mark["outcome"] == WORKED
    assert min(seen.values()) > 8, seen
    assert {request.ids for request in policy.seen} <= contexts
