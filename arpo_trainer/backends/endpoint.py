"""`EndpointBackend`: any OpenAI-compatible endpoint as the policy, for evaluation only.

Such an endpoint takes and returns text, which is encoded with the given tokenizer. It cannot be trained on (`trains` is
False): the tokenisation may differ from the model's, and log-probabilities are known only where the endpoint returns
them and its tokens are those of the tokenizer. Everywhere else they and the entropies are 0.0.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from arpo_env.chat_messages import TOOL_CURE, TOOL_REFUSALS, reply_message, turn_text
from arpo_env.net import checked_address
from arpo_trainer.algorithms.entropy import estimated_entropy
from arpo_trainer.backends.base import Finish, Generation, OnWindow, Request, check_request
from arpo_trainer.backends.server_pool import ModelHttp, ServerPool
from arpo_trainer.tree import Stopwatch

_OPENAI = "https://api.openai.com/v1"
_MOST_STOPS = 4  # OpenAI accepts no more; the text is cut at the others here
_BLIND = "Give a model that sees, and let vLLM take enough pictures (--limit-mm-per-prompt); or leave show_images out"
_CURES = {
    **dict.fromkeys(TOOL_REFUSALS, TOOL_CURE),
    "max_completion_tokens": "Give extra={'max_tokens': None, 'max_completion_tokens': 4096}",
    "temperature": "Give extra={'temperature': None} if the model takes no temperature",
    **{
        name: f"Leave {name} out (or give extra={{'{name}': None}}): only servers such as vLLM know it"
        for name in ("top_k", "min_p", "repetition_penalty")
    },
    "'stop'": "Give extra={'stop': None} if the model takes no stop strings; the text is then cut here",
    "logprobs": "Take topk=0 if the endpoint gives no log-probabilities, or not so many",
    **dict.fromkeys(
        ("context length", "maximum model length"),  # before "image": such a refusal also says what pictures take
        "Allow fewer tokens a trajectory or a turn, or give the server a larger context",
    ),
    "status 401": "Set OPENAI_API_KEY to a key of that endpoint",
    "status 403": "Set OPENAI_API_KEY to a key that may use this model",
    **dict.fromkeys(("image", "multimodal", "multi-modal"), _BLIND),
    "status 413": "The request is too large: let the server take more, or limit calls: tool_limits={read_file: 5}",
    "status 404": "The address ends in /v1 as a rule (--endpoint or OPENAI_BASE_URL); model names are at /models there",
}
_Token = tuple[str, float, list[float]]  # text, log-probability, and those of the most likely ones


class EndpointBackend:
    """Generates by asking an OpenAI-compatible endpoint for text.

    Most endpoints cut the stop string off. It is restored where the text has an open tag whose closing tag is a stop
    string, or where the endpoint says which stop string it was.

    Args:
        model: name of the model at the endpoint.
        base_url: usually ends in "/v1". Default: the variable OPENAI_BASE_URL, else OpenAI.
        api_key: default: the variable OPENAI_API_KEY. Your own server may need none.
        tokenizer: encodes the returned text; its end token marks a turn that ended by itself.
        chat: use `/chat/completions` with the messages of the request, else `/completions` with its ids as text.
        topk: number of log-probabilities to request; 0 is none.
        estimator: of the entropies, if `topk` is above 0; see `estimated_entropy`.
        extra: more fields of the request; fields that are None are left out.
        timeout: most seconds without a byte.
        patience: seconds during which a request is repeated after its first failure (429, 5xx, broken connection).

    Raises:
        ValueError: the address is invalid, it is OpenAI's and there is no key, or the estimator needs more than top
            log-probabilities.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        tokenizer: Any,
        chat: bool = True,
        topk: int = 0,
        estimator: str = "renormalised",
        extra: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
        patience: float = 120.0,
    ) -> None:
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        api_key = key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        self._made_with = {name: value for name, value in locals().items() if name not in ("self", "__class__", "key")}
        url = checked_address(f"endpoint of {model}", base_url)
        if not key and url == _OPENAI:
            raise ValueError(
                "OpenAI needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL to the address of another server"
            )
        if topk:
            estimated_entropy([-1.0] * topk, -1.0, estimator)  # refuses what cannot be estimated
        self.model, self.tokenizer, self.chat = model, tokenizer, chat
        self.topk, self.estimator, self.extra = topk, estimator, dict(extra or {})
        self.time = Stopwatch()
        self.trains, self.wants_messages = False, chat
        self._servers = ServerPool([url], patience, _CURES)
        self._http = ModelHttp(key, timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        # connections and event loops stay here: another process gets a backend that is made in the same way
        return functools.partial(type(self), **self._made_with), ()

    async def begin(self) -> None:
        """Do nothing: the weights of the endpoint do not change."""

    async def end(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`. The window is told at the end.

        Raises:
            ValueError: also if there are no messages and `chat` is set.
            GenerationError: the endpoint refused, or did not answer in time.
        """
        check_request(request)
        body = self._body(request)
        with self.time.running():
            generation = await self._servers.ask("", functools.partial(self._once, request, body))
        if on_window and request.window:
            on_window(generation.entropies[: request.window])
        return generation

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed % 2**31,
            "stop": list(request.stop[:_MOST_STOPS]) or None,
            **_filters(request),
        }
        if not self.chat:
            body |= {"prompt": self.tokenizer.decode(request.ids), "logprobs": self.topk or None}
        elif not request.messages:
            raise ValueError("a chat endpoint needs messages, and the request has none; use chat=False for plain text")
        else:
            body |= {"messages": [dict(message) for message in request.messages], "tools": list(request.tools) or None}
            body |= {"logprobs": True, "top_logprobs": self.topk} if self.topk else {}
        return {name: value for name, value in (body | self.extra).items() if value is not None}

    async def _once(self, request: Request, body: Mapping[str, Any], url: str) -> Generation:
        reply = await self._http.post(f"{url}/chat/completions" if self.chat else f"{url}/completions", body)
        try:
            choice = reply["choices"][0]
            message = reply_message(choice["message"] if self.chat else {"content": choice["text"]})
            tokens = _tokens(choice.get("logprobs") or {})
            cached = ((reply.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            text, finish = _ended(message["content"], choice["finish_reason"], choice.get("stop_reason"), request.stop)
            if request.protocol is not None:  # with its thoughts and calls, which servers take out of the text
                text = turn_text(message | {"content": text}, request.protocol)
            return self._generation(text, finish, request.max_tokens, tokens, cached)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._http.fault(f"answered with no completion ({error!r}): {str(reply)[:200]}") from error

    def _generation(self, text: str, finish: Finish, limit: int, tokens: Sequence[_Token], cached: int) -> Generation:
        ids = [int(number) for number in self.tokenizer.encode(text, add_special_tokens=False)]
        if finish == "eos" or not ids:  # an empty turn still has a token
            ids.append(self.tokenizer.eos_token_id)
        if len(ids) > limit:  # the tokenizer needs more tokens for the text than the model did
            ids, finish = ids[:limit], "length"
        return Generation(ids, *self._numbers(ids, tokens), finish, cached=cached)

    def _numbers(self, ids: Sequence[int], tokens: Sequence[_Token]) -> tuple[list[float], list[float]]:
        """Return log-probabilities and entropies, up to the first token that differs from the endpoint's."""
        logprobs, entropies = [0.0] * len(ids), [0.0] * len(ids)
        for n, (number, (text, logprob, top)) in enumerate(zip(ids, tokens, strict=False)):
            if self.tokenizer.decode([number]) != text or not top:
                break
            logprobs[n] = logprob
            entropies[n] = estimated_entropy(sorted(top, reverse=True)[: self.topk], logprob, self.estimator)
        return logprobs, entropies


def _filters(request: Request) -> dict[str, float]:
    """Return the sampling filters that are on; OpenAI knows only the first, servers such as vLLM know all."""
    given = {name: getattr(request, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
    return {name: value for name, value in given.items() if value != getattr(Request, name)}


def _tokens(logprobs: Mapping[str, Any]) -> list[_Token]:
    """Read the log-probabilities of a chat or of a plain completion."""
    if logprobs.get("content"):
        return [
            (token["token"], token["logprob"], [other["logprob"] for other in token.get("top_logprobs") or []])
            for token in logprobs["content"]
        ]
    columns = [logprobs.get(name) or [] for name in ("tokens", "token_logprobs", "top_logprobs")]
    return [(text, logprob, list(top.values())) for text, logprob, top in zip(*columns, strict=False)]


def _ended(text: str, reason: str, stopped_by: object, stops: Sequence[str]) -> tuple[str, Finish]:
    """Return the text up to its stop string, restored if it was cut off, and why the text ended."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if ends:
        return text[: min(ends)], "stop"
    if reason not in ("stop", "eos", "end_turn", "stop_sequence", "tool_calls"):
        return text, "length"
    stop = stopped_by if stopped_by in stops else _wanted(text, stops)
    return (f"{text}{stop}", "stop") if stop else (text, "eos")


def _wanted(text: str, stops: Sequence[str]) -> str:
    """Return the stop string that closes the last open tag, or ""."""
    opened: dict[str, int] = {}
    for stop in stops:
        name = stop.removeprefix("</").removesuffix(">")
        found = [match.start() for match in re.finditer(rf"<{re.escape(name)}\b[^<>]*>", text)]
        if found and stop == f"</{name}>":
            opened[stop] = found[-1]
    return max(opened, key=lambda stop: opened[stop], default="")
