"""The search tool: what the model is shown, what is remembered in an episode, and what counts as whose fault."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_env import Hit, SearchBackend, SearchTool
from arpo_env.net import ServiceError
from arpo_env.pages import Page, PageError
from arpo_env.search.search_backend import bare_query
from arpo_env.tools.search_tool import NOTHING, render
from arpo_env.tools.tool import ToolResult


class Answers(SearchBackend):
    """A backend with fixed hits, which remembers what it was asked."""

    name = "answers"

    def __init__(self, *hits: Hit, seconds: float = 0.0) -> None:
        self.hits, self.seconds = list(hits), seconds
        self.asked: list[str] = []

    async def search(self, query: str, k: int) -> list[Hit]:
        self.asked.append(query)
        await asyncio.sleep(self.seconds)
        return self.hits[:k]


HITS = [Hit(f"Title {number}", f"https://example.org/{number}", f"Snippet {number}.") for number in range(8)]


def ask(tool: SearchTool, query: str) -> ToolResult:
    return asyncio.run(tool.call(query=query))


def test_hits_are_numbered_entries_marked_as_quoted_of_which_whole_ones_are_left_out() -> None:
    lines = render(HITS[:2]).splitlines()
    assert "quoted" in lines[0]
    assert lines[1:] == ["Page 1: Title 0", "Snippet 0.", "Page 2: Title 1", "Snippet 1."]
    text = render([Hit(f"T{number}", "", "x" * 900 + str(number)) for number in range(10)], 3000)
    assert len(text) <= 3000
    assert text.endswith("x2")
    assert render([]) == NOTHING


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Search Query：  'who wrote it'", "who wrote it"),
        ("search query: search query: x y", "x y"),
        ("“谁写的”", "谁写的"),
        ('"a b" and "c d"', '"a b" and "c d"'),
        ('"', '"'),
    ],
)
def test_what_models_put_around_a_query_is_taken_off(text: str, query: str) -> None:
    assert bare_query(text) == query


@pytest.mark.parametrize("query", ["", "  ", '""', "search query:", "???", "x" * 2001])
def test_a_query_that_makes_no_sense_is_the_models_error(query: str) -> None:
    backend = Answers()
    assert ask(SearchTool(backend), query).status == "error"
    assert backend.asked == []


def test_a_repeated_query_is_answered_from_memory_of_which_copies_have_their_own() -> None:
    backend = Answers(*HITS)
    tool = SearchTool(backend)
    first, second = ask(tool, "Who wrote it"), ask(tool, "  who WROTE it ")
    assert second.text == "(This query was asked before; the results are the same.)\n" + first.text
    copy, other = (one for one in asyncio.run(tool.fork(2)) if isinstance(one, SearchTool))
    assert ask(copy, "Who wrote it").text == second.text
    ask(copy, "two")
    ask(other, "two")
    assert backend.asked == ["Who wrote it", "two", "two"]


def test_a_service_that_is_too_slow_is_no_result() -> None:
    with pytest.raises(ServiceError, match=r"answers: no result within 0\.05 s"):
        ask(SearchTool(Answers(seconds=60), timeout=0.05), "anything")


class Pages:
    """A reader that knows the odd pages, and waits until it reads five at once."""

    def __init__(self) -> None:
        self.read_ones: list[str] = []
        self.five = asyncio.Barrier(5)

    async def read(self, url: str) -> Page:
        self.read_ones.append(url)
        await asyncio.wait_for(self.five.wait(), 20)
        if int(url[-1]) % 2 == 0:
            raise PageError(url, "gone")
        return Page(url, "", f"The whole page of {url}. " * 50)


class Notes:
    async def summarise(self, query: str, steps: Sequence[str], pages: Sequence[Any]) -> str:
        return f"{query}, {steps}, {[page.url for page in pages]}"


def test_the_first_pages_are_read_at_once_and_a_bad_one_loses_only_itself() -> None:
    reader = Pages()
    text = ask(SearchTool(Answers(*HITS), reader=reader), "x").text
    assert reader.read_ones == [hit.url for hit in HITS[:5]]
    assert "The whole page of https://example.org/1" in text
    assert "\nSnippet 2." in text
    assert "\nSnippet 7." in text


def test_a_summariser_gets_query_context_and_pages() -> None:
    tool = SearchTool(Answers(*HITS), reader=Pages(), summariser=Notes())
    tool.context = ("First I think.",)
    assert ask(tool, "search query: who").text == f"who, ('First I think.',), {[HITS[1].url, HITS[3].url]}"
