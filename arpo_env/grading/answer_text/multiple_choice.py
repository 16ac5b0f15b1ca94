"""Finds the option of a multiple-choice question that an answer names: `read_letter`, `read_options`, `same_option`."""

from __future__ import annotations

import re
import unicodedata

from arpo_env.grading.answer_text.allowed_words import question_words
from arpo_env.grading.answer_text.normalize_latex import prepare
from arpo_env.grading.answer_text.strip_phrases import strip_phrases

_SAID = (  # each word can be read in one way only and nothing is given back (*+): repeated words take linear time
    r"(?:(?:so|thus|therefore|hence|因此|所以|故|综上|[本此该]题|解析)\s*+[,:]?+\s*+)?(?:(?:i\s+(?:choose|pick|select)|we\s+choose)\s+)?"
    r"(?:(?:the\s++)?+(?:(?:best|final|correct|right)\s++)*+(?:option|choice|answer|letter|ans\.?)\s*+(?:is|:|=)?+\s*+:?+\s*+"
    r"|\[?+(?:(?:最终|正确)的?)?(?:答案|选项)\]?+\s*+(?:应该?)?+(?:是|为)?+\s*+:?+\s*+|应?选(?!项)择?+\s*+(?:项\s*+)?+:?+\s*+|应选项\s*+:?+\s*+)*+"
)
_LETTER = r"\(?\[?\*{0,2}(?P<letter>[A-Z])\*{0,2}\]?\)?"
_ALONE = re.compile(
    rf"{_SAID}{_LETTER}(?:\s*(?:(?:选项|项)(?:正确|是正确的|符合题意)?|正确|is\s+(?:the\s+)?(?:correct|right)(?:\s+(?:answer|option|choice))?))?",
    re.IGNORECASE,
)
_LED = re.compile(rf"{_SAID}{_LETTER}\s*[.:,)\]-]\s*(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_REASON = re.compile(rf"{_SAID}{_LETTER},?\s+(?:because|since|as)\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_THEREFORE = re.compile(
    rf"(?P<rest>\S.*?),?\s+(?:so|thus|hence|therefore),?\s+{_ALONE.pattern}", re.IGNORECASE | re.DOTALL
)
_NOT_ANOTHER = re.compile(r"(?<=[a-z]{2}), not \(?([A-Z])\)?\.?$")
_BEHIND = re.compile(r"(?P<rest>\S.*?)\s*\(\s*(?P<letter>[A-Z])\s*\)", re.DOTALL)
_OPTION = re.compile(
    r"(?:^|(?<=[\s;(])|(?=\())\(?(?P<letter>[A-Z])\s*[.:)]\s*(?P<text>.+?)(?=\s*(?:[\n;]|(?<=\s)\(?[A-Z]\s*[.:)]\s|$))",
    re.DOTALL,
)
_TYPESET = (  # \textbf{(A)}\ 5 \qquad
    (re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|rm)\s*\{\s*(\([A-Z]\))\s*\}"), r" \1 "),
    (re.compile(r"\\q?quad(?![a-z])|\\ |~"), " "),
)
_TAKEN_BACK = re.compile(
    r"(?<![a-z])(?:or|nor|not|no|none|all|both|either|neither|actually|rather|instead|maybe|perhaps|possibly|probably|wait|but|"
    r"however|although|though|alternatively|otherwise|also|too|another|other|others|option|options|choice|choices|answer|answers|"
    r"correction|correct|incorrect|wrong|sorry|unless|except|sure|unsure|guess|hmm|first|second|third|fourth|last|previous|"
    r"next|above|below|or|could|might|may|should)(?![a-z])|[或且不非错]|其实|实际|还是|也许|可能|答案|选",
    re.IGNORECASE,
)
_LEADING = re.compile(r"^(?:(?:to|be|is|are|it|they|the|an?)\s+)+(?=\S)")
_NAMED = (  # words after which a letter is part of a name: "vitamin C", "hepatitis B", "point A"
    r"(?:vitamin|hepatitis|influenza|type|group|class|grade|plan|phase|stage|figure|section|appendix|point|line|plane|set|"
    r"matrix|graph|species|compound|substance|element|country|city|company|planet|protein|factor|blood|person|player|box)s?"
)
_ANOTHER = re.compile(
    r"(?<![A-Za-z'])[A-Z](?![A-Za-z'])|[/,&]\s*[A-Za-z](?![A-Za-z'])|(?<![A-Za-z'])[b-hj-z](?![A-Za-z'])"
)


def read_letter(answer: str, question: str = "") -> str | None:
    """Return the single letter that an answer names, or None.

    If the question lists the options, the text after the letter must be the text of that option. Otherwise it must not
    name another letter or take the first one back ("B. Actually C").

    Args:
        answer: the unprocessed answer.
        question: the question of the task.
    """
    text = prepare(answer[:2000])
    if match := _ALONE.fullmatch(text):
        return match["letter"].upper()
    options = read_options(question)
    if (other := _NOT_ANOTHER.search(text)) and other[1] in options:
        rest = re.sub(r"^it(?:'s| is) ", "", text[: other.start()], flags=re.IGNORECASE)
        return letter if (letter := read_letter(rest, question)) != other[1] else None
    if (match := _REASON.fullmatch(text) or (_THEREFORE.fullmatch(text) if options else None)) and not _names_another(
        match["rest"]
    ):
        others = [option for letter, option in options.items() if letter != match["letter"].upper()]
        told = f" {plain_text(match['rest'])} "
        return None if any(f" {plain_text(option)} " in told for option in others) else match["letter"].upper()
    match = _LED.fullmatch(text) or (_BEHIND.fullmatch(text) if options else None)
    if match is None:
        for said in (text, strip_phrases(text, question_words(question))) if options else ():
            if len(meant := [letter for letter, option in options.items() if same_option(said, option)]) == 1:
                return meant[0]
        return None
    letter, rest = match["letter"].upper(), match["rest"]
    # a letter with the text of another option names two options
    if letter in options:
        return letter if same_option(rest, options[letter]) else None
    return None if _names_another(rest) else letter


def read_options(question: str) -> dict[str, str]:
    """Return the options that a question lists, by letter; {} unless it has A and B and no letter twice."""
    for pattern, plain in _TYPESET:
        question = pattern.sub(plain, question)
    found = [(match["letter"], match["text"].strip(" $\n")) for match in _OPTION.finditer(question)]
    options = dict(found)
    return options if len(options) == len(found) and {"A", "B"} <= options.keys() else {}


def without_options(question: str) -> str:
    """Return a question without its list of options."""
    if not read_options(question):
        return question
    return question[: next(match.start() for match in _OPTION.finditer(question) if match["letter"] == "A")]


def same_option(text: str, option: str) -> bool:
    """Compare texts without case, punctuation and a leading verb: "be tangent to it" and "tangent to it"."""
    mine, wanted = (re.sub(r"[^\w+-]+", " ", plain_text(prepare(part))).strip() for part in (text, option))
    return bool(mine) and (mine == wanted or _LEADING.sub("", mine) == _LEADING.sub("", wanted))


def _names_another(text: str) -> bool:
    """Return whether the text after a letter may name another letter or take the first one back."""
    text = re.sub(rf"(?<![A-Za-z]){_NAMED}\s+[A-Z](?![A-Za-z'])", "", text, flags=re.IGNORECASE)
    # the article and the pronoun are not option letters
    text = re.sub(r"(?<![A-Za-z])A(?=\s+[a-z]{2})|(?<![A-Za-z])I(?=\s+[a-z])", "", text)  # "A vitamin"
    return bool(_TAKEN_BACK.search(text) or _ANOTHER.search(text))


def plain_text(text: str) -> str:
    """Return a text in lower case with single spaces."""
    # NFKC would turn circled numbers, which label statements, into plain digits
    return " ".join((text if re.search("[①-⑳]", text) else unicodedata.normalize("NFKC", text)).casefold().split())
