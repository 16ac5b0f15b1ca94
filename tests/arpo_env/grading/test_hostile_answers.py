"""Whatever a policy writes: no grader holds the event loop, none is left undecided by it, and none pays for it."""

import asyncio
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.grading import Grader
from arpo_env.grading.answer_text import prepare, strip_phrases
from arpo_env.grading.math_formulas import read_shape
from arpo_env.grading.math_grader import ChoiceGrader, MathGrader
from arpo_env.grading.published_metrics import GaiaGrader
from arpo_env.grading.qa_grader import QaGrader
from arpo_env.protocols import PROTOCOLS, make_protocol
from envs_registry import Task
from tests.arpo_env.protocols.schemas import ALL
from tests.test_regular_expressions import FILES, patterns_of, sample

SECONDS = 0.05  # of CPU in the thread of the event loop
QUESTION = r"Find $x$ where $\frac{1}{2}x + 3 = 5$. A. 1 B. 2 C. 20 mph D. none"
GOLDS = {
    "math": [
        *("5", r"\sqrt{2}", "(1,2)", "[1,2)", "3:2", "x=5", "1,2,3", "C. 20 mph"),
        r"\begin{pmatrix}1\\2\end{pmatrix}",
    ],
    "mcq": ["C", "20 mph", "A, B", "C. 20 mph"],
    "qa": [
        *("Paris", "14 March 1879", "$5 million", "yes"),
        "the quick brown fox jumps over the lazy dog in the old town",
    ],
    "gaia": ["5", "Paris", "a, b"],
}
NESTED = [
    *(("Matrix(", "1", ")"), ("(", "1", ")"), ("（", "1", "）"), ("[(", "1,2", ")]"), (r"\{", "x|x>1", r"\}")),
    *((r"\frac{1}{", "2", "}"), (r"\boxed{", "5", "}"), (r"\text{", "5", "}"), (r"\langle ", "1,2", r"\rangle ")),
    *((r"\begin{matrix}", "1", r"\end{matrix}"), (r"2\begin{matrix}", "1", r"\end{matrix}"), ("|", "2", "|")),
    *(("零下", "5", ""), ("百分之", "5", ""), ("负", "5", ""), ("", "5", "%\u200b"), ("", "5", " below zero")),
    *(("option ", "B", ""), ("应选", "B", ""), ("正确选项", "B", ""), ("A, ", "B", ""), ("最终的", "答案是5", "")),
    *(("2^", "2", ""), (r"\sin", "2", ""), ("so ", "5", ""), ("me is ", "5", ""), ("", "7^" + 300 * " " + "2", " ")),
]


class NoPool:
    """Stands for the processes that compare formulas: what is measured here is the event loop."""

    async def check(self, answer: str, gold: str) -> bool:
        return False


GRADERS: dict[str, Grader] = {
    "math": MathGrader(NoPool()),  # type: ignore[arg-type]
    "mcq": ChoiceGrader(NoPool()),  # type: ignore[arg-type]
    "qa": QaGrader(),
    "gaia": GaiaGrader(),
}


def seconds(kind: str, answer: str, gold: str) -> float:
    """Return the CPU time of this thread for an answer; it must be decided, whatever it is."""
    task = Task("t", QUESTION, (gold,), kind="math")
    for reader in (strip_phrases, prepare, read_shape):
        reader.cache_clear()  # a second measurement is to read the answer again
    start = time.thread_time()
    asyncio.run(GRADERS[kind].grade(answer, task))
    return time.thread_time() - start


def slow(kind: str, answer: str, gold: str) -> bool:
    return seconds(kind, answer, gold) > SECONDS and min(seconds(kind, answer, gold) for _ in range(5)) > SECONDS


@pytest.mark.parametrize(("before", "inside", "after"), NESTED)
def test_nested_and_repeated_words_are_decided_at_once(before: str, inside: str, after: str) -> None:
    for times in (16, 60, 1990 // len(before + after) - 1, 4096 // len(before + after)):
        answer = before * times + inside + after * times
        for kind, golds in GOLDS.items():
            assert not any(slow(kind, answer, gold) for gold in golds[:4]), (kind, times)


def hostile(rng: random.Random, count: int) -> Iterator[str]:
    """Yield texts of repeated fragments of what the graders and protocols read."""
    folders = ("arpo_env/grading", "arpo_env/protocols")
    found = [p for path in FILES if any(folder in str(path) for folder in folders) for _, p, _ in patterns_of(path)]
    trees: list[Any] = [re._parser.parse(p.pattern, p.flags) for p in found if isinstance(p.pattern, str)]  # type: ignore[attr-defined]
    for _ in range(count):
        parts = [sample(rng.choice(trees), rng, rng.choice((0, 1, 2)))[:40] for _ in range(rng.choice((1, 1, 2, 3)))]
        part = rng.choice(("", "", " ", ", ", " = ")).join(parts) or "5 "
        start, end = (rng.choice(("", "", "The answer is ", "x = ", sample(rng.choice(trees), rng))) for _ in range(2))
        length = rng.choice((100, 300, 1000, 1990, 4096, 6000))
        yield start + part * max(1, (length - len(start + end)) // len(part)) + end


def test_no_text_holds_the_event_loop_or_is_left_undecided() -> None:
    rng = random.Random(0)
    for text in hostile(rng, 60):
        for kind, golds in GOLDS.items():
            assert not slow(kind, text, rng.choice(golds)), (kind, text[:100], len(text))
        for protocol in map(make_protocol, PROTOCOLS):
            start = time.thread_time()
            protocol.parse(text, ALL)
            protocol.well_formed([text])
            assert time.thread_time() - start < SECONDS, (protocol.name, text[:100])


@pytest.mark.parametrize("answer", ["option " * 18, "(" * 500 + "1" + ")" * 500, r"\sin(\sin(10^{12}i))"])
def test_an_episode_ends_with_such_an_answer(answer: str) -> None:
    task = Task("t", QUESTION, ("5", r"2\sqrt{3}"), kind="math")
    with ToolEnv("arpo/Arithmetic-v0", scorer="math") as env:
        env.reset(options={"task": task})
        start = time.monotonic()
        _, reward, terminated, _, info = env.step(f"<think>t</think><answer>\\boxed{{{answer}}}</answer>")
    assert terminated
    assert reward <= 0.1
    assert info["reward_components"]["accuracy"] == 0.0
    assert time.monotonic() - start < 30
