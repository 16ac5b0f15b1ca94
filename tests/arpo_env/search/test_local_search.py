"""Local search: what is found, in which order, by whom, in corpora and in generated worlds, and when things break."""

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arpo_env.net import ServiceError
from arpo_env.search import CorpusError, LocalSearch, Passage, build_index, read_corpus
from arpo_env.search.local_search import ENGINE, ParsedQuery, WorldSearch, best_window
from arpo_env.search.search_backend import Hit
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


def test_a_hit_has_all_of_its_passage(index: LocalSearch) -> None:
    hit = index.search_sync("黄金", 1)[0]
    assert (hit.title, hit.url, hit.date) == ("黄金", "https://example.org/gold", "2020-01-02")
    assert hit.text == hit.snippet == PASSAGES[0].text
    assert hit.score is not None
    assert hit.score > 0


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("who discovered radium", "curie"),
        ("Pierre Curie", "pierre"),
        ("DISCOVERING polonium!", "curie"),
        ("the who", "who"),
        ("cafe muller", "cafe"),
        ("Skłodowska", "curie"),
        ("ｒａｄｉｕｍ", "curie"),
        ("黄金", "gold"),
        ("金", "gold"),
        ("贵金属 price", "gold"),
        ("日本の首都", "tokyo"),
        ("ラーメン", "tokyo"),
        ("xyzzy", "long"),
    ],
)
def test_it_finds(index: LocalSearch, query: str, first: str) -> None:
    assert ids(index, query)[0] == first


@pytest.mark.parametrize("query", ["", "   ", "quetzalcoatlus", "!?()", "鑽"])
def test_it_finds_nothing_where_there_is_nothing(index: LocalSearch, query: str) -> None:
    assert index.search_sync(query, 5) == []


def test_it_finds_as_many_as_asked_for(index: LocalSearch) -> None:
    assert [len(index.search_sync("passage", k)) for k in (-1, 0, 1, 7, 10_000)] == [0, 0, 1, 7, 30]


def test_equals_come_in_the_order_of_the_corpus(index: LocalSearch) -> None:
    assert ids(index, "the same passage", 12) == [f"twin{number}" for number in range(12)]


def test_the_snippet_of_a_long_text_is_around_the_words(index: LocalSearch) -> None:
    hit = index.search_sync("where is Xyzzy", 1)[0]
    assert "The needle Xyzzy stands here." in hit.snippet
    assert len(hit.snippet) <= 1000
    assert len(hit.text) > 10_000


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


def test_64_callers_at_once_get_their_own_answers(index: LocalSearch) -> None:
    queries = {"who discovered radium": "curie", "the who": "who", "黄金": "https://example.org/gold", "xyzzy": "long"}

    async def ask(query: str) -> str:
        return (await index.search(query, 3))[0].url

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(ask(query) for query in list(queries) * 64))

    assert asyncio.run(all_of_them()) == list(queries.values()) * 64


def test_it_works_in_the_child_of_a_fork(index: LocalSearch) -> None:
    expected = asyncio.run(index.search("who discovered radium", 3))  # its threads are there now
    assert holds_in_a_child(lambda: asyncio.run(index.search("who discovered radium", 3)) == expected)
    assert asyncio.run(index.search("who discovered radium", 3)) == expected


def test_it_is_searched_where_nothing_may_be_written(tmp_path: Path) -> None:
    build_index(PASSAGES, tmp_path / "index")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for path in tmp_path.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert ids(LocalSearch(tmp_path / "index"), "who discovered radium")[0] == "curie"
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_the_same_corpus_gives_the_same_fingerprint_and_results(tmp_path: Path) -> None:
    infos = [build_index(PASSAGES, tmp_path / name) for name in "ab"]
    assert infos[0] == infos[1]
    assert infos[0].passages == len(PASSAGES)
    one, two = (LocalSearch(tmp_path / name) for name in "ab")
    assert one.parameters == two.parameters
    assert one.search_sync("the same Curie", 9) == two.search_sync("the same Curie", 9)


def test_a_corpus_with_a_fault_leaves_nothing(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "fine"}\n' * 100 + "{")
    with pytest.raises(CorpusError, match="line 101"):
        build_index(corpus, tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["corpus.jsonl"]


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
    assert folder.exists() == before
    if before:
        assert ids(LocalSearch(folder), "who discovered radium")[0] == "curie"
    build_index(PASSAGES, folder, replace=True)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["index"]


def test_of_two_builds_of_the_same_folder_one_is_refused(tmp_path: Path) -> None:
    code = "import sys; from arpo_env.search import Passage, build_index\n"
    code += "build_index((Passage(str(n), '', 'words') for n in range(20_000)), sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / "index")]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = sorted(one.communicate()[1] for one in both)
    assert errors[0] == ""
    assert "FileExistsError" in errors[1]
    assert len(LocalSearch(tmp_path / "index").search_sync("words", 5)) == 5


def test_an_index_is_replaced_on_demand_only_and_its_readers_keep_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(PASSAGES, folder)
    old = LocalSearch(folder)
    with pytest.raises(FileExistsError, match="--replace"):
        build_index(PASSAGES[:1], folder)
    build_index(PASSAGES[:1], folder, replace=True)
    assert LocalSearch(folder).search_sync("radium", 1) == []
    assert ids(old, "radium") == ["curie"]


def test_other_peoples_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="no search index"):
        build_index(PASSAGES, tmp_path, replace=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_what_is_no_index_is_said_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="arpo search index"):
        LocalSearch(tmp_path)
    (tmp_path / "meta.json").write_text('{"segments": []}')
    with pytest.raises(ValueError, match="something other than a search index"):
        LocalSearch(tmp_path)


def test_a_damaged_index_is_the_machinerys_fault(tmp_path: Path) -> None:
    build_index(PASSAGES, tmp_path / "index")
    for file in (tmp_path / "index" / ENGINE).iterdir():
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ServiceError, match="build it again"):
        LocalSearch(tmp_path / "index").search_sync("radium", 1)


def test_recall_of_gold_passages(shared: Path, tmp_path: Path) -> None:
    """Share of all gold passages that are in the first five for the question itself."""
    build_index(shared / "data/corpus/passages.jsonl", tmp_path / "index")
    real, found, total = LocalSearch(tmp_path / "index"), 0, 0
    lines = (shared / "data/corpus/questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    for question in questions:
        gold = set(question["gold"])
        found += len(gold & {hit.url for hit in real.search_sync(question["question"], 5)})
        total += len(gold)
    assert len(questions) > 500
    assert found / total >= 0.76


def test_a_question_is_taken_apart() -> None:
    question = ParsedQuery.read('Who directed "The Movie (2020)", 黄金时代?')
    assert question.terms == ("directed", "movie", "2020")
    assert question.pairs == ("黄金", "金时", "时代")
    assert ("the movie", 2) in question.names
    assert ("who", 1) not in question.names


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


def written(folder: Path, *lines: str) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        ({"id": "a", "title": "T", "text": "words"}, Passage("a", "T", "words")),
        ({"id": 7, "contents": '"The Title"\nwords\nmore'}, Passage("7", "The Title", "words\nmore")),
        ({"contents": "Bare Title\nwords"}, Passage("0", "Bare Title", "words")),
        ({"contents": "only words"}, Passage("0", "", "only words")),
        ({"title": "T", "contents": "words\nmore"}, Passage("0", "T", "words\nmore")),
        ({"title": "T", "contents": '"T"\nwords'}, Passage("0", "T", "words")),
        ({"title": "T", "text": "words", "contents": '"T"\nother'}, Passage("0", "T", "words")),
        ({"url": "http://x", "text": "words", "date": "1999", "n": [1]}, Passage("0", "", "words", "http://x", "1999")),
        ({"_id": "m", "title": "only a title"}, Passage("m", "only a title", "")),
        ({"id": "s", "text": "half \ud83d a pair"}, Passage("s", "", "half ? a pair")),
    ],
)
def test_a_row_becomes_a_passage(tmp_path: Path, row: object, passage: Passage) -> None:
    assert list(read_corpus(written(tmp_path, json.dumps(row)))) == [passage]


def test_gzipped_files_and_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n\n{"text": "two"}'))
    assert [(passage.id, passage.text) for passage in read_corpus(path)] == [("0", "one"), ("2", "two")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{not json", "property name"),
        ("[1, 2]", "not list"),
        ('{"body": "x", "id": 1}', r"needs one of 'text', 'contents'.*\['body', 'id'\]"),
        ('{"text": ["a"]}', "'text' has to be a string, not list"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, '{"text": "fine"}', line)
    with pytest.raises(CorpusError, match=rf"(?s)corpus\.jsonl, line 2: .*{said}"):
        list(read_corpus(path))


def test_a_cut_off_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000)[:-12])
    with pytest.raises(CorpusError, match="damaged or cut off"):
        list(read_corpus(path))


def test_the_shared_corpus_is_read(shared: Path) -> None:
    passages = list(read_corpus(shared / "data/corpus/passages.jsonl"))
    assert len(passages) == 13_838
    assert passages[0].id == "p00000"
    assert passages[0].title == "Meet Corliss Archer"


K = 5


@pytest.fixture(scope="module")
def source() -> MultiHopSource:
    return MultiHopSource("test")


@pytest.fixture(scope="module")
def search(source: MultiHopSource) -> WorldSearch:
    return WorldSearch(source.passages)


def find(search: WorldSearch, query: str, k: int = K) -> list[Hit]:
    return asyncio.run(search.search(query, k))


def test_the_queries_of_the_solution_find_the_gold_passages(search: WorldSearch, source: MultiHopSource) -> None:
    found = []
    for index in range(200):
        for fact, query in zip(source.proof(index).facts, source.solution(index), strict=True):
            found.append(fact.subject in {hit.url for hit in find(search, query)})
    assert sum(found) / len(found) > 0.96


def test_the_bare_question_finds_fewer_gold_passages_the_more_hops_it_has(
    search: WorldSearch, source: MultiHopSource
) -> None:
    recall: dict[str, list[float]] = {"2": [], "3": [], "4": []}
    for index in range(300):
        gold, task = source.proof(index).passages, source.task(index)
        hits = {hit.url for hit in find(search, task.question)}
        recall[task.level].append(len(hits.intersection(gold)) / len(gold))
    two, three, four = (sum(shares) / len(shares) for shares in recall.values())
    assert 0.7 > two > three > four
    assert four < 0.4


@pytest.mark.parametrize(
    "query", ["", "   ", "()\"'", '"', "NEAR(", "title:x AND", "* OR -", "黄金", "x" * 100_000, "\x00"]
)
def test_no_query_is_an_error(search: WorldSearch, query: str) -> None:
    assert len(find(search, query)) <= K


def test_two_worlds_are_told_apart_by_their_parameters(source: MultiHopSource) -> None:
    assert WorldSearch(source.passages).parameters != WorldSearch(source.passages, seed=1).parameters
    assert WorldSearch(source.passages).parameters != WorldSearch(source.passages[:300]).parameters
