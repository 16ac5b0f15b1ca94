r"""`tokens` converts an answer in words to a list of tokens, equal for the same answer in different forms.

It applies SQuAD's rules (lower case, no punctuation, no articles) and adds what they lack: NFKC, accents, Unicode
punctuation, one token per CJK character, joined initials ("J. R. R." is "JRR"), signs that distinguish names ("C#",
"C++", "A+"), and unwrapping of \text{...} and bold. A date is one token, as is a number with its unit (`qa_values`).
Chinese answers get one script, and numerals as digits; their names are compared without what only says what they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from arpo_env.grading.answer_text import unwrap
from arpo_env.grading.math_values import read_words
from arpo_env.grading.qa_values import UNITS, mark_dates, mark_quantities, spelled_prefixes, with_ordinals
from arpo_env.grading.words import LISTS

# Chinese answers: one script, numerals as digits, and names without what only says what they are.

_SCRIPT = str.maketrans(*("".join(LISTS[name].split()) for name in ("traditional", "simplified")))
_NUMERAL = "〇零一二三四五六七八九十百千万亿两"
_MEASURE = "个部名位座条次本种家所集首支枚场张届篇幢款台辆艘架颗项件步卷期级层门栋"
_COUNTED = f"年月日号岁人天世点时分比届季{_MEASURE}"
_UNIT_NAMES = "|".join(sorted((name for name in UNITS if name > "\u4e00"), key=len, reverse=True))
_CHINESE_DIGIT = "[零〇一二三四五六七八九]"
_WORDS = re.compile(
    rf"(?:(?<=分之)|(?<=[第比]))[{_NUMERAL}]{{1,12}}(?:点{_CHINESE_DIGIT}{{1,9}})?|^[{_NUMERAL}]{{1,20}}$"
    rf"|(?<![{_NUMERAL}])[{_NUMERAL}]{{1,20}}(?:点{_CHINESE_DIGIT}{{1,9}})?(?=[{_COUNTED}]|{_UNIT_NAMES})"
)
_SEASONS = {"春": "spring", "夏": "summer", "秋": "autumn", "冬": "winter"}
_CENTURIES = {"上": 20, "本": 21}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS = {
    letter: day for letters in ("一二三四五六日", "123456天") for letter, day in zip(letters, _DAYS, strict=True)
}
_AFTERNOON = ["中午", "下午", "傍晚", "晚上", "夜里", "夜间", "深夜"]
_FORENOON = ["凌晨", "早上", "早晨", "清晨", "上午"]
_CENTURY = re.compile(r"(公元前?)?(前)?\s?第?\s?(?:(\d{1,2})|([上本]))\s?世纪(?:\s?(\d0)\s?年代)?")
# what is written as in English, in this order
_Rules = list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]
_IN_ENGLISH: _Rules = [
    (re.compile(r"百分之\s?(\d[\d.]*)"), r"\1%"),
    (re.compile(r"千分之\s?(\d[\d.]*)"), r"\1‰"),
    (re.compile(r"(\d{1,4})\s?分之\s?(\d{1,4})"), r"\2/\1"),
    (re.compile(r"(?<!\d)(\d{1,3})\s?比\s?(\d{1,3})(?!\d)"), r"\1:\2"),
    (_CENTURY, lambda match: _century(match)),
    (re.compile(r"(?<!\d)(\d\d)?(\d0)\s?年代"), lambda match: f"{match[1] or 19}{match[2]}s"),
    (re.compile(r"公元前\s?(\d{1,4})\s?年?|前\s?(\d{3,4})(?:\s?年|(?=$))"), r" \1\2 bc "),
    (re.compile(r"公元(?=\s?\d)"), ""),
    (
        re.compile("(?:星期|周|礼拜)([1-6一二三四五六日天])(?![\u4e00-\u9fff]*年)"),
        lambda match: f" {_WEEKDAYS[match[1]]} ",
    ),
    (re.compile(r"(\d{4})\s?年?\s?第?\s?([1-4])\s?季度"), r" q\2 \1 "),
    (re.compile(r"(\d{4})\s?年的?([春夏秋冬])[天季]?"), lambda match: f" {_SEASONS[match[2]]} {match[1]} "),
    (
        re.compile(
            rf"(?P<when>{'|'.join(_AFTERNOON + _FORENOON)})?\s?(?<!\d)(?P<hour>\d{{1,2}})\s?(?P<sign>[点时:])"
            r"(?![间代期])"
            r"(?:\s?(?P<minute>\d{1,2})\s?分?|(?P<half>半)|1?(?P<quarter>刻)|整|钟)?"
        ),
        lambda match: _clock(match),
    ),
]
_MYRIADS = re.compile(r"(?<![\d.])(\d{1,12}(?:\.\d{1,6})?)\s?(万亿|万|亿)")
_MEASURES = re.compile(rf"(?<=\d)\s?(?:[{_MEASURE}]|人(?!民))|(?<=月)份")
_TOTAL = re.compile(r"(?:总|一)?共有?\s?(?=\d)")
_SIZES = {"万": 10**4, "亿": 10**8, "万亿": 10**12}
_COUNTRIES, _ROLES, _TITLES = (LISTS[f"chinese {name}"].split() for name in ("countries", "roles", "titles"))
_KINDS = ("特别行政区", "自治区", "市", "省", "县", "区", "镇", "村", "州", "公司", "集团")
_WORK = re.compile(
    "[\u4e00-\u9fff]{0,6}(?:小说|电影|影片|剧|诗集?|散文|专辑|歌曲|著作|名著|作品|书)《([^《》]{1,30})》"
)
_RANKS = "第一二三四五六七八九十副前非"
_PROVINCES = "|".join(LISTS["chinese provinces"].split())
_OF_PROVINCE = rf"(?:中国)?(?:(?:{_PROVINCES})(?:省|\w{{0,3}}自治区)?)"
_PROVINCE = re.compile(rf"^{_OF_PROVINCE}(?=[\u4e00-\u9fff]{{2}})(?!人民|大学|农业|师范|省|市|话|菜|\w{{0,3}}自治区)")
_PLACE = re.compile(r"(?<=[\u4e00-\u9fff]{2})[省市](?=[\u4e00-\u9fff]{2,6}[市区县镇]$)")
_COMPANIES = ("公司", "集团")
_PREFIX = re.compile("|".join(_COUNTRIES))
_ROLE = "[\u4e00-\u9fff]{1,3}(?:[员家者]|[诗词商]人|[教大]师|皇帝|(?:创始|负责|领导|主持|发明|代表|传)人)|医生|将军"
_BEFORE_NAME = re.compile(
    f"(?:(?:{'|'.join((*_COUNTRIES, *_ROLES))})的?)*(?:{_ROLE}|{'|'.join((*_COUNTRIES, *_ROLES))})的?"
)
_AFTER_NAME = re.compile(f"(?:{'|'.join(_TITLES)})$")
_BESIDE_DIGITS = re.compile(r"(?<=[\u4e00-\u9fff])(?=\d)|(?<=\d)(?=[\u4e00-\u9fff])")
_ABOUT = re.compile(r"(?:大约|约为|约|大概)\s?(?=\d)")
_YES = re.compile(r"(?:yes|有的?|是的?|对的?|没错|正确)(?:[,，。.;；:：!！]+(.*))?")
_NO = re.compile(r"(?:no|不是的?|不|否|不对|没有|并非如此)(?:[,，。.;；:：!！]+(.*))?")
_REPEATED = re.compile(r"([不没](?:是|有)?|并不是?|并非|并没有)?([\u4e00-\u9fff]{1,40}?)[。.！!]?")
_UNSURE = re.compile("但|可能|也许|或|大概|吗|是不是|不一定|也是|也不")


def is_chinese_yes(text: str, question: str) -> bool | None:
    """Return whether a Chinese answer to a yes-or-no question says yes; None if that is unclear or no such answer.

    The first word decides. A reason may follow, but must not take it back or, after a yes, tell the subjects apart.
    """
    text = "".join(simplified(text).split())
    text = text.lower().rstrip(".。") if text.isascii() else text
    if (text.isascii() and text not in ("yes", "no")) or not re.search("吗|是否|是不是", question):
        return None
    yes = _YES.fullmatch(text)
    match = yes or _NO.fullmatch(text)
    if not match and (said := _REPEATED.fullmatch(text)) and not _UNSURE.search(text):
        asked = re.sub(r"\W|是否|吗|呢", "", simplified(question))
        asked = asked.replace("是不是", "是")
        denied = re.sub("不(?!是不)|没(?=有)", "", said[2], count=1)
        if len(said[2]) > 1 and asked.endswith(said[2]):
            return not said[1]
        return False if not said[1] and denied != said[2] and asked.endswith(denied) else None
    if not match or _UNSURE.search(rest := match[1] or ""):
        return None
    if yes:
        return None if re.search("[不非否没]|只|而", rest) else True
    repeated = len(rest) > 3 and rest.strip("。").lstrip("他她它们两人都") in "".join(simplified(question).split())
    return None if re.match("是的?|对|[不否没]有?[,，]", rest) or repeated else False


def simplified(text: str) -> str:
    """Return a text in simplified characters."""
    return text if text.isascii() else text.translate(_SCRIPT)


def with_digits(text: str) -> str:
    """Write Chinese numerals before what they count as digits, and dates and times in words as in English."""
    if text.isascii():
        return text
    text = _ABOUT.sub(" about ", _WORDS.sub(_digits, text))
    for pattern, written in _IN_ENGLISH:
        text = pattern.sub(written, text)
    text = _MYRIADS.sub(lambda match: _plain(Fraction(match[1]) * _SIZES[match[2]]) or match[0], text)
    return _BESIDE_DIGITS.sub(" ", _TOTAL.sub("", _MEASURES.sub(" ", text)))


def _century(match: re.Match[str]) -> str:
    before = " bc" if match[2] or (match[1] or "").endswith("前") else ""
    century = int(match[3]) if match[3] else _CENTURIES[match[4]]
    return f" {century - 1}{match[5]}s{before} " if match[5] else f" {century}th century{before} "


def _clock(match: re.Match[str]) -> str:
    hour, when = int(match["hour"]), match["when"]
    if hour > 24 or (match["sign"] == ":" and not (when and match["minute"])):
        return match[0]
    minute = 30 if match["half"] else 15 if match["quarter"] else int(match["minute"] or 0)
    late = when in _AFTERNOON and not (when == "中午" and hour > 10)
    hour = hour % 12 + 12 if late and hour < 12 else hour % 12 if when == "凌晨" else hour
    return f" {hour:02}:{minute:02} "


def same_chinese_name(answer: str, gold: str, question: str) -> bool:
    """Return whether two Chinese names differ in what is before them or after them: a country, province, or title.

    The last place of an address is enough, since the province is known from the city: 广东省深圳市 is 深圳.
    """
    if gold.isascii() or answer.isascii():
        return False
    mine, theirs = ("".join(simplified(text).split()).rstrip("。") for text in (answer, gold))
    if theirs.endswith("号") and len(mine) > 5 and re.sub("[省市]", "", theirs).endswith(re.sub("[省市]", "", mine)):
        return True  # the end of an address
    if match := _WORK.fullmatch(mine):
        mine = match[1]
    mine, theirs = _last_place(mine), _last_place(theirs).strip("《》")
    one, other = _name(mine, question), _name(theirs, question)
    if one[0] != other[0] or len(one[0]) < 2:
        return False
    asked = [kind for kind in _KINDS if kind in question and (kind in _COMPANIES) == (one[2] in _COMPANIES)]
    kinds = {one[2], other[2]} - {""}
    # a province is not its capital: 吉林省, 吉林市
    if len(kinds) > 1 or (one[2] and not other[2] and asked and one[2] not in asked):
        return False
    return len({one[1], other[1]} - {""}) < 2


def _last_place(text: str) -> str:
    """Return an address without its province, and without the kinds of what is around its last place."""
    return _PLACE.sub("", _PROVINCE.sub("", text, count=1) or text)


def _name(text: str, question: str = "") -> tuple[str, str, str]:
    """Return the name, the country before it and the kind of place after it."""
    before = _BEFORE_NAME.match(text)
    # "第二作者" is not "第一作者"
    if before and any(letter in _RANKS and letter not in question for letter in before[0]):
        before = None
    name = text[before.end() :] if before and len(text) - before.end() > 1 else text
    name = text if name in _ROLES else name
    country = _PREFIX.search(text[: len(text) - len(name)])
    name = _AFTER_NAME.sub("", name) or name
    kind = next((kind for kind in _KINDS if name.endswith(kind) and len(name) > len(kind) + 1), "")
    if kind == "自治区":
        name = re.sub("(?:维吾尔|壮族|回族)(?=自治区$)", "", name)
    return name.removesuffix(kind), country[0] if country else "", kind


def is_role(text: str) -> bool:
    """Return whether a text is a profession, perhaps with a country before it."""
    return _BEFORE_NAME.fullmatch(simplified(text)) is not None


def is_country(text: str) -> bool:
    """Return whether a text is the name of a country, or of a Chinese province."""
    return simplified(text) in _COUNTRIES or re.fullmatch(_OF_PROVINCE, simplified(text)) is not None


def plain_name(text: str) -> str:
    """Return a name without titles and kinds of places."""
    return _name("".join(simplified(text).split()))[0] if re.search("[\u4e00-\u9fff]", text) else text


def belongs(answer: str, gold: str) -> bool:
    """Return whether an answer names something of the gold answer: 李白的诗."""
    rest = "" if gold.isascii() else answer.partition(gold)[2]
    return rest[:1] in tuple("的之") and rest[1:2] > "\u4e00"


def _digits(match: re.Match[str]) -> str:
    if len(match[0]) == 2 and not set(match[0]) & set("十百千万亿"):
        return match[0]  # "二三个" is two or three
    whole, _, rest = match[0].partition("点")
    value = read_words(whole)
    if value is None or not _plain(value):
        return match[0]
    return _plain(value) + (f".{_plain(read_words('一' + rest) or Fraction())[1:]}" if rest else "")


def _plain(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else ""


CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0002fa1f"
_ARTICLES = frozenset({"a", "an", "the"})
_SAME = dict(pair.split("-") for pair in LISTS["short forms"].split())
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
    found = _TOKEN.findall(_BRITISH.sub(lambda match: {"our": "or", "re": "er"}.get(match[0], "e"), text))
    found = [_SAME.get(word, word).replace("isation", "ization").strip("\ue000\ue001") for word in found]
    # a final "a" is part of a name: "Vitamin A", "Serie A"
    kept = [word for word in found[:-1] if word not in _ARTICLES] + found[-1:]
    # an answer of articles only ("The The") is kept
    kept = found if kept and set(found) <= _ARTICLES else kept
    return without_roman(kept) or _SYMBOLS.findall(text)


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
