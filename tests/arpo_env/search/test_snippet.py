"""The window of a long text lies where the words of the query are, and has the size that was asked for."""

import random
import time

import pytest

from arpo_env.search.local_search import best_window

FILLER = "lorem ipsum dolor sit amet "


def test_a_short_text_is_returned_whole() -> None:
    assert best_window("short text", ("absent",), 20) == "short text"


def test_it_prefers_where_more_different_words_are() -> None:
    text = "radium radium radium " + FILLER * 50 + "radium and polonium " + FILLER * 50
    assert "radium and polonium" in best_window(text, ("radium", "polonium"), 200)


def test_cuts_are_marked_and_fall_between_words() -> None:
    window = best_window(FILLER * 50 + "here is radium now " + FILLER * 50, ("radium",), 100)
    assert window.startswith("...")
    assert window.endswith("...")
    assert set(window.strip(".").split()) <= set((FILLER + "here is radium now").split())


def test_without_a_match_it_is_the_beginning() -> None:
    assert best_window("first " + FILLER * 50, ("absent",), 60).startswith("first lorem")


def test_words_in_scripts_without_spaces_are_found() -> None:
    assert "黄金" in best_window("的" * 3000 + "黄金价格" + "的" * 3000, ("黄金",), 100)


@pytest.mark.parametrize("size", [7, 20, 100, 1000])
def test_it_is_never_longer_than_asked_for(size: int) -> None:
    random_ = random.Random(size)
    for _ in range(200):
        text = "".join(random_.choices(["a", " ", "radium", "黄金", "x" * 30, "\n"], k=random_.randrange(400)))
        assert len(best_window(text, ("radium", "黄金", "xx"), size)) <= size


def test_a_huge_text_is_cheap() -> None:
    started = time.thread_time()
    best_window("radium " * 200_000, ("radium", "polonium"), 1000)
    assert time.thread_time() - started < 5
