"""The model that helps at inference time: `await helper.complete(messages, seed)`.

It is a chat model at a server (`ChatHelper`) or the policy itself (`PolicyHelper`). `RecordedHelper` records and
replays either, failures included, so that a replay shows the policy what it saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from arpo_env.cache import Cache
from arpo_env.chat_model import ChatModel, without_thoughts
from arpo_env.errors import ServiceError
from arpo_env.sqlite_store import CacheError
from arpo_trainer.backends.base import Backend, Request
from arpo_trainer.inference_tools.inference_settings import InferenceSettings

Messages = Sequence[Mapping[str, str]]
Spent = Counter[str]  # tokens of requests: "context", "cached" (of the context) and "tokens" (of the replies)
_VERSION = 1  # of the record


class HelperFailed(Exception):
    """Raised when the helping model gave no reply, or none that can be used. The sample goes on without it."""


class Helper(Protocol):
    """A model that replies to messages."""

    @property
    def name(self) -> str:
        """The name of the model, for recordings."""

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
        """Return the reply without its reasoning.

        Args:
            messages: {"role", "content"}, in order.
            seed: of the sample.
            schema: JSON schema that the reply should follow; it may not, so check the reply.
            spent: the tokens of the request are added to it, also where it fails.

        Raises:
            HelperFailed: there is no usable reply.
        """


@dataclass(frozen=True)
class ChatHelper:
    """A chat model at an OpenAI-compatible server.

    Attributes:
        chat: the client.
        max_tokens: most tokens of a reply.
    """

    chat: ChatModel
    max_tokens: int = 4096

    @property
    def name(self) -> str:
        """The name of the model at its server."""
        return self.chat.model

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
        """Ask the server; see `Helper.complete`."""
        try:
            return await self.chat.complete(messages, max_tokens=self.max_tokens, json_schema=schema, spent=spent)
        except ServiceError as error:
            raise HelperFailed(str(error)) from error


@dataclass(frozen=True)
class PolicyHelper:
    """The policy as its own helper: it is asked in a conversation of its own, greedily.

    Attributes:
        backend: of the policy.
        tokenizer: of the policy.
        render: returns the prompt ids of messages.
        max_tokens: most tokens of a reply.
    """

    backend: Backend
    tokenizer: Any
    render: Callable[[Messages], list[int]]
    max_tokens: int = 4096
    name: str = "policy"

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
        """Ask the policy; see `Helper.complete`."""
        asked = tuple(messages) if self.backend.wants_messages else ()
        ids = tuple(self.render(messages))
        request = Request(ids, self.max_tokens, seed=seed, temperature=0.0, messages=asked)
        try:
            made = await self.backend.generate(request)
        except CacheError:
            raise
        except Exception as error:  # if the policy is down, its own next turn says so
            raise HelperFailed(f"{type(error).__name__}: {error}") from error
        if spent is not None:
            spent.update(context=len(ids), cached=made.cached, tokens=len(made.ids))
        text = without_thoughts(self.tokenizer.decode(made.ids, skip_special_tokens=True))
        if not text:
            raise HelperFailed("the policy gave an empty reply")
        return text


@dataclass(frozen=True)
class RecordedHelper:
    """A helper whose replies and failures are kept in a cache file.

    Attributes:
        helper: is asked what is not recorded; never in a replay.
        cache: the file and its mode.
    """

    helper: Helper
    cache: Cache

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.helper.name

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
        """Reply from the file or from the helper; see `Helper.complete`.

        Raises:
            CacheMiss: it is a replay, and this was not recorded.
            HelperFailed: also where that was recorded.
        """
        request = {"messages": [dict(message) for message in messages], "seed": seed, "schema": schema}
        asked = Spent()

        async def ask() -> dict[str, Any]:
            reply = await self.helper.complete(messages, seed, schema, asked)
            return {"reply": reply, "spent": dict(asked)}

        try:
            found = await self.cache.through("chat", self.name, _VERSION, request, ask)
        except HelperFailed as error:
            found = {"failed": str(error), "spent": dict(asked)}
            await self.cache.note("chat", self.name, _VERSION, request, found)
        if spent is not None:
            spent.update(found.get("spent", {}))  # older recordings do not have it
        if "failed" in found:
            raise HelperFailed(found["failed"])
        return str(found["reply"])


@dataclass(frozen=True)
class CountedHelper:
    """A helper whose tokens are counted, whatever becomes of its replies.

    Attributes:
        helper: is asked.
        spent: what its requests have used.
    """

    helper: Helper
    spent: Spent = field(default_factory=Spent)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.helper.name

    async def complete(
        self, messages: Messages, seed: int, schema: Mapping[str, Any] | None = None, spent: Spent | None = None
    ) -> str:
        """Ask the helper; see `Helper.complete`."""
        return await self.helper.complete(messages, seed, schema, self.spent)


@dataclass(frozen=True)
class InferenceTools:
    """Tools at inference time, as an engine takes them.

    Attributes:
        settings: which, and how often.
        helper: the model that helps; None is the policy itself.
        cache: records and replays what the helper says.
    """

    settings: InferenceSettings
    helper: Helper | None = None
    cache: Cache | None = None

    def with_helper(self, policy: Helper) -> InferenceTools:
        """Return the tools with the helper that is asked: the policy where none was given, through the cache."""
        helper: Helper = self.helper or policy
        if self.cache is not None:
            helper = RecordedHelper(helper, self.cache)
        return replace(self, helper=helper)
