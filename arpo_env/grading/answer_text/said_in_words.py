r"""Answers that say in words what mathematics writes in signs: `rewritten` gives both the same form.

"x if x \ge 0, and -x if x < 0" are the cases of a function, "2 + \sqrt{5} (approximately 4.236)" an approximation, and
"k \in \mathbb{Z}" names the parameter of a family. `says_yes` reads "No, 91 = 7 \cdot 13" as no.
"""

from __future__ import annotations

import re

_CASES = re.compile(
    r"^(?:[a-zA-Z]\s*\([a-z]\)|[a-z])?\s*=?\s*\\begin\s*\{cases\}(.*)\\end\s*\{cases\}\s*\.?$", re.DOTALL
)
_NAME = re.compile(r"^(?:[a-zA-Z]\s*\([a-z]\)|y)\s*=\s*")
_IF = re.compile(r"\s*,?\s*(?<![a-z])(?:if|for|when|where)(?![a-z])\s*")
_NEXT = re.compile(r"\s*[,;]\s*(?:and\s+)?|\s+and\s+")
_CONDITION = re.compile(r"[<>=]|\\(?:l|g)(?:e|eq|t)(?![a-z])|\\neq?(?![a-z])|otherwise")
_ABOUT = re.compile(
    r"(?P<exact>.*\S)\s*(?:\(|,)\s*(?:or\s+)?(?:which\s+is\s+)?(?:approx(?:imately|\.)?|about|roughly|\\approx)\s*"
    r"(?P<decimal>-?\d{1,12}\.\d{1,12})\)?"
)
_WHOLE = r"(?:\\in\s*\\?(?:mathbb|mathbf|Bbb)?\s*\{?\s*Z\s*\}?|is\s+an(?:y)?\s+integer|为整数|是整数)"
_FAMILY = re.compile(
    rf"(?P<main>.*\S)\s*(?:,|;|\()?\s*(?:(?:where|for|with)\s+)?(?<![A-Za-z])(?:(?P<name>[kmn])\s*{_WHOLE}"
    r"|(?:any|all|every|some)?\s*integers?\s+(?P<other>[kmn]))\s*\)?"
)
_CONSTANT = re.compile(
    r"(?P<main>[a-z]\([a-z]\)\s*=.*[^\s,]),?\s+(?:where|for|with)\s+(?:(?:any|all|every)\s+)?(?P<name>[a-z])\s+is\s+(?:an?\s+|any\s+)?"
    r"(?:arbitrary\s+|real\s+|free\s+)*(?:constant|number)"
)
_CONGRUENCE = re.compile(r"([a-z])\s*\\equiv\s*(\d+)\s*\\pmod\s*\{(\d+)\}")
_LINK = re.compile(r"(?<![A-Za-z\\])(?:where|for|with|any|all|every|some)$")
_YES = re.compile(
    r"(?P<word>yes|no|true|false|是的?|不是|否|对|正确|错误?)\s*(?:[,.;:!-]+|\s(?=because|since))\s*(?P<why>\S.*)", re.I
)
_SAID = {"yes": True, "true": True, "是": True, "是的": True, "对": True, "正确": True}
_UNSURE = re.compile(
    r"(?<![a-z])(?:yes|no|true|false|but|however|wait|actually|or|maybe|perhaps|unless|if)(?![a-z])|是的|不对|但|或|可能|\?",
    re.I,
)
_DENIES = re.compile(r"(?<![a-z])(?:not|never|isn't|doesn't|don't|aren't|diverge\w*)(?![a-z])|不|否|非")


def rewritten(answer: str, gold: str, question: str = "") -> tuple[str, str]:
    """Return two prepared answers in one form, where the gold answer shows which."""
    if "\\begin" in gold and (pieces := _pieces(gold)):
        own_pieces = _pieces(answer)
        return (own_pieces, pieces) if own_pieces else (answer, gold)
    if (mine := _CONSTANT.fullmatch(answer)) and mine["name"] not in _letters(gold):
        given = _letters(gold) - _letters(mine["main"]) - _letters(question)  # a constant that only the gold answer has
        text = re.sub(
            rf"(?<![A-Za-z\\]){mine['name']}(?![a-z(])",
            "".join(given),
            mine["main"].replace(mine["name"], f"{mine['name']} "),
        )
        return (text, gold) if len(given) == 1 else (answer, gold)
    if congruent := _CONGRUENCE.fullmatch(gold):
        name, rest, modulus = congruent.groups()
        gold = f"{name} = {modulus}k + {rest}, k \\in Z" if _FAMILY.fullmatch(answer) else gold
    if (wanted := _FAMILY.fullmatch(gold)) and (mine := _FAMILY.fullmatch(answer)):
        name, own = (match["name"] or match["other"] for match in (wanted, mine))
        text = _without_link(mine["main"])
        if name == own or not re.search(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", text):
            text = re.sub(rf"(?<![A-Za-z\\]){own}(?![a-z])", name, text)
        return text, _without_link(wanted["main"])
    if match := _ABOUT.fullmatch(answer):
        return f"{match['exact'].rstrip(' ,(')} \\approx {match['decimal']}", gold
    return answer, gold


def _letters(text: str) -> set[str]:
    """Return the unknowns of a text: single letters, and those written together after a number or a sign."""
    return {letter for run in re.findall(r"(?<![A-Za-z\\])[A-Za-z]{1,2}(?![A-Za-z])", text) for letter in run}


def _without_link(text: str) -> str:
    for _ in range(3):  # ", where for all"
        text = _LINK.sub("", text.rstrip(" ,;("))
    return text


def _pieces(text: str) -> str:
    """Return the pieces of a function as a list of pairs; "" if the text is no such function."""
    if match := _CASES.fullmatch(text):
        rows = [[part for part in re.split(r"&|" + _IF.pattern, row, maxsplit=1)] for row in match[1].split("\\\\")]
    else:
        parts = _NEXT.split(text[:500])
        # a comma may also stand before "if"
        joined = "\n".join(parts)
        rows = [_IF.split(part, maxsplit=1) for part in re.sub(r"\n(?=if|for|when|where)", " ", joined).split("\n")]
    pairs = []
    for row in filter(lambda row: any(part.strip() for part in row), rows):
        value, condition = (re.sub(r"^\s*(?:&|if|for|when|,)\s*", "", part).strip(" ,;.&") for part in (*row, "")[:2])
        if not value or not _CONDITION.search(condition):
            return ""
        pairs.append(f"({_NAME.sub('', value)}, {condition})")
    return ", ".join(pairs) if len(pairs) > 1 else ""


def says_yes(answer: str) -> bool | None:
    """Return whether an answer says yes and why; None if it says neither yes nor no, or takes it back."""
    match = _YES.fullmatch(answer)
    if match is None or _UNSURE.search(match["why"]):
        return None
    yes = _SAID.get(match["word"].lower(), False)
    return None if yes and _DENIES.search(match["why"]) else yes
