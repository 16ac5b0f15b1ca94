"""The tables of answers beside the tests."""

from collections.abc import Iterator
from pathlib import Path

SIGNS = str.maketrans("⏎⇥␍␤", "\n\t\r\u2028")


def table(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield answer, gold answer and question of lines "GOLD <- ANSWER ¦ ANSWER"; "? QUESTION" holds for those after."""
    text, question = Path(__file__).with_name(name).read_text(encoding="utf-8"), ""
    for line in (line.translate(SIGNS) for line in text.split("\n")[1:-1]):
        if line.startswith("? "):
            question = line[2:]
            continue
        gold, _, answers = line.partition(" <- ")
        yield from ((answer, gold, question) for answer in answers.split(" ¦ "))
