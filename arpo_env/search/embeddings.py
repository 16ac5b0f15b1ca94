"""`EmbeddingModel`: vectors of texts from any OpenAI-compatible endpoint (`POST /embeddings`).

    model = EmbeddingModel("BAAI/bge-large-en-v1.5", "http://127.0.0.1:8080/v1")
    vectors = await model.embed(["a text"])        # (1, d)

vLLM, text-embeddings-inference, Ollama, llama.cpp and OpenAI have this endpoint.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arpo_env.cache.cache import SERVER, Cache
from arpo_env.net.http import Http, Reply
from arpo_env.net.service_urls import canonical_address, checked_address

Vectors = NDArray[np.float32]
_OPENAI = "https://api.openai.com/v1"
_LONGEST = 8_000  # characters of a text; models read less


class EmbeddingModel:
    """An embedding model at a server.

    Args:
        model: name of the model.
        base_url: address up to and including the version; None means `OPENAI_BASE_URL`, else OpenAI.
        api_key: None means `OPENAI_API_KEY`; local servers need none.
        batch: number of texts in one request.
        cache: records the vectors, so that a replay needs no server.
        http: limits of time, size, rate and retries.

    Raises:
        ValueError: the address is not one, or the batch is below 1.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        batch: int = 64,
        cache: Cache | None = None,
        http: Http | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        address = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        self.model, self.base_url = model, checked_address(f"embedding model {model}", address)
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        self._batch, self._cache = batch, cache
        secrets = (self._key,) if self._key else ()
        cures = {401: "set OPENAI_API_KEY", 404: "is there such a model, and does the address end in /v1?"}
        self._http = http or Http(f"embedding model {model}", timeout=120, connections=8, cures=cures, secrets=secrets)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, shape (n, d), float32.

        Raises:
            ServiceError: the server failed or answered something else than vectors of one length.
        """
        starts = range(0, len(texts), self._batch)
        parts = await asyncio.gather(*(self._part(texts[at : at + self._batch]) for at in starts))
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)

    async def _part(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self.model, "input": [text[:_LONGEST] or " " for text in texts]}
        if self._cache is None:
            return _unpacked(await self._ask(body))
        request = {"body": body, SERVER: canonical_address(self.base_url)}
        return _unpacked(await self._cache.through("embedding", self.model, 1, request, lambda: self._ask(body)))

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        reply = await self._http.request("POST", f"{self.base_url}/embeddings", json=body, headers=headers)
        vectors = _vectors(reply, len(body["input"]))
        # as bytes, which take a quarter of the space of numbers in JSON
        return {"shape": list(vectors.shape), "float32": base64.b64encode(vectors.tobytes()).decode()}


def _vectors(reply: Reply, count: int) -> Vectors:
    try:
        rows = sorted(reply.json()["data"], key=lambda row: row["index"])
        vectors = np.asarray([row["embedding"] for row in rows], np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise reply.fault(f"answered without embeddings ({type(error).__name__})") from None
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise reply.fault(f"answered vectors of the shape {vectors.shape} for {count} texts")
    return vectors


def _unpacked(record: dict[str, Any]) -> Vectors:
    flat = np.frombuffer(base64.b64decode(record["float32"]), np.float32)
    return flat.reshape(record["shape"])
