"""`strip_phrases` removes the sentence around an answer, such as "The answer is" or "答案是".

Only known words are removed: those in the lists of this module, names of quantities, and words of the question. A
sentence with any other word is kept and is then not a valid answer, since it may say "twice the answer is 5".
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from arpo_env.grading.answer_text.allowed_words import changes_number, names_what_is_counted

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
_SUBJECTS_LIST = """
    the a an my our this that it there we i you he she they which of for in on to and final correct right exact
    required desired numerical simplified simplest overall answer result solution value values total sum product
    difference quotient ratio number count amount probability chance expected area volume surface perimeter
    circumference length width height radius diameter distance time speed rate age cost price profit change
    average mean median mode range remainder maximum minimum greatest largest smallest least possible positive
    integer integers real roots root term terms coefficient constant degree slope intercept angle measure
    function expression equation fraction decimal percentage percent ways solutions problem question task x y z
    n m k a b c p q r s t d form therefore thus hence so then can we'll be conclude that get think believe
    his her their its only student series sequence
    oldest youngest tallest shortest longest biggest heaviest lightest fastest slowest cheapest winner direction type
    kind color colour day month date weekday name statement conclusion relationship order ordered pairs pair
    option choice letter point points coordinates interval set matrix vector students people total all
    """
_SUBJECTS = frozenset(_SUBJECTS_LIST.split())
_REFUSED_LIST = """
    not no never isn't everyone everybody anyone half double twice opposite negative inverse reciprocal wrong incorrect
    """
_REFUSED = frozenset(_REFUSED_LIST.split())
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
_HAN_WHO_LIST = """
    该 这道题 本题 该题 此题 原式 问题 题目 我们 我 他 她 它 他们 她们 小明 小红 小华 小刚 小丽 小李 小王 小张 小强
    数列 函数 方程 三角形 正方形 长方形 矩形 圆 梯形 平行四边形 四边形 直线 曲线 抛物线 椭圆 双曲线 向量
    集合 前 项 这个 这 那么 满足条件 符合条件 满足题意 符合题意 条件 题意 不同 班级 全班 班 学校 所有 全部 所求 最终
    最后 表达式 式子 代数式 的 数 事件 角 边 点 线段 不等式 实数 整数 正 自然数 最大 最小 要求 最终的 其中
    """
_HAN_TERM = r"第\s*(?:\d+|[一二三四五六七八九十]+|n)\s*[项个次]"
_HAN_NAME = "[A-Za-z][0-9_]{0,3}+"  # several in a row are a longer name
_HAN_WHO = re.compile(
    rf"(?:{'|'.join(sorted(_HAN_WHO_LIST.split(), key=len, reverse=True))}|{_HAN_TERM}|{_HAN_NAME}(?:\([\w,]\))?+|\s)*+"
)


@lru_cache(maxsize=64)  # the choice grader reads an answer several times
def strip_phrases(text: str, known: frozenset[str] = frozenset()) -> str:
    """Return a prepared answer without the sentence around it.

    Args:
        text: the prepared answer.
        known: words of the question, from `arpo_env.grading.answer_text.allowed_words.question_words`.
    """
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
