"""`RecordedBackend`: records what a model generates in a cache file, and replays it without the model.

    backend = RecordedBackend(model_backend, Cache("run.sqlite"), "Qwen2.5-3B-ARPO")       # generates and records
    backend = RecordedBackend(None, Cache("run.sqlite", mode="replay"), "Qwen2.5-3B-ARPO")  # no weights are loaded

Together with the records of searches, pages and judges in the same file, an evaluation can be repeated byte for byte.
A request is known by everything that decides its answer: the name of the model, the context, the seed, the sampling and
the limits. Samples of one task have seeds of their own, so each has its own record.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from arpo_env.cache import Cache
from arpo_trainer.backends.base import Backend, EntropyWindow, Generation, OnWindow, Request, check_request
from arpo_trainer.tree import Stopwatch

_VERSION = 1  # of the record; others are ignored
_KEPT = ("ids", "logprobs", "entropies", "finish", "cached")
_DECIDING = ("max_tokens", "stop", "seed", "temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class RecordedBackend:
    """Generates through a cache.

    A request that was recorded is answered from the file, in record mode, too: a run that goes on after a break
    generates only what is missing. Of a replayed turn the tokens, their numbers and the share of the context that was
    cached are as they were; it takes no time.

    Args:
        backend: generates what is not recorded; None in a replay.
        cache: the file and the mode.
        model: names the weights, for instance the id on the hub or the folder. Give other weights another name: their
            generations would be mixed up otherwise.
        messages: of a replay, whether the model was asked with messages, as an endpoint is; they hold the pictures, and
            without them a native protocol reads turns as the tokenizer's model writes them.

    Raises:
        ValueError: there is no backend and the cache is not in replay mode.
    """

    trains = False

    def __init__(self, backend: Backend | None, cache: Cache, model: str, messages: bool = True) -> None:
        if backend is None and cache.mode != "replay":
            raise ValueError(
                f"without a model generations can only be replayed, but the cache is in mode {cache.mode!r}: open it "
                'with mode="replay", or give a backend'
            )
        self.backend, self.cache, self.model = backend if cache.mode != "replay" else None, cache, model
        self.time = backend.time if backend is not None else Stopwatch()
        self.wants_messages = messages if self.backend is None else self.backend.wants_messages
        self._replayed_context: int | None = None

    @property
    def max_context(self) -> int | None:
        """That of the backend, or the one with which was generated what is replayed; see `Backend`."""
        return self._replayed_context if self.backend is None else getattr(self.backend, "max_context", None)

    async def begin(self) -> None:
        """Begin a rollout of the model, if there is one."""
        if self.backend is not None:
            await self.backend.begin()

    async def end(self) -> None:
        """End it."""
        if self.backend is not None:
            await self.backend.end()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn or replay it; see `Backend.generate`.

        Raises:
            CacheMiss: it is a replay and the turn was not recorded; the error names the cure.
        """
        check_request(request)
        window = EntropyWindow(request.window, on_window)
        fresh: list[Generation] = []

        async def call() -> dict[str, Any]:
            backend = cast(Backend, self.backend)  # a replay raises CacheMiss instead of calling
            fresh.append(await backend.generate(request, window.tell if request.window else None))
            return {name: getattr(fresh[0], name) for name in _KEPT} | {"max_context": self.max_context}

        value = await self.cache.through("generation", self.model, _VERSION, _asked(request), call)
        self._replayed_context = value.get("max_context")
        made = fresh[0] if fresh else Generation(**{name: value[name] for name in _KEPT})
        window.tell(made.entropies, last=True)
        return made


def _asked(request: Request) -> dict[str, Any]:
    """Return what decides the answer. Chat messages are left out, but for pictures: the ids are their rendering."""
    context = _digest(",".join(map(str, request.ids)).encode())
    deciding = {name: getattr(request, name) for name in _DECIDING}
    asked = {**deciding, "stop": list(request.stop), "prompt": context, "context_tokens": len(request.ids)}
    contents = [message["content"] for message in request.messages if isinstance(message["content"], list)]
    return {**asked, "contents": _digest(json.dumps(contents).encode())} if contents else asked


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
