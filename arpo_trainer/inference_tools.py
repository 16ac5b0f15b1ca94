"""Tool-Star's tools at inference time: debugger, backtracer and refiner, their settings, and the model that helps.

`Helper.complete` asks the model that helps: a chat model at a server (`ChatHelper`), or the policy itself
(`PolicyHelper`). `RecordedHelper` records and replays either, failures included, so that a replay shows the policy what
it saw.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from arpo_env.cache import Cache, CacheError
from arpo_env.chat_model import ChatModel, without_thoughts
from arpo_env.errors import ServiceError
from arpo_env.text import cut_middle, fenced_prompt, plain_reply
from arpo_trainer.backends.base import Backend, Request
from arpo_trainer.validation import check_lowest, check_name, check_types

# The tools are those of Tool-Star (arXiv 2505.16410, sec. 2.1): each is used at most once in a sample there.

DEBUGGER, BACKTRACER, REFINER = TOOLS = ("debugger", "backtracer", "refiner")
PRICES = ("input", "output", "cached")
LONGEST_REPLY = 4096  # maximum number of tokens in a reply of the helping model
PUBLISHED_LENGTH = 8192  # tokens from which the published code refines a sequence


@dataclass(frozen=True)
class InferenceSettings:
    """What helps a policy while it is evaluated, how often in a sample, and by which model."""

    debugger: int = 0  # a model corrects failed code
    backtracer: int = 0  # a turn whose code failed is generated again
    refiner: int = 0  # a model shortens long thoughts
    model: str = ""  # the helping model at an OpenAI-compatible server; "" is the policy itself
    url: str | None = None  # of the server; None means OPENAI_BASE_URL
    refine_above: int = PUBLISHED_LENGTH  # tokens after the prompt from which thoughts are shortened
    price: dict[str, float] | None = None  # of that model, in US dollars for a million tokens, by `PRICES`

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        check_lowest(self, {**dict.fromkeys(TOOLS, 0), "refine_above": 1})
        if self.url and not self.model:
            raise ValueError(f"the address {self.url!r} of the helping model needs its name there: --with-model NAME")
        if self.price is not None and (set(self.price) != set(PRICES) or not self.model):
            raise ValueError(f"the price {self.price} must have {', '.join(PRICES)}, and a helping model: --with-model")

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in TOOLS)

    def left(self, tool: str, used: tuple[str, ...]) -> bool:
        """Return whether a tool may be used once more in a sample that has used these."""
        most: int = getattr(self, tool)
        return used.count(tool) < most

    def check(self, temperature: float) -> None:
        """Refuse a temperature of the policy at which these tools cannot work."""
        if self.backtracer and temperature == 0:
            raise ValueError(
                "the backtracer generates a turn again, and at temperature 0 it would be the same turn: set a "
                "temperature above 0, or leave the backtracer out"
            )

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> InferenceSettings:
        """Make the settings from their names and values; an unknown name is refused with the nearest one."""
        for name in data:
            check_name("inference_tools", name, [entry.name for entry in dataclasses.fields(cls)])
        return cls(**data)


def read_tools(text: str) -> dict[str, int]:
    """Return tool -> most uses in a sample, from "debugger,backtracer=2"; ValueError if it cannot be read."""
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, given, count = part.partition("=")
        check_name("a tool of --with", name.strip(), TOOLS)
        if name.strip() in found:
            raise ValueError(f"--with names {name.strip()!r} twice")
        if given and not (count.strip().isdecimal() and int(count) > 0):
            raise ValueError(f"--with {part}: write how often in a sample, such as {name.strip()}=2")
        found[name.strip()] = int(count) if given else 1
    return found


Messages = Sequence[Mapping[str, str]]
Schema = Mapping[str, Any]
Spent = Counter[str]  # tokens of requests: "context", "cached" (of the context) and "tokens" (of the replies)
_VERSION = 1  # of the record


class HelperFailed(Exception):
    """Raised when the helping model gave no reply, or none that can be used. The sample goes on without it."""


class Helper(Protocol):
    """A model that replies to messages."""

    @property
    def name(self) -> str:
        """The name of the model, for recordings."""

    async def complete(self, messages: Messages, seed: int, schema: Schema | None, spent: Spent) -> str:
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
    """A chat model at an OpenAI-compatible server."""

    chat: ChatModel

    @property
    def name(self) -> str:
        """The name of the model at its server."""
        return self.chat.model

    async def complete(self, messages: Messages, seed: int, schema: Schema | None, spent: Spent) -> str:
        """Ask the server; see `Helper.complete`."""
        try:
            return await self.chat.complete(messages, max_tokens=LONGEST_REPLY, json_schema=schema, spent=spent)
        except ServiceError as error:
            raise HelperFailed(str(error)) from error


@dataclass(frozen=True)
class PolicyHelper:
    """The policy as its own helper: it is asked in a conversation of its own, greedily."""

    backend: Backend
    tokenizer: Any
    render: Callable[[Messages], list[int]]  # prompt ids of messages
    max_tokens: int = LONGEST_REPLY  # of a reply
    name: str = "policy"

    async def complete(self, messages: Messages, seed: int, schema: Schema | None, spent: Spent) -> str:
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
        spent.update(context=len(ids), cached=made.cached, tokens=len(made.ids))
        text = without_thoughts(self.tokenizer.decode(made.ids, skip_special_tokens=True))
        if not text:
            raise HelperFailed("the policy gave an empty reply")
        return text


@dataclass(frozen=True)
class RecordedHelper:
    """A helper whose replies and failures are kept in a cache file; in a replay it is never asked."""

    helper: Helper
    cache: Cache

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.helper.name

    async def complete(self, messages: Messages, seed: int, schema: Schema | None, spent: Spent) -> str:
        """Reply from the file or from the helper; a failure that was recorded is raised again."""
        request = {"messages": [dict(message) for message in messages], "seed": seed, "schema": schema}
        asked = Spent()

        async def ask() -> dict[str, Any]:
            try:
                return {"reply": await self.helper.complete(messages, seed, schema, asked), "spent": dict(asked)}
            except HelperFailed as error:
                return {"failed": str(error), "spent": dict(asked)}

        # a failure is only for replays
        found = await self.cache.through(
            "chat", self.name, _VERSION, request, ask, lifetime=lambda found: 0.0 if "failed" in found else None
        )
        spent.update(found["spent"])
        if "failed" in found:
            raise HelperFailed(found["failed"])
        return str(found["reply"])


@dataclass(frozen=True)
class InferenceTools:
    """Tools at inference time, as an engine takes them."""

    settings: InferenceSettings
    helper: Helper | None = None  # None is the policy itself
    cache: Cache | None = None  # records and replays what the helper says

    def with_helper(self, policy: Helper) -> InferenceTools:
        """Return the tools with the helper that is asked: the policy where none was given, through the cache."""
        helper: Helper = self.helper or policy
        if self.cache is not None:
            helper = RecordedHelper(helper, self.cache)
        return replace(self, helper=helper)


# The chain refiner: asks a model to shorten the thoughts of an over-long chain.
#
# Only what stands between `<think>` and `</think>` is rewritten. Calls, answers, tags and results are not: the
# published code had a model rewrite prompt and response as one text, and lost the chat template.

_THOUGHT = re.compile(r"(?<=<think>)(?:(?!</?think>).)*(?=</think>)", re.DOTALL)
_CONTEXT = 1000  # characters of a turn's call and result that the model is shown
_SCHEMA = {
    "type": "object",
    "properties": {
        "thoughts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
                "required": ["number", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["thoughts"],
    "additionalProperties": False,
}
_SHORTEN = (
    "Someone works on the question below in steps: thoughts, then a call of a tool, then its result. The thoughts have "
    "become too long. Shorten each of them to what the following steps and the answer need: keep facts, numbers, "
    "names, decisions and open questions; drop repetitions, detours and doubts that were settled. Do not add anything, "
    "and do not answer."
)
_STEPS = 'The steps, as JSON. "then" is shown for context only'
_SHORTENED = 'Reply with JSON alone: {"thoughts": [{"number": 1, "text": "the shortened thought"}, ...]}'


async def shortened_turns(
    helper: Helper, question: str, turns: Sequence[tuple[str, str]], seed: int, spent: Spent
) -> list[str]:
    """Return turns (text, result) with shorter thoughts; what the model left out, or did not shorten, is as it was.

    Raises:
        HelperFailed: there is no thought, no reply, or none of its thoughts is shorter.
    """
    steps = list(_steps(turns))
    if not any(step["thought"].strip() for step in steps):
        raise HelperFailed("there are no thoughts to shorten")
    quoted = json.dumps(steps, ensure_ascii=False, indent=1)
    prompt = fenced_prompt(_SHORTEN, {"The question": question, _STEPS: quoted}, _SHORTENED)
    reply = await helper.complete([{"role": "user", "content": prompt}], seed, _SCHEMA, spent)
    return with_thoughts([text for text, _ in turns], read_thoughts(reply))


def read_thoughts(reply: str) -> dict[int, str]:
    """Return number -> thought of a reply; HelperFailed if it has no such JSON."""
    try:
        data = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
        return {int(entry["number"]): entry["text"] for entry in data["thoughts"] if isinstance(entry["text"], str)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HelperFailed(f"the reply is not the JSON that was asked for ({error!r}): {reply[:80]!r}") from error


def with_thoughts(texts: Sequence[str], thoughts: Mapping[int, str]) -> list[str]:
    """Return texts with their thoughts, counted from 1 over all of them, replaced by the shorter ones in `thoughts`."""
    number = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        new = thoughts.get(number, "").strip()
        # a tag in a thought could end it, or open a call
        usable = 0 < len(new) < len(match[0].strip()) and "<" not in new
        return new if usable else match[0]

    found = [_THOUGHT.sub(replaced, text) for text in texts]
    if found == list(texts):
        raise HelperFailed("no thought became shorter")
    return found


def _steps(turns: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    number = 0
    for text, result in turns:
        matches = list(_THOUGHT.finditer(text))
        for match in matches:
            number += 1
            after = text[match.end() :].removeprefix("</think>") + result if match is matches[-1] else ""
            yield {"number": number, "thought": match[0], "then": cut_middle(after, _CONTEXT)}


# The code debugger: asks a model to correct code that failed. What is done with the code is decided in
# `rollout.turn_tools`: it runs in the session as it was before the failed code.

LONGEST_CODE = 20_000  # characters of a correction
_CORRECT = (
    "The Python code below failed in an interactive session. Correct it, so that it does what it was meant to do.\n\n"
    "It will run in the session as it was before the failed code: variables of earlier cells exist, those that the "
    "failed code set do not. The value of a last expression is shown, as is what is printed. Do not change what is "
    "computed beyond the correction."
)
_CORRECTED = "Reply with the corrected code alone, in one block that begins with ```python and ends with ```."
_BLOCK = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)


async def corrected_code(helper: Helper, code: str, error: str, seed: int, spent: Spent) -> str:
    """Return code that may replace `code`, which failed with `error` as the policy would have been shown it.

    Raises:
        HelperFailed: there is no reply, or it is not Python, too long, or the code that failed.
    """
    prompt = fenced_prompt(_CORRECT, {"The code": code, "The error": error}, _CORRECTED)
    return read_code(await helper.complete([{"role": "user", "content": prompt}], seed, None, spent), code)


def read_code(reply: str, failed: str) -> str:
    """Return the code of a reply: its last block that is Python, else the whole reply."""
    if len(reply) > LONGEST_CODE:
        raise HelperFailed(f"the reply has {len(reply)} characters, more than {LONGEST_CODE}")
    reply = plain_reply(reply)
    blocks: list[str] = _BLOCK.findall(reply) or [reply]
    found = next((block for block in reversed(blocks) if _is_python(block)), None)
    if found is None:
        raise HelperFailed(f"the reply is not Python: {reply[:80]!r}")
    if found.strip() == failed.strip():
        raise HelperFailed("the reply is the code that failed")
    return found.strip("\n")


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of an escape that is not one
            return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def open_inference_tools(settings: InferenceSettings, cache: Cache | None = None) -> InferenceTools | None:
    """Return the tools with their helping model, through a cache if there is one; None where all are off."""
    if not settings:
        return None
    helper = ChatHelper(ChatModel(settings.model, base_url=settings.url)) if settings.model else None
    return InferenceTools(settings, helper, cache)
