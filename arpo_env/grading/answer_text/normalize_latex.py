r"""`prepare` converts an unprocessed answer to one plain form of LaTeX.

It removes boxes, dollar signs, "the answer is", bold, colours, \text and spacing commands, and turns Unicode
mathematics into commands. Nothing is evaluated, and what is not recognised is kept. An answer with two different boxes
is kept whole.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import islice

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SYMBOLS = {
    "−": "-",
    "–": "-",
    "—": "-",
    "×": "\\times ",
    "·": "\\cdot ",
    "⋅": "\\cdot ",
    "÷": "\\div ",
    "∗": "*",
    "π": "\\pi ",
    "∞": "\\infty ",
    "≤": "\\le ",
    "≥": "\\ge ",
    "≠": "\\ne ",
    "±": "\\pm ",
    "∪": "\\cup ",
    "∩": "\\cap ",
    "∈": "\\in ",
    "∅": "\\emptyset ",
    "°": "^\\circ",
    "∘": "\\circ ",
    "℃": "^\\circ C",
    "℉": "^\\circ F",
    "º": "^\\circ",
    "≈": "\\approx ",
    "≡": "\\equiv ",
    "∖": "\\setminus ",
    "ℝ": "\\mathbb{R}",
    "∧": "\\land ",
    "∨": "\\lor ",
    "…": "\\ldots ",
    "⋯": "\\ldots ",
    "。": ".",
    "、": ",",
    "【": "[",
    "】": "]",
    "「": '"',
    "」": '"',
    "∣": "|",
    "∠": "\\angle ",
    "△": "\\triangle ",
    "√": "\\sqrt ",
    "∛": "\\sqrt[3] ",
    "∜": "\\sqrt[4] ",
    "∶": ":",
    "→": "\\to ",
    "⇒": "\\Rightarrow ",
    "∴": "\\therefore ",
    "θ": "\\theta ",
    "∃": "\\exists ",
    "∀": "\\forall ",
    "¬": "\\neg ",
    "⁄": "/",
    "∕": "/",
    "∥": "\\parallel ",
    "⊥": "\\perp ",
    "∉": "\\notin ",
    "⊂": "\\subset ",
    "⊆": "\\subseteq ",
    "⩽": "\\le ",
    "⩾": "\\ge ",
    "≦": "\\le ",
    "≧": "\\ge ",
    "⟨": "\\langle ",
    "⟩": "\\rangle ",
    "“": '"',
    "”": '"',
    "’": "'",
    "‘": "'",
    "′": "'",
}
_GREEK = "αβγδεζηκλμνξρστφϕχψωΓΔΘΛΣΦΨΩ"
_GREEK_NAMES = """
    alpha beta gamma delta epsilon zeta eta kappa lambda mu nu xi rho sigma tau phi phi chi psi omega Gamma Delta
    Theta Lambda Sigma Phi Psi Omega
    """
_SYMBOLS |= {letter: f"\\{name} " for letter, name in zip(_GREEK, _GREEK_NAMES.split(), strict=True)}
_WORDS = (
    r"(?:(?:therefore|thus|hence|so),?\s+)?(?:(?:the|my|our|a)\s+)?"
    r"(?:(?:final|correct|right|exact|numerical|simplified)\s+)*(?:answer|result|solution|value)"
)
_PREFIX = re.compile(rf"^\s*(?:####\s*)?(?:{_WORDS})(?:\s*(?:is|are|equals|=|:)\s*)+", re.IGNORECASE)
_FENCES = (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("`", "`"), ('"', '"'), ("'", "'"))
_SPACING = re.compile(
    r"\\(?:left|right|middle|[bB]ig{1,2}[lr]?|displaystyle|textstyle|scriptstyle|limits|nolimits|qquad|quad|enspace|thinspace|medspace|thickspace|"
    r"negthinspace|hfill|Large|large|LARGE|huge|Huge|small|bf|rm|it|bfseries|boldmath)(?![a-zA-Z])(?:\{\})?"
    r"|\\(?:color|hspace\*?|vspace)\s*\{[^{}]*\}|\\textcolor\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}|</?(?:b|i|u|em|strong|span|p|answer)>"
)
_FONT = (
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathbf|mathrm|mathit|mathsf|mathtt|mathcal|mbox|"
    r"hbox|bm|boldsymbol|emph|underline)\s*\{"
)
_WRAP = re.compile(_FONT + r"([^{}]*)\}")
_WRAPPED = re.compile(_FONT)
_LAST_MARKS = re.compile(r"\A(?:[,;:! ]\\|[.;,\s](?!\\))*+\s*")  # of a text read from its end, in linear time
_BRACKET = re.compile(r"[()\[\]{}]|\\(?:begin|end|[lr]angle|[lr]brac[ek])(?![a-z])")
_OPENING = frozenset((*"([{", "\\begin", "\\langle", "\\lbrace", "\\lbrack"))
_DEEPEST = 30  # readers of formulas call themselves once a level
_SPELLED = 300  # characters that a few signs may grow to
_CIRCLED = re.compile("([①-⑳]+)")
_BOXES = 30  # number of boxes that are considered per answer
_INLINE = (  # typeset parts of a sentence: $5$, \\(5\\), **5**
    re.compile(r"(?<![\\\d])\$([^$]+)(?<!\\)\$(?!\d)"),
    re.compile(r"\\\((.+?)\\\)"),
    re.compile(r"\\\[(.+?)\\\]"),
    re.compile(r"(?<![\w)\]}*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w(\[{*])"),
)
_ALIGNED = re.compile(r"\\begin\{(aligned|align\*?|equation\*?|gather\*?|split)\}(.*)\\end\{\1\}", re.DOTALL)
_BOX = re.compile(r"\\f?boxed\s*\{")

# Notations with the same meaning, as (pattern, replacement): "{n \choose k}" becomes a \binom, "90^o" an angle in
# degrees. No rule changes a value. The first table applies to raw text, the second to text without typesetting.
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_BASES = "two|three|four|five|six|seven|eight|nine|ten"
_RAW = (
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]", r"\\\\"),  # space between rows
    (r"\\(?:Bigg?|bigg?)(?=[\s()\[\]{}|/])", " "),
    (r"\\(?:lbrack|rbrack)(?![a-zA-Z])", lambda match: "[" if match[0][1] == "l" else "]"),
    (r"\\nicefrac(?![a-zA-Z])|\\sfrac(?![a-zA-Z])", r"\\frac"),
    (r"\\operatorname\*?\s*\{\s*(?:lcm|LCM)\s*\}", r"\\lcm"),
    (r"\\var(phi|epsilon|theta|rho|sigma|pi)(?![a-zA-Z])", r"\\\1"),
    (r"\\bigcirc(?![a-zA-Z])", r"\\circ"),
    (r"\\colon(?![a-zA-Z])", ":"),
    (r"(?<=[R}])\s*\\\s+(?=\\?\{)", r"\\setminus "),
)
_PLAIN = (
    (r"\\frac\s*([0-9a-zA-Z])", r"\\frac{\1}"),
    (rf"\\frac\s*{_ARGUMENT}\s*([0-9a-zA-Z])", r"\\frac{\1}{\2}"),
    (r"\{\s*([\w+\- ]+?)\s*\\choose\s+([\w+\- ]+?)\s*\}", r"\\binom{\1}{\2}"),
    (r"(?<=\d!)\s*(?=\d)", r" \\cdot "),
    (r"\(\s*\\?[bp]?mod\s*\{?(\d+)\}?\s*\)|\\?(?<![A-Za-z])[bp]?mod\s*\{?(\d+)\}?", r"\\pmod{\1\2}"),
    (r"(?<=[\d})])\s*\^\s*\{?\s*(?:\\mathrm|\\text)?\s*\{?\s*o\s*\}?\s*\}?(?![A-Za-z])", r"^\\circ"),
    (r"\\sqrt\s*\[\s*2\s*\]", r"\\sqrt"),
    (r"\{(\d+)\}\s*/\s*\{(\d+)\}", r"\\frac{\1}{\2}"),
    (r"(?<![A-Za-z\\])([a-z])(\d)(?=\s?=)", r"\1_\2"),
    (r"_\s*\{\s*\(\s*(\d+)\s*\)\s*\}", r"_{\1}"),
    (r"\\(?:vec|hat|overrightarrow)\s*\{\s*([a-z])\s*\}", r"\1"),
    (r"^([A-Z]'*)\s*(?=\(\s*[^()A-Za-z]+,[^()A-Za-z]+\)\s*$)", r"\1 = "),  # the point D(0,2)
    (rf"(?<=\d)\s*\(?\s*(?:in\s+)?base[\s-]+(\d+|{_BASES})\s*\)?$", r"_{\1}"),
)
_RAW_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _RAW)
_PLAIN_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _PLAIN)


@lru_cache(maxsize=1024)
def prepare(text: str) -> str:
    """Return the answer in plain LaTeX; `""` if nothing is left of it.

    The same for what is no answer: brackets nested deeper than `_DEEPEST`, and signs without words that spell out to
    several times their length.
    """
    spelled = _rewrite_raw(_symbols(text))
    if len(spelled) > _SPELLED + 3 * len(text) or _depth(spelled) > _DEEPEST:
        return ""
    text = re.sub(r"^\s*~(?=\s*\d)", r"\\approx ", _unbox(spelled))
    # Wrappers may be nested in any order ("**The answer is $5$.**"), so repeat until nothing changes.
    before = None
    while text != before:
        before = text
        text = _PREFIX.sub("", text.strip())
        text = _unfence(text.strip())
        text = re.sub(r"^(?:\\[,;:! ]\s*)+", "", text)
        text = _LAST_MARKS.sub("", text[::-1], count=1)[::-1]
    text = re.sub(r"\\operatorname\*?\s*\{\s*(\w+)\s*\}", r"\\\1", _lines(text))
    for inline in _INLINE:
        text = inline.sub(r" \1 ", text)
    text = re.sub(r"\\mathbb\s*\{?\s*([RNZQC])\b\s*\}?", r"\\mathbb{\1}", text)
    # thousands separators as typeset: {,} and \, and 1_000 and 1'000
    text = re.sub(
        r"(?<![\w.])[1-9]\d{0,2}(?:(?:\\?_|')\d{3})+(?![\w'])", lambda match: re.sub(r"\\?_|'", ",", match[0]), text
    )
    text = re.sub(r"(?<=\d)(?:\{,\}|\\!,|,\s*\\!)\s*(?=\d{3}(?!\d))", ",", text)
    text = re.sub(r"(?<=\d)(?<!\b0)\\[,;:](?=\d{3}(?!\d))", "", text)
    text = _apart(re.sub(r"(?<!\\)\\[!,:;> ]|~", " ", text))  # spacing commands
    text = re.sub(r"\\[dtc]frac", r"\\frac", _SPACING.sub(" ", text))
    text = _braced_roots(_rewrite(" ".join(unwrap(text).split())))  # single spaces: the rules allow many in a row
    # removing the typesetting may reveal another prefix or notation
    text = _PREFIX.sub("", " ".join(text.split()))
    return _rewrite(re.sub(r"\\\\(?=%)", "", text).rstrip(".;, "))


def _depth(text: str) -> int:
    """Return how deep the brackets and environments of a text are nested; those that close nothing do not count."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in _OPENING else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def unwrap(text: str) -> str:
    r"""Replace \text{...}, \mathbf{...} and similar commands by their content."""
    before = None
    while text != before:
        before, text = text, _WRAP.sub(_keep_apart, text)
    return text


def _keep_apart(match: re.Match[str]) -> str:
    r"""Keep the content apart from a command before it: "a\times\mathbf{b}" must not become "a\timesb"."""
    if " " in match[1]:
        return f" {match[1]} "
    return f" {match[1]}" if match[1][:1].isalpha() and match.string[: match.start()][-1:].isalpha() else match[1]


def _symbols(text: str) -> str:
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+", lambda match: "^{" + match[0].translate(_RAISED) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda match: "_{" + match[0].translate(_LOWERED) + "}", text)
    # before NFKC, which would turn "1½" into "11⁄2"
    text = re.sub(r"[¼-¾⅐-⅞]", _vulgar, text)
    text = re.sub("(?:\\d[\u0304\u0305])+", lambda match: f"\\overline{{{re.sub('[^0-9]', '', match[0])}}}", text)
    text = re.sub("(\\d)\u0307", r"\\dot{\1}", text)
    text = re.sub(r"\.{2,}", r"\\ldots ", text)
    text = "".join(_SYMBOLS.get(letter, letter) for letter in text)
    # format characters (zero-width spaces, direction marks) are invisible but would make texts differ
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return "".join(
        part if _CIRCLED.match(part) else unicodedata.normalize("NFKC", part) for part in _CIRCLED.split(text)
    )


def _lines(text: str) -> str:
    r"""Write "\begin{aligned} x &= 2+3 \\ &= 5 \end{aligned}" on one line."""
    if match := _ALIGNED.fullmatch(text.strip()):
        text = re.sub(r"\\\\\s*&?\s*=", " = ", match[2]).replace("&", "")
    return text if "\\begin" in text else re.sub(r"\s*\\end\{[a-z*]+\}\s*$", "", text).rstrip(" .")


def _apart(text: str) -> str:
    r"""Write the equations "x = 1 \quad y = 2" and those on separate lines as a list."""
    parts = re.split(r"\\q?quad(?![a-zA-Z])|\\\\|\n", text) if "=" in text and "\\begin" not in text else []
    return ", ".join(part.strip(" ,") for part in parts) if parts[1:] and all("=" in part for part in parts) else text


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[0]).split("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def _unbox(text: str) -> str:
    """Replace a box by its content and drop the lines and sentences before it; two different boxes are kept."""
    boxes, end = [], 0
    for match in islice(_BOX.finditer(text), _BOXES):
        if match.start() >= end and (closing := _closing_brace(text, match.end())) >= 0:
            boxes.append((match.start(), text[match.end() : closing].strip()))
            end = closing + 1
    # two different boxes are two answers; nothing may be dropped then
    if not boxes or len({inside for _, inside in boxes}) > 1:
        return text
    start, inside = boxes[0]
    if len(boxes) > 1:
        return _unbox(inside)
    before = re.split(r"\n|(?<=[.!?])\s+(?=[A-Z\\$])", text[:start])[-1]
    return before + _unbox(inside) + text[end:]


def _closing_brace(text: str, start: int) -> int:
    """Return the position of the brace that closes the group opened before `start`, or -1."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return -1


def _unfence(text: str) -> str:
    for opening, closing in _FENCES:
        inside = text[len(opening) : -len(closing)]
        if inside and text.startswith(opening) and text.endswith(closing) and closing not in inside:
            return inside
    # the font command must enclose the whole text, not only its first word
    if (wrapped := _WRAPPED.match(text)) and _closing_brace(text, wrapped.end()) == len(text) - 1:
        return text[wrapped.end() : -1]
    if len(text) > 2 and text[0] == text[-1] == "$" and not re.search(r"(?<!\\)\$", text[1:-1]):
        return text[1:-1]
    return text


def _braced_roots(text: str) -> str:
    r"""Write \sqrt2 with braces."""
    return re.sub(r"\\sqrt\s*(\[\d+\])?\s*(\d+|[a-zA-Z](?![a-zA-Z]))", r"\\sqrt\1{\2}", text)


def _rewrite_raw(text: str) -> str:
    """Unify notations in an unprocessed answer, before its typesetting is removed."""
    for pattern, replacement in _RAW_RULES:
        text = pattern.sub(replacement, text)
    return text


def _rewrite(text: str) -> str:
    """Unify notations in an answer without typesetting."""
    for pattern, replacement in _PLAIN_RULES:
        text = pattern.sub(replacement, text)
    return text
