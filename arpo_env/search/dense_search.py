"""`DenseSearch`: search by embeddings, over passages that fit into memory; the score is the cosine.

    DenseSearch(passages, EmbeddingModel("BAAI/bge-large-en-v1.5", url).embed)
    DenseSearch(passages, SentenceTransformer("BAAI/bge-small-en-v1.5").encode)    # any function of a list of texts

All passages are embedded at the first search. 10,000 vectors of 1,024 numbers are 40 MB and take a few milliseconds per
query.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arpo_env.cache.single_flight import SingleFlight
from arpo_env.errors import ServiceError
from arpo_env.search.embeddings import Vectors
from arpo_env.search.local.world_search import PassageLike
from arpo_env.search.search_backend import Hit, SearchBackend

Embed = Callable[[list[str]], Any]


class DenseSearch(SearchBackend):
    """Searches passages by the cosine of embeddings.

    Args:
        passages: with `id`, `title` and `text`; the text is embedded.
        embed: returns the vectors of texts, shape (n, d); asynchronous, or else run on a thread.
        name: for errors.
        query_prefix: put before a query, for models that want an instruction there.
    """

    def __init__(
        self, passages: Sequence[PassageLike], embed: Embed, name: str = "dense", query_prefix: str = ""
    ) -> None:
        self.name, self._passages, self._embed, self._prefix = name, passages, embed, query_prefix
        self._matrix: Vectors | None = None
        self._flights: SingleFlight[Vectors] = SingleFlight()

    @property
    def parameters(self) -> dict[str, Any]:
        """Number of passages and the prefix of queries."""
        return {"size": len(self._passages), "prefix": self._prefix}

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the k passages with the nearest vectors; a blank query finds none.

        Raises:
            ServiceError: the embeddings failed.
        """
        if not query.strip() or k < 1 or not self._passages:
            return []
        if self._matrix is None:  # embedded once, also if several episodes search at the same time
            self._matrix = await self._flights.do(b"", lambda: self._vectors([one.text for one in self._passages]))
        [vector] = await self._vectors([self._prefix + query])
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
