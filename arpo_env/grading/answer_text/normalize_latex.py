r"""An answer as it was written, brought to one plain form of LaTeX: `prepare`.

Boxes, dollar signs, "the answer is", bold, colours and \text go; Unicode mathematics becomes commands; spacing commands
vanish. Nothing is evaluated, and what cannot be read stays as it is. An answer with two different boxes stays whole.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

from arpo_env.grading.answer_text.notation import rewrite, rewrite_raw

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "÷": "\\div ", "∗": "*",
    "π": "\\pi ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap ",
    "∈": "\\in ", "∅": "\\emptyset ", "°": "^\\circ", "℃": "^\\circ C", "º": "^\\circ", "≈": "\\approx ",
    "≡": "\\equiv ", "∖": "\\setminus ", "ℝ": "\\mathbb{R}", "∧": "\\land ", "∨": "\\lor ", "…": "\\ldots ",
    "⋯": "\\ldots ", "。": ".", "、": ",", "【": "[", "】": "]", "「": '"', "」": '"', "∣": "|", "∠": "\\angle ",
    "△": "\\triangle ", "√": "\\sqrt ", "→": "\\to ", "⇒": "\\Rightarrow ", "∴": "\\therefore ", "θ": "\\theta ",
    "∃": "\\exists ", "∀": "\\forall ", "¬": "\\neg ", "⁄": "/", "∕": "/", "∥": "\\parallel ", "⊥": "\\perp ",
    "∉": "\\notin ", "⊂": "\\subset ", "⊆": "\\subseteq ", "⩽": "\\le ",
    "⩾": "\\ge ", "≦": "\\le ", "≧": "\\ge ",
    "⟨": "\\langle ", "⟩": "\\rangle ", "“": '"', "”": '"', "’": "'", "‘": "'", "′": "'",
}  # fmt: skip
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
    r"|\\(?:color|hspace\*?|vspace)\s*\{[^{}]*\}|\\textcolor\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}|</?(?:b|i|u|em|strong|span|p)>"
)
_FONT = (
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathbf|mathrm|mathit|mathsf|mathtt|mathcal|mbox|"
    r"hbox|bm|boldsymbol|emph|underline)\s*\{"
)
_WRAP = re.compile(_FONT + r"([^{}]*)\}")
_WRAPPED = re.compile(_FONT)
_CIRCLED = re.compile("([①-⑳]+)")
_BOXES = 30  # of one answer that are looked at
_INLINE = (  # what is typeset within a sentence: $5$, \\(5\\), **5**
    re.compile(r"(?<![\\\d])\$([^$]+)(?<!\\)\$(?!\d)"), re.compile(r"\\\((.+?)\\\)"), re.compile(r"\\\[(.+?)\\\]"),
    re.compile(r"(?<![\w)\]}*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w(\[{*])"),
)  # fmt: skip
_ALIGNED = re.compile(r"\\begin\{(aligned|align\*?|equation\*?|gather\*?|split)\}(.*)\\end\{\1\}", re.DOTALL)
_BOX = re.compile(r"\\f?boxed\s*\{")


def prepare(text: str) -> str:
    """Return the answer in plain LaTeX; `""` if nothing is left of it."""
    text = re.sub(r"^\s*~(?=\s*\d)", r"\\approx ", _one_box(rewrite_raw(_symbols(text))))
    before = None
    while text != before:
        before = text
        text = _PREFIX.sub("", text.strip())
        text = _unfence(text.strip())
        text = re.sub(r"^(?:\\[,;:! ]\s*)+|\s*(?:\\[,;:! ]|(?<!\\)[.;,\s])+$", "", text)
    text = re.sub(r"\\operatorname\*?\s*\{\s*(\w+)\s*\}", r"\\\1", _lines(text))
    for inline in _INLINE:
        text = inline.sub(r" \1 ", text)
    text = re.sub(r"\\mathbb\s*\{?\s*([RNZQC])\b\s*\}?", r"\\mathbb{\1}", text)
    text = re.sub(r"(?<=\d)(?:\{,\}|\\!,|,\s*\\!)\s*(?=\d{3}(?!\d))", ",", text)  # thousands, typeset
    text = re.sub(r"(?<=\d)\\[,;:](?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<!\\)\\[!,:;> ]|~", " ", text)  # spacing commands
    text = re.sub(r"\\[dtc]frac", r"\\frac", _SPACING.sub(" ", text))
    text = _braced_roots(rewrite(unwrap(text)))
    text = _PREFIX.sub("", " ".join(text.split()))
    return rewrite(re.sub(r"\\\\(?=%)", "", text).rstrip(".;, "))


def unwrap(text: str) -> str:
    r"""Replace \text{...}, \mathbf{...} and their like by what they hold."""
    before = None
    while text != before:
        before, text = text, _WRAP.sub(_bare, text)
    return text


def _bare(match: re.Match[str]) -> str:
    r"""Keep what is wrapped apart from a command before it: "a\times\mathbf{b}"."""
    if " " in match[1]:
        return f" {match[1]} "
    return f" {match[1]}" if match[1][:1].isalpha() and match.string[: match.start()][-1:].isalpha() else match[1]


def _symbols(text: str) -> str:
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+", lambda match: "^{" + match[0].translate(_RAISED) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda match: "_{" + match[0].translate(_LOWERED) + "}", text)
    text = re.sub(r"[¼-¾⅐-⅞]", _vulgar, text)
    text = re.sub("(?:\\d[\u0304\u0305])+", lambda match: f"\\overline{{{re.sub('[^0-9]', '', match[0])}}}", text)
    text = re.sub("(\\d)\u0307", r"\\dot{\1}", text)
    text = re.sub(r"\.{2,}", r"\\ldots ", text)
    text = "".join(_SYMBOLS.get(letter, letter) for letter in text)
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return "".join(
        part if _CIRCLED.match(part) else unicodedata.normalize("NFKC", part) for part in _CIRCLED.split(text)
    )


def _lines(text: str) -> str:
    r"""Write "\begin{aligned} x &= 2+3 \\ &= 5 \end{aligned}" as one line."""
    if match := _ALIGNED.fullmatch(text.strip()):
        text = re.sub(r"\\\\\s*&?\s*=", " = ", match[2]).replace("&", "")
    return text if "\\begin" in text else re.sub(r"\s*\\end\{[a-z*]+\}\s*$", "", text).rstrip(" .")


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[0]).split("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def _one_box(text: str) -> str:
    """Write what is boxed without its box, and drop the lines and sentences before it; two different boxes stay."""
    boxes, end = [], 0
    for match in islice(_BOX.finditer(text), _BOXES):
        if match.start() >= end and (closing := _closing_brace(text, match.end())) >= 0:
            boxes.append((match.start(), text[match.end() : closing].strip()))
            end = closing + 1
    if not boxes or len({inside for _, inside in boxes}) > 1:
        return text
    start, inside = boxes[0]
    if len(boxes) > 1:
        return _one_box(inside)
    before = re.split(r"\n|(?<=[.!?])\s+(?=[A-Z\\$])", text[:start])[-1]
    return before + _one_box(inside) + text[end:]


def _closing_brace(text: str, start: int) -> int:
    """Return where the group that was opened before `start` is closed, or -1."""
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
    if (wrapped := _WRAPPED.match(text)) and _closing_brace(text, wrapped.end()) == len(text) - 1:
        return text[wrapped.end() : -1]
    if len(text) > 2 and text[0] == text[-1] == "$" and not re.search(r"(?<!\\)\$", text[1:-1]):
        return text[1:-1]
    return text


def _braced_roots(text: str) -> str:
    r"""Write \sqrt2 with braces."""
    return re.sub(r"\\sqrt\s*(\d+|[a-zA-Z](?![a-zA-Z]))", r"\\sqrt{\1}", text)
