"""Backends that generate over HTTP: `VLLMServerBackend` on one or many vLLM servers, `EndpointBackend` on any endpoint.

One event loop carries all requests without threads. Cancelling a request closes its connection, upon which a server
stops computing. Needs `httpx2`, which reads HTTP and server-sent events and comes with transformers.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
import math
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from arpo_env.adapters.chat_episode import close_tag
from arpo_env.adapters.play import ChatEndpoint, ChatTurn, ToolsNotServed
from arpo_env.chat_messages import turn_text
from arpo_env.chat_model import ContextFull
from arpo_env.errors import ServiceError
from arpo_env.net import RETRIED, checked_address, redact, redact_logs, retry_after, strip_credentials
from arpo_trainer.algorithms.branching import estimated_entropy
from arpo_trainer.backends.base import (
    EntropyWindow,
    Finish,
    Generation,
    GenerationError,
    OnWindow,
    Request,
    ServerSetupError,
    check_request,
)
from arpo_trainer.tree import Stopwatch

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

# One try of a request.

Take = Callable[[Any], None]
_CLIENTS = 8
_CONNECT = 10.0  # seconds
_SHOWN = 400  # characters of an answer
_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


class RequestFault(Exception):
    """Raised when one try failed, for a reason that may be `passing`; `pause` is what the server asks to wait."""

    def __init__(self, message: str, passing: bool = False, status: int | None = None, pause: float = 0.0) -> None:
        super().__init__(message)
        self.message, self.passing, self.status, self.pause = message, passing, status, pause


class _ModelHttp:
    """Sends requests to servers that generate, with clients of their own for each event loop.

    The key is sent as bearer token and appears in no message. The timeout is the longest time without a byte, the wait
    for the first token included.
    """

    def __init__(self, key: str, timeout: float) -> None:
        redact_logs()
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the key cannot be sent in a header: look for line breaks or unusual characters in it")
        self.timeout = timeout
        self._secrets = (key,) if key else ()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._clients: list[httpx2.AsyncClient] = []
        self._turn = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, url: str) -> Any:
        """Return a page, which is JSON; RequestFault if there was none."""
        import httpx2

        try:
            response = await self._open().get(url)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise self._broken(error, url) from None
        if response.status_code >= 300:
            raise self._refused(response, response.content)
        return self._read(response.content)

    async def stream(self, url: str, body: Mapping[str, Any], take: Take) -> None:
        """Send JSON and give each event of the answer to `take`; RequestFault if that did not get to the end."""
        import httpx2

        done = False
        try:
            async with self._open().sse(url, method="POST", json=body) as source:
                if source.response.status_code >= 300:
                    raise self._refused(source.response, await source.response.aread())
                async for event in source:
                    done = done or event.data == "[DONE]"
                    if not done:
                        self._give(event.data, take)
        except httpx2.SSEError as error:
            raise self.fault(f"answered with no stream of events ({error})") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise self._broken(error, url) from None
        # a server that dies may close its stream like one that is finished; only [DONE] tells them apart
        if not done:
            raise RequestFault("the answer broke off", passing=True)

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        clients, loop = self._clients, self._loop
        self._clients, self._loop = [], None
        # clients of another loop cannot be closed from here; they are only dropped
        if loop is asyncio.get_running_loop():
            for client in clients:
                await client.aclose()

    def fault(self, message: str, passing: bool = False, status: int | None = None, pause: float = 0.0) -> RequestFault:
        """Return an error with this message, without the key."""
        return RequestFault(redact(self._secrets, message), passing, status, pause)

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        if not self._clients or self._loop is not loop:
            # no limit on connections: the rollout has its own limits, and a server can batch only what has reached it
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            waits = httpx2.Timeout(self.timeout, connect=min(_CONNECT, self.timeout), pool=None)
            certificates = httpx2.create_ssl_context()  # one for all: it takes some 30 ms
            # a client looks at all of its connections at each request, so several with few each cost less
            self._clients = [
                httpx2.AsyncClient(headers=self._headers, limits=limits, timeout=waits, verify=certificates)
                for _ in range(_CLIENTS)
            ]
            self._loop = loop
        return self._clients[next(self._turn) % len(self._clients)]

    def _give(self, data: str, take: Take) -> None:
        event = self._read(data)
        try:
            take(event)
        except _UNREADABLE as error:
            raise self.fault(f"sent an event that cannot be read ({error!r}): {data[:_SHOWN]}") from error

    def _read(self, data: str | bytes) -> Any:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            start = data[:80] if isinstance(data, str) else data[:80].decode("utf-8", "replace")
            raise self.fault(f"answered something that is not JSON ({start!r})") from None
        error = answer.get("error") if isinstance(answer, dict) else None
        if error:  # the stream began with status 200 and failed later
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) else None
            raise self.fault(f"broke off: {_said(answer)}", status is None or status in RETRIED, status)
        return answer

    def _refused(self, response: httpx2.Response, body: bytes) -> RequestFault:
        status, pause = response.status_code, retry_after(response.headers.get("Retry-After"))
        if target := response.headers.get("Location"):
            redirect = f"redirects to {strip_credentials(target)}; give that address if you trust it"
            return self.fault(redirect, status=status)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = " ".join(body.decode("utf-8", "replace").split())
        asks = f" (asks to wait {pause:.0f} s)" if pause else ""
        return self.fault(f"answered with status {status}: {_said(answer)}{asks}", status in RETRIED, status, pause)

    def _broken(self, error: Exception, url: str) -> RequestFault:
        import httpx2

        if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            return RequestFault(f"{strip_credentials(url)!r} is not a valid address")
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return RequestFault(f"could not be reached ({error or type(error).__name__})", passing=True)
        if isinstance(error, httpx2.TimeoutException):
            return RequestFault(f"sent nothing for {self.timeout:g} s", passing=True)
        return RequestFault(f"broke off ({error or type(error).__name__})", passing=True)


def _said(answer: Any) -> str:
    """Return the message of an error as OpenAI and vLLM write it, or the beginning of the answer."""
    try:
        return str(answer.get("error", answer)["message"])[:_SHOWN]
    except (KeyError, TypeError, AttributeError):
        return str(answer)[:_SHOWN]


# Several servers that answer the same requests.

T = TypeVar("T")
Attempt = Callable[[str], Awaitable[T]]
_FIRST_REST, _LONGEST_REST = 0.5, 10.0  # seconds


@dataclass(eq=False)
class _Server:
    url: str
    faults: int = 0
    rests_until: float = 0.0
    unreachable: bool = False

    @property
    def rest(self) -> float:
        """Seconds until it may get requests again."""
        return max(0.0, self.rests_until - time.monotonic())

    def failed(self, fault: RequestFault, patience: float) -> None:
        if self.rest == 0:  # many requests that fail together count as one failure
            self.faults += 1
            logger.warning("%s %s; retrying for at most %g s", strip_credentials(self.url), fault.message, patience)
        pause = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (self.faults - 1))
        self.rests_until = max(self.rests_until, time.monotonic() + max(pause, fault.pause))
        self.unreachable = self.unreachable or fault.status is None

    def answered(self) -> None:
        if self.unreachable:
            logger.warning(
                "%s answers again. If it was restarted, its weights are those it started with, not those "
                "of the training, until they are next sent",
                strip_credentials(self.url),
            )
        self.faults, self.rests_until, self.unreachable = 0, 0.0, False


class ServerPool:
    """Servers that can answer the same requests.

    A new group goes to the next server in turn and stays there, because that server keeps the keys and values of its
    prefixes. When that server fails, the group moves to the next one that works. A request that failed for a passing
    reason is repeated as a whole until `patience` seconds have passed since its first failure. A server that fails gets
    no requests for a while: half a second, then twice that, up to ten seconds. `cures` says what to do about a refusal,
    by words of its message in lower case.
    """

    def __init__(self, urls: Sequence[str], patience: float, cures: Mapping[str, str]) -> None:
        self.patience, self._cures = patience, cures
        self._servers = [_Server(url) for url in urls]
        self._next = int(os.environ.get("RANK", "0"))  # processes start with different servers
        self._homes: dict[str, _Server] = {}

    def forget_groups(self) -> None:
        """Assign servers to groups anew."""
        self._homes.clear()

    async def ask(self, group: str, attempt: Attempt[T]) -> T:
        """Return the result of `attempt` on the server of this group; it may be called several times.

        Raises:
            GenerationError: a server refused, or none answered in time.
        """
        return await self._persist(lambda: self._home(group), attempt)

    async def ask_all(self, attempt: Attempt[T]) -> list[T]:
        """Return the results of `attempt` on each server; GenerationError if one refuses or does not answer in time."""
        return await asyncio.gather(*(self._persist(itertools.repeat(one).__next__, attempt) for one in self._servers))

    def _home(self, group: str) -> _Server:
        server = self._homes.get(group)
        if server is None or server.rest:
            first = self._next % len(self._servers)
            # `min` takes the first of equals, so servers that do not rest are taken in turn
            server = min([*self._servers[first:], *self._servers[:first]], key=lambda one: one.rest)
            self._next = self._servers.index(server) + 1
            # requests without a group share no prefixes, so they need no fixed server
            if group:
                self._homes[group] = server
        return server

    async def _persist(self, choose: Callable[[], _Server], attempt: Attempt[T]) -> T:
        server, ends, tries = choose(), 0.0, 0
        while True:
            if server.rest:
                # with some chance in it, or all requests would come back at the same moment
                await asyncio.sleep(min(server.rest, self.patience) * random.uniform(1.0, 1.25))
            tries += 1
            try:
                answer = await attempt(server.url)
            except RequestFault as fault:
                message = self._message(server, fault, tries)
                if not fault.passing:
                    raise GenerationError(message) from fault
                server.failed(fault, self.patience)
                ends, server = ends or time.monotonic() + self.patience, choose()
                # the next try could only begin when the patience is over
                if time.monotonic() + server.rest >= ends:
                    raise GenerationError(message) from fault
            else:
                server.answered()
                return answer

    def _message(self, server: _Server, fault: RequestFault, tries: int) -> str:
        said = f"{strip_credentials(server.url)} {fault.message}"
        cures = (cure for words, cure in self._cures.items() if fault.status and words in fault.message.lower())
        cure = next(cures, "")
        if fault.passing:
            cure = cure or "Is it running? Look at its output"
            return f"{said} ({tries} tries, patience={self.patience:g} s). {cure}"
        return f"{said}. {cure}" if cure else said


_LONGER = "Start the server with a larger --max-model-len, or allow fewer tokens a trajectory (max_completion_length)"
_VLLM_CURES = {
    "greater than max allowed": "Start the server with a larger --max-logprobs, or take a smaller topk (entropy_topk)",
    "maximum context length": _LONGER,
    "max_tokens must be at least 1": _LONGER,  # what it says when the context is just full
    "unauthorized": "Set VLLM_API_KEY to the server's --api-key",
    "status 404": "The address should be that of a vLLM server, as in http://127.0.0.1:8000, and `model` a name that "
    "it serves (--served-model-name)",
}


class VLLMServerBackend:
    """Generates on vLLM servers that all serve the same model (`vllm serve`, `trl vllm-serve`).

    Start a server like this:

        vllm serve MODEL --logprobs-mode processed_logprobs --enable-prompt-tokens-details --enable-per-request-metrics

    The first option is needed at temperatures other than 1, the others fill `Generation.cached` and `.queued`.

    Token ids go to `/v1/completions` and token ids come back, each with the log-probabilities of the most likely
    tokens; text is never tokenised again. The answer is streamed: the entropies of the first tokens are told during the
    turn, and a cancelled request stops on the server. Weights are not sent here; the trainer does that between
    rollouts. Older keys and values are then not used again, because each rollout salts the prefix caches of the servers
    with a new word.

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
        timeout: maximum seconds without a byte from a server, the wait for the first token included.
        patience: seconds during which a request is repeated after its first failure.
        eos_token_ids: ids that end a turn, besides those of the model configuration; by default that of the tokenizer.

    Raises:
        ValueError: there is no address, or the estimator needs more than the top log-probabilities.
    """

    trains = True
    wants_messages = False

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
        self._made_with = {name: value for name, value in locals().items() if name != "self"}
        urls = [urls] if isinstance(urls, str) else list(urls)
        if not urls:
            raise ValueError("need the address of at least one vLLM server, as in http://127.0.0.1:8000")
        estimated_entropy([-1.0] * topk, -1.0, estimator)  # refuses what cannot be estimated
        roots = [checked_address("vLLM server", url).removesuffix("/v1") for url in urls]
        self.servers = ServerPool(roots, patience, _VLLM_CURES)
        self.time = Stopwatch()
        self._http = _ModelHttp(api_key, timeout)
        self.topk, self.estimator, self.eos = topk, estimator, sorted(eos_token_ids or {tokenizer.eos_token_id})
        self._asked_model = model
        self._model = ""
        self.max_context: int | None = None
        self._raw: list[str] = []
        self._salt = secrets.token_hex(16)

    def __reduce__(self) -> tuple[Any, ...]:
        # connections and event loops stay here: another process gets a backend that is made in the same way
        return functools.partial(type(self), **self._made_with), ()

    async def end(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def begin(self) -> None:
        """Invalidate the prefix caches; the first time also check that every server can do what is needed."""
        self._salt = secrets.token_hex(16)
        self.servers.forget_groups()
        await self._meet()

    async def served(self) -> list[dict[str, Any]]:
        """Return the description of the model on each server: its `id`; `root` and `max_model_len` if it says them."""
        return await self.servers.ask_all(self._served)

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
            # the two penalties switch off defaults of generation_config.json, so that what the request says is sampled
            **{name: getattr(request, name) for name in _FILTERS},
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
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
        }

    async def _meet(self) -> None:
        """Check every server once: what it serves, and of which distribution it gives log-probabilities."""
        if self._model:
            return
        cards = await self.served()
        lengths = [card["max_model_len"] for card in cards if card.get("max_model_len")]
        self.max_context = min(lengths, default=None)
        self._model = str(cards[0]["id"])
        self._raw = [url for url in await self.servers.ask_all(self._if_raw) if url]

    async def _served(self, url: str) -> dict[str, Any]:
        answer = await self._http.get(f"{url}/v1/models")
        try:
            cards: dict[str, dict[str, Any]] = {str(card["id"]): card for card in answer["data"]}
        except (KeyError, TypeError):
            raise self._http.fault(f"is no vLLM server: /v1/models answered {str(answer)[:100]}") from None
        if self._asked_model in cards:
            return cards[self._asked_model]
        if self._asked_model is None and len(cards) == 1:
            return next(iter(cards.values()))
        wanted = "no `model` was named" if self._asked_model is None else f"not {self._asked_model!r}"
        raise self._http.fault(f"serves {list(cards)}, {wanted}. Give one of these as `model`")

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
        """Read one event; KeyError, TypeError or ValueError if it is none of vLLM's."""
        for choice in event["choices"]:
            if not self._begun:
                self._begun, self._out.queued = True, time.perf_counter() - self._asked
            if logprobs := choice["logprobs"]:
                for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True):
                    self._add(token, top)
            if choice.get("finish_reason"):
                self._finish = _finish(choice["finish_reason"], choice.get("stop_reason"))
        self._window.tell(self._out.entropies)
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        self._out.cached = int(details.get("cached_tokens") or self._out.cached)
        queued = (event.get("metrics") or {}).get("queue_time_ms")
        self._out.queued = self._out.queued if queued is None else queued / 1000

    def generation(self) -> Generation:
        """Return the generation that the events make up; RequestFault if they hold no finished turn."""
        if self._finish is None or not self._out.ids:
            raise RequestFault("ended the answer before the turn was over", passing=True)
        self._out.finish = self._finish
        self._window.tell(self._out.entropies, last=True)
        return self._out

    def _add(self, token: str, given: Mapping[str, float | None]) -> None:
        # servers write NaN as null; `Generation.add` refuses it
        top = {name: math.nan if value is None else value for name, value in given.items()}
        drawn = top[token]  # by id: on some servers the first entry is the drawn token, on others the most likely one
        self.last = sorted(top.values(), reverse=True)[: self.topk]
        number, entropy = int(token.removeprefix("token_id:")), estimated_entropy(self.last, drawn, self._estimator)
        self._out.add(number, drawn, entropy)


def _finish(reason: str, stopped_by: str | int | None) -> Finish:
    if reason == "length":
        return "length"
    if reason == "stop":
        return "stop" if isinstance(stopped_by, str) else "eos"
    raise RequestFault(f"gave up the request ({reason})", passing=True)


_FILTERS = ("top_p", "top_k", "min_p", "repetition_penalty")
_BLIND = "Give a model that sees, and let vLLM take enough pictures (--limit-mm-per-prompt); or leave show_images out"
_SMALLER = "Allow fewer tokens a trajectory or a turn, or give the server a larger context"
_ENDPOINT_CURES = {
    "temperature": "Set temperature to 1, which models that reason accept, or give extra={'temperature': None}",
    **{
        name: f"Leave {name} out (or give extra={{'{name}': None}}): only servers such as vLLM know it"
        for name in _FILTERS[1:]
    },
    "logprobs": "Take topk=0 if the endpoint gives no log-probabilities, or not so many",
    # before "image": such a refusal also says what pictures take
    **dict.fromkeys(("context length", "context size", "maximum model length"), _SMALLER),
    **dict.fromkeys(("image", "multimodal", "multi-modal"), _BLIND),
    "status 413": "The request is too large: let the server take more, or limit calls: tool_limits={read_file: 5}",
    "status 429": "Ask for less at once, with a lower concurrency",
}
_ENDS = ("stop", "eos", "end_turn", "stop_sequence", "tool_calls")  # of a turn that ended by itself


class EndpointBackend:
    """Generates by asking any OpenAI-compatible chat endpoint for text, as `arpo_env.play` does; for evaluation only.

    The text is encoded with the given tokenizer. It cannot be trained on (`trains` is False): the tokenisation may
    differ from the model's, and log-probabilities are known only where the endpoint returns them and its tokens are
    those of the tokenizer. Everywhere else they and the entropies are 0.0.

    Args:
        model: name of the model at the endpoint.
        base_url: usually ends in "/v1". Default: the variable OPENAI_BASE_URL, else OpenAI.
        api_key: default: the variable OPENAI_API_KEY. Your own server may need none.
        tokenizer: encodes the returned text; its end token marks a turn that ended by itself.
        topk: number of log-probabilities to request; 0 is none.
        estimator: of the entropies, if `topk` is above 0; see `estimated_entropy`.
        extra: more fields of the request; fields that are None are left out.

    Raises:
        ValueError: the address is invalid, it is OpenAI's and there is no key, or the estimator needs more than top
            log-probabilities.
    """

    trains = False
    wants_messages = True

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        tokenizer: Any,
        topk: int = 0,
        estimator: str = "renormalised",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        api_key = api_key or os.environ.get("OPENAI_API_KEY")
        self._made_with = {name: value for name, value in locals().items() if name != "self"}
        if topk:
            estimated_entropy([-1.0] * topk, -1.0, estimator)  # refuses what cannot be estimated
        # ten tries where a failure may pass take two minutes; the rollout has its own limits on requests
        self._endpoint = ChatEndpoint(model, base_url, api_key, extra=extra, retries=9, connections=4096)
        self.tokenizer, self.topk, self.estimator = tokenizer, topk, estimator
        self.time = Stopwatch()

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self._made_with), ()

    async def begin(self) -> None:
        """Do nothing: the weights of the endpoint do not change."""

    async def end(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`. The window is told at the end.

        A request that does not fit into the model's context any more is an empty turn that was cut off, as in
        `arpo_env.play`; one of the first turn is a failure.

        Raises:
            ValueError: also if there are no messages.
            ServerSetupError: the endpoint takes no tools, or does not parse calls.
            GenerationError: the endpoint refused, or did not answer in time.
        """
        check_request(request)
        if not request.messages:
            raise ValueError("a chat endpoint needs messages, and the request has none")
        try:
            with self.time.running():
                turn = await self._endpoint.turn(
                    request.messages, request.tools, request.stop, request.protocol, **self._fields(request)
                )
            made = self._generation(request, turn)
        except ToolsNotServed as error:
            raise ServerSetupError(str(error)) from error
        except ContextFull as error:
            if all(message["role"] != "assistant" for message in request.messages):
                raise GenerationError(self._with_cure(error)) from error
            made = Generation([self.tokenizer.eos_token_id], [0.0], [0.0], "length")
        except ServiceError as error:
            raise GenerationError(self._with_cure(error)) from error
        EntropyWindow(request.window, on_window).tell(made.entropies, last=True)
        return made

    def _fields(self, request: Request) -> dict[str, Any]:
        # OpenAI knows only the first of the sampling filters, servers such as vLLM know all: those that are on
        given = {name: getattr(request, name) for name in _FILTERS}
        logprobs = {"logprobs": True, "top_logprobs": self.topk} if self.topk else {}
        return {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed % 2**31,
            **{name: value for name, value in given.items() if value != getattr(Request, name)},
            **logprobs,
        }

    def _generation(self, request: Request, turn: ChatTurn) -> Generation:
        text, stops = turn.message["content"], tuple(request.stop)
        finish: Finish = "stop"
        if not (stops and text.endswith(stops)):
            closed = close_tag(text, stops) if turn.finish_reason in _ENDS else text
            finish = "stop" if closed != text else "eos" if turn.finish_reason in _ENDS else "length"
            text = closed
        if request.protocol is not None:  # with its thoughts and calls, which servers take out of the text
            text = turn_text(turn.message | {"content": text}, request.protocol)
        ids = [int(number) for number in self.tokenizer.encode(text, add_special_tokens=False)]
        if finish == "eos" or not ids:  # an empty turn still has a token
            ids.append(self.tokenizer.eos_token_id)
        if len(ids) > request.max_tokens:  # the tokenizer needs more tokens for the text than the model did
            ids, finish = ids[: request.max_tokens], "length"
        logprobs, entropies = [0.0] * len(ids), [0.0] * len(ids)
        given = (turn.choice.get("logprobs") or {}).get("content") or ()
        for place, (number, token) in enumerate(zip(ids, given, strict=False)):
            top = sorted((other["logprob"] for other in token.get("top_logprobs") or ()), reverse=True)
            if self.tokenizer.decode([number]) != token["token"] or not top:
                break  # from here on the tokens are not the endpoint's
            logprobs[place] = token["logprob"]
            entropies[place] = estimated_entropy(top[: self.topk], token["logprob"], self.estimator)
        return Generation(ids, logprobs, entropies, finish, cached=turn.usage.get("cached_tokens", 0))

    def _with_cure(self, error: ServiceError) -> str:
        said = str(error)
        if error.status is None:
            return f"{said}. Is it running? Look at its output"
        # what an answer says is no reason for a cure
        known = _ENDPOINT_CURES.items() if error.status >= 400 else ()
        return ". ".join([said, *[cure for words, cure in known if words in said.lower()][:1]])
