"""Dense retrieval: any embedding endpoint or function of texts ranks by cosine, and bad vectors void the sample."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_env.errors import ServiceError
from arpo_env.search import Passage
from arpo_env.search.dense_search import DenseSearch, EmbeddingModel
from tests.arpo_env.local_server import Call, LocalServer

WORDS = ("ship", "bread", "king", "river")
PASSAGES = [Passage(word, word, f"about the {word}") for word in WORDS]


def vectors(texts: list[str]) -> np.ndarray[Any, Any]:
    """One direction per word, and a little of all others."""
    return np.asarray([[3.0 * (word in text) + 0.1 for word in WORDS] for text in texts])


def answer(call: Call) -> None:
    texts = call.seen.json()["input"]
    rows = [{"index": number, "embedding": row.tolist()} for number, row in enumerate(vectors(texts))]
    call.reply({"data": rows[::-1]} if call.seen.path == "/v1/embeddings" else {}, 200)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(answer) as made:
        yield made


def ids(search: DenseSearch, query: str, k: int = 2) -> list[str]:
    return [hit.url for hit in asyncio.run(search.search(query, k))]


def test_a_function_of_texts_is_enough() -> None:
    search = DenseSearch(PASSAGES, vectors)
    assert ids(search, "bread of the king") == ["bread", "king"]
    assert ids(search, "  ") == []
    assert ids(search, "river", 9) == ["river", "ship", "bread", "king"]


def test_an_endpoint_embeds_in_batches_and_the_documents_once(server: LocalServer, monkeypatch: Any) -> None:
    monkeypatch.setattr("arpo_env.search.dense_search._BATCH", 3)
    model = EmbeddingModel("m", f"{server.address}/v1")
    search = DenseSearch(PASSAGES, model.embed)

    async def both() -> None:
        await asyncio.gather(*(search.search(word, 1) for word in WORDS))

    asyncio.run(both())
    sizes = [len(seen.json()["input"]) for seen in server.seen]
    assert sorted(sizes) == [1, 1, 1, 1, 1, 3]
    assert ids(search, "river", 1) == ["river"]


def test_recorded_vectors_are_replayed_without_a_server(server: LocalServer, tmp_path: Path) -> None:
    url = f"{server.address}/v1"
    cache = Cache(tmp_path / "c.sqlite")
    found = ids(DenseSearch(PASSAGES, EmbeddingModel("m", url, cache=cache).embed), "king")
    cache.close()
    asked = len(server.seen)
    replay = Cache(tmp_path / "c.sqlite", "replay")
    assert ids(DenseSearch(PASSAGES, EmbeddingModel("m", url, cache=replay).embed), "king") == found
    assert len(server.seen) == asked
    replay.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": [float("nan")]}]},
        {"data": [{"index": 0, "embedding": []}]},
        [],
    ],
    ids=str,
)
def test_a_server_that_answers_something_else_voids_the_sample(body: Any) -> None:
    with LocalServer(lambda call: call.reply(body)) as server:
        model = EmbeddingModel("m", f"{server.address}/v1")
        with pytest.raises(ServiceError, match="embedding model m: answered"):
            asyncio.run(model.embed(["a"]))


@pytest.mark.parametrize("shape", [(3, 2), (4,), (0, 0)])
def test_vectors_that_are_not_one_per_text_void_the_sample(shape: tuple[int, ...]) -> None:
    with pytest.raises(ServiceError, match="have the shape"):
        ids(DenseSearch(PASSAGES, lambda texts: np.ones(shape)), "king")


def test_an_environment_takes_the_model_by_name(server: LocalServer) -> None:
    env = ToolEnv("arpo/ToolWorld-v0", embedding_model="m", model_url=f"{server.address}/v1")
    env.reset(options={"index": 0})
    assert '"name"' in env.step("<tool_search>a ship</tool_search>")[0]
    assert sum(len(seen.json()["input"]) for seen in server.seen) == 1251
    env.close()
