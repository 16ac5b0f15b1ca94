"""A server in this process that answers `/v1/completions` as vLLM does, with a real (tiny) model behind it.

As vLLM 0.32: events with token ids and log-probabilities, chunks of `stream_interval`, stop strings, the usage at the
end, what a prefix cache with salts would have, its words for a context without room, and the end of a computation whose
client has gone. It computes one token of one request at a time. `kill` drops all connections, as a process that dies
does; `start` brings it back at the same port.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import DynamicCache

from arpo_trainer.backends.kv_cache import agreement


@dataclass
class FakeVLLM:
    """The server. `with FakeVLLM(model, tokenizer) as server:` serves at `server.url`.

    Attributes:
        model: a transformers model; its eos_token_id ends a turn.
        processed: `--logprobs-mode processed_logprobs`.
        wrong: answers for the next requests instead of the model's.
        bodies: what was asked.
        keys: with which keys.
        gone: requests that lost their client before they were done.
        most: requests under way at once.
        die_after: tokens after which all connections are dropped, once.
    """

    model: Any
    tokenizer: Any
    name: str = "tiny"
    processed: bool = True
    max_model_len: int = 1024
    wrong: list[Response] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    gone: int = 0
    under_way: int = 0
    most: int = 0
    die_after: int | None = None
    port: int = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [Route("/v1/models", self._models), Route("/v1/completions", self._completions, methods=["POST"])]
        config = uvicorn.Config(Starlette(routes=routes), port=self.port, log_level="critical", backlog=512)
        self._server, self._known = uvicorn.Server(config), dict[str, list[list[int]]]()
        listening = config.bind_socket()
        self.port = listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, args=(listening,), name="fake-vllm", daemon=True)
        self._thread.start()

    def _serve(self, listening: Any) -> None:
        asyncio.run(self._server.serve(sockets=[listening]))

    def drop_connections(self) -> None:
        """Drop all connections at once; to be called on the server's thread."""
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]

    def kill(self) -> None:
        if not self._thread.is_alive():
            return
        self._server.force_exit = self._server.should_exit = True
        self._thread.join()

    async def _models(self, _: Request) -> Response:
        card = {"id": self.name, "object": "model", "max_model_len": self.max_model_len}
        return JSONResponse({"object": "list", "data": [card]})

    async def _completions(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("authorization", ""))
        if self.wrong:
            return self.wrong.pop(0)
        if len(body["prompt"]) > self.max_model_len:
            return refused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, your "
                f"prompt contains {len(body['prompt'])} input tokens",
            )
        body["max_tokens"] = min(body["max_tokens"], self.max_model_len - len(body["prompt"]))
        if body["max_tokens"] < 1:
            return refused(400, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)")
        return StreamingResponse(self._events(body), media_type="text/event-stream")

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[str]:
        finished, self.under_way = False, self.under_way + 1
        self.most = max(self.most, self.under_way)
        try:
            async for event in self._decode(body):
                yield f"data: {json.dumps(event)}\n\n"
            finished = True
            yield "data: [DONE]\n\n"
        finally:
            self.under_way -= 1
            self.gone += not finished

    async def _decode(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        prompt, ids, sent = body["prompt"], [], 0
        known, cache = self._known.setdefault(body.get("cache_salt", ""), []), DynamicCache()
        cached = max((agreement(one, prompt[:-1]) for one in known), default=0)
        draw = torch.Generator().manual_seed(body["seed"])
        feed = prompt
        found: list[tuple[int, dict[str, float]]] = []
        reason: tuple[str, Any] | None = None
        while reason is None:
            await asyncio.sleep(0)
            with torch.no_grad():
                logits = self.model(torch.tensor([feed]), past_key_values=cache).logits[0, -1].float()
            ids.append(self._token(logits, body["temperature"], draw))
            feed = ids[-1:]
            found.append((ids[-1], self._top(logits, body, ids[-1])))
            reason = self._reason(ids, body)
            if self.die_after == len(ids):
                self.die_after = None
                self.drop_connections()
            if reason or sent == 0 or len(ids) - sent >= body["stream_interval"]:
                yield {"choices": [_choice(found[sent:], reason)]}
                sent = len(ids)
        known.append([*prompt, *ids])
        usage = {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": cached}}
        yield {"choices": [], "usage": usage, "metrics": {"queue_time_ms": 3.0}}

    def _token(self, logits: torch.Tensor, temperature: float, draw: torch.Generator) -> int:
        if temperature == 0:
            return int(logits.argmax())
        steps = torch.softmax(logits / temperature, -1).cumsum(-1)
        return int(torch.searchsorted(steps, torch.rand(1, generator=draw) * steps[-1]).clamp(max=len(steps) - 1))

    def _top(self, logits: torch.Tensor, body: dict[str, Any], token: int) -> dict[str, float]:
        scaled = logits / ((body["temperature"] or 1.0) if self.processed else 1.0)
        best = torch.cat([torch.tensor([token]), scaled.topk(body["logprobs"]).indices])
        values = (scaled[best] - scaled.logsumexp(-1)).tolist()
        return {f"token_id:{number}": value for number, value in zip(best.tolist(), values, strict=True)}

    def _reason(self, ids: list[int], body: dict[str, Any]) -> tuple[str, Any] | None:
        if ids[-1] == self.model.config.eos_token_id:
            return "stop", None
        if ids[-1] in body["stop_token_ids"]:
            return "stop", ids[-1]
        text = self.tokenizer.decode(ids[-40:], skip_special_tokens=body["skip_special_tokens"])
        for stop in body["stop"]:
            if stop in text:
                return "stop", stop
        return ("length", None) if len(ids) == body["max_tokens"] else None


def _choice(found: list[tuple[int, dict[str, float]]], reason: tuple[str, Any] | None) -> dict[str, Any]:
    tokens = [f"token_id:{token}" for token, _ in found]
    logprobs = {
        "tokens": tokens,
        "token_logprobs": [top[token] for token, (_, top) in zip(tokens, found, strict=True)],
        "top_logprobs": [top for _, top in found],
        "text_offset": [0] * len(found),
    }
    finish, stop = reason or (None, None)
    return {"index": 0, "text": "", "logprobs": logprobs, "finish_reason": finish, "stop_reason": stop}


def refused(status: int, message: str, **headers: str) -> Response:
    """Answer with an error as vLLM writes it."""
    error = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    return JSONResponse({"error": error}, status, headers={n.replace("_", "-"): v for n, v in headers.items()})
