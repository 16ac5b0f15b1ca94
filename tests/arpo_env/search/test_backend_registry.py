"""`open_search` finds a backend by what people write, and says what is near when they err."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_env.errors import ServiceError
from arpo_env.search import Passage, default_search, open_search, register_backend
from arpo_env.search import backends as registry
from arpo_env.search.dense_search import DenseSearch, EmbeddingModel
from tests.arpo_env.local_server import Call, LocalServer


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"title": "Radium", "text": "An element."}) + "\n")
    return path


def test_a_name_gets_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_backend("parrot", lambda address: ("a parrot", address))  # type: ignore[arg-type, return-value]
    found = [open_search(where) for where in ("parrot", "parrot:http://x:1/y")]
    assert found == [("a parrot", None), ("a parrot", "http://x:1/y")]


@pytest.mark.parametrize("prefix", ["", "local:"])
def test_a_corpus_is_indexed_once_and_again_when_it_changes(corpus: Path, prefix: str) -> None:
    first = open_search(f"{prefix}{corpus}")
    assert open_search(corpus) is first
    corpus.write_text(json.dumps({"title": "Polonium", "text": "Another element."}) + "\n")
    assert [hit.title for hit in asyncio.run(open_search(corpus).search("element", 5))] == ["Polonium"]


def test_processes_that_open_the_same_corpus_at_once_agree(corpus: Path) -> None:
    code = "import sys; from arpo_env.search import open_search\n"
    code += "print(open_search(sys.argv[1]).search_sync('radium', 1)[0].title)"
    command = [sys.executable, "-c", code, str(corpus)]
    all_of_them = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate()[0] for one in all_of_them] == ["Radium\n"] * 3


@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        *(("serpr", ValueError, "did you mean 'serper'"), ("local", ValueError, "local:FOLDER")),
        ("http://host:8000", ValueError, "search-r1:http://host:8000"),
        *(("no/such/index", FileNotFoundError, "no/such/index"), ("absent.jsonl", FileNotFoundError, "absent.jsonl")),
        ("x" * 5000, ValueError, "There are: brave"),
    ],
)
def test_an_error_names_the_cure(where: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        open_search(where)


def test_the_variable_names_the_default_and_without_one_the_cures_are_listed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARPO_SEARCH", str(corpus))
    assert default_search() is open_search(corpus)
    monkeypatch.delenv("ARPO_SEARCH")
    with pytest.raises(RuntimeError, match=r"ARPO_SEARCH.*\.jsonl.*arpo search index.*search-r1:.*serper"):
        default_search()


def test_importing_search_imports_no_engine() -> None:
    code = "import sys, arpo_env.search as s; s.open_search; s.LocalSearch\n"
    code += "print({'tantivy', 'requests', 'trafilatura', 'bs4'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# dense retrieval: any embedding endpoint or function of texts ranks by cosine, and bad vectors void the sample

WORDS = ("ship", "bread", "king", "river")
PASSAGES = [Passage(word, word, f"about the {word}") for word in WORDS]


def vectors(texts: list[str]) -> np.ndarray[Any, Any]:
    """One direction per word, and a little of all others."""
    return np.asarray([[3.0 * (word in text) + 0.1 for word in WORDS] for text in texts])


def answer(call: Call) -> None:
    texts = call.seen.json()["input"]
    rows = [{"index": number, "embedding": row.tolist()} for number, row in enumerate(vectors(texts))]
    call.reply({"data": rows[::-1]} if call.seen.path == "/v1/embeddings" else {}, 200)


def sizes(server: LocalServer) -> list[int]:
    return sorted(len(seen.json()["input"]) for seen in server.seen)


def ids(search: DenseSearch, query: str, k: int = 2) -> list[str]:
    return [hit.url for hit in asyncio.run(search.search(query, k))]


def test_a_function_of_texts_is_enough_and_gives_one_vector_per_text() -> None:
    search = DenseSearch(PASSAGES, vectors)
    assert ids(search, "bread of the king") == ["bread", "king"]
    assert ids(search, "  ") == []
    assert ids(search, "river", 9) == ["river", "ship", "bread", "king"]
    with pytest.raises(ServiceError, match="have the shape"):
        ids(DenseSearch(PASSAGES, lambda texts: np.ones((3, 2))), "king")


def test_an_endpoint_embeds_in_batches_and_the_documents_once_and_is_replayed(tmp_path: Path, monkeypatch: Any) -> None:
    async def both(search: DenseSearch) -> None:
        await asyncio.gather(*(search.search(word, 1) for word in WORDS))

    monkeypatch.setattr("arpo_env.search.dense_search._BATCH", 3)
    with LocalServer(answer) as server:
        url = f"{server.address}/v1"
        search = DenseSearch(PASSAGES, EmbeddingModel("m", url, cache=Cache(tmp_path / "c.sqlite")).embed)
        asyncio.run(both(search))
        assert sizes(server) == [1, 1, 1, 1, 1, 3]
    replay = EmbeddingModel("m", url, cache=Cache(tmp_path / "c.sqlite", "replay"))
    assert ids(DenseSearch(PASSAGES, replay.embed), "river", 1) == ids(search, "river", 1) == ["river"]


def test_an_environment_takes_the_model_by_name() -> None:
    with LocalServer(answer) as server:
        env = ToolEnv("arpo/ToolWorld-v0", embedding_model="m", model_url=f"{server.address}/v1")
        env.reset(options={"index": 0})
        assert '"name"' in env.step("<tool_search>a ship</tool_search>")[0]
        assert sum(sizes(server)) == 1251
        env.close()


ODD = {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}


@pytest.mark.parametrize("body", [{}, ODD, {"data": [{"index": 0, "embedding": [float("nan")]}]}], ids=str)
def test_a_server_that_answers_something_else_voids_the_sample(body: Any) -> None:
    with LocalServer(lambda call: call.reply(body)) as server:
        model = EmbeddingModel("m", f"{server.address}/v1")
        with pytest.raises(ServiceError, match="embedding model m: answered"):
            asyncio.run(model.embed(["a"]))
