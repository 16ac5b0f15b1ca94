r"""`MathGrader`: is this the gold answer, mathematically? `ChoiceGrader`: is it the right option?

If the gold answer is a number, only a number is correct, or a chain of equations that ends in it: "984 \cdot 78" is a
task, not an answer. Numbers and equal texts are decided immediately in this process. Answers that are too expensive to
evaluate (`9^{9^{9^{9}}}`) are wrong. All others are compared in a supervised process. There is no partial credit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from arpo_env.errors import GradingError
from arpo_env.grading.answer_text import (
    is_quantity,
    is_several,
    is_words,
    matching_claims,
    names_the_answer,
    plain_text,
    prepare,
    read_letter,
    read_options,
    rewritten,
    same_labels,
    same_option,
    same_words,
    says_yes,
    split_option,
    strip_phrases,
    without_options,
)
from arpo_env.grading.check_pool import CheckPool, shared_pool, warn_without_library
from arpo_env.grading.grader import Grader, Score
from arpo_env.grading.math_formulas import (
    LONGEST,
    Node,
    Unreadable,
    equation_sides,
    is_measure,
    is_name,
    is_too_expensive,
    read_expression,
    read_shape,
    symbols,
    variables,
    without_spaces,
    without_thousands,
)
from arpo_env.grading.math_question import (
    abbreviates,
    asks,
    asks_another,
    asks_base,
    asks_formula,
    expected_unit,
    in_asked_order,
    is_copied,
    is_copied_number,
    is_in_question,
    is_sum,
)
from arpo_env.grading.math_values import (
    COUNTED,
    Value,
    as_value,
    convert,
    is_known_tail,
    is_printed,
    names_what_is_counted,
    question_words,
    same_angle,
    same_clock,
    same_ratio,
    same_unit,
    same_value,
    split_unit,
)
from envs_registry import Task

_RAW = 2000  # characters of an unprocessed answer
_SPLIT_NUMBER = re.compile(r"\d\s+\.?\d")
_APPROXIMATE = re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])\s*|^(?:approximately|about|around|roughly|大约|约)\s*")
_SAME = re.compile(r"(?:,\s*|\s+)(?:i\.e\.,?|or equivalently|equivalently|that is,?|or)\s+|(?:,\s*)?(?:或|即)")
_BELOW_ZERO = re.compile(r"(.+?)\s+(?:degrees?\s*(?:celsius|fahrenheit|[CF])?\s+)?below\s+zero|零下\s*(.+)")
_WHERE = re.compile(r"(?P<main>.+?),?\s+(?:where|with)\s+(?P<bound>.+)")
_BOUND = re.compile(r"\s*([A-Za-z])\s*=\s*(-?\d+(?:/\d+)?)\s*")
# read only where the gold answer is a number or a binomial, for C and P may also be points
_CHOICES = re.compile(
    r"(?<![A-Za-z])n?(?P<a>[CPA])r?\s*(?:=\s*)?\(\s*(\d+)\s*,\s*(\d+)\s*\)"
    r"|(?<![\w.])(?:\{\}\s*+)?(?:[_^]\s*+)?\{?(\d++)\}?\s*+(?:\\?(?P<b>[CPA])|choose\s)\s*+(?:_\s*+)?\{?(\d+)\}?"
    r"|(?<![A-Za-z])(?P<c>[CPA])\s*_\s*\{?(\d+)\}?\s*\^\s*\{?(\d+)\}?"
)
_MODULUS = re.compile(r"\s*\\pmod\{(\d{1,9})\}")
_CONGRUENT = re.compile(r"\s*(?:\\equiv(?![a-z])|=)\s*")
# the point where a formula has no value: "x + 2 for x \\ne 2"
_EXCEPT = re.compile(
    r"(?:,|,?\s(?:where|for|with|if)\s|\()\s*([a-z])\s?"
    r"(?:\\neq?\s[^,()]{1,20}|\\in\s?(?:\\mathbb\{[A-Z]\}|[\[(][^\[\]()]{1,40}[\])]))\)?$"
)
# how many there are may be told as "2^{10}", "7!" or a binomial, unless that is what is to be computed
_COUNTED_AS = re.compile(r"\d{1,3}\s?\^\s?\{?\d{1,3}\}?|\d{1,3}\s?!|\\binom\{\d{1,3}\}\{\d{1,3}\}")
_COUNTS = re.compile(r"\bhow\s+many\b|\bnumber\s+of\b|多少种|几种|多少个", re.IGNORECASE)
_UNIT = re.compile(r"\\?\$|(?<=[\d)}!])\s?([A-Za-z]{2,}(?:\s[A-Za-z]{2,})?)(?=\s*[-+*/=)]|\s*\\|$)")
_TAIL = re.compile(r"(?<=[a-z])\s(?:in|of|for|from|with|if|when)\s(\S.*)$")
_THUS = re.compile(
    r"\s?,?\s?(?:\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![a-z])|(?<![a-z])so(?![a-z])|所以)\s*,?\s*"
)
_RATIO = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_CIRCLE = re.compile(r"\s*\^\s*\{?\s*\\circ\s*\}?")
_AND = re.compile(r",?\s*(?<![A-Za-z])and(?![A-Za-z])")
_BETWEEN_LETTERS = re.compile(r"\s*(?:[,;、]\s*(?:and\s)?|\sand\s|&|[和与及])\s*")
_ABSOLUTE = re.compile(r"\|\s*[A-Za-z]\s*\|")
_ASKS_ABSOLUTE = re.compile(r"modulus|absolute value|magnitude|的模", re.IGNORECASE)
_MEMBER = re.compile(r"(?P<name>[^=<>]+?)\s*\\in\s*\\\{(?P<value>[^,{}]+)\\\}")


class MathGrader(Grader):
    """Grades math answers by exact numbers, then by the shapes and values of formulas.

    Args:
        pool: processes for symbolic checks; None uses the pool of this process.
    """

    def __init__(self, pool: CheckPool | None = None) -> None:
        self._pool = pool
        if pool is None:
            warn_without_library()

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 if the answer equals one of the gold answers, else 0.

        Raises:
            GradingError: a check failed, or a gold answer is too expensive to evaluate, and no other one matched.
        """
        undecided: GradingError | None = None
        for gold in task.answers:
            try:
                if await self.equal(answer, gold, task.question):
                    return Score(1.0, {"math": 1.0})
            except GradingError as error:
                undecided = error
        if undecided is not None:
            raise undecided
        return Score(0.0, {"math": 0.0})

    async def equal(self, answer: str, gold: str, question: str = "") -> bool:
        """Return whether an answer equals a gold answer.

        The question is used to recognise copied formulas and the expected units and percentages.

        Raises:
            GradingError: the comparison could not be decided.
        """
        verdict = decide(answer, gold, question)
        if isinstance(verdict, bool):
            return verdict
        return await (self._pool or shared_pool()).check(verdict.answer, verdict.gold)


class ChoiceGrader(Grader):
    """Multiple choice: "B", "(B)", "答案是B", "B." with its text, only the text, or "A, B, D" if several are correct.

    Args:
        pool: processes that compare formulas of options; None uses the pool of this process.
    """

    def __init__(self, pool: CheckPool | None = None) -> None:
        self._math = MathGrader(pool)

    async def grade(self, answer: str, task: Task) -> Score:
        """Score 1 for the letter of a gold answer, for all its letters, or for the text of its option."""
        for gold in task.answers:
            if await self._matches(answer, gold, task.question):
                return Score(1.0)
        return Score(0.0)

    async def _matches(self, answer: str, gold: str, question: str) -> bool:
        plain = strip_phrases(prepare(gold))
        if plain_text(answer) == plain_text(gold) or same_labels(strip_phrases(prepare(answer[:2000])), plain):
            return bool(answer.strip())
        if is_several(plain):
            # all or nothing
            letters = [read_letter(part, question) for part in _BETWEEN_LETTERS.split(answer[:300].strip(" []"))]
            return None not in letters and same_labels("".join(map(str, letters)), plain)
        options = read_options(question)
        letter, content = split_option(plain) or (read_letter(gold), "")
        content = content or options.get(letter or "", "")
        # a letter decides alone; its text must agree with it, which `read_letter` checks
        mine = read_letter(answer, question)
        if mine is not None:
            return mine == letter
        text = strip_phrases(prepare(answer[:2000]))
        if (labelled := split_option(text)) is not None:
            if labelled[0] != letter:
                return False
            text = labelled[1]
        content = content if letter is not None else plain
        stem = re.split(r"\(?(?<![A-Za-z])A\s*[.:)]", question)[0]  # formulas of the stem are copied, not answered
        if not content or re.fullmatch(r"\(?[A-Z]\)?", content):
            return False
        if re.search(r"(?<![\\a-z])[a-z]{3,}\s+[a-z]{2,}", content):  # a sentence
            return same_option(text, content)
        return await self._math.equal(text, content, stem)


@dataclass(frozen=True)
class Undecided:
    """Two prepared answers whose comparison needs algebra."""

    answer: str
    gold: str


def decide(answer: str, gold: str, question: str = "") -> bool | Undecided:
    """Compare two answers as far as possible without algebra."""
    if answer.strip() == gold.strip():
        return bool(gold.strip())
    # no correct answer is that much longer than the gold answer
    if len(answer) > _RAW + len(gold):
        return False
    right = read_gold(gold)
    if right.number is not None or "\\binom" in right.plain:
        answer = _CHOICES.sub(_choose, answer)
    plain = prepare(answer)
    if (
        without_spaces(plain) == without_spaces(right.plain)
        or same_words(plain, right.plain)
        or same_labels(plain, right.plain)
    ):
        return bool(plain)
    if (yes := says_yes(plain)) is not None and same_words("yes" if yes else "no", right.plain):
        return True
    plain, reading = rewritten(plain, right.plain, question)
    if reading != right.plain:
        return _is_checkable(plain, right) and Undecided(plain, reading)
    known = question_words(question) if question else frozenset()
    text = strip_phrases(plain, known)
    lead = plain[: plain.rfind(text)]
    if is_words(right.plain) and not all(map(names_the_answer, re.findall(r"[A-Z][a-z]+", lead))):
        text = plain  # "Carla is Evelyn"
    if same_words(text, right.plain) or same_labels(text, right.plain) or _says_of(plain, right.plain, known):
        return True
    if (labelled := split_option(right.plain)) is not None:
        # An option such as "C. 20 mph" is decided by its letter or its content, before any mathematics.
        return _decide_option(text, labelled, question)
    if options := read_options(question):
        letter, meant = read_letter(text), read_letter(text, question)
        for named in filter(None, (meant, letter)):
            if same_labels(named, right.plain):
                option = split_option(text)
                return named == meant or (option is not None and named in options and decide(option[1], options[named]))
        if letter in options and letter == meant:
            text = prepare(options[letter])
        elif letter in options and (option := split_option(text)) and decide(options[letter], gold) is True:
            text = option[1]  # which must be right as well
    elif (option := split_option(text)) is not None:
        text = option[1]
    if isinstance(said := matching_claims(text, right.plain), tuple):
        return Undecided(*said)
    question = without_options(question)  # repeating an option is not copying the question
    if (thus := _THUS.search(text)) and thus.start() > 2 and is_in_question(text[: thus.start()], question):
        text = text[thus.end() :]  # "2x + 3 = 11, so x = 4"
    chain = equation_sides(text)
    named = chain[1] if len(chain) == 2 and is_name(chain[0]) else text
    # The first comparison that knows the form of the gold answer decides; None means "another form".
    decided = (
        same_angle(named, right.plain),
        said,
        same_clock(named, right.plain, question),
        same_ratio(named, right.plain),
    )
    for same in decided:
        if same is not None:
            return same and not is_in_question(text, question)
    if (modulus := _MODULUS.search(text)) and (right.number is not None or _MODULUS.search(right.plain)):
        return _decide_residue(text, right, int(modulus[1]), question)
    if right.number is not None:
        return _decide_number(text, right, right.number, question, known)
    return _decide_formula(text, right, question, known)


def _choose(match: re.Match[str]) -> str:
    """Write "C(10,3)" as a binomial and "P(10,3)" as the number of ways to arrange 3 of 10."""
    kind = match["a"] or match["b"] or match["c"] or "C"
    count, taken = (part for part in match.groups() if part and part.isdigit())
    if kind == "C":
        return f"\\binom{{{count}}}{{{taken}}}"
    left = int(count[:4]) - int(taken[:4])
    return rf"\frac{{{count}!}}{{{left}!}}" if left >= 0 else match[0]


def _decide_residue(text: str, gold: Gold, modulus: int, question: str) -> bool:
    r"""Compare "7^{100} \equiv 1 \pmod{10}" with the remainder 1, or with "x \equiv 1 \pmod{10}"."""
    if not modulus or len(set(_MODULUS.findall(text))) > 1:
        return False
    *before, last = _CONGRUENT.split(_MODULUS.sub("", text).strip())
    residue, wanted = as_value(last), gold.number
    if wanted is None:
        *names, right = _CONGRUENT.split(_MODULUS.sub("", gold.plain).strip())
        wanted = as_value(right)
        if _MODULUS.findall(gold.plain) != [str(modulus)] or (before and names and before[0] != names[0]):
            return False
    elif not re.search(rf"(?<!\d){modulus}(?!\d)", question) and not (
        modulus in (10, 100, 1000) and "digit" in question
    ):
        return False
    if residue is None or wanted is None or residue.base or not same_value(residue, wanted):
        return False
    sides = (side for side in before if not is_name(side))
    try:
        return all(_residue(read_expression(side), modulus) == residue.number for side in sides)
    except (Unreadable, RecursionError):
        return False


def _residue(node: Node, modulus: int) -> int:
    """Return the remainder of a formula of whole numbers, however large its value is; others are Unreadable."""
    if node.name == "number" and node.value.denominator == 1:
        return int(node.value) % modulus
    parts = node.parts
    if node.name == "^" and parts[1].name == "number" and parts[1].value.denominator == 1:
        return pow(_residue(parts[0], modulus), int(parts[1].value), modulus)
    found = [_residue(part, modulus) for part in parts]
    match node.name:
        case "+":
            return sum(found) % modulus
        case "*":
            return prod(found) % modulus
        case "negative":
            return -found[0] % modulus
    raise Unreadable(node.name)


def _says_of(text: str, gold: str, known: frozenset[str]) -> bool:
    """Return whether a sentence only says the gold word: "It converges", "Evelyn has the greatest speed"."""
    if len(gold) < 2 or not gold.replace(" ", "").isalpha():
        return False
    lead = text[: -len(gold)].rstrip()
    if len(gold) > 2 and text.lower().endswith(gold.lower()) and is_words(gold) and names_the_answer(lead):
        return True
    match = re.fullmatch(rf"(?:an?\s+|the\s+)?{re.escape(gold)}\s+([a-z]+)", text, re.IGNORECASE)
    if match and len(gold) > 2 and match[1] in known and names_what_is_counted([match[1]]):
        return True  # "red marbles"
    match = re.fullmatch(rf"{re.escape(gold)}\s+(?:has|had|is|was|will|would)\s+([^A-Z]+)", text)
    return match is not None and gold[:1].isupper() and is_known_tail(match[1], known)


def _decide_option(text: str, gold: tuple[str, str], question: str) -> bool | Undecided:
    """Compare with a gold answer like "C. 20 mph": its letter or its content is accepted."""
    letter, content = gold
    if same_labels(text, letter):
        return True
    mine = split_option(text)
    if mine is not None and mine[0] != letter:
        return False
    return decide(mine[1] if mine else text, content, question)


def _decide_number(text: str, gold: Gold, number: Value, question: str, known: frozenset[str]) -> bool | Undecided:
    """Compare with a gold number: the answer must be a number, or a chain of equations that ends in it."""
    if (
        question
        and (match := _TAIL.search(text))
        and (match[1] in known or (" " in match[1] and is_in_question(match[1], question)))
    ):
        unit = split_unit(text[: match.start()], letters=True, known=known)[1]
        if unit and expected_unit(text, unit, question) == unit:
            text = text[: match.start()]  # "150 minutes in 2.5 hours"
    if len(same := _SAME.split(text)) > 1:
        # "1/2, i.e. 0.5" gives the number in several ways, all of which must be correct
        if len({side[0] for part in same if (side := equation_sides(part)) and is_name(side[0])}) > 1:
            return False  # "a = 27 or b = 27"
        verdicts = [_decide_number(part.strip(" ,()"), gold, number, question, known) for part in same]
        return all(verdict is True for verdict in verdicts)
    if (
        gold.unit == "degree"
        and (match := re.fullmatch(r"(?!.*\\circ)(.*\\pi.*?)\s*(rad(?:ians?)?)?", text))
        and (match[2] or not re.search(r"degree|度数", question))
    ):
        return Undecided(match[1], rf"{_number_text(number)} \cdot \frac{{\pi}}{{180}}")
    if "=" in text:
        text = without_thousands(text)
        text = _substitute_bound(match) if (match := _WHERE.fullmatch(text)) else text
    text = ABOUT.sub("", text) if gold.about else text
    # "x = 4 + 5 = 9": the last side is the answer; "9 = x" and "9 = 4 + 5" are turned around
    chain = equation_sides(text)
    if len(chain) == 2 and (
        is_name(chain[1])
        or is_quantity(chain[1], known)
        or (_as_answer(chain[1], known) is None and _as_answer(chain[0], known) is not None)
    ):
        chain = chain[::-1]
    if not chain and (parts := _APPROXIMATE.split(text))[1:]:
        return _decide_approximation(parts, gold, number, question, known)
    if not chain and (match := _MEMBER.fullmatch(text)) and is_name(match["name"]):
        text = match["value"]
    # the name in front may have kept a phrase from being recognised
    last = strip_phrases(chain[-1] if chain else text, known)
    last = re.sub(r"^(\d+)\s*:\s*(\d+)$", r"\1/\2", last) if chain and ":" in chain[0] else last
    # "y = 5" is not "x = 5"
    if chain and not gold.name and is_name(chain[0]) and asks_another(chain[0].strip(), question):
        return False
    if gold.name and chain and is_name(chain[0]) and without_spaces(chain[0]) != gold.name:
        return False
    if chain and gold.measure and is_measure(chain[0], gold=True) and _letters(chain[0]) != _letters(gold.measure):
        return False
    if _COUNTS.search(question) and _COUNTED_AS.fullmatch(counted := _without_units(last, known)):
        told = f"{counted} = {_number_text(number)}"
        return not is_in_question(counted, question) and Undecided(told, _number_text(number))
    if not _equals(last, gold, number, question, known):
        return False
    if last.endswith("%") and not number.percent and asks("percent", question):
        number = replace(number, percent=True)  # "3/5 = 60%"
    # the other sides must not contradict it: "2 + 2 = 5 = 4" is wrong
    rest = [
        side
        for side in _sides_to_check(chain, gold, question, known)
        if not _equals(side, gold, number, question, known) and not _converts(side, last, known)
    ]
    if not rest:
        return True
    rest = [_without_units(side, known) for side in rest]
    if split_unit(last)[1] == "degree":
        rest = [side if _RATIO.search(side) else _CIRCLE.sub("", side) for side in rest]
    checked = Undecided(" = ".join([*rest, _number_text(number)]), _number_text(number))
    return all(_is_checkable(side, gold) for side in rest) and checked


def _letters(measure: str) -> list[str]:
    r"""Return the functions and letters in the name of a quantity: of "\sin(A)", "AP:PB", "\frac{AP}{PB}"."""
    return re.findall(
        r"(?:sin|cos|tan|cot|sec|csc)|[A-Za-z]|(?<=[A-Za-z])\^\{?\d",
        re.sub(r"\\(?!sin|cos|tan|cot|sec|csc)[a-z]+", "", measure),
    )


def _substitute_bound(match: re.Match[str]) -> str:
    """Rewrite "m+n=5, where m=2 and n=3" as "(2)+(3) = m+n = 5", so that it is checked; keep other answers."""
    bound = [_BOUND.fullmatch(part) for part in re.split(r",?\s*and\s|,", match["bound"])]
    chain = equation_sides(match["main"])
    if not chain or (is_name(chain[0]) and len(chain[0]) == 1) or not all(bound):
        return match[0]
    values = {part[1]: f"({part[2]})" for part in bound if part is not None}
    first = re.sub(r"(?<!\\)\b([A-Za-z])\b", lambda letter: values.get(letter[1], letter[1]), chain[0])
    return match[0] if has_unknowns(first) else f"{first} = {match['main']}"


def _decide_approximation(
    parts: list[str], gold: Gold, number: Value, question: str, known: frozenset[str]
) -> bool | Undecided:
    r"""Compare "\frac{1}{3} \approx 0.33", or "x \approx 3.14" with a decimal number."""
    exact, last = parts[0].strip(" ="), as_value(split_unit(parts[-1].strip(), letters=True)[0])
    if len(parts) > 2 or last is None or not (last.decimals or last.percent):
        return False
    if not exact or is_name(exact):
        return number.decimals > 0 and _equals(parts[-1].strip(), gold, number, question, known)
    if asks("rounding", question) and last.decimals and _equals(parts[-1].strip(), gold, number, question, known):
        return Undecided(f"{exact} \\approx {parts[-1].strip()}", exact)
    # the approximation must agree with the number to its own last digit
    gap = abs(last.number / (100 if last.percent else 1) - (number.number / 100 if number.percent else number.number))
    return gap < Fraction(1, 10 ** (last.decimals + 2 * last.percent)) and _decide_number(
        exact, gold, number, question, known
    )


def _sides_to_check(chain: list[str], gold: Gold, question: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the sides before the last of "x = 4 + 5 = 9" that must be correct: neither names nor what was asked for."""
    named = False
    for side in chain[:-1]:
        name = is_measure(side) and not (
            question and _RATIO.match(side) and not is_in_question(re.sub("[()]", "", side), question)
        )
        name = name or without_spaces(side) == gold.measure or is_quantity(side, known)
        name = name or asks_formula(side, question) or ("_" in side and is_in_question(side, question))
        name = (
            name or abbreviates(side, question) or bool(_ABSOLUTE.fullmatch(side) and _ASKS_ABSOLUTE.search(question))
        )
        named = named or name
        if side.startswith("(") or not (name or (named and _is_rule(side, chain[0]))):
            yield side


def _converts(side: str, last: str, known: frozenset[str]) -> bool:
    """Return whether "2.5 hours" and "150 minutes" are the same quantity."""
    one, other = _as_answer(side, known), _as_answer(last, known)
    if one is None or other is None or not one[1] or not other[1]:
        return False
    return convert(one[0].number, one[1], other[1]) == other[0].number


def _without_units(side: str, known: frozenset[str]) -> str:
    """Return "120 miles / 2 hours" as "120 / 2"."""
    return _UNIT.sub(
        lambda match: "" if not match[1] or split_unit(f"1 {match[1]}", known=known)[1] else match[0], side
    )


def _is_rule(side: str, name: str) -> bool:
    r"""Return whether a side is a formula in other unknowns: "2y + 1", unlike "1 x" between two equations."""
    try:
        found = symbols(read_expression(side, fold=False))
    except Unreadable:
        return False
    return bool(found) and without_spaces(name) not in found and not re.fullmatch(r".*[\w)}]\s+[A-Za-z]", side)


def _equals(text: str, gold: Gold, number: Value, question: str, known: frozenset[str]) -> bool:
    mine = _as_answer(text, known)
    if mine is None or is_copied_number(mine[0], number, question):
        return False
    value, unit = mine
    unit = "" if value.percent and unit == COUNTED else unit  # "60% of the students"
    wanted = gold.unit or (expected_unit(text, unit, question) if unit and question else unit)
    if wanted is None:
        return False
    if unit and wanted and not same_unit(unit, wanted):
        converted = convert(value.number, unit, wanted)
        # a converted value is correct, unless it is a quantity of the question
        return converted is not None and converted == number.number and not is_in_question(text, question)
    # "1010 in base 2" may be written with or without its base if the question named it
    if value.base is not None and number.base is None and asks_base(value.base, question):
        value = replace(value, base=None)
    # "20%" equals 20 if the question asks for a percentage, else 0.2; a gold "20%" accepts both 20 and 0.2
    if value.percent == number.percent:
        return same_value(value, number)
    if value.percent:
        asked = asks("percent", question)
        return same_value(value if asked else replace(value, number=value.number / 100), number)
    return same_value(value, number) or same_value(value, replace(number, number=number.number / 100))


def _as_answer(text: str, known: frozenset[str]) -> tuple[Value, str] | None:
    """Parse a number with its unit, or one that is given twice: "five (5)"."""
    if match := re.fullmatch(r"(?!-\s*\()([^()]+?)(?:\s+|(?=\([^\d()]))\(([^()]+)\)", text):
        first, second = (_as_answer(part, known) for part in match.groups())
        twice = first is not None and second is not None and first[0].number == second[0].number
        if first is not None and is_quantity(match[2], known):
            return first
        if first is None or second is not None:
            return first if twice and first and second and first[0].form != second[0].form else None
        text = f"{match[1]} {match[2]}"  # "8 (units)"
    if match := _BELOW_ZERO.fullmatch(text):
        above = match[1] or match[2]
        below = None if _BELOW_ZERO.fullmatch(above) else _as_answer(above, known)
        return None if below is None or below[0].number <= 0 else (replace(below[0], number=-below[0].number), below[1])
    if match := re.fullmatch(r"\\\{\s*(.+?)\s*\\\}", text):
        text = match[1]
    text = re.sub(r"^(?:第\s*|(?i:an?)\s+(?=[\d.]+\s*\\?%))", "", text)
    if match := re.fullmatch(r"(\d+ [a-z]+),? (?:and )?(\d+ [a-z]+)", text):  # 2 hours 30 minutes
        (one, unit), (other, smaller) = (split_unit(part, letters=True, known=known) for part in match.groups())
        rest = convert(Fraction(other), smaller, unit) if one.isdigit() and other.isdigit() else None
        return None if rest is None or not 0 < rest < 1 else (Value(int(one) + rest, form="mixed"), unit)
    value, unit = split_unit(text, letters=True, known=known)
    number = as_value(value) or _in_thousands(value)
    return None if number is None else (number, unit)


def _in_thousands(text: str) -> Value | None:
    """Parse "12k" or "1.5M"; only an answer is read so, for in a gold answer they are unknowns."""
    match = re.fullmatch(r"(-?[\d.,]+)\s?(k|K|M|B)", text)
    number = as_value(match[1]) if match else None
    if match is None or number is None:
        return None
    scale = {"k": 10**3, "M": 10**6, "B": 10**9}[match[2].replace("K", "k")]
    return replace(number, number=number.number * scale, form="scaled")


def _decide_formula(text: str, gold: Gold, question: str, known: frozenset[str]) -> bool | Undecided:
    if (match := _EXCEPT.search(text)) and match[1] in gold.value and "\\in" not in gold.value:
        text = text[: match.start()]
    value, unit = split_unit(text, letters=False, known=known)
    asked = gold.unit or (expected_unit(text, unit, question) if unit and question else unit)
    if asked is None or (unit and asked and not same_unit(unit, asked) and "degree" not in (unit, gold.unit)):
        return False
    if unit == "degree" and asked == "radian":
        return False
    if unit == "degree" and not gold.unit:
        # a gold answer without a unit is in radians
        value = text if "\\circ" in text else rf"({value}) \cdot \frac{{\pi}}{{180}}"
    value, wanted = in_asked_order(value, gold.value, question)
    said = value
    if (chain := equation_sides(value)) and not equation_sides(wanted):
        if is_name(chain[0]) and asks_another(chain[0].strip(), question):
            return False
        # "Day = Monday" names what was asked; "Tuesday = Monday" says something else
        if (is_words(wanted) or wanted in known) and not all(map(names_the_answer, chain[:-1])):
            return False
        turned = len(chain) == 2 and is_name(chain[1]) and not is_name(chain[0])
        said = chain[0] if turned else chain[-1]
        sides = (_without_units(side, known) for side in _sides_to_check(chain, gold, question, known))
        value = said if turned else " = ".join([*sides, said])
    # an ordered list is compared as a tuple, since lists are compared as sets
    if asks("interval", question) and read_shape(wanted).kind == "tuple" and read_shape(value).kind == "list":
        return False
    if asks("order", question) and len(set(re.findall("[<>]", value))) == 1 and "=" not in value:
        value = re.sub(r"\s?[<>]\s?", ", ", value)  # "1 < 2 < 3" lists them
    if asks("order", question) and read_shape(wanted).kind == "list" and not equation_sides(value):
        value, wanted = (f"({_AND.sub(',', text)})" for text in (value, wanted))
        return _is_checkable(value, gold) and Undecided(value, wanted)
    if is_copied(said, wanted, question) or (asks("product", question) and is_sum(said) and not is_sum(wanted)):
        return False
    return _is_checkable(value, gold) and Undecided(value, wanted)


def _is_checkable(value: str, gold: Gold) -> bool:
    """Return whether the symbolic check should see a value: it is one answer, and its evaluation terminates."""
    if not value or len(value) > max(LONGEST, 3 * len(gold.value)) or value.count("{") != value.count("}"):
        return False
    spaced = re.sub(r"(?<=\d)\s+(?=\d{1,9}/\d)|_\s*\d+", "", value)  # "1 1/2" and "\\log_2 3"
    if as_value(value) is None and _SPLIT_NUMBER.search(spaced):
        return False
    return not (gold.ordinary and is_too_expensive(value))


def _number_text(number: Value) -> str:
    exact = Fraction(number.number, 100) if number.percent else number.number
    return f"{exact.numerator}" if exact.denominator == 1 else f"{exact.numerator}/{exact.denominator}"


# `read_gold` parses the gold answer.
#
# Gold answers are written by people and extracted from solutions: "63 + 200 = 263" means 263, "\cos C = -\frac{1}{2}"
# also means the value alone, and "2)" lost its opening bracket in the extraction.

ABOUT = re.compile(r"^(?:approximately|approx\.?|about|around|roughly|\\approx|大约|约)\s*", re.IGNORECASE)
_GREEK = re.compile(r"\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|varphi|psi|omega|rho|tau|sigma)")


@dataclass(frozen=True)
class Gold:
    """A parsed gold answer."""

    plain: str  # the prepared text
    value: str  # the text without its unit, and without the name in "x = 5"
    unit: str
    name: str  # "x", or ""
    number: Value | None  # set if only a number can be correct
    ordinary: bool  # whether its evaluation terminates quickly
    about: bool = False  # whether it says that it is rounded: "about 20"
    measure: str = ""  # the quantity that its equation measures, without spaces ("\\cosC"), or ""


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    """Parse a gold answer."""
    plain = _balanced(strip_phrases(prepare(gold)) or prepare(gold))
    # "about 20" is a number; "about the origin" is not
    about = ABOUT.match(plain) is not None and as_value(split_unit(ABOUT.sub("", plain), letters=True)[0]) is not None
    bare = ABOUT.sub("", plain) if about else plain
    chain = equation_sides(bare)
    name = chain[0] if len(chain) == 2 and is_name(chain[0]) else ""
    # "\cos C = 1/2" and "63 + 200 = 263" mean their last side
    measured = bool(chain) and not name
    for side in chain[:-1] if measured else ():
        computed = not has_unknowns(side) and not split_unit(side, letters=True)[1]
        measured = measured and (is_measure(side, gold=True) or computed)
    last = chain[-1] if name or measured else bare
    value, unit = split_unit(last, letters=True)
    number = as_value(value)
    measure = without_spaces(chain[0]) if measured else ""
    if number is not None and not is_printed(number):
        return Gold(bare, value, unit, without_spaces(name), number, True, about, measure)
    measure = measure if measured and is_measure(chain[0], gold=True) else ""
    value, unit = split_unit(last, letters=False) if measure else split_unit(bare, letters=number is not None)
    return Gold(bare, value, unit, "", None, not is_too_expensive(value), about, measure)


def has_unknowns(text: str) -> bool:
    """Return whether a formula contains unknowns."""
    return bool(variables(text) or _GREEK.search(text))


def _balanced(text: str) -> str:
    """Remove closing brackets at the end that were never opened: "2)"."""
    for opening, closing in (("(", ")"), ("{", "}")):
        while (
            text.endswith((closing, "\\" + closing)) and text.count(closing) > text.count(opening) and "[" not in text
        ):
            text = text.removesuffix(closing).removesuffix("\\").rstrip()
    return text
