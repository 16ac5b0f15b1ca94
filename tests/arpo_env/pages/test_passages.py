"""The passage around a snippet, and page text marked as data."""

import time

import pytest

from arpo_env.pages import passage
from arpo_env.pages.page import sentences

FILLER = "Nothing of interest is said in this line. " * 200
CHINESE_FILLER = "这里没有什么有意思的内容。" * 500


def test_the_sentence_of_the_snippet_is_in_the_middle() -> None:
    sentence = "The Nile is 6,650 km long and flows into the Mediterranean."
    found = passage(FILLER + sentence + " " + FILLER, "Nile 6,650 km long flows Mediterranean", 300)
    assert found.index(sentence) == 300
    assert len(found) == 600 + len(sentence)


def test_the_chinese_sentence_of_the_snippet_is_in_the_middle() -> None:
    sentence = "尼罗河全长六千六百五十公里，流入地中海。"
    found = passage(CHINESE_FILLER + sentence + CHINESE_FILLER, "尼罗河长度为六千六百五十公里 地中海", 300)
    assert found.index(sentence) == 300
    assert len(found) == 600 + len(sentence)


@pytest.mark.parametrize("snippet", ["", "entirely different vocabulary", "。！？"])
def test_a_snippet_that_fits_nowhere_gives_the_start(snippet: str) -> None:
    assert passage(FILLER, snippet, 100) == FILLER[:200]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three? Four", 4),
        ("It is 3.14 and U.S.A-like. Next", 2),
        ('He said "no." Then left.', 2),
        ("第一句。第二句！第三句？“第四句。”第五句", 5),
        ("Title\nFirst line\n\nSecond", 3),
        ("混合 text。English follows. 再来", 3),
    ],
)
def test_sentences(text: str, count: int) -> None:
    found = [text[start:end] for start, end in sentences(text)]
    assert "".join(found) == text
    assert len(found) == count


@pytest.mark.parametrize("text", [".", "?!", "a...", ". .", '."', "。", "…", "\n"])
def test_the_time_for_sentences_grows_with_the_text(text: str) -> None:
    """Four times the text; the square would take 16 times as long. Dotted lines are in every table of contents."""
    times = []
    for many in (10_000, 40_000):
        long, spent = text * many + "x", []
        for _ in range(3):
            started = time.process_time()
            for _ in sentences(long):
                pass
            spent.append(time.process_time() - started)
        times.append(min(spent))
    assert times[1] < 9 * max(times[0], 0.001)
