"""The `arpo serve` command: an environment for programs that speak OpenEnv or MCP.

arpo serve openenv arpo/Arithmetic-v0 --env-set level=2
arpo serve openenv arpo/Arithmetic-v0 --write-space my-space
arpo serve mcp arpo/Arithmetic-v0
arpo serve mcp arpo/Arithmetic-v0 --http --port 8001 --show-reward
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import ENV_HELP, add_command, add_command_group, add_env_options, read_env_options

if TYPE_CHECKING:
    from arpo_env import EnvFactory

_LOOPBACK, _OPENENV_PORT, _MCP_PORT = "127.0.0.1", 8000, 8001
_TOKEN_HELP = (
    "the bearer token or password of requests (default: the variable ARPO_SERVE_TOKEN, which other users of this "
    "machine cannot see)"
)


def add_serve_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    actions = add_command_group(commands, "serve", "serve an environment to OpenEnv or MCP clients")

    openenv = add_command(
        actions,
        "openenv",
        _openenv,
        "serve an environment to OpenEnv clients, or write the folder of a Space",
        usage="arpo serve openenv ENV [options]",
    )
    _add_address(openenv, _OPENENV_PORT)
    _add_limits(openenv, "clients")
    openenv.add_argument(
        "--write-space",
        type=Path,
        metavar="FOLDER",
        help="write a folder for `openenv push` or `docker build`, and end",
    )

    mcp = add_command(
        actions, "mcp", _mcp, "serve the tools of an environment to MCP clients", usage="arpo serve mcp ENV [options]"
    )
    mcp.add_argument("--http", action="store_true", help="serve over HTTP instead of standard input and output")
    _add_address(mcp, _MCP_PORT)
    _add_limits(mcp, "episodes")
    mcp.add_argument("--show-reward", action="store_true", help="let clients read the reward of an episode")


def _add_address(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("env", metavar="ENV", help=ENV_HELP)
    add_env_options(parser)
    address = "address to listen on (default 127.0.0.1); any other needs a token"
    parser.add_argument("--host", default=_LOOPBACK, help=address)
    parser.add_argument("--port", type=int, default=port, metavar="N", help=f"port to listen on (default {port})")
    parser.add_argument("--token", default="", help=_TOKEN_HELP)


def _add_limits(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--max-sessions", type=int, default=64, metavar="N", help=f"most {what} at a time (default 64)")
    idle = "seconds without a call after which a session's tools are closed (default 600)"
    parser.add_argument("--idle-seconds", type=float, default=600.0, metavar="S", help=idle)


def _openenv(arguments: argparse.Namespace) -> int:
    from arpo_env.adapters.hosted_episodes import bind
    from arpo_env.adapters.openenv import make_app, write_space

    factory = _factory(arguments)
    if arguments.write_space:
        for path in write_space(arguments.write_space, factory, arguments.max_sessions):
            sys.stdout.write(f"{path}\n")
        return 0
    token = _token(arguments)
    with bind(arguments.host, arguments.port, token) as listener:
        limits = {"max_sessions": arguments.max_sessions, "idle_seconds": arguments.idle_seconds}
        app = make_app(factory, token=token, **limits)
        _serve(app, listener, f"{factory.id} for OpenEnv clients", "")
    return 0


def _mcp(arguments: argparse.Namespace) -> int:
    from arpo_env.adapters.hosted_episodes import HostedEpisodes, bind
    from arpo_env.adapters.mcp_server import make_app, serve_stdio

    if not arguments.http and (arguments.token or (arguments.host, arguments.port) != (_LOOPBACK, _MCP_PORT)):
        raise ValueError("--host, --port and --token are for HTTP: add --http")
    factory = _factory(arguments)
    episodes = HostedEpisodes(factory, arguments.max_sessions, arguments.idle_seconds, arguments.show_reward)
    if not arguments.http:
        sys.stderr.write(f"the tools of {factory.id} for one MCP client, over standard input and output\n")
        # the SDK's thread that reads the input cannot be interrupted; the sandbox ends with this process in any case
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        serve_stdio(episodes)
        return 0
    token = _token(arguments)
    with bind(arguments.host, arguments.port, token) as listener:
        _serve(make_app(episodes, token=token), listener, f"the tools of {factory.id} for MCP clients", "/mcp")
    return 0


def _factory(arguments: argparse.Namespace) -> EnvFactory:
    from arpo_env import EnvFactory
    from arpo_trainer.make_env import known_id

    for name in ("max_sessions", "idle_seconds"):
        if getattr(arguments, name) <= 0:
            raise ValueError(f"--{name.replace('_', '-')} has to be above 0")
    factory = EnvFactory(known_id(arguments.env), **read_env_options(arguments))
    factory().check()
    return factory


def _token(arguments: argparse.Namespace) -> str:
    return arguments.token or os.environ.get("ARPO_SERVE_TOKEN", "")


def _serve(app: Any, listener: Any, what: str, path: str) -> None:
    from arpo_env.adapters.hosted_episodes import address, serve

    sys.stderr.write(f"{what}: {address(listener)}{path} (Ctrl-C ends it)\n")
    serve(app, listener)
