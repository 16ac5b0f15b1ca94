"""Words that may and may not surround an answer: closed lists, and the words of the question.

A noun may say what a number counts ("9 apples"). An unknown word may turn it into another number ("9 gross", "9 below
zero"), so the text is then not accepted as an answer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from arpo_env.grading.answer_text.number_words import SCALES, ordinal_denominator, read_words

# Words that turn the number before them into another one, negate it, or take it back.
_CHANGING = """
    not no never none nor neither without except besides unless opposite negative negatives positive minus plus
    times half halves quarter quarters double doubled triple tripled twice thrice fold inverse reciprocal square
    squared cube cubed root power powers factorial percent percents percentage percentages permille mille mil basis
    bps point dozen dozens score scores gross grosses trio brace lakh lakhs lac lacs crore crores myriad myriads
    googol googols kilo mega giga or and but if else maybe perhaps possibly probably about around approximately
    roughly nearly almost circa least most more less fewer than over under above below beyond between up down from
    versus vs off short owed debt deficit loss missing lacking mod modulo choose repeating recurring repeated
    infinity infinite unknown wrong incorrect false actually instead rather otherwise wait sorry correction any all
    every either both another other others last next previous before after until divided multiplied added subtracted
    increased decreased reduced raised subtract add multiply divide double triple halve hardly scarcely barely
    nobody noone nowhere suppose assume imagine is isn't are aren't was wasn't were be been does doesn't did do will
    would can cannot could should might may must has hasn't have had as us its his this thus exponent exponents logs
    logarithm logarithms radical radicals tens tenths odd something nothing everything zeros zeroes nought naught
    pair pairs couple couples bits octal decimal decimals base bases bakers
    """
CHANGING = frozenset(_CHANGING.split())
# Countable nouns of school problems, irregular plurals included; regular plurals are matched by _PLURAL.
_NOUNS = """
    people person child children man men woman women boy girl student teacher fish sheep deer mice mouse geese goose
    apple orange egg cup glass book page pencil pen marble ball card coin stamp sticker cookie candy piece slice bag
    box bottle bus car dog cat bird horse cow tree flower plant room house chair table ticket game goal team member
    player friend guest customer worker employee item object unit element term digit number integer prime factor
    divisor multiple value solution zero way possibility case combination permutation arrangement path route step
    move turn triangle rectangle polygon side edge face vertex vertices diagonal angle line segment circle dot
    region row column cell tile set subset function word letter song movie class lesson question problem trip lap
    round shot hit win vote seat shirt shoe dress hat bead toy doll kite fruit bread pizza cake pie cupcake muffin
    doughnut donut sandwich burger meal serving grain stone loaves leaves knives wolves shelves lives wives thieves
    calves teeth oxen dice indices matrices radii foci media criteria formulae money change profit sugar water milk
    flour rice sand oil juice gold silver arrangement ordering triple pentagon hexagon heptagon octagon
    square rhombus parallelogram trapezoid trapezium prism pyramid cone cylinder sphere tetrahedron cuboid
    permutation outcome event sample letter sequence series graph curve parabola ellipse hyperbola function
    polynomial remainder quotient year month week day hour minute second meter metre foot feet mile inch dollar cent
    time rope wood paper fabric air dirt soil food work homework interest tax
    """
# Words of the list above that may be counted ("squares") if the question contains them.
_HARMLESS_CHANGING_LIST = """
    square cube point quarters quarter zeros bits times more fewer least most pair pairs couple couples dozen dozens
    """
_HARMLESS_CHANGING = frozenset(_HARMLESS_CHANGING_LIST.split())
# Words that multiply the number before them ("5 pairs" are 10), unless the question asks for "how many pairs".
GROUPS = frozenset(["pair", "pairs", "couple", "couples", "dozen", "dozens", "quarter", "quarters"])
_ASKS_GROUPS = re.compile(
    rf"(?:how\s+many|number\s+of|find|what)\s+(?:[\w-]+\s+){{0,3}}(?:{'|'.join(GROUPS)})\b", re.IGNORECASE
)
NOUNS = frozenset(_NOUNS.split()) - CHANGING
_MODIFIERS_LIST = """
    red blue green yellow black white orange purple pink brown grey gray small large big little long short tall
    new old full whole different distinct possible unique ordered real total remaining additional extra such
    non-congruent noncongruent equal integer complex rational prime even right more fewer regular isosceles
    equilateral scalene acute obtuse positive valid good bad empty single solid straight american chocolate male
    female digit
    """
MODIFIERS = frozenset(_MODIFIERS_LIST.split())
_AFTER = (
    r"for\s+(?:them|it|this|that|him|her|everyone|everything|each|(?:all|each)\s+of\s+them)|(?:in|of)\s+(?:them|it)|"
    r"(?:every|each)\s+(?:morning|evening|one)|left(?:\s+over)?|remaining|remain|in\s+(?:total|all|the\s+end)|total|altogether|overall|each|apiece|away|apart|"
    r"old|long|wide|tall|high|deep|thick|more|(?:per|a|an|every|each)\s+(?:second|minute|hour|day|night|week|month|year|"
    r"person|child|student|piece|unit|item|game|gallon|liter|litre|pound|box|bag|mile|meter|trip)|of\s+them|now|today|later|ago|early|late"
)
AFTER = re.compile(rf"(.*?)(?:(?:^|\s+)(?:{_AFTER}))", re.IGNORECASE)
_HAN_CHANGING = re.compile("[不非无没倍半负反减加乘除以少多差约近余错大小于平立分之万千百亿几或另]")
_PLURAL = re.compile(r"[a-z]{2,}[a-rt-z]s|[a-z]+(?:class|glass|dress|press|pass|loss|boss|ss)es")
_SMALL_WORDS_LIST = """
    the a an of in on at per for to each her his their its my our by with inside he she it they him them you your i we
    """
_SMALL_WORDS = frozenset(_SMALL_WORDS_LIST.split())

_CLAUSES = frozenset(["who", "that", "which", "whose", "to", "can", "passed", "walked", "sat", "stood", "came", "went"])
_MATHEMATICAL_LIST = """
    reduce remove radians radian degrees degree spare go equal equals say call midnight noon be it's that's no
    """
_MATHEMATICAL = frozenset(_MATHEMATICAL_LIST.split())


@lru_cache(maxsize=512)
def question_words(question: str) -> frozenset[str]:
    """Return the words of a question that may accompany an answer, with their singulars and plurals."""
    words = set(re.findall(r"[a-z]+(?:-[a-z]+)*", question.lower())) - _SMALL_WORDS
    if not _ASKS_GROUPS.search(question):
        words -= GROUPS
    # Chinese has no spaces, so pairs of characters serve as words
    for run in re.findall(r"[\u4e00-\u9fff]+", question):
        words |= {pair for pair in map("".join, pairwise(run)) if not _HAN_CHANGING.search(pair)}
    words |= {word.removesuffix("s") for word in words} | {f"{word}s" for word in words}
    return frozenset(re.findall(r"\d+", question)) | {
        word for word in words if (len(word) > 2 or not word.isascii()) and not changes_number(word, asked=True)
    }


def changes_number(word: str, asked: bool = False) -> bool:
    """Return whether a word changes the number before it or takes it back.

    Args:
        word: in lower case.
        asked: whether the question contains the word; then "squares" are what is counted.
    """
    if asked and word in _HARMLESS_CHANGING:
        return False
    number = word.removesuffix("s")
    return (
        word in CHANGING
        or number in SCALES
        or re.fullmatch("(?:hundred|thousand|[a-z]*illion)(?:th)?s?", word) is not None
        or ordinal_denominator(word) is not None
        or read_words(word) is not None
        or read_words(number) is not None
    )


def is_known_tail(words: str, known: frozenset[str]) -> bool:
    """Return whether the words of "at the market" only repeat words of the question."""
    tail = [word.removesuffix("'s").strip("'") for word in words.lower().split()]
    return any(word in known for word in tail) and all(word in known or word in _SMALL_WORDS for word in tail)


def names_what_is_counted(words: list[str], known: frozenset[str] = frozenset()) -> bool:
    """Return whether the words after a number only say what it counts: "red apples", "students", "marbles of glass".

    Args:
        words: in lower case, at least one.
        known: `question_words(question)`.
    """
    if all(word in known or word in _SMALL_WORDS for word in words) and any(word in known for word in words):
        return True
    if "of" in words[1:-1]:
        place = words.index("of")
        return names_what_is_counted(words[:place], known) and names_what_is_counted(
            [w for w in words[place + 1 :] if w != "the"] or ["?"], known
        )
    for place, word in enumerate(words[1:], 1):
        if word in _CLAUSES and names_what_is_counted(words[:place], known):
            return not any(changes_number(each) or each in _MATHEMATICAL for each in words[place:])
    *modifiers, noun = words
    counted = noun in known or ("ordered" in modifiers and noun in ("pair", "pairs"))
    if not (counted or (not changes_number(noun) and (noun in NOUNS or _PLURAL.fullmatch(noun)))):
        return False
    return all(word in known or word in MODIFIERS or (word in NOUNS and not changes_number(word)) for word in modifiers)
