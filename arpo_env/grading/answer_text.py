r"""An unprocessed answer as text: plain LaTeX, without the sentence around it, its option letter, the words it says.

`prepare` removes boxes, dollar signs, "the answer is", bold, colours, \text and spacing commands, and turns Unicode
mathematics into commands. Nothing is evaluated, and what is not recognised is kept. An answer with two different boxes
is kept whole. `strip_phrases` removes the sentence around an answer, if all its words are known: one with any other
word may say "twice the answer is 5" and is kept, which is then no valid answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from arpo_env.grading.math_formulas import closing_place
from arpo_env.grading.math_values import changes_number, names_what_is_counted, question_words
from arpo_env.grading.words import LISTS, listed

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SYMBOLS = {
    sign: text + " " * bool(re.fullmatch(r"\\[a-zA-Z]+(?:\[\d\])?", text))
    for signs, text in (row.split(" ", 1) for row in LISTS["symbols"].splitlines())
    for sign in signs
}
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
    spelled = _rewrite(_symbols(text), _RAW_RULES)
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
    text = _rewrite(" ".join(unwrap(text).split()))  # single spaces: the rules allow many in a row
    text = re.sub(r"\\sqrt\s*(\[\d+\])?\s*(\d+|[a-zA-Z](?![a-zA-Z]))", r"\\sqrt\1{\2}", text)  # \\sqrt2
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
        if match.start() >= end and (closing := closing_place(text, match.end() - 1, "{}")) >= 0:
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


def _unfence(text: str) -> str:
    for opening, closing in _FENCES:
        inside = text[len(opening) : -len(closing)]
        if inside and text.startswith(opening) and text.endswith(closing) and closing not in inside:
            return inside
    # the font command must enclose the whole text, not only its first word
    if (wrapped := _WRAPPED.match(text)) and closing_place(text, wrapped.end() - 1, "{}") == len(text) - 1:
        return text[wrapped.end() : -1]
    if len(text) > 2 and text[0] == text[-1] == "$" and not re.search(r"(?<!\\)\$", text[1:-1]):
        return text[1:-1]
    return text


def _rewrite(text: str, rules: Sequence[tuple[re.Pattern[str], Any]] = _PLAIN_RULES) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


# `strip_phrases`: the sentence around an answer, such as "The answer is" or "答案是".

_MOST_PHRASES = 20  # around one answer; repeated words end here
_LEADS = (
    r"therefore|thus|hence|so|then|finally|consequently|accordingly|overall|in\s+conclusion|in\s+summary|in\s+total|"
    r"altogether|as\s+a\s+result|answer|ans|result|solution|total|final|that\s+is|it's|that's|namely|i\.e\."
)
_LEAD = re.compile(
    rf"(?:(?:{_LEADS})\s*[,:]?\s+(?=\S)|(?:{_LEADS})\s*[:=]\s*|\\(?:therefore|implies|Rightarrow|Longrightarrow|rightarrow|to)(?![a-zA-Z])\s*"
    r"|(?:=>|->|⇒|→|∴|#+|=)\s*)",
    re.IGNORECASE,
)
_VERBS = (
    r"is\s+equal\s+to|are\s+equal\s+to|is\s+given\s+by|comes\s+(?:out\s+)?to|turns\s+out\s+to\s+be|works\s+out\s+to|"
    r"(?:will|would|must|should|has\s+to)\s+be|is\s+exactly|is\s+simply|equals|is|are|was|were|has|have|had|needs?|gets?|"
    r"got|obtain|obtains|find|found|gives?|yields?|becomes?|costs?|takes?|earns?|makes?|pays?|spends?|sells?|sold|buys?|"
    r"contains?|holds?|weighs?|uses?|used|requires?|left|lasts?|saves?|won|wins?|ate|eats?|bought|made|paid|spent|"
    r"runs|ran|walks|walked|drives|drove|rides|rode|travels|travelled|traveled|reads|read|drinks|drank|collects|collected|"
    r"bakes|baked|picks|picked|sees|saw|faces|is\s+facing|reach(?:es)?|arrives?|happen(?:s|ed)|occurs?|occurred|starts?|ends?|leaves?|finishes|begins?|falls?|receives|received|gives|gave|scored|scores|produces|produced|works|worked|sleeps|"
    r"swims|swam|catches|caught|plants|planted|watches|watched|plays|played|serves|served|includes|consists\s+of|"
    r"(?:can|will|must|should|could)\s+(?:make|have|buy|need|get|pay|earn|take|cost|spend|save|fit|hold|fill|give|use|"
    r"sell|read|run|eat)|(?:can|could|may)\s+be\s+[a-z]+(?:ed|en|de)\s+in|converges\s+to|(?:can|will)\s+be|measures?|amounts?\s+to|totals|remains"
)
_VERB = re.compile(rf"\s(?:{_VERBS})(?:\s?[:=])?(?=\s\S)", re.IGNORECASE)
_EQUALS = re.compile(r"\s(?:is|are|was|were|.*equal.*|.*\bbe\b.*)\s?[:=]?", re.IGNORECASE)
_FILLER = re.compile(  # "needs to pay", "takes her", "a total of"
    r"(?:to\s+(?:pay|buy|make|sell|get|have|spend|work|run|read|walk|drive|save|collect|bake|use|earn|eat|wait|travel)|"
    r"exactly|precisely|only|just|her|him|them|you|us|me|(?:a|the)\s+(?:grand\s+)?(?:total|sum|maximum|minimum|value|profit|speed|rate|distance|cost|age)\s+of|at|on|after|now|due|facing|(?:the\s+)?set|(?:the\s+)?point)\s+(?=\S)",
    re.IGNORECASE,
)
_SUBJECTS = listed("subjects")
_REFUSED = listed("refused")
_LABEL = re.compile(r"(?P<label>(?:[a-z]-)?[A-Za-z][a-z]+(?:\s+[a-z]+){0,5}):\s*(?=\S)")
_ENDS = re.compile(
    r"\s*(?:\.?\s+I\s+hope\s+(?:it|this)\s+is\s+correct|,?\s+(?:is|as)\s+(?:the|my|our)\s+(?:(?:final|correct|required|right)\s+)?(?:answer|result|solution|value)"
    r"|,?\s+for\s+(?:all|every|any)\s+real\s+(?:numbers?\s+|values\s+of\s+)?[a-z]|\\(?:blacksquare|square|checkmark|qed|Box)(?![a-zA-Z])|[✓✔∎■]|为所求|即为所求"
    r"|,?\s*\(?(?:the\s+)?only(?:\s+(?:real\s+)?(?:solution|answer|value|root))?\)?)\Z"
)
_LONGEST_END = 80  # characters
_HAN_LEAD = re.compile(
    r"(?:(?:原式\s*=|所以|因此|故|综上所述|综上|从而|于是|由此可得|可得|解得|即|则|答(?!案)|解(?!是|为|集)|当[^,]{1,40}时,|得|那么|最后|由题意得|由题意)\s*[,:]?\s*)"
    r"|(?:(?:(?P<whose>[^\s,是为=]{1,30}?\s*的)|其)?\s*(?:最终|最后|正确|所求|标准|最大|最小|正|平均|可能)*的?"
    r"(?:答案|结果|值|总数|总和|概率|面积|体积|周长|个数|最大值|最小值|最终值|解|和|余数|长度|长|度数|数量|人数|距离|速度|通项公式|坐标|"
    r"解集|取值范围|定义域|值域|方程|表达式|解析式|半径|高|积|商|差|平均数|中位数|众数|方差|系数|斜率|种数|价格|年龄|周期|极限|极限值)\s*"
    r"(?:应该是|应该为|应为|应是|等于|就是|分别是|分别为|是|为|:|=|(?=[A-Z]\s*=))\s*)"
    r"|(?:(?P<who>[^\s,是为=]{1,12}?))??(?:一共有|总共有|共有|共计|一共|总共|还剩下|还剩|剩下|剩|等于|经过|用了|花了|共|有|需要|需|是|为)\s*"
    r"|(?P<said>(?:(?!每)[\u4e00-\u9fff]){1,20}?)(?=每|\d)"
)
_HAN_WHO_WORDS = "|".join(sorted(LISTS["chinese subjects"].split(), key=len, reverse=True))
_HAN_TERM = r"第\s*(?:\d+|[一二三四五六七八九十]+|n)\s*[项个次]"
_HAN_NAME = "[A-Za-z][0-9_]{0,3}+"  # several in a row are a longer name
_HAN_WHO = re.compile(rf"(?:{_HAN_WHO_WORDS}|{_HAN_TERM}|{_HAN_NAME}(?:\([\w,]\))?+|\s)*+")


@lru_cache(maxsize=64)  # the choice grader reads an answer several times
def strip_phrases(text: str, known: frozenset[str] = frozenset()) -> str:
    """Return a prepared answer without the sentence around it; `known` are the words of the question."""
    # phrases may be stacked: "Therefore, the answer is equal to 5"
    for _ in range(_MOST_PHRASES):
        before = text
        text = text.strip(" ,;:").strip()
        for lead in (_LEAD, _FILLER, _HAN_LEAD):
            if (match := lead.match(text)) and match.end() < len(text) and _is_known(match, known):
                text = text[match.end() :]
        if (match := _LABEL.match(text)) and _is_subject(match["label"], known):
            text = text[match.end() :]
        if match := _ENDS.search(text, max(len(text) - _LONGEST_END, 1)):
            text = text[: match.start()]
        verbs = [
            match
            for match in islice(_VERB.finditer(text[:200]), 8)
            if _is_subject(text[: match.start()], known, counted=_EQUALS.fullmatch(match[0]) is None)
        ]
        text = text[verbs[-1].end() :] if verbs else text
        if text == before:
            break
    return text


def _is_known(match: re.Match[str], known: frozenset[str]) -> bool:
    """Return whether the words before a Chinese verb are known: from the list, or character pairs of the question."""
    if match.re is not _HAN_LEAD:
        return True
    said = re.sub("^(?:这个|这条|这种|该|此|这|其)", "", match["whose"] or match["who"] or match["said"] or "")
    return _HAN_WHO.fullmatch(said) is not None or all(
        said[place : place + 2] in known for place in range(max(len(said.rstrip("的")) - 1, 1))
    )


def names_the_answer(text: str) -> bool:
    """Return whether words only announce an answer: "answer", "the day", unlike "Tuesday" and "circle"."""
    return len(text) > 1 and all(word in _SUBJECTS for word in text.lower().split())


def is_quantity(text: str, known: frozenset[str]) -> bool:
    """Return whether words name a quantity: "Area of the triangle", "total cost"."""
    return len(text) > 1 and not re.search(r"\d", text) and _is_subject(text, known)


def _is_subject(text: str, known: frozenset[str], counted: bool = False) -> bool:
    """Return whether words are the subject of an answer; if `counted`, a number of the question may begin it."""
    text = re.sub(r"(\d)\s?\^\s?\{?(\d+)\}?", r"\1 \2", text)
    text = re.sub(r"(?<![A-Za-z-])([a-z])\s?-(?=[a-z]{3})", r"\1 ", text)  # "y-intercept"
    written = re.findall(r"[^\s,]+", text.replace("$", " ").replace("\\", " \\"))
    words = [word.lower().strip("\\") for word in written]
    if not words or len(words) > 25 or (words[0][:1].isdigit() and not counted):
        return False
    return all(
        word in _SUBJECTS or word in known or _is_named(word, as_written)
        for word, as_written in zip(words, written, strict=True)
    ) and not (_REFUSED.intersection(words) or any(changes_number(word) and word not in _SUBJECTS for word in words))


def _is_named(word: str, as_written: str) -> bool:
    """Return whether a word names something: a variable, the corners of a figure, a person, or a countable thing."""
    # a LaTeX command is mathematics, not a name
    if as_written.startswith("\\"):
        return False
    if re.fullmatch(r"[a-z](?:\+[a-z])+|[a-z]_?\d?", word) or re.fullmatch(r"[A-Z]{2,8}", as_written):
        return True
    person = re.fullmatch(r"[A-Z][a-z]+(?:'s?)?", as_written) and not word.endswith(("ly", "uple"))
    return not changes_number(word) and (bool(person) or names_what_is_counted([word.removesuffix("'s").strip("'")]))


# Answers that say in words what mathematics writes in signs: `rewritten` gives both the same form.
#
# "x if x \ge 0, and -x if x < 0" are the cases of a function, "2 + \sqrt{5} (approximately 4.236)" an approximation,
# and "k \in \mathbb{Z}" names the parameter of a family. `says_yes` reads "No, 91 = 7 \cdot 13" as no.

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
_SAYS_YES = {"yes": True, "true": True, "是": True, "是的": True, "对": True, "正确": True}
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
        apart = mine["main"].replace(mine["name"], f"{mine['name']} ")
        if len(given) == 1:
            answer = re.sub(rf"(?<![A-Za-z\\]){mine['name']}(?![a-z(])", given.pop(), apart)
        return answer, gold
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
        rows = [re.split(r"&|" + _IF.pattern, row, maxsplit=1) for row in match[1].split("\\\\")]
    else:
        # a comma may also stand before "if"
        joined = re.sub(r"\n(?=if|for|when|where)", " ", "\n".join(_NEXT.split(text[:500])))
        rows = [_IF.split(part, maxsplit=1) for part in joined.split("\n")]
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
    yes = _SAYS_YES.get(match["word"].lower(), False)
    return None if yes and _DENIES.search(match["why"]) else yes


# Compares answers in words: "East" and "the east", "odd" and "an odd function", "June 20" and "20th June".

_IN_WORDS = re.compile(r"[^\W\d_①-⑳]{1,}(?:[\s'-]+[^\W\d_①-⑳]+)*")
_SYNONYMS = [row.split() for name in ("months", "synonyms") for row in LISTS[name].splitlines()]
_ONE_NAME = {word: words[0] for words in _SYNONYMS for word in words}
_KINDS = frozenset(
    ["function", "number", "integer", "triangle", "angle", "direction", "quadrilateral", "day", "month", "sequence"]
)
_MONTHS = {words[0]: month for month, words in enumerate(_SYNONYMS[:12], 1)}
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    (re.compile(rf"([A-Za-z]+)\.?\s+(?:the\s+)?{_DAY}(?:,?\s+(\d{{4}}))?"), (1, 2, 3)),
    (re.compile(rf"(?:the\s+)?{_DAY}\s+(?:of\s+)?([A-Za-z]+)(?:,?\s+(\d{{4}}))?"), (2, 1, 3)),
    (re.compile(r"(?:(\d{4})\s*年\s*)?(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]"), (2, 3, 1)),
)


def is_words(text: str) -> bool:
    """Return whether a gold answer is a name, a word or an option letter rather than a formula such as "p - q"."""
    text = re.sub(r"^\((\w)\)$", r"\1", text)
    longest = max((len(word) for word in re.split(r"[\s'-]+", text)), default=0)
    named = len(text) > 4 or text[:1].isupper() or text.casefold() in _ONE_NAME
    return named and (longest > 2 or longest == len(text)) and _IN_WORDS.fullmatch(text) is not None


def same_words(answer: str, gold: str) -> bool:
    """Compare words without case, articles and brackets, or two calendar dates."""
    date = _date(gold)
    if date is not None:
        return _date(answer) == date
    if not _IN_WORDS.fullmatch(gold) or (len(gold) < 2 and gold not in _ONE_NAME):
        return False
    bare = re.sub(r"^[(\[]\s*(.*?)\s*[)\]]$", r"\1", answer)
    if not _IN_WORDS.fullmatch(bare):
        return False
    mine, wanted = _named(bare), _named(gold)
    return mine == wanted or (len(mine) == len(wanted) + 1 and mine[-1] in _KINDS and mine[:-1] == wanted)


def _named(text: str) -> list[str]:
    words = text.casefold().replace("-", " ").split()
    words = words[1:] if len(words) > 1 and words[0] in ("a", "an", "the", "on", "in") else words
    words = words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words
    return [_ONE_NAME.get(word, word) for word in words]


def _date(text: str) -> tuple[str, ...] | None:
    """Return month, day and year; "" for a missing part."""
    for written, places in _DATES:
        if match := written.fullmatch(text.strip().removeprefix("on ")):
            month, day, year = (match[place] or "" for place in places)
            month = month if month.isdigit() else str(_MONTHS.get(_ONE_NAME.get(month.lower(), ""), ""))
            return (month, day.lstrip("0"), year) if month else None
    return None


# Statements with a quantifier: "\exists x \in \mathbb{R}, x^2 < 0" and "there exists a real x such that x^2 < 0".

_STATEMENT = re.compile(
    r"(?:the\s+statement\s*)?(?P<how>\\exists|\\forall|there\s+(?:exists|is)(?:\s+(?:an?|some|at\s+least\s+one))?|for\s+(?:all|every|any|each)|存在|任意|对任意|对任意的)"
    r"\s*(?:(?:the\s+)?real(?:\s+numbers?)?|实数)?\s*(?P<name>[a-zA-Z])(?:_\{?0\}?)?\s*(?:\\in\s*(?P<where>\\mathbb\{[A-Z]\}|[RNZQ]|\([^()]*\)|\[[^\[\]]*\]))?"
    r"\s*[,:]?\s*(?:such\s+that|so\s+that|s\.t\.|with|for\s+which|we\s+have|使得?|都有|有)?\s*[,:]?\s*(?P<claim>\S.*)",
    re.IGNORECASE,
)


def matching_claims(answer: str, gold: str) -> tuple[str, str] | bool | None:
    """Return the claims of two statements with the same quantifier; False if only the gold answer is such a statement.

    None means that the gold answer is not a statement.
    """
    wanted, mine = _STATEMENT.fullmatch(gold), _STATEMENT.fullmatch(answer)
    if wanted is None:
        return None
    if mine is None or _head(mine) != _head(wanted):
        return False
    return _claim(mine), _claim(wanted)


def _head(match: re.Match[str]) -> tuple[bool, str, str]:
    """Return whether the statement is existential, the name of its variable, and the domain."""
    where = re.sub(r"\\mathbb\{(\w)\}|\s", r"\1", match["where"] or "R")
    return match["how"].lower().startswith(("\\exists", "there", "存在")), match["name"], where


def _claim(match: re.Match[str]) -> str:
    return re.sub(rf"(?<![A-Za-z])({match['name']})_\{{?0\}}?", r"\1", match["claim"])


# Option letters: "C", "(C)", "Option C", "答案选C", "A, B and D", "①③": `same_labels`, `split_option`.

_LABEL_SAID = (
    r"(?:(?:the\s+)?(?:(?:final|correct|right)\s+)?(?:option|choice|answer|选项|答案)\s*(?:is|为|是|选)?\s*:?\s*"
    r"|(?:故|应)?选(?:择|项)?\s*:?\s*)?"
)
_LETTER_LABEL = re.compile(rf"{_LABEL_SAID}(?P<open>[(\[]?)\s*(?P<letter>[A-Za-z])\s*[)\].:]?", re.IGNORECASE)
_LABELLED = re.compile(r"\(?(?P<letter>[A-H])\)?\s*(?:[.:)]|\\colon)\s*(?P<content>\S.*)", re.DOTALL)
_BRACKETED = re.compile(r"(?P<letter>[A-H])\s*\((?P<content>[^()A-Z]+)\)")  # B (61)
_AND = r"\s*+(?:,\s*+(?:and\s++)?+|and|和|与|及|&)\s*+"
_SEVERAL = re.compile(rf"[A-H](?:(?:{_AND}|\s*)[A-H])+|[①-⑳](?:(?:{_AND}|\s*)[①-⑳])*|\d{{1,2}}(?:{_AND}\d{{1,2}})+")
_SAID_SEVERAL = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:options|choices|answers|statements|letters|option|answer|选项|答案|命题)\s*(?:are|is|为|是|选|:)?\s*:?\s*|(?:故|应)?选\s*:?\s*)",
    re.IGNORECASE,
)


def split_option(text: str) -> tuple[str, str] | None:
    """Split "C. 20 mph" into the letter and its content; None for anything else."""
    match = _LABELLED.fullmatch(text) or _BRACKETED.fullmatch(text)
    return (match["letter"], match["content"].strip()) if match else None


def is_several(gold: str) -> bool:
    """Return whether a gold answer is several letters, or circled numbers."""
    return _SEVERAL.fullmatch(gold) is not None and not gold[:1].isdecimal() and len(_labels(gold)) > 1


def same_labels(answer: str, gold: str) -> bool:
    """Return whether the gold answer is one or several option letters, and the answer names exactly these."""
    if (named := _LETTER_LABEL.fullmatch(gold)) and (named["letter"].isupper() or named["open"]):
        label = _LETTER_LABEL.fullmatch(answer)
        if label is None:
            return False
        folded = bool(named["open"]) or label["letter"].isupper() or len(answer) > 1
        return folded and label["letter"].upper() == named["letter"].upper()
    if not _SEVERAL.fullmatch(gold) or gold[:1].isdecimal():
        return False
    mine, wanted = _labels(answer), _labels(gold)
    return sorted(mine) == sorted(wanted) and len(set(wanted)) == len(wanted)


def _labels(text: str) -> list[str]:
    """Return the labels of "A, B and D", "(A)(B)(D)", "①③" or "(1), (3)"; numbers as circled numbers."""
    text = _SAID_SEVERAL.sub("", text, count=1) if _SAID_SEVERAL.match(text) else text
    text = re.sub(r"\(([A-H])\)", r"\1", text)
    text = re.sub(r"\((\d{1,2})\)\s*(?=\()", r"\1,", text)
    text = re.sub(r"\((\d{1,2})\)", r"\1", text)
    if not _SEVERAL.fullmatch(text):
        return []
    return [
        chr(0x245F + int(label)) if label.isdecimal() else label for label in re.findall(r"[A-H]|[①-⑳]|[1-9]\d?", text)
    ]


# The option of a multiple-choice question that an answer names: `read_letter`, `read_options`, `same_option`.

_OPTION_SAID = (  # each word can be read in one way only and nothing is given back (*+): linear time
    r"(?:(?:so|thus|therefore|hence|因此|所以|故|综上|[本此该]题|解析)\s*+[,:]?+\s*+)?(?:(?:i\s+(?:choose|pick|select)|we\s+choose)\s+)?"
    r"(?:(?:the\s++)?+(?:(?:best|final|correct|right)\s++)*+(?:option|choice|answer|letter|ans\.?)\s*+(?:is|:|=)?+\s*+:?+\s*+"
    r"|\[?+(?:(?:最终|正确)的?)?(?:答案|选项)\]?+\s*+(?:应该?)?+(?:是|为)?+\s*+:?+\s*+|应?选(?!项)择?+\s*+(?:项\s*+)?+:?+\s*+|应选项\s*+:?+\s*+)*+"
)
_LETTER = r"\(?\[?\*{0,2}(?P<letter>[A-Z])\*{0,2}\]?\)?"
_ALONE = re.compile(
    rf"{_OPTION_SAID}{_LETTER}(?:\s*(?:(?:选项|项)(?:正确|是正确的|符合题意)?|正确|is\s+(?:the\s+)?(?:correct|right)(?:\s+(?:answer|option|choice))?))?",
    re.IGNORECASE,
)
_LED = re.compile(rf"{_OPTION_SAID}{_LETTER}\s*[.:,)\]-]\s*(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_REASON = re.compile(rf"{_OPTION_SAID}{_LETTER},?\s+(?:because|since|as)\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
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
