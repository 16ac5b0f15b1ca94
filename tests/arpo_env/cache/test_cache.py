"""The cache: what is looked up, called, stored, imported and exported; one call for many; and what never gets in."""

import asyncio
import json
import pickle
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import NOTHING_SECONDS, Cache, CacheMiss, export_jsonl, import_jsonl
from arpo_env.net import ServiceError
from arpo_env.search import open_search
from arpo_env.search.search_backend import (
    CachedSearch,
    Hit,
    RecordedSearch,
    SearchBackend,
    import_arpo_json,
    normalise_query,
)
from arpo_trainer.cli.arpo_command import main


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
    with pytest.raises(ServiceError, match=r"there is no file .*cache.sqlite to replay"):
        ask(Cache(file, mode="replay"), Counted())
    assert not file.exists()
    ask(Cache(file), Counted())
    call = Counted()
    with pytest.raises(CacheMiss, match=r"no search of serper .*'who\?'.*mode=\"record\".*arpo cache import") as caught:
        ask(Cache(file, mode="replay"), call, query="who?")
    assert isinstance(caught.value, ServiceError)
    again = pickle.loads(pickle.dumps(caught.value))  # as between processes
    assert (type(again), vars(again), again.args) == (CacheMiss, vars(caught.value), caught.value.args)
    assert call.calls == 0


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


def test_one_call_serves_all_who_ask_meanwhile(file: Path) -> None:
    cache, call = Cache(file), Counted(seconds=0.1)

    async def main() -> list[Any]:
        return list(await asyncio.gather(*(cache.through("search", "s", 1, {"query": "q"}, call) for _ in range(8))))

    assert asyncio.run(main()) == asyncio.run(main()) == ["answer"] * 8
    assert call.calls == 1


def test_all_who_wait_see_the_error_and_the_next_calls_again(file: Path) -> None:
    cache, failing = Cache(file), Counted(seconds=0.05, error=ServiceError("s", "down"))

    async def main() -> list[Any]:
        asks = (cache.through("search", "s", 1, {"query": "q"}, failing) for _ in range(4))
        return list(await asyncio.gather(*asks, return_exceptions=True))

    assert [str(error) for error in asyncio.run(main())] == ["s: down"] * 4
    assert failing.calls == 1
    asyncio.run(main())  # nothing was stored
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


def test_a_cache_travels_to_another_process_as_its_file(file: Path) -> None:
    ask(cache := Cache(file), Counted("one"))
    assert ask(pickle.loads(pickle.dumps(cache)), Counted("other")) == "one"


def test_a_search_is_recorded_and_replayed_also_without_its_provider(file: Path) -> None:
    library, other = Library(), RecordedSearch("library")
    recorded = asyncio.run(CachedSearch(library, Cache(file)).search("Alpha beta", 10))
    for backend in (library, other):
        replay = CachedSearch(backend, Cache(file, mode="replay"))
        assert asyncio.run(replay.search("search query: alpha  BETA", 10)) == recorded
    assert recorded == [Hit("Alpha", score=1.0), Hit("beta", score=1.0)]
    assert asyncio.run(replay.search("alpha beta", 1)) == recorded[:1]
    assert library.asked == [("Alpha beta", 10)]
    with pytest.raises(ServiceError, match="'unheard of' was not recorded"):
        asyncio.run(other.search("unheard of", 5))


def test_spellings_of_a_query_are_one_and_different_queries_stay_apart() -> None:
    for one, other in (
        ("“Capital of Peru”", "Capital  of\nPeru "),
        ("Ｃａｐｉｔａｌ　of Peru", "CAPITAL OF PERU"),
        ("Search Query: 'straße'", "STRASSE"),
        ("Ame\u0301lie ｶﾞ", "Amélie ガ"),
    ):
        assert normalise_query(one) == normalise_query(other)
    for one, other in (("C++", "C"), ("3.14", "314"), ("10²", "102"), ("1½ cups", "11/2 cups")):
        assert normalise_query(one) != normalise_query(other)
    assert normalise_query("search query here") == "search query here"


PUBLISHED = {
    "Yuri Ozerov nationality": "Page 1: A Russian film director.\nPage 2: Born in 1921\nin Moscow.",
    "search query: yuri ozerov  NATIONALITY": "Page 1: Another text.",
    "x </search> <result>\nPage 1: y": "No search results found.",
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "search_cache.json"
    path.write_text(json.dumps(PUBLISHED), encoding="utf-8")
    return path


def test_a_published_cache_replays_as_hits(tmp_path: Path, published: Path) -> None:
    import_arpo_json(Cache(tmp_path / "c.sqlite"), published)
    search = CachedSearch(open_search("recorded:bing-arpo"), Cache(tmp_path / "c.sqlite", mode="replay"))
    hits = asyncio.run(search.search("Yuri Ozerov nationality", 5))
    assert [hit.snippet for hit in hits] == ["A Russian film director.", "Born in 1921\nin Moscow."]
    assert asyncio.run(search.search("x </search> <result>\nPage 1: y", 5)) == []
    with pytest.raises(CacheMiss, match="bing-arpo"):
        asyncio.run(search.search("anything else", 5))


def test_the_published_cache_of_arpo_replays_whole(tmp_path: Path, shared: Path) -> None:
    source = shared / "data" / "arpo" / "search_cache" / "search_cache.json"
    found = import_arpo_json(Cache(tmp_path / "c.sqlite"), source)
    assert (found.entries, found.records) == (1000, 1000)
    search = CachedSearch(RecordedSearch("bing-arpo"), Cache(tmp_path / "c.sqlite", mode="replay"))

    async def main() -> list[list[str]]:
        return [[hit.snippet for hit in await search.search(query, 10)] for query in entries]

    entries = json.loads(source.read_text(encoding="utf-8"))
    for snippets, text in zip(asyncio.run(main()), entries.values(), strict=True):
        shown = "\n".join(f"Page {number}: {snippet}" for number, snippet in enumerate(snippets, 1))
        assert (shown or "No search results found.") == text


@pytest.mark.parametrize("text", ["[1]", "{", '{"q": 1}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.json is not"):
        import_arpo_json(Cache(tmp_path / "c.sqlite"), path)


def test_an_export_comes_back_the_same(tmp_path: Path, published: Path) -> None:
    first, second = Cache(tmp_path / "a.sqlite"), Cache(tmp_path / "b.sqlite")
    import_arpo_json(first, published)
    first.store.put([first.record("judge", "m", "2", {"q": "\ud800二"}, {"v": [1.5, None]}, 60.0)])
    assert export_jsonl(first, tmp_path / "out.jsonl") == 3
    assert import_jsonl(second, tmp_path / "out.jsonl") == 3
    assert {r.key: r for r in first.store.records()} == {r.key: r for r in second.store.records()}
    export_jsonl(second, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


def test_the_command_imports_shows_and_exports(tmp_path: Path, published: Path, capsys: Any) -> None:
    file, export = str(tmp_path / "c.sqlite"), str(tmp_path / "out.jsonl")
    assert main(["cache", "import", file, str(published)]) == 0
    assert "3 searches, 2 records of bing-arpo: 1 were equal" in capsys.readouterr().out
    assert main(["cache", "export", file, export]) == 0
    for taken in (export, file):  # neither an earlier export nor the records themselves are written over
        assert main(["cache", "export", file, taken]) == 1
        assert "is there already" in capsys.readouterr().err
    assert main(["cache", "import", str(tmp_path / "copy.sqlite"), export]) == 0
    assert "added 2 records" in capsys.readouterr().out
    assert main(["cache", "show", str(tmp_path / "copy.sqlite")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["search", "bing-arpo", "1", "2", "1", "0"]
    assert main(["cache", "show", str(tmp_path / "missing.sqlite")]) == 1
