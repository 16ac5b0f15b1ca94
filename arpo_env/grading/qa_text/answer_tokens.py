r"""`tokens` converts an answer in words to a list of tokens, equal for the same answer in different forms.

It applies SQuAD's rules (lower case, no punctuation, no articles) and adds what they lack: NFKC, accents, Unicode
punctuation, one token per CJK character, joined initials ("J. R. R." is "JRR"), signs that distinguish names ("C#",
"C++", "A+"), and unwrapping of \text{...} and bold. A date is one token (`dates`), as is a number with its unit
(`quantities`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from arpo_env.grading.answer_text.normalize_latex import unwrap
from arpo_env.grading.qa_text.chinese import simplified, with_digits
from arpo_env.grading.qa_text.dates import mark_dates
from arpo_env.grading.qa_text.quantities import mark_quantities, with_ordinals
from arpo_env.grading.qa_text.units import spelled_prefixes

CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0002fa1f"
_ARTICLES = frozenset({"a", "an", "the"})
# words and the token that they share with their short form or other spelling
_PAIRS = """
saint-st street-st mount-mt doctor-dr mister-mr professor-prof junior-jr senior-sr versus-vs avenue-ave road-rd
drive-dr boulevard-blvd lane-ln incorporated-inc corporation-corp company-co limited-ltd brothers-bros grey-gray
okay-ok defence-defense programme-program catalogue-catalog aluminium-aluminum univ-university jan-january
feb-february apr-april aug-august sept-september oct-october nov-november dec-december general-gen colonel-col
captain-capt lieutenant-lt sergeant-sgt governor-gov senator-sen reverend-rev
"""
_SAME = dict(pair.split("-") for pair in _PAIRS.split())
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ŋ": "n"}
)
_SIGNS = str.maketrans(dict(zip("♯⁄−＋’‘`ʻ", "#/-+''''", strict=True)) | {"♭": " flat", "≠": " not ", "¬": " not "})
_BOUNDS = {"<": " most ", "≤": " most ", ">": " over ", "≥": " least ", "±": " about "}
_BOX = re.compile(r"^\s*\$*\s*\\f?boxed\s*\{(.*)\}\s*\$*\s*\.?\s*$", re.DOTALL)
_MATH = re.compile(r"\$(?=\S)([^$]*?\S)\$(?!\d)")
_INITIALS = re.compile(r"(?<![\w.])(?:[^\W\d_]\.\s?)+(?=[^\W\d_]?)")
_SPACED_INITIALS = re.compile(r"(?<![\w'.])[A-Z](?: [A-Z](?![\w'.]))+")
_UNITED_STATES = re.compile(r"(?<![\w$])USA?(?![\w$])")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,]*\d)")
_ESCAPED, _RESERVED = re.compile(r"\\([%$&#_])"), re.compile("[\ue000\ue001]")
_LETTERS_ONLY = re.compile(r"(?!.* (?:[sS]harp|[pP]lus|[mM]inus)\b)[A-Za-z ]+")
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_HALVES = re.compile(r"(?<=\d) ?([¼½¾])")
_POWER, _ACCENTS = re.compile(r"(?<=\d)(⁻?[⁰¹²³⁴-⁹]+)"), re.compile("[\u0300-\u036f]")
_TIMES = re.compile(r"\\(?:times|cdot)(?![a-z])\s?")
_CAPITAL_MILLION = re.compile(r"(?<=\d)M(?!\w)")
_DIGIT = re.compile(r"\d")
_Rules = list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
_CLEANED: _Rules = [
    (re.compile(r"(?<=[\w\ue001])\s*[‐‑‒–—]\s*(?=\w)"), lambda m: "-" if m[0] == m[0].strip() else " - "),
    (re.compile(r"(?<=[^\W\d])'(?=\w)|(?<=\w)'(?=[^\W\d])"), ""),
    (re.compile(r"(?<=[^\W\d])\.(?=[^\W\d])"), ""),
    (re.compile(r"(?<!\w)!(?=\w)"), " not "),
    (re.compile(r"(?<![\w])([a-g]) sharp(?!\w)"), r"\1#"),
    (re.compile(r"(?<![\w])([a-f]) (plus|minus)(?!\w)"), lambda m: m[1] + {"plus": "+", "minus": "-"}[m[2]]),
]
_CLEANED_NUMBERS: _Rules = [
    (re.compile(r"[<≤>≥±](?=\s*[$€£¥]?\d)"), lambda match: _BOUNDS[match[0]]),
    (re.compile(r"^\s*\+(?=\d)"), ""),
    (re.compile(r"(?<=\d)\s?[:∶]\s?(?=\d)"), ":"),
    (re.compile(r"(?<!\w)(?:v|ver\.?|version|release)\s?(?=\d+(?:\.\d|\s?$))"), ""),
    (re.compile(r"(?<=[a-z)])_\{?(\d+)\}?|\^\{?(\d*[+-])\}?(?![\w(])"), lambda match: match[1] or match[2]),
    (re.compile(r"(?<![\w#])(?:#|no\.|nr\.|number)\s*(?=\d)"), ""),
]
ADDRESS = "ǀ"  # begins the token of an address; a letter, so that it is part of the word
_PATH, _AT = "ǀ", "ǁ"
_PUBLISHED = re.compile(
    r"(?:https?://)?(?:www\.|dx\.)?(?:doi\.org/|arxiv\.org/(?:abs|pdf)/)|(?<!\w)(?:doi|arxiv):\s?", re.IGNORECASE
)
_DOTTED = re.compile(r"[.@]\w|[:/]/|(?:doi|arxiv):", re.IGNORECASE)
_LINK = re.compile(r"\[[^\[\]]{1,100}\]\(((?:https?://|www\.)[^\s()]{1,300})\)")
_ADDRESS = re.compile(
    r"(?:(?:https?://|mailto:)(?:www\.)?|www\.)(?P<long>[^\s<>()\"“”\u3000-\u9fff\uff00-\uffef]{1,300})"
    r"|(?<![A-Za-z0-9@._/-])(?P<short>(?:[A-Za-z0-9._+-]{1,60}@)?(?:[A-Za-z0-9-]{1,40}\.){1,4}"
    r"(?:com|org|net|edu|gov|int|info|dev|app|[a-z]{2})(?:/[A-Za-z0-9/_.~?=&%+-]{0,200})?)(?![A-Za-z0-9@])"
)
_MARK = r"\ue000[^\ue000\ue001]*\ue001"
_TOKEN = re.compile(
    rf"{_MARK}|[{CJK}]|[\U0001f1e6-\U0001f1ff]{{2}}|(?:(?<![\w.])-)?\d++(?:[./:\-]\d++)*+(?![^\W\d_{CJK}])|[^\W{CJK}]+(?:\++|#)(?!\w)|"
    rf"(?<!\w)[a-z]-(?![\w-])|[^\W{CJK}]+|\w+|\+"
)
_SYMBOLS = re.compile(r"[^\s\w!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]+")

# British spellings; a word that only looks like one is changed on both sides
_BRITISH = re.compile(
    r"(?<=[a-z]{3})our(?=s?\b|ed|ing|ful|ite)|(?<=[a-z]{2}t)re\b|(?<=h)ae(?=m)|(?<=p)ae(?=d)|\boe(?=s)"
)
_ROMAN = re.compile(r"x{0,2}(?:ix|iv|v?i{1,3}|v)|x|xx")  # up to 23; a single letter only at the end of a name


@lru_cache(maxsize=8192)
def tokens(text: str) -> list[str]:
    """Return the words of an answer: lower case, no punctuation, no articles, one token per CJK character.

    If there is no word at all, as in a flag emoji, the symbols themselves are returned.
    """
    text = with_digits(normalise_words(text))
    text = mark_quantities(mark_dates(with_ordinals(text)))
    found = [
        _SAME.get(word, word).replace("isation", "ization") for word in _TOKEN.findall(_BRITISH.sub(_american, text))
    ]
    found = [word.strip("\ue000\ue001") for word in found]
    # a final "a" is part of a name: "Vitamin A", "Serie A"
    kept = [word for word in found[:-1] if word not in _ARTICLES] + found[-1:]
    # an answer of articles only ("The The") is kept
    kept = found if kept and set(found) <= _ARTICLES else kept
    return without_roman(kept) or _SYMBOLS.findall(text)


def _american(match: re.Match[str]) -> str:
    return {"our": "or", "re": "er"}.get(match[0], "e")


def normalise_words(text: str) -> str:
    """Return a text in lower case, without accents, markup and the points of initials."""
    text = " ".join(simplified(text).split())  # long runs of spaces slow the patterns down
    if _LETTERS_ONLY.fullmatch(text):  # most names; none of the other patterns changes them
        text = _SPACED_INITIALS.sub(lambda match: match[0].replace(" ", ""), text)
        return _UNITED_STATES.sub("United States", text).lower()
    if _DOTTED.search(text):
        text = _ADDRESS.sub(_address, _LINK.sub(r"\1", _PUBLISHED.sub("", text)))
    if "\\" in text:
        boxed = _BOX.match(text)
        text = _TIMES.sub("×", unwrap(_ESCAPED.sub(r"\1", boxed[1] if boxed else text)))
    text = _MATH.sub(r"\1", text) if "$" in text else text
    if not text.isascii():
        text = _HALVES.sub(lambda match: {"¼": ".25", "½": ".5", "¾": ".75"}[match[1]], text)
        text = _POWER.sub(r"^\1", _THIN_SPACE.sub(",", _RESERVED.sub("", text))).translate(_SIGNS)
        # NFKD separates accents, which are removed; NFKC then unifies the remaining forms
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFKC", text)
    text = text.translate(_SIGNS)
    text = _INITIALS.sub(_joined, text)
    text = _SPACED_INITIALS.sub(lambda match: match[0].replace(" ", ""), text)
    numbers = _DIGIT.search(text) is not None
    # the capitals tell these from metres and from "us"
    text = _CAPITAL_MILLION.sub("mn", spelled_prefixes(text)) if numbers else text
    text = _UNITED_STATES.sub("United States", text).casefold().translate(_LETTERS)
    text = text.replace("_", " ").replace("&", " and ")
    for pattern, new in (*_CLEANED, *_CLEANED_NUMBERS) if numbers else _CLEANED:
        text = pattern.sub(new, text)
    return _THOUSANDS.sub(lambda match: match[1] + match[2].replace(",", ""), text) if numbers else text


def has_digit(token: str) -> bool:
    """Return whether a token contains a digit: a number, a date, or a name with a number."""
    return not token.isalpha() and any(map(str.isdigit, token))


def _address(match: re.Match[str]) -> str:
    """Return a web or mail address as one word, without its protocol."""
    text = (match["long"] or match["short"]).rstrip("/.,;:!?'").replace("/", _PATH).replace("@", _AT)
    return f" {ADDRESS}{re.sub(rf'[^A-Za-z0-9{_PATH}{_AT}]', '', text)} "


def _joined(match: re.Match[str]) -> str:
    text = match[0]
    return re.sub(r"[.\s]", "", text) + (" " if text[-1].isspace() or match.end() < len(match.string) else "")


def without_roman(words: Sequence[str]) -> list[str]:
    """Replace Roman numerals of kings and wars by digits; a first word is a name or a pronoun and is kept."""
    last = len(words) - 1
    return [
        str(roman(word)) if place and _ROMAN.fullmatch(word) and (len(word) > 1 or place == last) else word
        for place, word in enumerate(words)
    ]


def roman(word: str) -> int:
    """Return the value of a Roman numeral in lower case; 0 if a word is none."""
    if not re.fullmatch(r"(?=.)m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})", word):
        return 0
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}[letter] for letter in word]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
