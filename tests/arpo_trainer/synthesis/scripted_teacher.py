"""A teacher behind an endpoint that knows the answers, and does well or badly as its script says.

Which of its ways a question meets depends on the question's number; a sample's seed changes the wording only.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.arpo_env.chat_server import reply

Say = Callable[[str, int], str]  # answer and number of earlier turns -> text


def answering(text: str) -> str:
    return f"<think>So it is.</think><answer>\\boxed{{{text}}}</answer>"


def direct(right: bool) -> Say:
    text = "<think>I add the parts. Maybe that is not all of it. Then I multiply.</think>"
    return lambda answer, _: f"{text}<answer>\\boxed{{{answer if right else 'wrong'}}}</answer>"


def calling(*cells: str, right: bool = True) -> Say:
    def say(answer: str, turn: int) -> str:
        if turn < len(cells):
            return f"<think>Step {turn}.</think><python>{cells[turn]}</python>"
        return answering(answer if right else "wrong")

    return say


def always(text: str) -> Say:
    return lambda *_: text


REFUSAL = always("I'm sorry, but I cannot help with that.")
# without tools, with tools
WAYS: dict[str, tuple[Say, Say]] = {
    "easy": (direct(True), calling("print(1)")),
    "tools": (direct(False), calling("print(1)")),
    "many": (direct(False), calling(*(f"print({n})" for n in range(3)))),
    "twice": (direct(False), calling("print(1)", "print(1)")),
    "failing": (direct(False), calling("print(2)", "1 / 0")),
    "mended": (direct(False), calling("1 / 0", "print(3)")),
    "silent": (direct(False), calling()),
    "hard": (direct(False), calling("print(1)", right=False)),
    "refusing": (REFUSAL, REFUSAL),
    "garbage": (always("</python> \ud7ff <answer"), always("<python><search></python>")),
}


class Teacher:
    """Answers requests, a question in one of `WAYS`; by default in all in turn."""

    def __init__(self, answers: Mapping[str, str], *ways: str) -> None:
        self.answers, self.ways = dict(answers), dict(zip(answers, itertools.cycle(ways or WAYS), strict=False))

    def __call__(self, body: dict[str, Any]) -> tuple[int, Any]:
        system, question = (message["content"] for message in body["messages"][:2])
        without, with_tools = WAYS[self.ways[question]]
        turns = [message["content"] for message in body["messages"][2:]]
        # a last message of the assistant is an opening, which is to be continued
        played = sum(1 for message in body["messages"][2:] if message["role"] == "user")
        say = with_tools if "<python>" in system else without
        text = say(self.answers[question], played)
        opened = bool(turns) and body["messages"][-1]["role"] == "assistant"
        return 200, reply(text.partition("</think>")[2] if opened else text)
