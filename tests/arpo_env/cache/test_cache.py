"""The cache: what is looked up, called, stored; one call for many callers; and what never gets in."""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import NOTHING_SECONDS, Cache, CacheMiss
from arpo_env.net import ServiceError
from arpo_env.search.search_backend import CachedSearch, Hit, RecordedSearch, SearchBackend, normalise_query


class Counted:
    """A call that counts how often it was made."""

    def __init__(self, value: Any = "answer", seconds: float = 0.0, error: Exception | None = None) -> None:
        self.value, self.seconds, self.error, self.calls = value, seconds, error, 0

    async def __call__(self) -> Any:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return self.value


class Library(SearchBackend):
    """A backend with one passage a word."""

    name = "library"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def search(self, query: str, k: int) -> list[Hit]:
        self.asked.append((query, k))
        return [Hit(word, score=1.0) for word in query.split() if word != "nothing"][:k]


def ask(cache: Cache, call: Callable[[], Awaitable[Any]], query: str = "q", **changes: Any) -> Any:
    request = {"query": query, "k": changes.pop("k", 5)}
    named = {"kind": "search", "provider": "serper", "version": 1, **changes}
    return asyncio.run(cache.through(request=request, call=call, **named))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def test_an_answer_is_called_for_once(file: Path) -> None:
    call = Counted({"hits": [1, "二"]})
    assert [ask(Cache(file), call) for _ in range(3)] == [{"hits": [1, "二"]}] * 3
    assert call.calls == 1


def test_the_live_mode_neither_reads_nor_writes(file: Path) -> None:
    call = Counted()
    cache = Cache(file, mode="live")
    assert ask(cache, call) == ask(cache, call) == "answer"
    assert call.calls == 2
    assert not file.exists()


@pytest.mark.parametrize("change", [{"kind": "page"}, {"provider": "tavily"}, {"version": 2}, {"query": "Q"}, {"k": 6}])
def test_each_part_of_the_key_tells_requests_apart(file: Path, change: dict[str, Any]) -> None:
    cache, call = Cache(file), Counted()
    ask(cache, call)
    ask(cache, call, **change)
    assert call.calls == 2


def test_a_replay_s_miss_says_what_was_missed_and_what_to_do(file: Path) -> None:
    ask(Cache(file), Counted())
    call = Counted()
    with pytest.raises(CacheMiss, match=r"no search of serper .*'who\?'.*mode=\"record\".*arpo cache import") as caught:
        ask(Cache(file, mode="replay"), call, query="who?")
    assert isinstance(caught.value, ServiceError)
    assert call.calls == 0


def test_a_replay_of_a_file_that_is_not_there_fails_and_makes_none(file: Path) -> None:
    with pytest.raises(ServiceError, match=r"there is no file .*cache.sqlite to replay"):
        ask(Cache(file, mode="replay"), Counted())
    assert not file.exists()


def test_failures_are_never_stored(file: Path) -> None:
    cache, failing = Cache(file), Counted(error=ServiceError("serper", "out of money"))
    for _ in range(2):
        with pytest.raises(ServiceError, match="out of money"):
            ask(cache, failing)
    assert failing.calls == 2
    assert ask(cache, Counted("now")) == "now"


def test_an_answer_expires_after_its_time_and_a_failure_never_replaces_one(file: Path) -> None:
    cache, call = Cache(file), Counted()
    for seconds in (0.2, None, 0.2):
        ask(cache, call, query=str(seconds), lifetime=lambda value, seconds=seconds: seconds)
    assert call.calls == 2
    time.sleep(0.25)
    assert ask(Cache(file, mode="replay"), Counted(), query="0.2") == "answer"  # however old
    assert ask(cache, Counted("failed"), query="0.2", lifetime=lambda value: 0.0) == "failed"
    assert ask(Cache(file, mode="replay"), Counted(), query="0.2") == "answer"
    assert ask(cache, call, query="None") == "answer"
    assert call.calls == 2


def test_what_found_nothing_is_kept_for_an_hour(file: Path) -> None:
    search = CachedSearch(Library(), cache := Cache(file))
    for query in ("nothing", "one"):
        asyncio.run(search.search(query, 5))
    ages = sorted((r.status, r.expires and round(r.expires - r.created)) for r in cache.store.records())
    assert ages == [("found", None), ("nothing", NOTHING_SECONDS)]


def test_a_value_that_is_no_json_is_refused(file: Path) -> None:
    cache = Cache(file)
    for value in (float("nan"), {1, 2}):
        with pytest.raises((TypeError, ValueError), match="JSON"):
            ask(cache, Counted(value))
    assert list(cache.store.records()) == []


def test_an_unknown_mode_is_named_with_the_nearest(file: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'replay'"):
        Cache(file, mode="replya")


# one call for many


def test_one_call_serves_several_threads_and_loops(file: Path) -> None:
    cache, call, answers = Cache(file), Counted(seconds=0.3), []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        answers.append(ask(cache, call))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["answer"] * 8
    assert call.calls == 1


def test_all_who_wait_see_the_error_and_the_next_calls_again(file: Path) -> None:
    cache, failing = Cache(file), Counted(seconds=0.05, error=ServiceError("s", "down"))

    async def main() -> list[Any]:
        asks = (cache.through("search", "s", 1, {"query": "q"}, failing) for _ in range(4))
        return list(await asyncio.gather(*asks, return_exceptions=True))

    assert [str(error) for error in asyncio.run(main())] == ["s: down"] * 4
    assert failing.calls == 1
    asyncio.run(main())
    assert failing.calls == 2


@pytest.mark.parametrize("cancelled", [0, 1])
def test_who_is_cancelled_cancels_no_other(file: Path, cancelled: int) -> None:
    cache, call = Cache(file), Counted(seconds=0.1)

    async def main() -> list[Any]:
        asks = [asyncio.create_task(cache.through("search", "s", 1, {"query": "q"}, call)) for _ in range(3)]
        await asyncio.sleep(0.03)
        asks[cancelled].cancel()
        return list(await asyncio.gather(*asks, return_exceptions=True))

    answers = asyncio.run(main())
    assert isinstance(answers.pop(cancelled), asyncio.CancelledError)
    assert answers == ["answer"] * 2
    assert call.calls == (2 if cancelled == 0 else 1)  # the first one called; another takes over


def test_a_loop_that_stopped_for_good_holds_nobody_up(file: Path) -> None:
    cache, call = Cache(file), Counted(seconds=30)
    loop = asyncio.new_event_loop()
    task = loop.create_task(cache.through("search", "serper", 1, {"query": "q", "k": 5}, call))
    loop.run_until_complete(asyncio.sleep(0.05))
    assert ask(cache, Counted("mine")) == "mine"
    task.cancel()
    loop.run_until_complete(asyncio.wait({task}))
    loop.close()


# processes


def _child(cache: Cache, answers: Any) -> None:
    answers.put((ask(cache, Counted("of the child")), ask(cache, Counted("new"), query=str(os.getpid()))))


def test_a_cache_goes_on_in_a_child_process(file: Path) -> None:
    cache = Cache(file)
    ask(cache, Counted("of the parent"))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    children = [context.Process(target=_child, args=(cache, answers)) for _ in range(1)]
    for child in children:
        child.start()
    found = [answers.get(timeout=30) for _ in children]
    for child in children:
        child.join()
    assert found == [("of the parent", "new")]
    assert ask(cache, Counted("mine"), query=str(children[0].pid)) == "new"


# search


def test_a_search_is_recorded_and_replayed(file: Path) -> None:
    library = Library()
    recorded = asyncio.run(CachedSearch(library, Cache(file)).search("Alpha beta", 5))
    replayed = asyncio.run(CachedSearch(library, Cache(file, mode="replay")).search("search query: alpha  BETA", 5))
    assert recorded == replayed == [Hit("Alpha", score=1.0), Hit("beta", score=1.0)]
    assert library.asked == [("Alpha beta", 5)]


def test_a_recording_answers_without_its_provider(file: Path) -> None:
    asyncio.run(CachedSearch(Library(), Cache(file)).search("a b c", 10))
    search = CachedSearch(RecordedSearch("library"), Cache(file, mode="replay"))
    assert [hit.title for hit in asyncio.run(search.search("A B C", 2))] == ["a", "b"]
    with pytest.raises(ServiceError, match="'unheard of' was not recorded"):
        asyncio.run(RecordedSearch("library").search("unheard of", 5))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("search query: Capital of Peru", "capital of peru"),
        ("“Capital of Peru”", "Capital  of\nPeru "),
        ("Ｃａｐｉｔａｌ　of Peru", "CAPITAL OF PERU"),
        ("Search Query: 'straße'", "STRASSE"),
    ],
)
def test_spellings_of_a_query_are_one(one: str, other: str) -> None:
    assert normalise_query(one) == normalise_query(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++ history", "C history"),
        ("3.14", "314"),
        ("-5", "5"),
        ("10²", "102"),
        ("1½ cups", "11/2 cups"),
        ('"a" or "b"', 'a" or "b'),
        ("search query here", "here"),
    ],
)
def test_different_queries_stay_apart(one: str, other: str) -> None:
    assert normalise_query(one) != normalise_query(other)
