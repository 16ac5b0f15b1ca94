"""A chat model at an OpenAI-compatible server, for summaries and verdicts: `await chat.complete(messages)`.

It is not the policy, whose text is generated elsewhere. It does not need the `openai` package.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arpo_env.cache import SERVER, Cache
from arpo_env.errors import ServiceError
from arpo_env.event_loop import run_on_loop
from arpo_env.net import Http, Reply, canonical_address, checked_address, redact

Message = Mapping[str, str]

_OPENAI = "https://api.openai.com/v1"
_PATIENCE = 600.0  # seconds for a reply, as in OpenAI's client; a model on a CPU may need minutes
# as OpenAI, vLLM, SGLang, llama.cpp and TGI say it
_CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|size|window)|longer than the (maximum|model)|maximum (model|input|sequence) length"
    r"|max_model_len|max_total_tokens|prompt is too long",
    re.IGNORECASE,
)
_SHORTEST = 500  # characters of a text that is not halved any more
# fields that servers refuse, what they want instead, and how they say it
_OTHERWISE = {
    "max_tokens": ("max_completion_tokens", re.compile("max_completion_tokens")),
    "stop": ("", re.compile(r"'stop'.*not support|not support[^.]*: stop\b", re.IGNORECASE)),
}
# of a model that helps; a policy is asked at its own temperature, or not at all
_OF_HELPERS = {"temperature": ("", re.compile(r"'temperature'.*not support", re.IGNORECASE))}
# Some chat templates open the thought in the prompt, so that the reply has only its end.
_THOUGHT = re.compile(r"\A\s*<think>.*?(</think>|\Z)|\A.*</think>", re.DOTALL)
_CURES = {
    401: "Set OPENAI_API_KEY, or api_key=, to a key of that server",
    403: "Set OPENAI_API_KEY, or api_key=, to a key that may use this model",
    404: "The address (--endpoint, base_url= or OPENAI_BASE_URL) ends in /v1 as a rule; the names of its models are at "
    "/models there",
}


class ContextFull(ServiceError):
    """Raised when a server refuses a request because it does not fit into the model's context."""


class ModelServer:
    """A model at an OpenAI-compatible server, whose address and key come from OPENAI_BASE_URL and OPENAI_API_KEY.

    Raises:
        ValueError: `base_url` is not a valid URL.
    """

    def __init__(self, kind: str, model: str, base_url: str | None, api_key: str | None, **limits: Any) -> None:
        address = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        self.model, self.base_url = model, checked_address(f"{kind} {model}", address)
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        secrets = (self._key,) if self._key else ()
        self._http = Http(f"{kind} {model}", **{"timeout": _PATIENCE, "cures": _CURES, "secrets": secrets, **limits})
        self._otherwise = dict(_OTHERWISE)
        self._names: dict[str, str] = {}  # of fields that the server wants otherwise

    @property
    def lacking_key(self) -> str:
        """What to do about a key that is missing, "" if none is."""
        cure = "OpenAI needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL (base_url=) to the address of another server"
        return cure if not self._key and self.base_url == _OPENAI else ""

    async def post(self, endpoint: str, body: Mapping[str, Any]) -> Reply:
        """Send a request; `endpoint` is as in "/chat/completions".

        OpenAI's models that reason take `max_completion_tokens` instead of `max_tokens`, and no `stop`: a server that
        says so gets requests of that kind from then on. So the caller has to cut texts at stop strings.

        Raises:
            ContextFull: it does not fit into the model's context.
            ServiceError: it failed otherwise.
        """
        # Checked only when a request is made, so that a replay needs no key.
        if self.lacking_key:
            raise ServiceError(self._http.service, self.lacking_key)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        names = {name: self._names.get(name, name) for name in body}
        sent = {names[name]: value for name, value in body.items() if names[name]}
        try:
            return await self._http.request("POST", f"{self.base_url}{endpoint}", json=sent, headers=headers)
        except ServiceError as error:
            # first, since vLLM names max_completion_tokens in that refusal, too
            if error.status in (400, 413, 422) and _CONTEXT_FULL.search(error.message):
                raise ContextFull(error.service, error.message, error.status) from error
            for name, (wanted, words) in self._otherwise.items():
                if error.status in (400, 422) and name in sent and words.search(error.message):
                    self._names[name] = wanted
                    return await self.post(endpoint, body)
            raise

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class ChatModel(ModelServer):
    """A model that replies to messages. Many episodes may share it, on any threads and event loops.

    Args:
        model: name of the model at the server.
        base_url: URL of the server, usually ending in "/v1"; defaults to OPENAI_BASE_URL, else OpenAI's URL.
        api_key: defaults to OPENAI_API_KEY; a local server may need none.
        timeout: time limit of one attempt in seconds.
        retries: additional attempts after status 429 or 5xx, or a broken connection.
        concurrency: maximum number of concurrent requests.
        extra: additional fields of the request, such as {"chat_template_kwargs": {"enable_thinking": False}}; fields
            that are None are omitted.
        cache: where replies are recorded. With a temperature above 0 it keeps the first sample.
        kind: kind of the cache's records.

    Raises:
        ValueError: `base_url` is not a valid URL.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = _PATIENCE,
        retries: int = 2,
        concurrency: int = 16,
        extra: Mapping[str, Any] | None = None,
        cache: Cache | None = None,
        kind: str = "chat",
    ) -> None:
        super().__init__("chat model", model, base_url, api_key, timeout=timeout, retries=retries)
        self.concurrency = concurrency
        self._extra, self._cache, self._kind = dict(extra or {}), cache, kind
        self._forms: tuple[str, ...] = ("json_schema", "json_object", "")  # ways to ask for JSON
        self._otherwise |= _OF_HELPERS
        self._slots, self._owner = asyncio.Semaphore(concurrency), os.getpid()

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything but the model and the messages that decides a reply, as JSON; part of cache keys."""
        extra = {"extra": self._extra} if self._extra else {}
        return {SERVER: canonical_address(self.base_url), **extra}

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        spent: Counter[str] | None = None,
    ) -> str:
        """Return the reply without its reasoning.

        Args:
            messages: {"role", "content"}, in order.
            temperature: None uses the server's default, and so does a model that accepts no other.
            max_tokens: limit of the reply, including reasoning; None uses the server's default. Where the context has
                no room for so many, the reply may take what is left.
            json_schema: schema of the object that the reply should be. If the server does not support schemas, it is
                asked for any JSON, or for no format at all, so check the reply.
            spent: the tokens that the server counts are added to it, also where no reply is usable: "context",
                "cached" (those of the context that were in the server's cache) and "tokens" (of the reply). A recorded
                reply adds nothing.

        Raises:
            ContextFull: the messages do not fit into the model's context.
            ServiceError: there is no usable reply.
        """
        body: dict[str, Any] = {"model": self.model, "messages": [dict(message) for message in messages]}
        body |= {"temperature": temperature, "max_tokens": max_tokens} | self._extra
        body = {name: value for name, value in body.items() if value is not None}
        if self._cache is None:
            return await self._reply(body, json_schema, spent)

        async def ask() -> str:
            return await self._reply(body, json_schema, spent)

        request = {"body": body, "json_schema": json_schema, SERVER: canonical_address(self.base_url)}
        reply = await self._cache.through(self._kind, self.model, 1, request, ask)
        return str(reply)

    async def _reply(
        self, body: Mapping[str, Any], schema: Mapping[str, Any] | None, spent: Counter[str] | None
    ) -> str:
        forms = self._forms if schema else ("",)
        for form in forms:
            try:
                text = await self._fitted({**body, **_response_format(form, schema)}, spent)
            except ContextFull:
                raise
            except ServiceError as error:
                # The server may not know this form; the last one is no form at all and has no successor.
                if form and error.status in (400, 422):
                    continue
                raise
            if schema:
                self._forms = forms[forms.index(form) :]  # formats that the server rejected are not tried again
            return text
        raise AssertionError("unreachable")

    async def _fitted(self, body: Mapping[str, Any], spent: Counter[str] | None) -> str:
        try:
            return await self._once(body, spent)
        except ContextFull:
            if "max_tokens" not in body:
                raise
            # vLLM counts them as if they were all written
            return await self._once({name: value for name, value in body.items() if name != "max_tokens"}, spent)

    async def _once(self, body: Mapping[str, Any], spent: Counter[str] | None) -> str:
        reply = (await run_on_loop(self._post(body))).json()
        if spent is not None:
            spent.update(_tokens_of(reply))
        return self._text(reply)

    async def _post(self, body: Mapping[str, Any]) -> Reply:
        """Send a request, at most `concurrency` at a time; the wait for that is not part of the time limit."""
        if self._owner != os.getpid():  # requests of the parent of os.fork hold no slots here
            self._slots, self._owner = asyncio.Semaphore(self.concurrency), os.getpid()
        async with self._slots:
            return await self.post("/chat/completions", body)

    def _text(self, reply: Any) -> str:
        try:
            choice = reply["choices"][0]
            content = choice["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            said = redact(self._http.secrets, str(reply))[:200]
            raise ServiceError(self._http.service, f"answered without a message: {said}") from error
        text = without_thoughts(content) if isinstance(content, str) else ""
        if not text:
            raise ServiceError(self._http.service, _why_empty(choice))
        return text


_VERSION = 2  # of the prompts that are given to `reply_to_what_fits`; part of the cache key


async def reply_to_what_fits(
    chat: ChatModel,
    prompt: Callable[[int], str],
    characters: int,
    *,
    read: Callable[[str], str] = str,
    cache: Cache | None = None,
    kind: str = "chat",
    about: Mapping[str, str] | None = None,
    **settings: Any,
) -> str:
    """Return the reply to a prompt with so many characters of a text, or half as many until the context has room.

    `read` takes what counts out of a reply, or raises ServiceError. The cache keeps the first sample as a record of a
    `kind`, by the hash of the longest prompt and what it is `about`. The model has no cache of its own then: a replay
    must not look for prompts that did not fit.

    Raises:
        ContextFull: hardly any text fits.
        ServiceError: the request failed otherwise.
    """

    async def ask() -> str:
        left = characters
        while True:
            try:
                return read(await chat.complete([{"role": "user", "content": prompt(left)}], **settings))
            except ContextFull:
                left //= 2
                if left < _SHORTEST:
                    raise

    if cache is None:
        return await ask()
    digest = hashlib.sha256(prompt(characters).encode("utf-8", "surrogatepass")).hexdigest()
    request = {**(about or {}), "prompt": digest, **settings, **chat.parameters}
    return str(await cache.through(kind, chat.model, _VERSION, request, ask))


def without_thoughts(text: str) -> str:
    """Return a reply without the thought at its beginning."""
    return _THOUGHT.sub("", text, count=1).strip()


def _tokens_of(reply: Any) -> dict[str, int]:
    """Return the tokens of a request as its server counts them; what it does not say is 0."""
    usage = reply.get("usage") if isinstance(reply, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    counts = {
        "context": usage.get("prompt_tokens"),
        "cached": details.get("cached_tokens") if isinstance(details, dict) else 0,
        "tokens": usage.get("completion_tokens"),
    }
    return {name: count if isinstance(count, int) else 0 for name, count in counts.items()}


def _why_empty(choice: Mapping[str, Any]) -> str:
    if choice.get("finish_reason") == "length":
        return "the reply is empty because reasoning used all tokens; raise max_tokens or turn thinking off"
    refusal = choice["message"].get("refusal")
    return f"refused: {str(refusal)[:200]}" if refusal else "the reply is empty"


def _response_format(form: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if form == "json_schema":
        return {"response_format": {"type": form, form: {"name": "reply", "strict": True, "schema": schema}}}
    return {"response_format": {"type": form}} if form else {}
