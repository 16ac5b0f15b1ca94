"""An MCP server of any environment's tools, over standard input and output or over HTTP.

    serve_stdio(HostedEpisodes(factory))            # one client, one episode:  arpo serve mcp ENV
    app = make_app(HostedEpisodes(factory), token)  # many clients:             arpo serve mcp ENV --http

Over HTTP, `start_episode` at the URL /mcp returns a handle. The tools can then be called in two ways: at /mcp with the
argument `episode`, or at /mcp/HANDLE, where they look as in the environment; that URL is for the policy. Over
standard input and output there is one episode at a time, and no handle.

A failure of the infrastructure is a JSON-RPC error, which clients raise; it is never the result of a tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium.error import ResetNeeded

from arpo_env.adapters import load_peer
from arpo_env.adapters.chat_episode import ANSWER, ChatEpisode, check_one_conversation
from arpo_env.adapters.hosted_episodes import EpisodeVoid, ServedEpisode, TokenGuard
from arpo_env.env import check_reset_options
from arpo_env.errors import ServiceError
from arpo_env.protocols.protocol import UnreadableCall, checked_call
from arpo_env.registration import EnvFactory
from arpo_env.tools.tool import (
    INFRASTRUCTURE_ERRORS,
    JsonSchema,
    call_tool,
    function_schema,
    usable_schemas,
    usable_tools,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PATH = "/mcp"
_HERE = "stdio"  # the handle of the one episode over standard input and output
_EPISODE = {"type": "string", "description": "the handle that start_episode returned"}


def start_episode(index: int | None = None, seed: int | None = None) -> None:
    """Start an episode; without index and seed, one that has the tools alone.

    Args:
        index: number of the task.
        seed: chooses a task, if there is no number.
    """


def episode_reward() -> None:
    """Return whether the episode has ended, and its reward."""


def end_episode() -> None:
    """Close the episode; call it when the episode is not needed any more."""


START, REWARD, END = (function_schema(each) for each in (start_episode, episode_reward, end_episode))


class ToolReply(NamedTuple):
    """What a tool returns: its text, whether the call was wrong, and the same as data where there is some."""

    text: str
    is_error: bool = False
    data: dict[str, Any] | None = None


class HostedEpisodes:
    """The running episodes of a server, each under a handle, and what is offered at a place of it.

    A place is the handle of an episode, or "", where calls name it. Besides the tools of the environment there are
    `start_episode`, `answer`, `end_episode` and, if the operator allows it, `episode_reward`. An episode without a task
    has the tools alone: no limits and no reward.

    Args:
        factory: the environment.
        max_episodes: maximum number of episodes at the same time.
        idle_seconds: after this time without a call an episode is closed and forgotten.
        show_reward: whether clients may read rewards.

    Raises:
        ValueError: the environment has a tool under a name that the server needs, or its reward reads tags.
    """

    def __init__(
        self, factory: EnvFactory, max_episodes: int = 64, idle_seconds: float = 600.0, show_reward: bool = False
    ) -> None:
        self.id = factory.id
        self._max_episodes, self._idle_seconds, self._show_reward = max_episodes, idle_seconds, show_reward
        env = factory()
        # structured calls, whatever format the environment's own policy writes
        self._root = env if env.protocol.native else env.with_protocol("hermes")
        check_one_conversation(self._root)
        self._schemas: list[JsonSchema] = self._root.schemas
        taken = {each["function"]["name"] for each in (START, ANSWER, REWARD, END)} & {*env.tools}
        if taken:
            raise ValueError(f"the server has a tool {', '.join(taken)} of its own; rename that of the environment")
        self._episodes: dict[str, ServedEpisode] = {}

    @property
    def _running(self) -> dict[str, ServedEpisode]:
        for handle in [handle for handle, served in self._episodes.items() if not served.open]:
            del self._episodes[handle]
        return self._episodes

    def __len__(self) -> int:
        return len(self._running)

    def has(self, handle: str) -> bool:
        """Return whether an episode runs under this handle."""
        return handle in self._running

    def schemas(self, place: str) -> list[JsonSchema]:
        """Return the tools of a place."""
        reward = [REWARD] if self._show_reward else []
        if place == _HERE:
            return [*self._schemas, START, ANSWER, *reward]
        if place:
            served = self._running.get(place)
            return [*self._schemas, ANSWER] if served and served.has_task else self._schemas
        return [START, *(_with_handle(each) for each in (*self._schemas, ANSWER, *reward, END))]

    async def call(self, place: str, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Call one of the tools of a place.

        Raises:
            EpisodeVoid: the environment failed, or the episode was closed meanwhile.
        """
        given, open_place = dict(arguments), place in ("", _HERE)
        if name == "start_episode" and open_place:
            if given.keys() - {"index", "seed"} or any(type(each) not in (int, type(None)) for each in given.values()):
                return ToolReply("start_episode takes index and seed, which are whole numbers", True)
            return await self._start(place, **given)
        handle = place or given.pop("episode", "")
        if not isinstance(handle, str) or not handle:
            return ToolReply("name the episode: the argument `episode` is the handle that start_episode returns", True)
        if place == _HERE and not self.has(handle):  # over HTTP it would be a handle that all know
            await self._start(_HERE)
        if not self.has(handle):
            why = f"it was ended, or closed after {self._idle_seconds:g} s without a call"
            return ToolReply(f"there is no episode {handle[:64]!r} ({why}); start another", True)
        if name == "end_episode" and not place:
            return await self._end(handle)
        served = self._running[handle]
        if name == "episode_reward" and self._show_reward and open_place:
            return await served.use(_reward)
        if name == "answer" and not served.has_task:
            return ToolReply("this episode has no task to answer: it was started without index and seed", True)
        call = _answer if name == "answer" else _call_in_task if served.has_task else _call_alone
        try:
            return await served.use(lambda episode: call(episode, name, given))
        except ResetNeeded:
            return ToolReply("the episode has ended; start another one", True)

    async def close(self) -> None:
        """Close all episodes."""
        for handle in list(self._episodes):
            await self._end(handle)

    async def _start(self, handle: str, index: int | None = None, seed: int | None = None) -> ToolReply:
        """Start an episode under this handle, or a new one that cannot be guessed, and return its first messages."""
        if seed is not None and seed < 0:
            return ToolReply(f"the seed has to be 0 or more, not {seed}", True)
        if len(self._running) >= self._max_episodes and handle not in self._running:
            return ToolReply(f"{self._max_episodes} episodes are running, which is the most: end one, or wait", True)
        try:
            check_reset_options({"index": index}, self._root.tasks)
        except ValueError as error:
            return ToolReply(str(error), True)
        await self._end(handle)
        served = ServedEpisode(self._root.spawn(), self._idle_seconds, has_task=index is not None or seed is not None)
        handle = handle or secrets.token_urlsafe(16)
        self._episodes[handle] = served  # at once, so that the number of episodes is right
        try:
            messages = await served.start(index=index, seed=seed)
        except BaseException:
            await self._end(handle)
            raise
        data = {"episode": handle, "messages": messages}
        return ToolReply(json.dumps(data, ensure_ascii=False), data=data)

    async def _end(self, handle: str) -> ToolReply:
        if (served := self._episodes.pop(handle, None)) is not None:
            await served.close()
        return ToolReply("The episode was closed.")


def _with_handle(schema: JsonSchema) -> JsonSchema:
    function = schema["function"]
    parameters = dict(function["parameters"])
    parameters["properties"] = {"episode": _EPISODE, **parameters.get("properties", {})}
    parameters["required"] = ["episode", *parameters.get("required", [])]
    return {**schema, "function": {**function, "parameters": parameters}}


async def _answer(episode: ChatEpisode, name: str, arguments: Mapping[str, Any]) -> ToolReply:
    return ToolReply(await episode.answer(arguments), not episode.done)


async def _call_in_task(episode: ChatEpisode, name: str, arguments: Mapping[str, Any]) -> ToolReply:
    text = await episode.call(name, arguments)
    calls = episode.env.episode.turns[-1].calls
    return ToolReply(text, not calls or calls[-1].status != "ok")


async def _call_alone(episode: ChatEpisode, name: str, arguments: Mapping[str, Any]) -> ToolReply:
    env = episode.env
    try:
        call = checked_call(name, dict(arguments), usable_schemas(env.tools))
    except UnreadableCall as error:
        return ToolReply(f"Error: {error}.", True)
    try:
        result = await call_tool(usable_tools(env.tools)[call.name], call.arguments, env._toolbox.timeout)
    except INFRASTRUCTURE_ERRORS:
        raise
    except Exception as error:  # a tool whose failures void the sample
        raise ServiceError(name, f"{type(error).__name__}: {error}") from error
    return ToolReply(result.text, result.status != "ok")


async def _reward(episode: ChatEpisode) -> ToolReply:
    data = {"done": episode.done, "reward": episode.reward}
    return ToolReply(json.dumps(data), data=data)


def make_server(episodes: HostedEpisodes, handle: str = "") -> Any:
    """Return an `mcp.server.lowlevel.Server`; all requests are for the episode `handle`, or "" for that of their path.

    Raises:
        ModuleNotFoundError: the MCP SDK is not installed.
    """
    sdk, lowlevel, types = load_peer("mcp"), load_peer("mcp.server.lowlevel"), load_peer("mcp.types")

    def place(context: Any) -> str:
        return handle or str(context.request.path_params.get("episode", ""))

    async def list_tools(context: Any, _: Any) -> Any:
        functions = [schema["function"] for schema in episodes.schemas(place(context))]
        tools = [
            types.Tool(name=each["name"], description=each["description"], input_schema=each["parameters"])
            for each in functions
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, asked: Any) -> Any:
        try:
            reply = await episodes.call(place(context), asked.name, asked.arguments or {})
        except EpisodeVoid as error:
            raise sdk.MCPError(code=types.INTERNAL_ERROR, message=str(error)) from error
        content = [types.TextContent(type="text", text=reply.text)]
        return types.CallToolResult(content=content, structured_content=reply.data, is_error=reply.is_error)

    return lowlevel.Server(f"arpo-gym: {episodes.id}", on_list_tools=list_tools, on_call_tool=call_tool)


def make_app(episodes: HostedEpisodes, token: str = "") -> TokenGuard:
    """Return the server over HTTP as an ASGI application, which closes the episodes when it ends.

    Requests have to send the token; see `TokenGuard`.
    """
    server = make_server(episodes)
    http = load_peer("mcp.server.streamable_http_manager")
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    manager = http.StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    answer = http.StreamableHTTPASGIApp(manager)

    class EpisodePlace:
        """The URL of one episode."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if episodes.has(scope["path_params"]["episode"]):
                await answer(scope, receive, send)
            else:
                why = "there is no such episode: it was ended, or idle for too long; start another"
                await JSONResponse({"detail": why}, 404)(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            async with manager.run():
                yield
        finally:
            await episodes.close()

    async def health(_: Any) -> Any:
        return JSONResponse({"status": "ok", "episodes": len(episodes)})

    routes = [Route(PATH, answer), Route(f"{PATH}/{{episode}}", EpisodePlace()), Route("/health", health)]
    return TokenGuard(Starlette(routes=routes, lifespan=lifespan), token)


def serve_stdio(episodes: HostedEpisodes) -> None:
    """Serve one client over standard input and output, until it leaves."""
    server = make_server(episodes, _HERE)
    stdio = load_peer("mcp.server.stdio")

    async def serve() -> None:
        try:
            async with stdio.stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
        finally:
            await episodes.close()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
