r"""Units after an answer ("9 dollars", "15 cm^2", "90^\circ", "9 red apples", "5个") and currency signs before it.

A unit is not part of the number and is split off. If answer and gold answer have different units of measure, they are
converted, or the answer is wrong. The unit of a bare number is given by the question. Words that are not units are
kept, so that the text is not accepted as a number (`arpo_env.grading.answer_text.allowed_words`).
"""

from __future__ import annotations

import re
from fractions import Fraction

from arpo_env.grading.answer_text.allowed_words import AFTER, MODIFIERS, is_known_tail, names_what_is_counted
from arpo_env.grading.answer_text.exact_numbers import as_value

COUNTED = "things"  # the unit of "9 apples"
_MEASURES = {  # name: (kind and system, factor to the first unit of the system, other spellings)
    "cent": ("money us", 1, "cents ¢ 美分"),
    "dollar": ("money us", 100, "dollars usd bucks buck 美元"),
    "euro": ("money euro", 1, "euros eur € 欧元"),
    "yen": ("money yen", 1, "¥ 日元"),
    "yuan": ("money yuan", 1, "rmb cny 元 块"),
    "rupee": ("money rupee", 1, "rupees rs inr"),
    "peso": ("money peso", 1, "pesos"),
    "millimeter": ("length metric", 1, "millimeters millimetre millimetres mm 毫米"),
    "centimeter": ("length metric", 10, "centimeters centimetre centimetres cm 厘米"),
    "decimeter": ("length metric", 100, "decimeters decimetre decimetres dm 分米"),
    "meter": ("length metric", 1000, "meters metre metres m 米"),
    "kilometer": ("length metric", 10**6, "kilometers kilometre kilometres km 千米 公里"),
    "inch": ("length imperial", 1, "inches in"),
    "foot": ("length imperial", 12, "feet ft"),
    "yard": ("length imperial", 36, "yards yd yds"),
    "mile": ("length imperial", 63360, "miles mi"),
    "second": ("time clock", 1, "seconds sec secs s 秒 秒钟"),
    "minute": ("time clock", 60, "minutes min mins 分钟"),
    "hour": ("time clock", 3600, "hours hr hrs h 小时 个小时"),
    "day": ("time clock", 86400, "days 天"),
    "week": ("time clock", 604800, "weeks wk wks 周"),
    "month": ("time calendar", 1, "months 月 个月"),
    "year": ("time calendar", 12, "years yr yrs 年"),
    "decade": ("time calendar", 120, "decades"),
    "century": ("time calendar", 1200, "centuries"),
    "milligram": ("mass metric", 1, "milligrams mg 毫克"),
    "gram": ("mass metric", 1000, "grams g 克"),
    "kilogram": ("mass metric", 10**6, "kilograms kg kgs 千克 公斤"),
    "ounce": ("mass imperial", 1, "ounces oz"),
    "pound": ("mass imperial", 16, "pounds lb lbs £ 英镑 磅"),
    "milliliter": ("volume metric", 1, "milliliters millilitre millilitres ml cc 毫升"),
    "liter": ("volume metric", 1000, "liters litre litres l L 升"),
    "pint": ("volume imperial", 1, "pints"),
    "quart": ("volume imperial", 2, "quarts qt"),
    "gallon": ("volume imperial", 8, "gallons gal"),
    "degree": ("angle degree", 1, "degrees deg 度"),
    "radian": ("angle radian", 1, "radians rad 弧度"),
    "celsius": ("temperature celsius", 1, "centigrade C 摄氏度"),
    "fahrenheit": ("temperature fahrenheit", 1, "F 华氏度"),
    "kelvin": ("temperature kelvin", 1, "kelvins"),
}
_OTHERS = {
    "ton": "tons tonne tonnes 吨",
    "unit": "units",
    "mph": "",
    "acre": "acres",
    "hectare": "hectares",
    "ampere": "amperes amp amps A",
    "volt": "volts V 伏",
    "watt": "watts W 瓦",
    "newton": "newtons N 牛",
    "hertz": "hz Hz",
    "joule": "joules J 焦",
    "ohm": "ohms Ω",
    "pascal": "pa Pa pascals",
    "kilowatt": "kw kW kilowatts",
    "kph": "kmh",
    "fps": "",
    "calorie": "calories cal kcal",
    "tablespoon": "tablespoons tbsp",
    "teaspoon": "teaspoons tsp",
}
KINDS = frozenset(kind.split()[0] for kind, _, _ in _MEASURES.values())
_KNOWN = {form: name for name, forms in _OTHERS.items() for form in (name, *forms.split())}
_KNOWN |= {form: name for name, (_, _, forms) in _MEASURES.items() for form in (name, *forms.split())}
_CURRENCY = {
    "$": "dollar",
    "\\$": "dollar",
    "US$": "dollar",
    "USD": "dollar",
    "RMB": "yuan",
    "CNY": "yuan",
    "EUR": "euro",
    "Rs": "rupee",
    "Rs.": "rupee",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "￥": "yuan",
    "₹": "rupee",
}
_RATES = {"mph": "mile / hour", "kph": "kilometer / hour", "kmh": "kilometer / hour", "fps": "foot / second"}
_POWERS = {"square": "2", "squared": "2", "sq": "2", "cubic": "3", "cubed": "3", "cu": "3", "平方": "2", "立方": "3"}
_LEADING = re.compile(r"^([-+]?)\s*(US\$|USD|RMB|CNY|EUR|Rs\.?|\\\$|\\text\{\\\$\}|[$€£¥￥₹])\s*(?=[-\d.\\(])")
_WORD = r"[A-Za-z¢€£¥$][A-Za-z/.'-]*"
_TRAILING = re.compile(
    rf"^(?P<value>.*(?:[\d}})\]%]|\\pi\b|\\ldots|\d[a-z](?=\s[a-z]{3})))(?P<gap>\s*)(?P<words>{_WORD}(?:\s+{_WORD}){{0,8}})\s*(?:(?:\^\s*\{{?|(?<=m))(?P<power>[23])\}}?)?$"
)
_DOLLARS = re.compile(r"^(?P<value>-?[\d.,]+)\s*(?:\\\$|\$|€|£|¥)$")
_DEGREE = re.compile(
    r"^(?P<value>.*\S)\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|(?<=\s)deg(?:ree)?s?(?=\s+[CcFf]))"
    r"\s*(?P<scale>[CF]|[Cc]elsius|[Cc]entigrade|[Ff]ahrenheit)?$"
)
_OF_DEGREES = re.compile(
    r".*\\?(?:sin|cos|tan|cot|sec|csc)\s*(?:\^\s*(?:\{-?\d++\}|-?\d{1,2}))?\s*\(?[\d.]++\s*\^"
)  # \sin 75^\circ
_OVER = re.compile(r"\s*\\frac\s*\{\s*([A-Za-z]{1,8})\s*\}\s*\{\s*([A-Za-z]{1,8})\s*\}$")  # 5 \frac{km}{h}
_INVERSE = re.compile(r"(?<=\d)\s?([a-z]{1,2}?)\s?(?:\\cdot\s?)?(s|h|min)\s?\^\s?\{?-1\}?$")  # 5 m s^{-1}
_PER = re.compile(r"(?<=\d)\s*/\s*(?=(?:second|minute|hour|day|week|month|year|person|child|student|item|piece|unit)$)")
_PERCENT = re.compile(r"(?<=\d)\s(?:percent|per\scent)(?=\s)")
_HAN = r"[\u4e00-\u9fff]"
_CHINESE = re.compile(rf"^(?P<value>.*?)\s*(?P<words>(?:平方|立方)?{_HAN}{{1,12}}(?:/{_HAN}{{1,2}})?)$")
_HAN_RATE = re.compile(r"([^/每]+)[/每]个?(秒|分|时|秒钟|分钟|小时|天|月|年)")
_HAN_PER = re.compile(
    r"每个?(秒|分|时|秒钟|分钟|小时|天|月|年)(?:可?以?行驶|行|走|跑|飞行?|前进)?\s*(?=[\d零一二三四五六七八九十百])"
)
_HAN_TIMES = {"时": "hour", "分": "minute"}  # under a fraction bar
_TAIL = re.compile(
    r"(?:^|\s+)(?:at|in|on|from|for|to|of|by|with|before|after|until|when|while|if|per|up|above|along|into|onto|across"
    r"|through|around|towards?|past)\s+"
)
_COUNTERS = (
    "项道根页层排场圈步间家束株串盘碗桶罐个只条件张本支枝台辆座棵块片朵头匹位名人次种组对双套堆"
    "颗粒箱盒袋瓶杯份元角分度岁秒天日周月年斤公里米克升吨"
)
_ANY_COUNTERS = "个种人名位项次"  # people and ways are counted with either
_COUNTED_LIST = """
    人 学生 同学 苹果 球 数 整数 正整数 自然数 质数 素数 解 实数解 根 实根 实数根 点 交点 三角形 正方形 矩形 元素
    子集 方法 方案 选法 排法 可能 情况 零点 小球 数字 因数 约数 老师 男生 女生 钱 米 厘米 千米 分米 毫米 升 毫升 克 千克
    """
_COUNTED = frozenset(_COUNTED_LIST.split())


def split_unit(text: str, letters: bool = False, known: frozenset[str] = frozenset()) -> tuple[str, str]:
    r"""Return the text without its unit, and the unit's canonical name ("" for no unit, COUNTED for counted things).

    "%" is kept, since it is a factor rather than a unit.

    Args:
        text: text prepared by `arpo_env.grading.answer_text.normalize_latex.prepare`.
        letters: whether a single letter may be a unit, as in "5 m", rather than a variable.
        known: words of the question, from `arpo_env.grading.answer_text.allowed_words.question_words`.
    """
    unit = ""
    text = _PERCENT.sub(r"\\%", _PER.sub(" per ", _INVERSE.sub(r" \1/\2", _OVER.sub(r" \1/\2", text))))
    if match := _LEADING.match(text):
        unit, text = _CURRENCY.get(match[2], "dollar"), match[1] + text[match.end() :]
    if match := (None if _OF_DEGREES.match(text) else _DEGREE.match(text)) or _DOLLARS.match(text):
        scale = match["scale"][:1].upper() if match.re is _DEGREE and match["scale"] else ""
        return match["value"], _KNOWN.get(scale, "degree") if match.re is _DEGREE else unit or "dollar"
    if (match := _HAN_PER.match(text)) and "每" not in text[1:]:
        text = f"{text[match.end() :]}/{match[1]}"
    if match := _CHINESE.match(text):
        return _split_chinese(match, text, unit, known)
    match = _TRAILING.match(text) or _after_words(text)
    if match is None:
        return text, unit
    value, gap, words, power = match["value"], match["gap"], match["words"], match["power"]
    if words.split() in (["percent"], ["percentage"], ["per", "cent"], ["pct"]):
        return value.rstrip() + "\\%", unit
    if (scaled := re.match(r"(hundred|thousand|million|billion|trillion)\s+(?=\S)", words)) and re.search(
        r"\d$", value
    ):
        value, words = f"{value} {scaled[1]}", words[scaled.end() :]
    name = _unit_name(words, power, gap, letters, known)
    return (text, unit) if name is None else (value, unit if unit and name in ("", COUNTED) else name)


def same_unit(one: str, other: str) -> bool:
    """Return whether two units may be the same; "meter" may abbreviate "meter/second", and "degree" "celsius"."""
    if "degree" in (one, other) and {one, other} & {"celsius", "fahrenheit"}:
        return True
    if {one, other} == {"yen", "yuan"}:  # both are written with the same sign
        return True
    if COUNTED in (one, other) and {one, other} <= {COUNTED, *_COUNTERS}:
        return True
    return one == other or (("/" in one) != ("/" in other) and one.partition("/")[0] == other.partition("/")[0])


def convert(number: Fraction, unit: str, wanted: str) -> Fraction | None:
    """Return a number converted to another unit; None if the units have different dimensions."""
    (unit, _, under), (wanted, _, wanted_under) = unit.partition("/"), wanted.partition("/")
    if under or wanted_under:
        top, bottom = convert(number, unit, wanted), convert(Fraction(1), under, wanted_under)
        return None if top is None or not bottom else top / bottom
    if (unit, wanted) == ("celsius", "fahrenheit"):
        return number * 9 / 5 + 32
    if (unit, wanted) == ("fahrenheit", "celsius"):
        return (number - 32) * 5 / 9
    (kind, size), (wanted_kind, wanted_size) = _dimension(unit), _dimension(wanted)
    return number * size / wanted_size if kind == wanted_kind != "" else None


def _dimension(unit: str) -> tuple[str, Fraction]:
    """Return what a unit measures, and how large it is; "" for a unit that is not converted."""
    name, _, power = unit.partition("^")
    kind, size, _ = _MEASURES.get(name, ("", 1, ""))
    if (kind, power) == ("length metric", "3"):
        return "volume metric", Fraction(size**3, 1000)  # a milliliter is a cubic centimeter
    # areas and volumes scale with the power of the length
    return f"{kind}{power}" if kind else "", Fraction(size) ** int(power or 1)


def kind_of_unit(unit: str) -> str:
    """Return "length", "money", "time", "mass", "volume", or the unit itself for others; "" for rates of lengths."""
    name, _, under = re.sub(r"\^\d", "", unit).partition("/")
    kind = _MEASURES[name][0].split()[0] if name in _MEASURES else name
    return "" if under and kind != "money" else kind


def _after_words(text: str) -> re.Match[str] | None:
    """Find the unit after a number in words: "five apples"."""
    for match in reversed(list(re.finditer(r"\s+(?=[a-z])", text[:100]))):
        if as_value(text[: match.start()]) is not None:
            pattern = (
                rf"^(?P<value>.{{{match.start()}}})(?P<gap>\s+)(?P<words>[A-Za-z][A-Za-z\s/.'-]*)(?P<power>(?!))?$"
            )
            return re.match(pattern, text)
    return None


def _unit_name(words: str, power: str | None, gap: str, letters: bool, known: frozenset[str]) -> str | None:
    """Return the canonical name of a unit, "" for words like "in total", None if the words are not a unit."""
    words = words.strip().rstrip(".")
    while not _all_known(words.lower().split()) and (match := AFTER.fullmatch(words)) and match[1] != words:
        words = match[1].strip()
    if tail := next((match for match in _TAIL.finditer(words) if is_known_tail(words[match.end() :], known)), None):
        return _unit_name(words[: tail.start()], power, gap, letters, known)
    if not words:
        return "" if gap else None
    parts = words.replace(".", "").split()
    while parts[0].lower() in MODIFIERS and _all_known([part.lower() for part in parts[1:]]) and parts[1:]:
        parts = parts[1:]
    lower = [part.lower() for part in parts]
    # powers change the value
    if all(word in _POWERS for word in lower):  # "9 squared" is 81
        return None
    # a single letter is a unit only where a variable is impossible
    if len(parts[0]) == 1 and parts[0].isalpha():
        known_letter = letters and parts[0] in _KNOWN and (len(parts) == 1 or _all_known(lower))
        return (_KNOWN[parts[0]] + (f"^{power}" if power else "") if len(parts) == 1 else "") if known_letter else None
    if _all_known(lower):
        return _canonical(lower, power)
    measure = lower[0] if lower[0] in _KNOWN and lower[1:2] == ["of"] else ""
    if measure and names_what_is_counted(["items", "of", *lower[2:]], known):
        return _KNOWN[measure]
    if gap and power is None and names_what_is_counted([word.removesuffix("'s").strip("'") for word in lower], known):
        group = next((word.removesuffix("s") for word in lower if word.removesuffix("s") in ("dozen", "pair")), COUNTED)
        return COUNTED if "ordered" in lower else group
    return None


def _all_known(words: list[str]) -> bool:
    if "in" in words[1:] and words[-2] not in _POWERS:
        return False
    return all(
        part in _KNOWN or part in _POWERS or (part in ("per", "us") and len(words) > 1)
        for word in words
        for part in word.split("/")
    )


def _canonical(words: list[str], power: str | None) -> str:
    names = [part for word in words for part in word.replace("/", " / ").split() if part != "us"]
    powers = [_POWERS[name] for name in names if name in _POWERS] + ([power] if power else [])
    known = [_KNOWN.get(name, "") for name in names if name not in _POWERS]
    rate = " ".join(_RATES.get(name, name) for name in names).replace(" per ", " / ").split()
    if len(rate) == 3 and rate[1] == "/" and {rate[0], rate[2]} <= _KNOWN.keys():
        return f"{_KNOWN[rate[0]]}/{_KNOWN[rate[2]]}" + (f"^{power}" if power else "")
    name = known[0] if len(known) == 1 else ""
    return name + (f"^{powers[0]}" if powers and name else "")


def _split_chinese(match: re.Match[str], text: str, unit: str, known: frozenset[str]) -> tuple[str, str]:
    value, words = match["value"].strip(), match["words"]
    for start in range(len(words)):  # the number itself may be in Chinese: 五个
        head, tail = (value + words[:start]).strip(), words[start:]
        if as_value(head) is None and not (start == 0 and re.search(r"[\d})\]]$|\\pi$", head)):
            continue
        if rate := _HAN_RATE.fullmatch(tail):
            over = _KNOWN.get(rate[1], "" if rate[1] not in _COUNTERS else COUNTED)
            if over:
                return head, f"{over}/{_HAN_TIMES.get(rate[2]) or _KNOWN[rate[2]]}"
        power = next((mark for name, mark in _POWERS.items() if tail.startswith(name)), "")
        plain = tail[2:] if power else tail
        if plain in _KNOWN:
            return head, _KNOWN[plain] + (f"^{power}" if power else "")
        measure = next((plain[:end] for end in range(len(plain), 0, -1) if plain[:end] in _KNOWN), "")
        rest = plain.removeprefix(measure)
        if measure and (rest == "后" or _repeats(plain, known) or _repeats(rest, known)):
            return head, _KNOWN[measure] + (f"^{power}" if power else "")
        if not power and plain[0] in _COUNTERS and (_is_counted(plain[1:], known) or _repeats(plain, known)):
            return head, COUNTED if plain[0] in _ANY_COUNTERS else plain[0]
    return text, unit


def _repeats(words: str, known: frozenset[str]) -> bool:
    return len(words) > 1 and all(words[place : place + 2] in known for place in range(len(words) - 1))


def _is_counted(words: str, known: frozenset[str]) -> bool:
    """Return whether the Chinese words after a counter say what is counted: "不同的方法"."""
    words = re.sub("^(?:不同的?|可能的?|满足条件的|符合条件的|的)", "", words)
    return words in _COUNTED or not words or _repeats(words, known)
