"""Local search: what is found, in which order, by whom, in corpora and in generated worlds, and when things break."""

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arpo_env.net import ServiceError
from arpo_env.search import CorpusError, LocalSearch, Passage, build_index, read_corpus
from arpo_env.search.local_search import ENGINE, WorldSearch, best_window
from envs_registry.generated.multihop import MultiHopSource
from tests.arpo_env.forks import holds_in_a_child

PASSAGES = [
    Passage("gold", "黄金", "黄金是一种贵金属。2020年金价上涨。", "https://example.org/gold", "2020-01-02"),
    Passage("tokyo", "東京", "東京は日本の首都です。ラーメンもある。"),
    Passage("curie", "Marie Curie", "Marie Skłodowska Curie discovered radium and polonium with her husband Pierre."),
    Passage("pierre", "Pierre Curie", "Pierre Curie was a French physicist, who shared the prize of 1903."),
    Passage("who", "The Who", "The Who are an English rock band formed in London in 1964."),
    Passage("cafe", "Café Müller", "A dance piece by Pina Bausch."),
    Passage(
        "long", "A long page", "filler words here. " * 400 + "The needle Xyzzy stands here. " + "more filler. " * 400
    ),
    *(Passage(f"twin{number}", "Twin", "The same passage again and again.") for number in range(30)),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LocalSearch:
    folder: Path = tmp_path_factory.mktemp("search") / "index"
    build_index(PASSAGES, folder)
    return LocalSearch(folder)


def ids(index: LocalSearch, query: str, k: int = 5) -> list[str]:
    names = {passage.url: passage.id for passage in PASSAGES if passage.url}
    return [names.get(hit.url, hit.url) for hit in index.search_sync(query, k)]


def test_a_hit_has_all_of_its_passage_and_the_snippet_of_a_long_one_is_around_the_words(index: LocalSearch) -> None:
    [hit] = index.search_sync("黄金", 1)
    assert (hit.title, hit.url, hit.date) == ("黄金", "https://example.org/gold", "2020-01-02")
    assert hit.text == hit.snippet == PASSAGES[0].text
    assert (hit.score or 0) > 0
    [hit] = index.search_sync("where is Xyzzy", 1)
    assert "The needle Xyzzy stands here." in hit.snippet
    assert len(hit.snippet) <= 1000 < 10_000 < len(hit.text)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        *(("who discovered radium", "curie"), ("Pierre Curie", "pierre"), ("DISCOVERING polonium!", "curie")),
        *(("the who", "who"), ("cafe muller", "cafe"), ("ｒａｄｉｕｍ", "curie")),
        *(("金", "gold"), ("日本の首都", "tokyo"), ("xyzzy", "long")),
    ],
)
def test_it_finds(index: LocalSearch, query: str, first: str) -> None:
    assert ids(index, query)[0] == first


def test_it_finds_as_many_as_asked_for_and_equals_in_the_order_of_the_corpus(index: LocalSearch) -> None:
    for query in ("", "   ", "quetzalcoatlus", "!?()", "鑽"):
        assert index.search_sync(query, 5) == []
    assert [len(index.search_sync("passage", k)) for k in (-1, 0, 1, 7, 10_000)] == [0, 0, 1, 7, 30]
    assert ids(index, "the same passage", 12) == [f"twin{number}" for number in range(12)]


HOSTILE = (
    *('"', "(", ":", "[", "\\", "^", "*", "title:x", "AND", "NEAR(a b)", "a AND", "a* b^2 c~1", "[a TO b]", "cjk:黄"),
    *("a\x00b", "\ud800", "İ", "½ ² ﬁ", "😀", "(" * 100_000, "radium " * 15_000, "黄" * 100_000, "a:b " * 25_000),
    *(" ".join(f"w{number}" for number in range(20_000)), "' OR 1=1; drop table words; --", "{title} : x"),
)


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_is_an_error_or_expensive(index: LocalSearch, query: str) -> None:
    started = time.thread_time()
    index.search_sync(query, 5)
    assert time.thread_time() - started < 5


def test_many_callers_at_once_get_their_own_answers(index: LocalSearch) -> None:
    urls = {"who discovered radium": "curie", "the who": "who", "黄金": "https://example.org/gold", "xyzzy": "long"}

    async def ask() -> list[str]:
        found = await asyncio.gather(*(index.search(query, 3) for query in [*urls] * 64))
        return [hits[0].url for hits in found]

    assert asyncio.run(ask()) == [*urls.values()] * 64


def test_it_works_in_the_child_of_a_fork(index: LocalSearch) -> None:
    def holds() -> bool:
        return asyncio.run(index.search("who discovered radium", 3))[0].url == "curie"

    assert holds()  # its threads are there now
    assert holds_in_a_child(holds)
    assert holds()


def test_the_same_corpus_gives_the_same_fingerprint_and_results_and_a_search_writes_nothing(tmp_path: Path) -> None:
    infos = [build_index(PASSAGES, tmp_path / name) for name in "ab"]
    assert infos[0] == infos[1]
    assert infos[0].passages == len(PASSAGES)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for path in tmp_path.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    one, two = (LocalSearch(tmp_path / name) for name in "ab")
    assert one.parameters == two.parameters
    assert one.search_sync("the same Curie", 9) == two.search_sync("the same Curie", 9)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


KILLED = """
import os, signal, sys
from arpo_env.search import Passage, build_index
def passages():
    for number in range(1000):
        yield Passage(str(number), "", "words")
    os.kill(os.getpid(), signal.SIGKILL)
build_index(passages(), sys.argv[1], replace=True)
"""


@pytest.mark.parametrize("before", [True, False], ids=["over an index", "anew"])
def test_a_build_that_is_killed_leaves_what_was_there(tmp_path: Path, before: bool) -> None:
    folder = tmp_path / "index"
    if before:
        build_index(PASSAGES, folder)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not before or ids(LocalSearch(folder), "who discovered radium")[0] == "curie"
    build_index(PASSAGES, folder, replace=before)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["index"]


def test_of_two_builds_of_the_same_folder_the_second_is_refused(tmp_path: Path) -> None:
    begun = threading.Event()

    def slow() -> Iterator[Passage]:
        begun.set()
        time.sleep(0.2)
        yield from PASSAGES

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(build_index, slow(), tmp_path / "index")
        assert begun.wait(20)
        with pytest.raises(FileExistsError, match="--replace"):
            build_index(PASSAGES[:1], tmp_path / "index")
        assert first.result() == build_index(PASSAGES, tmp_path / "other")


def test_an_index_is_replaced_on_demand_only_its_readers_keep_the_old_one_and_other_folders_are_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "index"
    build_index(PASSAGES, folder)
    old = LocalSearch(folder)
    with pytest.raises(FileExistsError, match="--replace"):
        build_index(PASSAGES[:1], folder)
    build_index(PASSAGES[:1], folder, replace=True)
    assert (ids(LocalSearch(folder), "radium"), ids(old, "radium")) == ([], ["curie"])
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="no search index"):
        build_index(PASSAGES, tmp_path, replace=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_what_is_no_index_or_a_damaged_one_is_said_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="arpo search index"):
        LocalSearch(tmp_path)
    build_index(PASSAGES, tmp_path / "index")
    for file in (tmp_path / "index" / ENGINE).iterdir():
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ServiceError, match="build it again"):  # the machinery's fault
        LocalSearch(tmp_path / "index").search_sync("radium", 1)
    (tmp_path / "meta.json").write_text('{"segments": []}')
    with pytest.raises(ValueError, match="something other than a search index"):
        LocalSearch(tmp_path)


def test_recall_of_gold_passages(shared: Path, tmp_path: Path) -> None:
    """Share of all gold passages that are in the first five for the question itself."""
    build_index(shared / "data/corpus/passages.jsonl", tmp_path / "index")
    real, found = LocalSearch(tmp_path / "index"), list[bool]()
    lines = (shared / "data/corpus/questions.jsonl").read_text(encoding="utf-8").splitlines()
    for question in map(json.loads, lines):
        hits = {hit.url for hit in real.search_sync(question["question"], 5)}
        found += [gold in hits for gold in set(question["gold"])]
    assert len(lines) > 500
    assert sum(found) / len(found) >= 0.76


FILLER = "lorem ipsum dolor sit amet "


def test_the_window_is_where_more_different_words_are_or_at_the_beginning() -> None:
    text = "radium radium radium " + FILLER * 50 + "radium and polonium " + FILLER * 50
    window = best_window(text, ("radium", "polonium"), 200)
    assert "radium and polonium" in window
    assert (window[:3], window[-3:]) == ("...", "...")  # cuts are marked and fall between words
    assert set(window.strip(".").split()) <= set(text.split())
    assert "黄金" in best_window("的" * 3000 + "黄金价格" + "的" * 3000, ("黄金",), 100)
    assert best_window("first " + FILLER * 50, ("absent",), 60).startswith("first lorem")


@pytest.mark.parametrize("size", [7, 20, 100, 1000])
def test_the_window_is_never_longer_than_asked_for_and_cheap(size: int) -> None:
    random_ = random.Random(size)
    for _ in range(200):
        text = "".join(random_.choices(["a", " ", "radium", "黄金", "x" * 30, "\n"], k=random_.randrange(400)))
        assert len(best_window(text, ("radium", "黄金", "xx"), size)) <= size
    started = time.thread_time()
    best_window("radium " * 200_000, ("radium", "polonium"), size)
    assert time.thread_time() - started < 5


def written(folder: Path, *lines: str) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        ({"id": 7, "contents": '"The Title"\nwords\nmore'}, Passage("7", "The Title", "words\nmore")),
        ({"contents": "Bare Title\nwords"}, Passage("0", "Bare Title", "words")),
        ({"title": "T", "contents": "words\nmore"}, Passage("0", "T", "words\nmore")),
        ({"title": "T", "contents": '"T"\nwords'}, Passage("0", "T", "words")),
        ({"url": "http://x", "text": "words", "date": "1999", "n": [1]}, Passage("0", "", "words", "http://x", "1999")),
        *(({"_id": "m", "title": "t"}, Passage("m", "t", "")), ({"text": "\ud83d a"}, Passage("0", "", "? a"))),
    ],
)
def test_a_row_becomes_a_passage(tmp_path: Path, row: object, passage: Passage) -> None:
    assert list(read_corpus(written(tmp_path, json.dumps(row)))) == [passage]


def test_gzipped_files_and_blank_lines_are_read_and_a_cut_off_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n\n{"text": "two"}'))
    assert [(passage.id, passage.text) for passage in read_corpus(path)] == [("0", "one"), ("2", "two")]
    path.write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000)[:-12])
    with pytest.raises(CorpusError, match="damaged or cut off"):
        list(read_corpus(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *(("{not json", "property name"), ("[1, 2]", "not list"), ("[" * 100_000, "recursion")),
        ('{"body": "x", "id": 1}', r"needs one of 'text', 'contents'.*\['body', 'id'\]"),
        ('{"text": ["a"]}', "'text' has to be a string, not list"),
    ],
)
def test_a_bad_line_is_named_and_leaves_no_index(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, '{"text": "fine"}', line)
    with pytest.raises(CorpusError, match=rf"(?s)corpus\.jsonl, line 2: .*{said}"):
        build_index(path, tmp_path / "index")
    assert [file for file in tmp_path.iterdir() if file.suffix != ".lock"] == [path]


def test_the_queries_of_a_generated_world_s_solutions_find_its_passages() -> None:
    source, found = MultiHopSource("test"), []
    search = WorldSearch(source.passages)
    for index in range(200):
        for fact, query in zip(source.proof(index).facts, source.solution(index), strict=True):
            found.append(fact.subject in {hit.url for hit in asyncio.run(search.search(query, 5))})
    assert sum(found) / len(found) > 0.96
    for other in (WorldSearch(source.passages, seed=1), WorldSearch(source.passages[:300])):
        assert other.parameters != search.parameters
