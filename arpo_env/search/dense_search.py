"""`DenseSearch`: search by embeddings, over passages that fit into memory; the score is the cosine.

    DenseSearch(passages, EmbeddingModel("BAAI/bge-large-en-v1.5", url).embed)
    DenseSearch(passages, SentenceTransformer("BAAI/bge-small-en-v1.5").encode)    # any function of a list of texts

All passages are embedded at the first search. 10,000 vectors of 1,024 numbers are 40 MB and take a few milliseconds per
query.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arpo_env.cache import SERVER, Cache, SingleFlight
from arpo_env.chat_model import ModelServer
from arpo_env.errors import ServiceError
from arpo_env.net import canonical_address
from arpo_env.search.search_backend import Hit, SearchBackend

Vectors = NDArray[np.float32]
_BATCH = 64  # texts in one request
_LONGEST = 8_000  # characters of a text; models read less


class EmbeddingModel(ModelServer):
    """An embedding model at an OpenAI-compatible server (`POST /embeddings`): vLLM, Ollama, llama.cpp, OpenAI.

    Args:
        model: name of the model.
        base_url: address up to and including the version; None means `OPENAI_BASE_URL`, else OpenAI.
        api_key: None means `OPENAI_API_KEY`; local servers need none.
        cache: records the vectors, so that a replay needs no server.
    """

    def __init__(
        self, model: str, base_url: str | None = None, api_key: str | None = None, *, cache: Cache | None = None
    ) -> None:
        super().__init__("embedding model", model, base_url, api_key, connections=8)
        self._cache = cache

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, shape (n, d), float32.

        Raises:
            ServiceError: the server failed or answered something else than vectors of one length.
        """
        starts = range(0, len(texts), _BATCH)
        parts = await asyncio.gather(*(self._part(texts[at : at + _BATCH]) for at in starts))
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)

    async def _part(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self.model, "input": [text[:_LONGEST] or " " for text in texts]}
        request = {"body": body, SERVER: canonical_address(self.base_url)}
        if self._cache is None:
            row = await self._ask(body)
        else:
            row = await self._cache.through("embedding", self.model, 1, request, lambda: self._ask(body))
        return np.frombuffer(base64.b64decode(row["float32"]), np.float32).reshape(row["shape"])

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        reply, count = await self.post("/embeddings", body), len(body["input"])
        try:
            rows = sorted(reply.json()["data"], key=lambda row: row["index"])
            vectors = np.asarray([row["embedding"] for row in rows], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise reply.fault(f"answered without embeddings ({type(error).__name__})") from None
        if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
            raise reply.fault(f"answered vectors of the shape {vectors.shape} for {count} texts")
        # as bytes, which take a quarter of the space of numbers in JSON
        return {"shape": list(vectors.shape), "float32": base64.b64encode(vectors.tobytes()).decode()}


Embed = Callable[[list[str]], Any]


class DenseSearch(SearchBackend):
    """Searches passages by the cosine of embeddings.

    Args:
        passages: with `id`, `title` and `text`; the text is embedded.
        embed: returns the vectors of texts, shape (n, d); asynchronous, or else run on a thread.
        name: for errors.
    """

    def __init__(self, passages: Sequence[Any], embed: Embed, name: str = "dense") -> None:
        self.name, self._passages, self._embed = name, passages, embed
        self._matrix: Vectors | None = None
        self._flights: SingleFlight[Vectors] = SingleFlight()

    @property
    def parameters(self) -> dict[str, Any]:
        """Number of passages."""
        return {"size": len(self._passages)}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the k passages with the nearest vectors; a blank query finds none.

        Raises:
            ServiceError: the embeddings failed.
        """
        if not query.strip() or k < 1 or not self._passages:
            return []
        if self._matrix is None:  # embedded once, also if several episodes search at the same time
            self._matrix = await self._flights.do(b"", lambda: self._vectors([one.text for one in self._passages]))
        [vector] = await self._vectors([query])
        if vector.shape[0] != self._matrix.shape[1]:
            raise ServiceError(self.name, f"vectors of {self._matrix.shape[1]} and of {vector.shape[0]} numbers")
        scores = self._matrix @ vector
        # a stable order, so that equal scores come in the order of the passages
        best = np.argsort(-scores, kind="stable")[:k]
        return [self._hit(int(number), float(scores[number])) for number in best]

    def _hit(self, number: int, score: float) -> Hit:
        passage = self._passages[number]
        return Hit(passage.title, passage.id, passage.text, text=passage.text, score=score)

    async def _vectors(self, texts: list[str]) -> Vectors:
        """Return vectors of length 1."""
        if inspect.iscoroutinefunction(self._embed):
            given = await self._embed(texts)
        else:
            given = await asyncio.to_thread(self._embed, texts)
        vectors = np.asarray(given, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ServiceError(self.name, f"the embeddings of {len(texts)} texts have the shape {vectors.shape}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
