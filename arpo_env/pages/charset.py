"""`decode`: the text of a page, by byte order mark, header, the page's own declaration, or a guess, in this order.

The guess looks at what the text would contain in each charset: kana, Hangul, or the most frequent Chinese characters.
Statistical detection (charset-normalizer) alone takes a short page in GBK for Korean.
"""

from __future__ import annotations

import codecs
import re

# Charsets that Python reads more narrowly than browsers do.
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "utf-8-sig": "utf-8",
    "utf-16": "utf-16-le",
}
# Python also has codecs that are not charsets, some of them slow; a page must not choose one of those.
_KNOWN = re.compile(
    r"utf-8|utf-16-[lb]e|gb18030|hz|big5|big5hkscs|cp(874|932|949|950|866|125\d)|euc_jp|iso2022_(jp|kr).*"
    r"|shift_jis.*|iso8859-\d+|koi8-[ru]|mac-(roman|cyrillic)|johab"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<meta[^>]{0,300}?charset\s*+=\s*+["']?\s*+([\w.:-]{2,40})|<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{2,40})""",
    re.IGNORECASE,
)
_HEAD = 4096
_SAMPLE = 100_000
_TAGS = re.compile(r"<[^<>]{0,2000}>")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_IDEOGRAPH = re.compile(r"[\u4e00-\u9fff]")
_FREQUENT = {
    "gb18030": "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就要下以生会自过学对可里后小多天而能"
    "好都然没于起发成事只作想看文无开手十用主行方又如前所本见经头面公同三长高首京万口千与及市区，。、",
    "big5hkscs": "的一是不了在人有我他這中大來上國個到說們為子和你地出道也時年得就要下以生會自過學對可裡後小多天而能"
    "好都然沒於起發成事只作想看文無開手十用主行方又如前所本見經頭面公同三長高首京萬口千與及市區灣台，。、",
}
_ASIAN = ("gb18030", "cp932", "euc_jp", "euc_kr", "big5hkscs")  # cp949 would take Shift-JIS for rare Hangul
_PLAUSIBLE = 0.2
_WESTERN = frozenset("àâäáãåæçéèêëíìîïñóòôöõøœúùûüßÀÂÄÁÅÆÇÉÈÊËÍÎÑÓÔÖØŒÚÛÜ‘’“”„–—…«»°©®·¿¡€£§\xa0")


def decode(body: bytes, header: str = "") -> str:
    """Return the text of a page; `header` is the charset that the Content-Type header names, or ""."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    for name in (_codec(header), _codec(_declared(body))):
        text = _fitting(body, name)
        if text is not None:
            return text
    return body.decode(_guess(body), "replace")


def _fitting(body: bytes, name: str) -> str | None:
    """Return the text if a declared charset fits the bytes, except for a few broken characters; else None."""
    if not name:
        return None
    if name.startswith("cp125") and not body.isascii():
        try:
            return body.decode("utf-8")  # valid UTF-8 is never an accident; servers claim latin-1 by default
        except UnicodeDecodeError:
            pass
    text = body.decode(name, "replace")
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    return text if text.count("\ufffd") <= 0.05 * foreign else None


def _codec(name: str) -> str:
    """Return Python's name of a charset, or "" if there is no such charset."""
    try:
        found = codecs.lookup(name.strip().lower().removeprefix("x-")).name if name else ""
    except (LookupError, ValueError, UnicodeError):
        return ""
    found = _WIDER.get(found, found)
    return found if _KNOWN.fullmatch(found) else ""


def _declared(body: bytes) -> str:
    found = _DECLARED.search(body, 0, _HEAD)
    if found is None:
        return ""
    name = (found.group(1) or found.group(2)).decode("ascii", "replace")
    # A declaration that is readable as ASCII cannot be in UTF-16.
    return "utf-8" if name.lower().startswith("utf-16") else name


def _guess(body: bytes) -> str:
    wide = _wide(body)
    if wide:
        return wide
    if b"\x1b$B" in body:
        return "iso2022_jp"
    try:
        body.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError:
        pass
    plausible = {name: _plausibility(body, name) for name in _ASIAN}
    best = max(plausible, key=lambda name: plausible[name])
    if plausible[best] >= _PLAUSIBLE:
        return _WIDER.get(best, best)
    return "cp1252" if _western(body[:_SAMPLE]) else _by_statistics(body[:_SAMPLE])


def _wide(body: bytes) -> str:
    """Recognise UTF-16 without a byte order mark: in markup every second byte is zero."""
    for name, start in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros = body[start:400:2]
        if len(zeros) >= 4 and zeros.count(0) > 0.4 * len(zeros) and not body[1 - start : 400 : 2].count(0):
            return name
    return ""


def _plausibility(body: bytes, name: str) -> float:
    """Return the share of the non-ASCII characters that is typical of the charset's language."""
    text = _fitting(body[:_SAMPLE], name)
    if text is None:
        return 0.0
    text = _TAGS.sub(" ", text)
    foreign = sum(1 for character in text if character > "\x7f")
    ideographs = len(_IDEOGRAPH.findall(text))
    if name in _FREQUENT:
        frequent = set(_FREQUENT[name])
        usual = sum(1 for character in text if character in frequent)
    elif name == "euc_kr":
        usual = len(_HANGUL.findall(text)) - 3 * ideographs
    else:
        usual = len(_KANA.findall(text))
    return usual / foreign if foreign else 0.0


def _western(body: bytes) -> bool:
    """Recognise languages of western Europe, which statistics take for Polish: few non-ASCII letters, all western."""
    text = _TAGS.sub(" ", body.decode("cp1252", "replace"))
    foreign = [character for character in text if character > "\x7f"]
    letters = sum(map(str.isalpha, text))
    return len(foreign) < 0.25 * letters and sum(each in _WESTERN for each in foreign) >= 0.95 * len(foreign)


def _by_statistics(body: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(body).best()
    return _codec(best.encoding) if best is not None and _codec(best.encoding) else "cp1252"
