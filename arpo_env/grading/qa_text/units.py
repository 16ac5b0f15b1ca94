"""Units of measurement and currencies after a number: `unit_at` reads "km/h", "square miles", "kg m^-3", "千米/小时".

A unit has a factor and a dimension, a product of powers of base units. Units with an exact factor between them have
the same bases: a litre is a thousandth of a cubic metre, a kilowatt hour 3.6 million joules. Miles never equal
kilometres, nor dollars euros: these are bases of their own, and `in_metric` tells about how large they are.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_PREFIXES = {
    "k": ("kilo", "千", "1000"),
    "M": ("mega", "兆", "1000000"),
    "G": ("giga", "吉", "1000000000"),
    "T": ("tera", "太", "1000000000000"),
    "P": ("peta", "", "1000000000000000"),
    "h": ("hecto", "百", "100"),
    "d": ("deci", "分", "1/10"),
    "c": ("centi", "厘", "1/100"),
    "m": ("milli", "毫", "1/1000"),
    "μ": ("micro", "微", "1/1000000"),
    "n": ("nano", "纳", "1/1000000000"),
    "p": ("pico", "", "1/1000000000000"),
}
# symbol, its prefixes ("+": none) as they are read in lower case, name, Chinese name = factor and bases
_METRIC = """
m +kdcmμn meter 米 = 1 m; g +kmμ gram 克 = 1 g; s +mμn second 秒 = 1 s; l +hdcmμ liter 升 = 1/1000 m3;
w kMG watt 瓦 = 1000 g m2 s-3; j kMG joule 焦耳 = 1000 g m2 s-2; wh kMGT watt-hour 瓦时 = 3600000 g m2 s-2;
pa kMGh pascal 帕 = 1000 g m-1 s-2; hz +kMG hertz 赫兹 = 1 s-1; v km volt 伏 = 1 V; amp + ampere 安 = 1 A;
ev +kMG electronvolt 电子伏特 = 1 eV; cal +k calorie 卡 = 1 cal; mol +m mole 摩尔 = 1 mol; ohm +kM ohm 欧姆 = 1 ohm;
nt - newton 牛顿 = 1000 g m s-2; b kMGTP byte 字节 = 8 bit; bit +kMG bit 比特 = 1 bit; t +M tonne 吨 = 1000000 g
"""
_OTHERS = """
inch inches in ″ " 英寸 = 1 inch; foot feet ft ′ ' 英尺 = 12 inch; yard yd 码 = 36 inch; mile mi 英里 = 63360 inch;
nautical-mile nmi 海里 = 1 nmi; knot kn kt = 1/3600 nmi s-1; acre 英亩 = 6272640 inch2; hectare ha 公顷 = 10000 m2;
mph = 63360/3600 inch s-1; kmh kph = 1000/3600 m s-1;
kbps = 1000 bit s-1; mbps = 1000000 bit s-1; gbps = 1000000000 bit s-1; percentage-point pp 个百分点 = 1 pp;
pound-weight lb lbs 磅 = 1 lb; ounce oz 盎司 = 1/16 lb; stone = 14 lb; ton short-ton = 1 ton; metric-ton = 1000000 g;
kilo kgs 公斤 = 1000 g; 公里 = 1000 m; 斤 = 500 g; 亩 = 2000/3 m2; gallon gal 加仑 = 1 gal; barrel bbl 桶 = 1 bbl;
sec secs 秒钟 = 1 s; minute min mins 分钟 = 60 s; hour hr hrs h 小时 个小时 钟头 = 3600 s; day days 天 = 86400 s;
week wk 周 星期 个星期 = 604800 s; month 个月 = 1 month; year yr yrs 岁 周岁 = 12 month; decade = 120 month;
century centuries = 1200 month;
fps = 1 s-1; rpm bpm = 1/60 s-1; light-year lightyear ly 光年 = 1 ly; astronomical-unit au 天文单位 = 1 AU; sqm = 1 m2;
°c celsius degree-celsius degrees-celsius degree-centigrade degrees-centigrade degree-c degrees-c deg-c 摄氏度 = 1 °C;
°f fahrenheit degree-fahrenheit degrees-fahrenheit degree-f degrees-f deg-f 华氏度 = 1 °F; kelvin 开尔文 = 1 K;
° degree deg 度 = 1 deg; % percent per-cent percentage pct = 1 %; ‰ permille per-mille = 1/10 %;
$ usd us$ dollar united-states-dollar american-dollar bucks 美元 美金 = 1 USD; € eur euro 欧元 = 1 EUR;
£ gbp pound pounds-sterling sterling british-pound 英镑 = 1 GBP; jpy yen 日元 日圆 = 1 JPY; ¥ = 1 ¥;
rmb cny yuan renminbi chinese-yuan 元 人民币 块 块钱 圆 = 1 CNY; ₹ inr rs rupee indian-rupee 卢比 = 1 INR;
a$ au$ aud australian-dollar 澳元 = 1 AUD; c$ ca$ cad canadian-dollar 加元 = 1 CAD;
hk$ hkd hong-kong-dollar 港元 港币 = 1 HKD; s$ sgd singapore-dollar 新元 = 1 SGD; nz$ nzd new-zealand-dollar = 1 NZD;
nt$ twd 新台币 台币 = 1 TWD; ₩ krw won 韩元 = 1 KRW; ₽ rub ruble rouble 卢布 = 1 RUB;
chf franc swiss-franc 法郎 = 1 CHF; r$ brl reais = 1 BRL; cent ¢ 美分 = 1 cent
"""
_BASE = re.compile(r"([^\d\s·-]+)(-?\d)?")
# how large bases without an exact factor are in others, for amounts that are told twice: "8 kilometers (5 miles)"
_SIZES = {
    "inch": (0.0254, "m"), "nmi": (1852, "m"), "lb": (453.59237, "g"), "ton": (907184.74, "g"),
    "gal": (0.003785411784, "m3"), "ly": (9.4607e15, "m"), "AU": (1.495979e11, "m"),
}  # fmt: skip
_POWERS = {"s": 2, "c": 3, "平": 2, "立": 3}
_FACTOR = re.compile(
    r"(?P<gap>[ -]?)(?:(?P<over>(?:(?:people|persons?|inhabitants|residents|frames|beats|revolutions|人) ?)?"
    r"(?:/|per (?!cent|mil)|每|(?<=[a-z\d] )a ))\s?|[·.*](?=[a-z]))?(?P<power>square[ -]|sq\.? ?|cubic[ -]|平方|立方)?"
    r"(?P<name>[a-z]{0,2}\$|[°%‰″\"′'€£¥₹₩₽¢][cf]?(?![a-z])|[a-zμ]+(?:[ -][a-z]+){0,2}|[\u4e00-\u9fff]{1,4})"
)
_EXPONENT = re.compile(
    r"\s?\^\s?[({]{0,2}(-?[1-4])[)}]{0,2}(?!\d|[.,]\d)|(?<=[a-z])(-?[1-4])(?!\d|[.,]\d)"
    r"|\s(squared|cubed)(?!\w)"
)
_GOES_ON = re.compile(r"\s?[a-z0-9\u4e00-\u9fff]")  # "12 in Rome"
_HEIGHT = re.compile(r"\d['′]\s?\d")
_CASED = re.compile(r"(?<=\d)([ -]?)([kKMGTP]?)(Wh|W|Hz|Pa|J|eV|V|B|bit|bps|b|N|Ω|K)(?=s?(?:[^\w]|$))")
_SPELLED = {
    "Wh": "watt-hour", "W": "watt", "Hz": "hertz", "Pa": "pascal", "J": "joule", "eV": "electronvolt", "V": "volt",
    "B": "byte", "b": "bit", "bit": "bit", "bps": "bit/s", "N": "newton", "Ω": "ohm", "K": "kelvin",
}  # fmt: skip


def _spellings(name: str) -> list[str]:
    """Return the plural, American and British spellings of a unit's name; short forms have only one."""
    name = name.replace("-", " ")
    forms = [name] if len(name) <= 3 or not name.isascii() else [name, f"{name}s"]
    forms += [form.replace("meter", "metre").replace("liter", "litre") for form in forms]
    return [*forms, *(form.replace(" hour", "hour") for form in forms)]


def _read(text: str) -> tuple[Fraction, str]:
    factor, _, bases = text.strip().partition(" ")
    top, _, bottom = factor.partition("/")
    return Fraction(top) / Fraction(bottom or 1), "·".join(bases.split())


def _table() -> dict[str, tuple[Fraction, str]]:
    found: dict[str, tuple[Fraction, str]] = {}
    for line in _METRIC.split(";"):
        names, _, meaning = line.partition(" = ")
        symbol, prefixes, name, chinese = names.split()
        factor, dimension = _read(meaning)
        for form in (*_spellings(name), chinese, *([symbol] if "+" in prefixes else [])):
            found[form] = factor, dimension
        for short, (long, han, scale) in _PREFIXES.items():
            forms = [form for spelled in _spellings(name) for form in (long + spelled, f"{long} {spelled}")]
            forms += ([han + chinese] if han else []) + ([short.lower() + symbol] if short in prefixes else [])
            for form in forms:
                found.setdefault(form, (factor * Fraction(scale), dimension))
    for line in _OTHERS.split(";"):
        names, _, meaning = line.partition(" = ")
        found |= {form: _read(meaning) for name in names.split() for form in _spellings(name)}
    return found


UNITS = _table()
_MONEY = frozenset(dimension for _, dimension in UNITS.values() if re.fullmatch("[A-Z]{3}|¥|cent", dimension))
CURRENCIES = {form: dimension for form, (_, dimension) in UNITS.items() if dimension in _MONEY}


def spelled_prefixes(text: str) -> str:
    """Write capital letters of units out, which tell megawatts from milliwatts, and bytes from bits."""

    def spelled(match: re.Match[str]) -> str:
        if match[3] in ("B", "b") and not match[2]:
            return match[0]  # "5B" are five billion
        if match[3] == "K" and (match[1] != " " or match[2]):
            return match[0]  # "5K" are five thousand
        prefix = _PREFIXES[match[2].replace("K", "k")][0] if match[2] else ""
        return f" {prefix}{_SPELLED[match[3]]}"

    return _CASED.sub(spelled, text)


def unit_at(text: str, start: int) -> tuple[Fraction, str, int] | None:
    """Return the factor and dimension of the unit at a place of a text in lower case, and where it ends."""
    factor, powers, end = Fraction(1), dict[str, int](), start
    for place in range(4):
        match = _FACTOR.match(text, end)
        name = _name(match["name"]) if match else ""
        if match is None or not name or (name == "in" and _GOES_ON.match(text, match.start("name") + 2)):
            break
        if name in ("'", '"') and not _HEIGHT.search(text, max(match.start("name") - 6, 0), match.start("name") + 3):
            break  # a quotation mark
        if name == "s" and not place and not match["gap"]:
            break  # "1970s"
        raised = _EXPONENT.match(text, match.start("name") + len(name))
        linked = match["over"] or "·" in match[0] or (raised and raised[0].lstrip(" ^({")[:1] == "-")
        if (place and not linked) or (match["power"] and raised):
            break  # "5 ft 7 in" are two amounts
        power = _POWERS[match["power"][0]] if match["power"] else 1
        if raised:
            power = int(raised[1] or raised[2] or _POWERS[raised[3][0]])
        power = -power if match["over"] else power
        size, dimension = UNITS[name]
        factor *= size**power
        for base, own in _BASE.findall(dimension):
            powers[base] = powers.get(base, 0) + power * int(own or 1)
        end = raised.end() if raised else match.start("name") + len(name)
    return (factor, _dimension(powers), end) if end > start else None


@lru_cache(maxsize=4096)
def _name(words: str) -> str:
    """Return the longest beginning of words that names a unit."""
    if words[0] > "\u4e00":
        return next((words[:end] for end in range(len(words), 0, -1) if words[:end] in UNITS), "")
    ends = [*(match.start() for match in re.finditer("[ -]", words)), len(words)]
    return next((name for end in ends[::-1] if (name := words[:end].replace("-", " ")) in UNITS), "")


def _dimension(powers: dict[str, int]) -> str:
    return "·".join(f"{base}{power if power != 1 else ''}" for base, power in sorted(powers.items()) if power)


def in_metric(value: Fraction, dimension: str) -> tuple[float, str]:
    """Return about how much an amount is in metric units, and their dimension."""
    size, powers = float(value), dict[str, int]()
    for base, own in _BASE.findall(dimension):
        factor, inner = _SIZES.get(base, (1.0, base))
        size *= factor ** int(own or 1)
        for name, count in _BASE.findall(inner):
            powers[name] = powers.get(name, 0) + int(own or 1) * int(count or 1)
    return size, _dimension(powers)
