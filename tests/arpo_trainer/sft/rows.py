"""Generated rows in each format: an addition with a call, a lookup with a search, or an answer at once."""

import json
import random
from collections.abc import Callable
from typing import Any

from arpo_trainer.tree import RolloutTree, Trajectory

SYSTEM = "Reason in <think> </think>, answer in <answer> </answer>."
Row = dict[str, Any]


def encoding(tokenizer: Any) -> Callable[[str], list[int]]:
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]


def bytes_of(text: str) -> list[int]:
    return list(text.encode())


def episode(rng: random.Random) -> tuple[str, list[tuple[str, str, str, str]], str, str]:
    """A question, its calls (thought, tool, argument, result), the last thought and the answer."""
    a, b = rng.randrange(100), rng.randrange(100)
    calls = []
    for _ in range(rng.randrange(3)):
        if rng.random() < 0.5:
            calls.append(("I add.", "python", f"print({a} + {b})", str(a + b)))
        else:
            calls.append(("I look it up.", "search", f"what is {a} plus {b}", f"[1] It is {a + b}."))
    return f"What is {a} + {b}?", calls, "Done.", str(a + b)


def tagged(rng: random.Random) -> tuple[str, str]:
    """A question, and a text of the model for the whole episode, results included, as the published sets have it."""
    question, calls, thought, answer = episode(rng)
    text = "".join(
        f"<think>{why}</think>\n<{tool}>\n{content}\n</{tool}> <result>\n{result}\n</result>\n"
        for why, tool, content, result in calls
    )
    return question, f"{text}<think>{thought}</think><answer> The answer is \\boxed{{{answer}}} </answer>"


def sharegpt(rng: random.Random) -> Row:
    question, text = tagged(rng)
    return {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": text}], "system": SYSTEM}


def tool_star(rng: random.Random) -> Row:
    question, text = tagged(rng)
    return {"instruction": SYSTEM, "input": question, "output": text}


def alpaca(rng: random.Random) -> Row:
    question, text = tagged(rng)
    return {"instruction": question, "input": "", "output": text, "system": SYSTEM}


def observed(rng: random.Random) -> Row:
    """ShareGPT with calls and observations as messages of their own."""
    question, calls, thought, answer = episode(rng)
    items = [{"from": "human", "value": question}]
    for why, tool, content, result in calls:
        arguments = {"code" if tool == "python" else "query": content}
        items.append({"from": "gpt", "value": f"<think>{why}</think>"})
        items.append({"from": "function_call", "value": json.dumps({"name": tool, "arguments": arguments})})
        items.append({"from": "observation", "value": result})
    return {"conversations": [*items, {"from": "gpt", "value": f"{thought} \\boxed{{{answer}}}"}], "tools": "[]"}


def messages(rng: random.Random) -> Row:
    question, calls, thought, answer = episode(rng)
    said: list[Row] = [{"role": "user", "content": question}]
    for why, tool, content, result in calls:
        arguments = json.dumps({"code" if tool == "python" else "query": content})
        call = {"id": "1", "type": "function", "function": {"name": tool, "arguments": arguments}}
        said += [
            {"role": "assistant", "content": f"<think>{why}</think>", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": result},
        ]
    return {"messages": [*said, {"role": "assistant", "content": f"<think>{thought}</think>\\boxed{{{answer}}}"}]}


def tree(rng: random.Random, encode: Callable[[str], list[int]], reward: float = 1.0) -> Row:
    """A line of traces.jsonl with two trajectories: one with this reward, one that scored 0."""
    question, calls, thought, answer = episode(rng)
    made = RolloutTree(encode(f"{SYSTEM} {question}"), task={"id": question, "question": question})

    def add(parent: int | None, kind: Any, text: str) -> int:
        ids = encode(text)
        zeros = [0.0] * len(ids) if kind == "model" else []
        return made.add_span(parent, kind, ids, logprobs=zeros, entropies=zeros, text=text).index

    node: int | None = None
    for why, tool, content, result in calls:
        node = add(node, "model", f"<think>{why}</think><{tool}>{content}</{tool}>")
        node = add(node, "environment", f"\n<result>\n{result}\n</result>\n")
    for given, earned in ((answer, reward), ("?", 0.0)):
        leaf = add(node, "model", f"<think>{thought}</think><answer>\\boxed{{{given}}}</answer>")
        made.trajectories.append(Trajectory(leaf, reward=earned))
    return json.loads(made.to_json())


FORMATS: dict[str, Callable[[random.Random], Row]] = {"sharegpt": sharegpt, "tool-star": tool_star, "alpaca": alpaca}
FORMATS |= {"observed": observed, "messages": messages}
