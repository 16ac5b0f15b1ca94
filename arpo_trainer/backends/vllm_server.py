"""`VLLMServerBackend`: generates on one or many vLLM servers (`vllm serve`, `trl vllm-serve`), over HTTP.

Token ids go to `/v1/completions` and token ids come back, each with the log-probabilities of the most likely tokens;
text is never tokenised again. The answer is streamed: the entropies of the first tokens are told during the turn, and a
cancelled request stops on the server. Weights are not sent here; the trainer does that between rollouts. Older keys and
values are then not used again, because each rollout salts the prefix caches of the servers with a new word.

Start a server like this:

    vllm serve MODEL --logprobs-mode processed_logprobs --enable-prompt-tokens-details --enable-per-request-metrics

The first option is needed at temperatures other than 1, the others fill `Generation.cached` and `.queued`.
"""

from __future__ import annotations

import functools
import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from arpo_env.net import checked_address, strip_credentials
from arpo_trainer.algorithms.entropy import estimated_entropy
from arpo_trainer.backends.base import (
    EntropyWindow,
    Finish,
    Generation,
    GenerationError,
    OnWindow,
    Request,
    check_request,
)
from arpo_trainer.backends.server_pool import ModelHttp, RequestFault, ServerPool
from arpo_trainer.tree import Stopwatch

_LONGER = "Start the server with a larger --max-model-len, or allow fewer tokens a trajectory (max_completion_length)"
_CURES = {
    "greater than max allowed": "Start the server with a larger --max-logprobs, or take a smaller topk (entropy_topk)",
    "maximum context length": _LONGER,
    "max_tokens must be at least 1": _LONGER,  # what it says when the context is just full
    "unauthorized": "Set VLLM_API_KEY to the server's --api-key",
    "status 404": "The address should be that of a vLLM server, as in http://127.0.0.1:8000, and `model` a name that "
    "it serves (--served-model-name)",
}
# switches off defaults of generation_config.json, so that what the request says is sampled; `_body` sends the others
_PLAIN = {"presence_penalty": 0.0, "frequency_penalty": 0.0}


class VLLMServerBackend:
    """Generates on vLLM servers that all serve the same model.

    A request whose server fails is repeated as a whole with the same seed. Its window is told once, maybe that of the
    first try. A server that is restarted during training has its old weights until the next ones are sent; a warning
    says so. Where the context of a server ends before `max_tokens`, the turn ends there.

    Args:
        urls: of the servers, such as "http://127.0.0.1:8000".
        tokenizer: of the model; by default its end token ends a turn.
        model: name of the model on the servers; None if they serve only one.
        api_key: default: the variable VLLM_API_KEY. A server without --api-key needs none.
        topk: number of log-probabilities to request, to estimate entropies from.
        estimator: of the entropies; see `estimated_entropy`.
        timeout: most seconds without a byte from a server, the wait for the first token included.
        patience: seconds during which a request is repeated after its first failure.
        eos_token_ids: ids that end a turn, besides those of the model configuration; by default that of the tokenizer.

    Raises:
        ValueError: there is no address, or the estimator needs more than the top log-probabilities.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        tokenizer: Any,
        model: str | None = None,
        api_key: str | None = None,
        topk: int = 20,
        estimator: str = "renormalised",
        timeout: float = 600.0,
        patience: float = 120.0,
        eos_token_ids: set[int] | None = None,
    ) -> None:
        api_key = api_key or os.environ.get("VLLM_API_KEY") or ""
        self._made_with = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        urls = [urls] if isinstance(urls, str) else list(urls)
        if not urls:
            raise ValueError("need the address of at least one vLLM server, as in http://127.0.0.1:8000")
        estimated_entropy([-1.0] * topk, -1.0, estimator)  # refuses what cannot be estimated
        roots = [checked_address("vLLM server", url).removesuffix("/v1") for url in urls]
        self.servers = ServerPool(roots, patience, _CURES)
        self.topk, self.estimator, self.eos = topk, estimator, sorted(eos_token_ids or {tokenizer.eos_token_id})
        self.time = Stopwatch()
        self.trains, self.wants_messages = True, False
        self._http = ModelHttp(api_key, timeout)
        self._asked_model = model
        self._model = ""
        self._raw: list[str] = []
        self._salt = secrets.token_hex(16)

    def __reduce__(self) -> tuple[Any, ...]:
        # connections and event loops stay here: another process gets a backend that is made in the same way
        return functools.partial(type(self), **self._made_with), ()

    async def begin(self) -> None:
        """Invalidate the prefix caches; the first time also check that every server can do what is needed.

        Raises:
            GenerationError: a server does not answer, or lacks something; the message names the cure.
        """
        self._salt = secrets.token_hex(16)
        self.servers.forget_groups()
        await self._meet()

    async def served(self) -> list[dict[str, Any]]:
        """Return the description of the model on each server: its `id`; `root` and `max_model_len` if it says them.

        Raises:
            GenerationError: a server does not answer, or serves another model than was asked for, or several.
        """
        return await self.servers.ask_all(self._served)

    async def end(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`.

        Raises:
            GenerationError: a server refused, none answered in time, or the log-probabilities would not be those of
                this temperature.
        """
        check_request(request)
        await self._meet()
        if self._raw and request.temperature not in (0.0, 1.0):
            names = ", ".join(map(strip_credentials, self._raw))
            raise GenerationError(
                f"{names} gives log-probabilities at temperature 1, not at {request.temperature:g}: "
                "start it with --logprobs-mode processed_logprobs, or take temperature 1"
            )
        window = EntropyWindow(request.window, on_window)
        with self.time.running():
            return await self.servers.ask(request.group, lambda url: self._once(url, request, window))

    async def _once(self, url: str, request: Request, window: EntropyWindow) -> Generation:
        answer = _Answer(self.estimator, self.topk, window)
        await self._http.stream(f"{url}/v1/completions", self._body(request), answer.take)
        return answer.generation()

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": list(request.ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "min_p": request.min_p,
            "repetition_penalty": request.repetition_penalty,
            "seed": request.seed % 2**63,
            "stop": list(request.stop),
            "include_stop_str_in_output": True,
            "stop_token_ids": self.eos,
            "skip_special_tokens": False,  # a stop string may be one
            "logprobs": 0 if self.estimator == "nll" else self.topk,
            "return_tokens_as_token_ids": True,
            "cache_salt": self._salt,
            "stream": True,
            "stream_options": {"include_usage": True},
            "stream_interval": request.interval,
            **_PLAIN,
        }

    async def _meet(self) -> None:
        """Check every server once: what it serves, and of which distribution it gives log-probabilities."""
        if self._model:
            return
        self._model = str((await self.served())[0]["id"])
        self._raw = [url for url in await self.servers.ask_all(self._if_raw) if url]

    async def _served(self, url: str) -> dict[str, Any]:
        answer = await self._http.get(f"{url}/v1/models")
        try:
            cards: dict[str, dict[str, Any]] = {str(card["id"]): card for card in answer["data"]}
        except (KeyError, TypeError):
            raise self._http.fault(f"is no vLLM server: /v1/models answered {str(answer)[:100]}") from None
        names = list(cards)
        if self._asked_model in cards:
            return cards[self._asked_model]
        if self._asked_model is None and len(names) == 1:
            return cards[names[0]]
        wanted = "no `model` was named" if self._asked_model is None else f"not {self._asked_model!r}"
        raise self._http.fault(f"serves {names}, {wanted}. Give one of these as `model`")

    async def _if_raw(self, url: str) -> str:
        """Return the address if its log-probabilities are those before the temperature is applied, else ""."""
        cold, warm = [await self._spread(url, temperature) for temperature in (1.0, 2.0)]
        return url if warm > 0.75 * cold else ""  # temperature 2 halves the spread, if it is applied

    async def _spread(self, url: str, temperature: float) -> float:
        """Return the range of the top log-probabilities after an arbitrary context."""
        answer = _Answer("renormalised", max(2, self.topk), EntropyWindow(0, None))
        body = self._body(Request((0, 1), 1, temperature=temperature))
        await self._http.stream(f"{url}/v1/completions", {**body, "logprobs": answer.topk}, answer.take)
        answer.generation()
        return max(answer.last) - min(answer.last)


class _Answer:
    """Assembles a generation from the events of `/v1/completions`."""

    def __init__(self, estimator: str, topk: int, window: EntropyWindow) -> None:
        self.topk = topk
        self.last: Sequence[float] = ()
        self._estimator, self._window = estimator, window
        self._out = Generation()
        self._finish: Finish | None = None
        self._asked = time.perf_counter()
        self._begun = False

    def take(self, event: Mapping[str, Any]) -> None:
        """Read one event.

        Raises:
            KeyError, TypeError, ValueError: it is not an event of vLLM.
        """
        for choice in event["choices"]:
            if not self._begun:
                self._begun, self._out.queued = True, time.perf_counter() - self._asked
            if logprobs := choice["logprobs"]:
                for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True):
                    self._add(token, top)
            if choice.get("finish_reason"):
                self._finish = _finish(choice["finish_reason"], choice.get("stop_reason"))
        self._window.tell(self._out.entropies, last=False)
        self._account(event)

    def generation(self) -> Generation:
        """Return the generation that the events make up.

        Raises:
            RequestFault: they hold no finished turn.
        """
        if self._finish is None or not self._out.ids:
            raise RequestFault("ended the answer before the turn was over", passing=True)
        self._out.finish = self._finish
        self._window.tell(self._out.entropies, last=True)
        return self._out

    def _add(self, token: str, given: Mapping[str, float | None]) -> None:
        top = {
            name: math.nan if value is None else value for name, value in given.items()
        }  # servers write NaN as null; `Generation.add` refuses it
        drawn = top[
            token
        ]  # by id: the first entry is the drawn token on some servers and the most likely one on others
        self.last = sorted(top.values(), reverse=True)[: self.topk]
        number, entropy = int(token.removeprefix("token_id:")), estimated_entropy(self.last, drawn, self._estimator)
        self._out.add(number, drawn, entropy)

    def _account(self, event: Mapping[str, Any]) -> None:
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        self._out.cached = details.get("cached_tokens") or self._out.cached
        queued = (event.get("metrics") or {}).get("queue_time_ms")
        self._out.queued = self._out.queued if queued is None else queued / 1000


def _finish(reason: str, stopped_by: str | int | None) -> Finish:
    if reason == "length":
        return "length"
    if reason == "stop":
        return "stop" if isinstance(stopped_by, str) else "eos"
    raise RequestFault(f"gave up the request ({reason})", passing=True)
