"""The cache: what is looked up, called, stored, imported and exported; one call for many; and what never gets in."""

import asyncio
import json
import pickle
import shutil
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
    cache, call = Cache(file, mode="live"), Counted()
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
    ask(cache := Cache(file), Counted("one"))
    assert ask(pickle.loads(pickle.dumps(cache)), Counted("other")) == "one"  # as between processes
    call = Counted()
    with pytest.raises(CacheMiss, match=r"no search of serper .*'who\?'.*mode=\"record\".*arpo cache import") as caught:
        ask(Cache(file, mode="replay"), call, query="who?")
    again = pickle.loads(pickle.dumps(caught.value))
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


async def together(cache: Cache, call: Counted, cancelled: int = -1) -> list[Any]:
    """Ask for the same four times at once, of which one may be cancelled."""
    asks = [asyncio.create_task(cache.through("search", "s", 1, {"query": "q"}, call)) for _ in range(4)]
    await asyncio.sleep(0.03)
    if cancelled >= 0:
        asks[cancelled].cancel()
    return list(await asyncio.gather(*asks, return_exceptions=True))


def test_one_call_serves_all_who_ask_meanwhile(file: Path) -> None:
    cache, call = Cache(file), Counted(seconds=0.1)
    assert asyncio.run(together(cache, call)) == asyncio.run(together(cache, call)) == ["answer"] * 4
    assert call.calls == 1


def test_all_who_wait_see_the_error_and_the_next_calls_again(file: Path) -> None:
    cache, failing = Cache(file), Counted(seconds=0.1, error=ServiceError("s", "down"))
    for calls in (1, 2):  # nothing was stored
        assert [str(error) for error in asyncio.run(together(cache, failing))] == ["s: down"] * 4
        assert failing.calls == calls


@pytest.mark.parametrize("cancelled", [0, 1])
def test_who_is_cancelled_cancels_no_other(file: Path, cancelled: int) -> None:
    call = Counted(seconds=0.1)
    answers = asyncio.run(together(Cache(file), call, cancelled))
    assert isinstance(answers.pop(cancelled), asyncio.CancelledError)
    assert answers == ["answer"] * 3
    assert call.calls == (2 if cancelled == 0 else 1)  # the first one called; another takes over


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("“Capital of Peru”", "Capital  of\nPeru ", True),
        ("Ｃａｐｉｔａｌ　of Peru", "CAPITAL OF PERU", True),
        ("Search Query: 'straße'", "STRASSE", True),
        ("Ame\u0301lie ｶﾞ", "Amélie ガ", True),
        *(("C++", "C", False), ("3.14", "314", False), ("10²", "102", False), ("1½ cups", "11/2 cups", False)),
        ("search query here", "here", False),
    ],
)
def test_spellings_of_a_query_are_one_and_different_queries_stay_apart(one: str, other: str, same: bool) -> None:
    assert (normalise_query(one) == normalise_query(other)) is same


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


def replayed_texts(source: Path) -> list[str]:
    """The texts of a published cache, as the hits of its replay show them."""
    file, queries = source.with_suffix(".sqlite"), json.loads(source.read_text(encoding="utf-8"))
    import_arpo_json(Cache(file), source)
    search = CachedSearch(open_search("recorded:bing-arpo"), Cache(file, mode="replay"))

    async def main() -> list[str]:
        found = [[hit.snippet for hit in await search.search(query, 10)] for query in queries]
        return ["\n".join(f"Page {n}: {snippet}" for n, snippet in enumerate(snippets, 1)) for snippets in found]

    with pytest.raises(CacheMiss, match="bing-arpo"):
        asyncio.run(search.search("anything else", 5))
    return asyncio.run(main())


def test_a_published_cache_replays_as_hits_and_another_file_is_refused(published: Path) -> None:
    first = PUBLISHED["Yuri Ozerov nationality"]
    assert replayed_texts(published) == [first, first, ""]  # of equal queries the first is kept
    for text in ("[1]", "{", '{"q": 1}'):
        published.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"search_cache\.json is not"):
            import_arpo_json(Cache(published.with_suffix(".sqlite")), published)


def test_the_published_cache_of_arpo_replays_whole(tmp_path: Path, shared: Path) -> None:
    source = shutil.copy(shared / "data" / "arpo" / "search_cache" / "search_cache.json", tmp_path)
    entries = list(json.loads(Path(source).read_text(encoding="utf-8")).values())
    assert len(entries) == 1000
    assert [text or "No search results found." for text in replayed_texts(Path(source))] == entries


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
