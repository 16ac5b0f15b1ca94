"""Arithmetic: an endless, seeded supply of problems that need the Python tool.

Task number i of a split is always the same. Train and test never share a question: a question's checksum decides
which split it belongs to. Six levels:

    1  one step          a product or a long sum, beyond mental arithmetic
    2  several steps     a chain of named quantities, or a word problem
    3  look up           the numbers are in a variable of the interpreter, only its name is in the question
    4  read, then work   a variable holds a note in words that says what to compute: two calls
    5  wrong type        the numbers are text ("1204"): the obvious code fails, the policy has to fix it
    6  follow a trail    one variable names the next one, which says what to do with a third: three calls, or more
                         with more `notes`
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envs_registry.datasets.rows import ChosenTasks, chosen_tasks
from envs_registry.generated import check_split, in_split, levels_of
from envs_registry.sources import register_source
from envs_registry.task import Task

_THINGS = ("bolts", "gears", "lamps", "pipes", "tiles", "wires", "nails", "hinges", "panels", "valves")
_PLACES = ("depot", "harbour", "mill", "station", "workshop", "market", "farm", "quarry")
MOST_NOTES = len(_PLACES) - 1  # of a trail, which ends at a place of its own


@dataclass(frozen=True)
class _Draft:
    """A problem with its answer, the setup it needs, and the calls that solve it."""

    question: str
    answer: int
    cells: tuple[str, ...]
    setup: str = ""


class ArithmeticSource:
    """The tasks of one split and level.

    Args:
        split: "train" or "test".
        level: 1 to 6, or "mixed" for all of them in turn; several as in "2,3,4".
        seed: another seed is another supply.
        notes: of the trails of level 6 that name the next variable, 1 to 7; a trail takes two calls more.
    """

    size = None
    solution_tool = "python"

    def __init__(self, split: str = "train", level: int | str = "mixed", seed: int = 0, notes: int = 1) -> None:
        check_split("Arithmetic", split)
        if type(notes) is not int or not 1 <= notes <= MOST_NOTES:
            raise ValueError(f"notes must be a whole number from 1 to {MOST_NOTES}, got {notes!r}")
        self.split, self.seed, self.notes = split, seed, notes
        self.levels = levels_of("Arithmetic", level, _DRAFTS)

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        level, draft = self._draft(index)
        name = f"arithmetic-{self.split}-{self.seed}-{level}-{index}"
        answers = (str(draft.answer),)
        return Task(
            name, draft.question, answers, kind="math", source="arithmetic", level=str(level), setup=draft.setup
        )

    def solution(self, index: int) -> tuple[str, ...]:
        """Return Python calls that solve task number `index`; the last one shows the answer."""
        return self._draft(index)[1].cells

    def _draft(self, index: int) -> tuple[int, _Draft]:
        level = self.levels[index % len(self.levels)]
        # A generator of its own for each task: the task does not depend on which others were drawn before.
        rng = random.Random(f"arithmetic/{self.seed}/{self.split}/{level}/{index}")
        # One draft in ten belongs to the test split, so about ten are drawn for a task of it.
        while True:
            make = rng.choice(_DRAFTS[level])
            draft = _trail(rng, self.notes) if make is _trail else make(rng)
            # By chance the answer may be a number of the setup, where the policy could find it. Short numbers do not
            # count, as for `check_setup`.
            shown = draft.answer >= 1000 and str(draft.answer) in re.findall(r"\d+", draft.setup)
            # The setup counts as well, since the words of a question about a variable are the same for all numbers.
            if not shown and in_split(draft.question + draft.setup, self.split):
                return level, draft


def _product(rng: random.Random) -> _Draft:
    a, b = rng.randint(120, 999), rng.randint(120, 999)
    return _Draft(f"What is {a} * {b}?", a * b, (f"{a} * {b}",))


def _sum(rng: random.Random) -> _Draft:
    numbers = [rng.randint(1000, 9999) for _ in range(4)]
    text = " + ".join(map(str, numbers))
    return _Draft(f"What is {text}?", sum(numbers), (text,))


def _chain(rng: random.Random) -> _Draft:
    a, b, c = rng.randint(20, 99), rng.randint(20, 99), rng.randint(100, 999)
    question = f"Let x = {a} * {b} and y = x - {c}. What is x * y?"
    return _Draft(question, a * b * (a * b - c), (f"x = {a} * {b}\ny = x - {c}\nx * y",))


def _crates(rng: random.Random) -> _Draft:
    # At least 23 * 112 things are there, more than are ever used up.
    thing, boxes, each = rng.choice(_THINGS), rng.randint(23, 98), rng.randint(112, 480)
    used = rng.randint(100, 999)
    question = f"{boxes} boxes hold {each} {thing} each. {used} {thing} are used up. How many {thing} are left?"
    return _Draft(question, boxes * each - used, (f"{boxes} * {each} - {used}",))


def _stock(rng: random.Random) -> _Draft:
    stock = {thing: rng.randint(1000, 9999) for thing in rng.sample(_THINGS, 4)}
    one, two = rng.sample(sorted(stock), 2)
    question = f"The variable stock is a dict. How many {one} and {two} does it hold together?"
    return _Draft(question, stock[one] + stock[two], (f"stock['{one}'] + stock['{two}']",), f"stock = {stock!r}")


def _readings(rng: random.Random) -> _Draft:
    readings = [rng.randint(100, 999) for _ in range(7)]
    question = "The variable readings is a list. What is the product of its largest and its smallest number?"
    answer = max(readings) * min(readings)
    return _Draft(question, answer, ("max(readings) * min(readings)",), f"readings = {readings!r}")


def _note_product(rng: random.Random) -> _Draft:
    place, a, b = rng.choice(_PLACES), rng.randint(120, 999), rng.randint(12, 99)
    note = f"The {place} has {a} rows of {b}."
    question = "Read the text in the variable note. How many are there in all?"
    return _Draft(question, a * b, ("note", f"{a} * {b}"), f"note = {note!r}")


def _note_difference(rng: random.Random) -> _Draft:
    # The ranges do not overlap, so the answer is always positive.
    place, a, b = rng.choice(_PLACES), rng.randint(5000, 9999), rng.randint(1000, 4999)
    note = f"The {place} had {a}. It sold {b}."
    question = "Read the text in the variable note. How many are left?"
    return _Draft(question, a - b, ("note", f"{a} - {b}"), f"note = {note!r}")


def _prices(rng: random.Random) -> _Draft:
    numbers = [rng.randint(1000, 9999) for _ in range(4)]
    question = "The variable prices is a list. What is the sum of all prices?"
    # The first call fails on purpose, as the obvious code of a policy does.
    cells = ("sum(prices)", "sum(map(int, prices))")
    return _Draft(question, sum(numbers), cells, f"prices = {[str(number) for number in numbers]!r}")


def _fee(rng: random.Random) -> _Draft:
    a, b = rng.randint(1000, 9999), rng.randint(1000, 9999)
    question = "The variables price and fee are given. What is price + fee?"
    cells = ("price + fee", "int(price) + fee")
    return _Draft(question, a + b, cells, f"price = '{a}'\nfee = {b}")


def _trail(rng: random.Random, notes: int = 1) -> _Draft:
    *places, last = rng.sample(_PLACES, notes + 1)
    stock, taken = rng.randint(5000, 9999), rng.randint(1000, 4999)
    names = ["start", *places]
    texts = [*(f"Look at {place}." for place in places), f"Take {taken} from {last}."]
    cells = [*(f"{name} = {text!r}" for name, text in zip(names, texts, strict=True)), f"{last} = {stock}"]
    question = "Follow the text in the variable start. What number do you get?"
    return _Draft(question, stock - taken, (*names, f"{last} - {taken}"), "\n".join(cells))


_DRAFTS: dict[int, tuple[Callable[..., _Draft], ...]] = {
    1: (_product, _sum),
    2: (_chain, _crates),
    3: (_stock, _readings),
    4: (_note_product, _note_difference),
    5: (_prices, _fee),
    6: (_trail,),
}


def load(
    *, split: str = "train", data: str | Path | None = None, level: int | str = "mixed", seed: int = 0, notes: int = 1
) -> ArithmeticSource | ChosenTasks:
    """Return the generated tasks; `data` names a file that chooses some of them (`chosen_tasks`)."""
    source = ArithmeticSource(split, level, seed, notes)
    return source if data is None else chosen_tasks(source, data)


register_source("arithmetic", load)
