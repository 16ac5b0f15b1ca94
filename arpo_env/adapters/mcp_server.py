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
from collections.abc import AsyncIterator
from typing import Any

from arpo_env.adapters import load_peer
from arpo_env.adapters.hosted_episodes import (
    ANSWER,
    END,
    REWARD,
    START,
    EpisodeVoid,
    HostedEpisodes,
    Receive,
    Scope,
    Send,
    TokenGuard,
    ToolReply,
)
from arpo_env.tools.tool import JsonSchema

PATH = "/mcp"
_HERE = "stdio"  # the handle of the one episode over standard input and output
_EPISODE = {"type": "string", "description": "the handle that start_episode returned"}


class EpisodeTools:
    """What one place of the server offers: its tools, in the episode `handle`, which is "" where calls name it."""

    def __init__(self, episodes: HostedEpisodes, handle: str) -> None:
        self._episodes, self._handle = episodes, handle

    def schemas(self) -> list[JsonSchema]:
        """Return the tools."""
        tools, reward = self._episodes.schemas, [REWARD] if self._episodes.show_reward else []
        if self._handle == _HERE:
            return [*tools, START, ANSWER, *reward]
        if self._handle:
            return [*tools, ANSWER] if self._episodes.has_task(self._handle) else list(tools)
        return [START, *(_with_handle(each) for each in (*tools, ANSWER, *reward, END))]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """Call one of the tools.

        Raises:
            EpisodeVoid: the infrastructure failed.
        """
        arguments = dict(arguments)
        if name == "start_episode" and self._handle in ("", _HERE):
            return await self._start(arguments)
        handle = self._handle or arguments.pop("episode", "")
        if not isinstance(handle, str) or not handle:
            return ToolReply("name the episode: the argument `episode` is the handle that start_episode returns", True)
        if name == "end_episode" and not self._handle:
            return await self._episodes.end(handle)
        if name == "episode_reward" and self._handle not in ("", _HERE):
            return ToolReply("the reward is not shown here", True)
        if self._handle == _HERE and not self._episodes.has(handle):  # over HTTP it would be a handle that all know
            await self._episodes.start(handle=_HERE)
        return await self._episodes.call(handle, name, arguments)

    async def _start(self, arguments: dict[str, Any]) -> ToolReply:
        unknown = arguments.keys() - {"index", "seed"}
        if unknown or any(type(value) not in (int, type(None)) for value in arguments.values()):
            return ToolReply("start_episode takes index and seed, which are whole numbers", True)
        return await self._episodes.start(**arguments, handle=self._handle)


def make_server(episodes: HostedEpisodes, handle: str = "") -> Any:
    """Return an `mcp.server.lowlevel.Server`; all requests are for the episode `handle`, or "" for that of their path.

    Raises:
        ModuleNotFoundError: the MCP SDK is not installed.
    """
    sdk, lowlevel, types = load_peer("mcp"), load_peer("mcp.server.lowlevel"), load_peer("mcp.types")

    def tools_of(context: Any) -> EpisodeTools:
        return EpisodeTools(episodes, handle or context.request.path_params.get("episode", ""))

    async def list_tools(context: Any, _: Any) -> Any:
        functions = [schema["function"] for schema in tools_of(context).schemas()]
        tools = [
            types.Tool(name=each["name"], description=each["description"], input_schema=each["parameters"])
            for each in functions
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, asked: Any) -> Any:
        try:
            reply = await tools_of(context).call(asked.name, asked.arguments or {})
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


def _with_handle(schema: JsonSchema) -> JsonSchema:
    function = schema["function"]
    parameters = dict(function["parameters"])
    parameters["properties"] = {"episode": _EPISODE, **parameters.get("properties", {})}
    parameters["required"] = ["episode", *parameters.get("required", [])]
    return {**schema, "function": {**function, "parameters": parameters}}
