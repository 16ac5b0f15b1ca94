"""`ChatEndpoint`: one turn of a policy behind an OpenAI-compatible `/chat/completions`, checked and in plain data.

    endpoint = ChatEndpoint("my-model", "http://127.0.0.1:8000/v1", temperature=1.0)
    turn = await endpoint.turn(messages, tools=episode.tools, stop=episode.stop)

What the model wrote, however bad, is a turn. An answer that is none (no choices, tool calls that are no list, a reply
that the server broke off, a status of 500) is a `ServiceError`, and a context that is full is a `ContextFull`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env.chat_messages import TOOL_CURE, TOOL_REFUSALS, reply_message
from arpo_env.errors import ServiceError
from arpo_env.net.http import Http, Reply
from arpo_env.net.service_urls import checked_address

_OPENAI = "https://api.openai.com/v1"
_CURES = {
    401: "Set OPENAI_API_KEY, or api_key=, to a key of that endpoint",
    403: "Set OPENAI_API_KEY, or api_key=, to a key that may use this model",
    404: "base_url= ends in /v1 as a rule; the names of the models are at /models there",
}
# as OpenAI, vLLM, SGLang, llama.cpp and TGI say it
_CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|size|window)|longer than the (maximum|model)|maximum (model|input|sequence) length"
    r"|max_model_len|max_total_tokens|prompt is too long",
    re.IGNORECASE,
)
# the server ended the reply itself (vLLM, SGLang, OpenRouter, DeepSeek), not the policy
_BROKEN_OFF = ("abort", "aborted", "error", "insufficient_system_resource")
_MOST_BYTES = 64_000_000  # token ids and log-probabilities of a long context are long


class ContextFull(ServiceError):
    """Raised when the endpoint refuses a request because it does not fit into the model's context."""


@dataclass
class ChatTurn:
    """One reply of the endpoint.

    Attributes:
        message: the assistant's message: role, content, and tool_calls and reasoning where there are any.
        finish_reason: "stop", "length", "tool_calls", ..., as the endpoint gives it.
        prompt_ids: token ids of the request, or None if the endpoint does not return them.
        token_ids: token ids of the reply, or None.
        logprobs: log-probability of each token of the reply (natural logarithm), or None.
        usage: numbers of tokens, by the endpoint's names ("prompt_tokens", "completion_tokens", ...).
        choice: the choice as the endpoint sent it.
    """

    message: dict[str, Any]
    finish_reason: str = ""
    prompt_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict, repr=False)


class ChatEndpoint:
    """A policy behind an endpoint. May be shared by many episodes, threads and event loops.

    Args:
        model: name of the model at the endpoint.
        base_url: usually ends in "/v1"; defaults to OPENAI_BASE_URL, else OpenAI's.
        api_key: defaults to OPENAI_API_KEY; a server of your own may need none.
        temperature: None uses the endpoint's default.
        max_tokens: most tokens of one turn; None uses the endpoint's default.
        token_ids: ask for token ids and log-probabilities (`return_token_ids` of vLLM, and `logprobs`).
        extra: more fields of the request; a field that is None is left out.
        timeout: seconds for one try.
        retries: further tries after 429, 5xx, or a broken connection.
        connections: most requests under way at once.

    Raises:
        ValueError: the address is invalid, or is OpenAI's and there is no key.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        temperature: float | None = 1.0,
        max_tokens: int | None = None,
        token_ids: bool = False,
        extra: Mapping[str, Any] | None = None,
        timeout: float = 600.0,
        retries: int = 3,
        connections: int = 16,
    ) -> None:
        service = f"endpoint of {model}"
        address = checked_address(service, base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI)
        key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        if not key and address == _OPENAI:
            raise ValueError("OpenAI needs a key: set OPENAI_API_KEY, or base_url= to the address of another endpoint")
        self._url = f"{address}/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._fields = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._fields |= {"logprobs": True, "return_token_ids": True} if token_ids else {}
        self._fields |= dict(extra or {})
        self._http = Http(
            service,
            timeout=timeout,
            max_bytes=_MOST_BYTES,
            retries=retries,
            cures=_CURES,
            connections=connections,
            secrets=(key,) if key else (),
        )

    async def turn(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), stop: Sequence[str] = (), **fields: Any
    ) -> ChatTurn:
        """Return the next turn of a conversation.

        Args:
            messages: the conversation so far.
            tools: schemas of the tools; empty if there are none, or they are called by tags.
            stop: strings that end the turn; the text is cut behind the first one, also if the endpoint ignores them.
                One that the endpoint cut off and names (vLLM) is put back.
            fields: more fields of this request.

        Raises:
            ContextFull: the request does not fit into the model's context.
            ServiceError: there is no usable reply.
        """
        body = {"messages": list(messages), "tools": list(tools) or None, "stop": list(stop) or None}
        body = {name: value for name, value in (body | self._fields | fields).items() if value is not None}
        try:
            reply = await self._http.request("POST", self._url, json=body, headers=self._headers)
        except ServiceError as error:
            said = str(error).removeprefix(f"{error.service}: ")
            if error.status in (400, 413, 422) and _CONTEXT_FULL.search(said):
                raise ContextFull(error.service, said, error.status) from error
            if tools and error.status and any(words in said.lower() for words in TOOL_REFUSALS):
                raise ServiceError(error.service, f"{said}. {TOOL_CURE}", error.status) from error
            raise
        try:
            return _turn(reply.json(), stop)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise _unusable(reply, error) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _turn(answer: Any, stop: Sequence[str]) -> ChatTurn:
    choice = answer["choices"][0]
    if choice.get("finish_reason") in _BROKEN_OFF:
        raise ValueError(f"the server broke the reply off, finish_reason {choice['finish_reason']!r}")
    message = reply_message(choice["message"])
    message["content"], stopped = _up_to_stop(message["content"], choice.get("stop_reason"), stop)
    logprobs = [entry["logprob"] for entry in (choice.get("logprobs") or {}).get("content") or ()]
    return ChatTurn(
        message,
        "stop" if stopped else str(choice.get("finish_reason") or ""),
        _numbers(answer.get("prompt_token_ids")),
        _numbers(choice.get("token_ids")),
        _numbers(logprobs),
        {name: count for name, count in (answer.get("usage") or {}).items() if isinstance(count, int)},
        choice,
    )


def _up_to_stop(text: str, stopped_by: object, stop: Sequence[str]) -> tuple[str, bool]:
    """Return the text up to its first stop string, and whether it has one; one that was cut off is put back."""
    ends = [text.find(each) + len(each) for each in stop if each in text]
    if ends:
        return text[: min(ends)], True
    return (f"{text}{stopped_by}", True) if stopped_by in stop else (text, False)


def _numbers(given: Any) -> list[Any] | None:
    right = isinstance(given, list) and given and all(isinstance(each, int | float) for each in given)
    return given if right else None


def _unusable(reply: Reply, error: Exception) -> ServiceError:
    start = reply.body[:200].decode("utf-8", "replace")
    return reply.fault(f"answered without a usable message ({type(error).__name__}: {error}): {start}")
