"""`play`: episodes of an environment against any OpenAI-compatible chat endpoint, each with its reward.

    played = arpo_env.play("arpo/Arithmetic-v0", 20, base_url="http://127.0.0.1:8000/v1", model="my-model")
    print([each.reward for each in played])

Frameworks that own the endpoint (rLLM, ART, Agent Lightning, AReaL, slime) call `aplay` as their agent:
examples/frameworks. Tools are called as the environment's protocol says: natively ("native", "hermes", "llama3":
`tools` in the request, `tool_calls` in the reply) or by tags in the text ("arpo-tags": stop strings in the request).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, overload

import gymnasium

from arpo_env.adapters.chat_episode import ChatEpisode, check_one_conversation
from arpo_env.chat_messages import (
    THOUGHTS,
    TOOL_CURE,
    TOOL_REFUSALS,
    Message,
    reply_message,
    turn_messages,
    turn_text,
    unparsed_call,
)
from arpo_env.chat_model import ContextFull, ModelServer
from arpo_env.env import ToolEnv, check_reset_options
from arpo_env.errors import ServiceError
from arpo_env.event_loop import run
from arpo_env.net import Reply
from arpo_env.protocols.protocol import Protocol
from arpo_env.registration import EnvFactory, without_checks
from envs_registry import Task

# the server ended the reply itself (vLLM, SGLang, OpenRouter, DeepSeek), not the policy
_BROKEN_OFF = ("abort", "aborted", "error", "insufficient_system_resource")
_MOST_STOPS = 4  # OpenAI accepts no more; the text is cut at the others here
_MOST_BYTES = 64_000_000  # token ids and log-probabilities of a long context are long
_SHOWN = 200  # characters of a text in an error


class ToolsNotServed(ServiceError):
    """Raised when an endpoint refuses tools, or returns their calls as text: it has to be started differently."""


# Address and model of the endpoints that have parsed a call: what their models write otherwise is their own fault.
_parsing: set[tuple[str, str]] = set()


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


class ChatEndpoint(ModelServer):
    """A policy behind an endpoint. May be shared by many episodes, threads and event loops.

    What the model wrote, however bad, is a turn. An answer that is none (no choices, tool calls that are no list, a
    reply that the server broke off, a status of 500) is a `ServiceError`.

    The arguments are those of `aplay`; `connections` is the maximum number of requests under way at once.

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
        limits = {"timeout": timeout, "max_bytes": _MOST_BYTES, "retries": retries, "connections": connections}
        super().__init__("endpoint of", model, base_url, api_key, **limits)
        if self.lacking_key:
            raise ValueError(self.lacking_key)
        self._fields = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._fields |= {"logprobs": True, "return_token_ids": True} if token_ids else {}
        self._extra = dict(extra or {})
        self._thoughts = ""  # the field of a message in which the endpoint returns them

    async def turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] = (),
        stop: Sequence[str] = (),
        protocol: Protocol | None = None,
        **fields: Any,
    ) -> ChatTurn:
        """Return the next turn of a conversation.

        Args:
            messages: the conversation so far.
            tools: schemas of the tools; empty if there are none, or they are called by tags.
            stop: strings that end the turn; the text is cut after the first one, also if the endpoint ignores them.
                One that the endpoint cut off and names (vLLM) is put back.
            protocol: what reads calls that the endpoint leaves in the text; None if nobody looks for any.
            fields: more fields of this request.

        Raises:
            ContextFull: the request does not fit into the model's context.
            ToolsNotServed: the endpoint refuses tools; or it has parsed no call so far, and the text has one that the
                protocol does not read.
            ServiceError: there is no usable reply.
        """
        # the last message of all may be one that the model goes on with
        sent = [*map(self._thoughts_apart, messages[:-1]), *messages[-1:]]
        body = {"messages": sent, "tools": list(tools) or None, "stop": list(stop[:_MOST_STOPS]) or None}
        body |= self._fields | fields | self._extra
        body = {name: value for name, value in body.items() if value is not None}
        try:
            reply = await self.post("/chat/completions", body)
        except ServiceError as error:
            if tools and error.status and any(words in error.message.lower() for words in TOOL_REFUSALS):
                raise ToolsNotServed(error.service, f"{error.message}. {TOOL_CURE}", error.status) from error
            raise
        try:
            turn = _turn(reply.json(), stop)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise _unusable(reply, error) from error
        self._thoughts = next((name for name in THOUGHTS if turn.message.get(name)), self._thoughts)
        if tools and protocol is not None:
            self._check_parsed(turn, tools, protocol)
        return turn

    def _thoughts_apart(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message with the thoughts where the endpoint had them; templates differ in how they write them."""
        text = message["content"]
        if self._thoughts and message["role"] == "assistant" and isinstance(text, str):
            thought, closed, rest = text.removeprefix("<think>").partition("</think>")
            if closed and text.startswith("<think>"):
                return {**message, self._thoughts: thought, "content": rest}
        return message

    def _check_parsed(self, turn: ChatTurn, tools: Sequence[Any], protocol: Protocol) -> None:
        server = self.base_url, self.model
        if turn.message.get("tool_calls"):
            _parsing.add(server)
        if turn.finish_reason == "length" or server in _parsing:
            return
        text = turn_text(turn.message, protocol)
        if parser := unparsed_call(text, tools, protocol):
            shown = json.dumps(text[-_SHOWN:], ensure_ascii=False)
            cure = TOOL_CURE.replace("NAME", parser)
            raise ToolsNotServed(self._http.service, f"left a call in the text, and has parsed none: {shown}. {cure}")


def _turn(answer: Any, stop: Sequence[str]) -> ChatTurn:
    choice = answer["choices"][0]
    if choice.get("finish_reason") in _BROKEN_OFF:
        raise ValueError(f"the server broke the reply off, finish_reason {choice['finish_reason']!r}")
    message = reply_message(choice["message"])
    message["content"], stopped = _up_to_stop(message["content"], choice.get("stop_reason"), stop)
    usage = answer.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}  # "cached_tokens"
    logprobs = [entry["logprob"] for entry in (choice.get("logprobs") or {}).get("content") or ()]
    return ChatTurn(
        message,
        "stop" if stopped else str(choice.get("finish_reason") or ""),
        _numbers(answer.get("prompt_token_ids")),
        _numbers(choice.get("token_ids")),
        _numbers(logprobs),
        {name: count for name, count in {**usage, **details}.items() if isinstance(count, int)},
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


Tasks = int | Iterable[int | Task]
Playable = ToolEnv | EnvFactory | str | gymnasium.Env[str, str]
_log = logging.getLogger(__name__)
# vLLM and SGLang: the reply goes on with the last message
_IN_PLACE = {"continue_final_message": True, "add_generation_prompt": False}
_OPENING = {"task", "messages", "stop", "tools"}  # infos of a start


@dataclass
class PlayedEpisode:
    """One episode that was played.

    Attributes:
        task: its task; None if it could not be started.
        reward: its reward; None if the infrastructure failed, so that there is none. Never 0 for that.
        error: what failed: sandbox, search, grader or endpoint; None if nothing did.
        messages: the conversation, the last reply included; after a fold that which goes on from the memories.
        folded: the conversations before each fold.
        turns: the replies of the endpoint, one by one, with finish reasons, token ids and log-probabilities.
        outcome: "answered", "no answer", "truncated", or "failed".
        truncated: whether it was ended by a limit: of the environment, of `max_tokens`, or of the model's context.
        info: the last info of the environment ("answer", "reward_components", "tool_calls", ...).
    """

    task: Task | None = None
    reward: float | None = None
    error: Exception | None = None
    messages: list[Message] = field(default_factory=list)
    folded: list[list[Message]] = field(default_factory=list)
    turns: list[ChatTurn] = field(default_factory=list)
    outcome: str = "failed"
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def usage(self) -> dict[str, int]:
        """Numbers of tokens, summed over the turns."""
        total: Counter[str] = Counter()
        for turn in self.turns:
            total.update(turn.usage)
        return dict(total)


@overload
async def aplay(env: Playable, tasks: Task | None = None, *, model: str, **options: Any) -> PlayedEpisode: ...
@overload
async def aplay(env: Playable, tasks: Tasks, *, model: str, **options: Any) -> list[PlayedEpisode]: ...
async def aplay(  # type: ignore[misc]  # the options are not repeated above
    env: Playable,
    tasks: Task | Tasks | None = None,
    *,
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    temperature: float | None = 1.0,
    max_tokens: int | None = None,
    token_ids: bool = False,
    extra: Mapping[str, Any] | None = None,
    in_place: bool = False,
    seed: int | None = None,
    concurrency: int = 16,
    timeout: float = 600.0,
    retries: int = 3,
    raise_faults: bool = False,
) -> PlayedEpisode | list[PlayedEpisode]:
    """Play one episode or several against an endpoint; `play` is the same for callers that are not asynchronous.

    A failure of the sandbox, search, grader or endpoint gives a reward of None and the error; the other episodes go on.
    What the policy can help ends its episode with the environment's reward for it: no text at all is no answer; a reply
    that `max_tokens` cut off, or a context that is full after the first turn, is a truncation. A question that does not
    even fit into the context is a failure.

    Args:
        env: the environment, its factory, or its id. An environment is not changed: each episode plays in a new one.
        tasks: None for one task of the environment's choice, a task, the number of first tasks to play, or a sequence
            of tasks and of their indices.
        model: name of the model at the endpoint.
        base_url: usually ends in "/v1"; defaults to OPENAI_BASE_URL, else OpenAI's.
        api_key: defaults to OPENAI_API_KEY; a server of your own may need none.
        temperature: None uses the endpoint's default.
        max_tokens: most tokens of one turn; None uses the endpoint's default.
        token_ids: ask for token ids and log-probabilities (vLLM; others may ignore or refuse it).
        extra: more fields of each request, such as {"top_p": 0.9}; fields that are None are left out.
        in_place: for tags only: results are appended to the assistant's message, which the endpoint then continues
            (vLLM, SGLang). Models that were trained by ARPO saw results this way. By default a result is a message of
            the user.
        seed: seed of the environment's choice if `tasks` is None.
        concurrency: most episodes at once.
        timeout: seconds for one try of a request.
        retries: further tries of a request after 429, 5xx, or a broken connection.
        raise_faults: raise the first failure instead of returning it.

    Returns:
        One `PlayedEpisode` if `tasks` is None or a task, else a list in the order of the tasks.

    Raises:
        ValueError: an option does not fit, or a task does not exist.
        Exception: the environment lacks what it needs (`ToolEnv.check`), or `raise_faults` is set and something failed.
    """
    root = _environment(env)
    if in_place and root.protocol.native:
        raise ValueError(f"in_place=True is for tags; protocol {root.protocol.name!r} has messages for results")
    if in_place:
        check_one_conversation(root)
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, got {concurrency}")
    root.check()
    single = tasks is None or isinstance(tasks, Task)
    chosen = [tasks] if tasks is None or isinstance(tasks, Task) else _tasks(root, tasks)
    requests = {"temperature": temperature, "max_tokens": max_tokens, "token_ids": token_ids, "extra": extra}
    limits = {"timeout": timeout, "retries": retries, "connections": concurrency}
    endpoint = ChatEndpoint(model, base_url, api_key, **requests, **limits)  # type: ignore[arg-type]
    slots = asyncio.Semaphore(concurrency)

    async def one(task: Task | None) -> PlayedEpisode:
        async with slots:
            played = await _Player(endpoint, ChatEpisode(root.spawn(), folds=True), in_place).play(task, seed)
        if raise_faults and played.error is not None:
            raise played.error
        return played

    try:
        async with asyncio.TaskGroup() as group:  # ends the other episodes if one raises
            running = [group.create_task(one(task)) for task in chosen]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        endpoint.close()
    played = [each.result() for each in running]
    _report(played)
    return played[0] if single else played


@overload
def play(env: Playable, tasks: Task | None = None, *, model: str, **options: Any) -> PlayedEpisode: ...
@overload
def play(env: Playable, tasks: Tasks, *, model: str, **options: Any) -> list[PlayedEpisode]: ...
def play(env: Playable, tasks: Any = None, *, model: str, **options: Any) -> PlayedEpisode | list[PlayedEpisode]:
    """Play one episode or several against an OpenAI-compatible endpoint; `aplay` describes the options."""
    played: PlayedEpisode | list[PlayedEpisode] = run(aplay(env, tasks, model=model, **options))
    return played


class _Player:
    """Plays one episode."""

    def __init__(self, endpoint: ChatEndpoint, episode: ChatEpisode, in_place: bool) -> None:
        self.endpoint, self.episode, self.in_place = endpoint, episode, in_place
        self.played = PlayedEpisode()

    async def play(self, task: Task | None, seed: int | None) -> PlayedEpisode:
        played, episode = self.played, self.episode
        try:
            played.messages = await episode.start(task=task, seed=seed)
            played.task = episode.env.episode.task
            while not episode.done:
                await self._turn()
            played.reward, played.outcome = episode.reward, episode.info["outcome"]
            played.truncated = episode.truncated
        except Exception as error:  # tools and graders of the user raise what they like; none of it is a reward
            played.error = error
        finally:
            await self._close()
        played.info = {name: value for name, value in episode.info.items() if name not in _OPENING}
        return played

    async def _close(self) -> None:
        try:
            await self.episode.close()
        except Exception as error:  # the reward is known by now, and the other episodes go on
            _log.warning("an episode could not be closed: %r", error)

    async def _turn(self) -> None:
        played, episode = self.played, self.episode
        fields = _IN_PLACE if self.in_place and played.turns else {}
        try:
            protocol = episode.env.protocol
            turn = await self.endpoint.turn(played.messages, episode.tools, episode.stop, protocol, **fields)
        except ContextFull:
            if not played.turns:  # the policy has not written anything yet, so this is not its fault
                raise
            return await episode.truncate()
        played.turns.append(turn)
        message = _with_ids(turn.message, len(played.turns))
        played.messages.append(message)
        if turn.finish_reason == "length":  # half a turn is not executed, and half an answer is not graded
            await episode.truncate(message["content"])
        else:
            answer = await self._reply(message)
            played.messages += answer
            if episode.info.get("folded"):
                played.folded.append(played.messages)
                played.messages = [dict(each) for each in episode.env.context()]
        if self.in_place:
            played.messages[2:] = [{"role": "assistant", "content": episode.env.episode.transcript}]

    async def _reply(self, message: Message) -> list[Message]:
        answer = await self.episode.reply(message)
        if not (message.get("tool_calls") and self.episode.env.protocol.native):
            return answer
        turn = self.episode.env.episode.turns[-1]
        said, *told = turn_messages(turn, [call["id"] for call in message["tool_calls"]], self.episode.env.protocol)
        # its own message, with arguments that are JSON; or its text, if they cannot be read
        self.played.messages[-1] = message | {"tool_calls": said["tool_calls"]} if "tool_calls" in said else said
        return told if answer else []


def _environment(env: Playable) -> ToolEnv:
    made = EnvFactory(env)() if isinstance(env, str | EnvFactory) else env
    if not isinstance(getattr(made, "unwrapped", None), ToolEnv):
        raise TypeError(f"play takes a ToolEnv, an EnvFactory or an id, not {type(env).__name__}")
    return cast(ToolEnv, without_checks(made))


def _tasks(env: ToolEnv, tasks: Tasks) -> list[Task]:
    """Return the tasks, all of which exist."""
    if isinstance(tasks, int) and tasks < 0:
        raise ValueError(f"play the first tasks, at least 0 of them, or a list of their numbers; got {tasks}")
    given = range(tasks) if isinstance(tasks, int) else list(tasks)
    for each in given:
        check_reset_options({"task" if isinstance(each, Task) else "index": each}, env.tasks)
    return [each if isinstance(each, Task) else env.tasks.task(int(each)) for each in given]


def _with_ids(message: Message, turn: int) -> Message:
    """Return the message with what servers want to get back: an id of its own for each call, and arguments as text."""
    calls: list[Message] = []
    used = set()
    for place, call in enumerate(message.get("tool_calls", ())):
        given = call["function"].get("arguments")
        function = {**call["function"], "arguments": given if isinstance(given, str) else json.dumps(given)}
        given_id = call.get("id")
        fits = isinstance(given_id, str) and given_id and given_id not in used
        used.add(identity := given_id if fits else f"call_{turn}_{place}")
        calls.append({"id": identity, "type": "function", "function": function})
    return {**message, "tool_calls": calls} if calls else message


def _report(played: list[PlayedEpisode]) -> None:
    failed = [each.error for each in played if each.error is not None]
    if failed:
        _log.warning("%d of %d episodes have no reward; the first failed with: %s", len(failed), len(played), failed[0])
