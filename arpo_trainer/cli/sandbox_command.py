"""The `arpo sandbox` command: checks the sandbox, lists and removes containers, builds the image, and serves code.

arpo sandbox check --backend docker
arpo sandbox ps
arpo sandbox prune --images
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import add_command, add_command_group, write_table

_PROFILES = ("minimal", "math", "data")
_BACKENDS = ("auto", "docker", "bubblewrap", "command", "unsafe_local")


def add_sandbox_command(commands: Any) -> None:
    """Add the command and its subcommands to a parser."""
    actions = add_command_group(
        commands, "sandbox", "check the sandbox, list or remove containers, build its image, serve code"
    )

    check = add_command(actions, "check", _check, "open a sandbox, run and fork a session, and print the times")
    _add_backend(check)
    command = "of the backend command (default: the variable ARPO_SANDBOX_COMMAND)"
    check.add_argument("--command", metavar="WORDS", help=command)

    ps = add_command(actions, "ps", _ps, "list the containers of all sandboxes")
    _add_docker_host(ps)

    prune = add_command(actions, "prune", _prune, "remove containers whose program has ended")
    prune.add_argument("--all", action="store_true", help="remove also containers in use: their sessions are lost")
    prune.add_argument("--images", action="store_true", help="remove also images that a newer one has replaced")
    _add_docker_host(prune)

    build = add_command(actions, "build", _build, "build the image, if it does not exist")
    base = build.add_mutually_exclusive_group()
    base.add_argument("--base", metavar="IMAGE", help="build on an image with python3, such as python:3.12-slim")
    base.add_argument("--local", action="store_true", help="copy this machine's Python; needs no registry")
    build.add_argument("--profile", choices=_PROFILES, default="math", help="its packages (default math)")
    build.add_argument("--packages", nargs="+", default=[], metavar="NAME", help=_PACKAGES_HELP)
    _add_docker_host(build)

    _add_serve(actions)


def _add_serve(actions: Any) -> None:
    serve = add_command(actions, "serve", _serve, "sessions for other machines, and POST /run_code, over HTTP")
    address = "address to listen on (default 127.0.0.1); any other needs a token"
    serve.add_argument("--host", default="127.0.0.1", help=address)
    serve.add_argument("--port", type=int, default=8080, metavar="N", help="port to listen on (default 8080)")
    serve.add_argument("--token", default="", help=_TOKEN_HELP)
    serve.add_argument("--containers", type=int, default=4, metavar="N", help="most containers (default 4)")
    serve.add_argument("--sessions", type=int, default=64, metavar="N", help="most sessions per container (default 64)")
    several = "instead of one token: a file with a line 'NAME TOKEN [SESSIONS]' for each client"
    serve.add_argument("--clients", type=Path, metavar="FILE", help=several)
    idle = "close a session that nobody has used for so long (default 900)"
    serve.add_argument("--idle-timeout", type=float, default=900.0, metavar="SECONDS", help=idle)
    serve.add_argument("--backend", choices=_BACKENDS, default="auto", help="where the code runs (default auto)")
    serve.add_argument("--profile", choices=_PROFILES, default="math", help="packages of the code (default math)")
    serve.add_argument("--packages", nargs="+", default=[], metavar="NAME", help=_PACKAGES_HELP)
    limits = "a limit of containers and sessions, such as session_memory=2147483648"
    serve.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=limits)


_PACKAGES_HELP = "further packages, as pip takes them: networkx, rich==13.9.4"
_TOKEN_HELP = (
    "the bearer token or password of requests (default: the variable ARPO_SANDBOX_TOKEN, which other users of this "
    "machine cannot see)"
)


def _add_docker_host(parser: argparse.ArgumentParser) -> None:
    purpose = "a Docker engine, written as in DOCKER_HOST (default: that variable)"
    parser.add_argument("--docker-host", metavar="URL", help=purpose)


def _add_backend(parser: argparse.ArgumentParser) -> None:
    from sandbox.backends.http_backend import without_password

    default = os.environ.get("ARPO_SANDBOX") or "auto"
    shown = without_password(default).replace("%", "%%")  # argparse fills in what follows a "%"
    names = f"{', '.join(_BACKENDS)} or the address of a sandbox server (default {shown})"
    parser.add_argument("--backend", type=_backend, default=default, metavar="NAME", help=names)


def _backend(text: str) -> str:
    from sandbox.backends.http_backend import is_http_address, without_password

    if text not in _BACKENDS and not is_http_address(text):
        raise argparse.ArgumentTypeError(
            f"there is no backend {without_password(text)!r}; choose one of {', '.join(_BACKENDS)}, or the address of "
            "a sandbox server, such as http://host:8080"
        )
    return text


def _check(arguments: argparse.Namespace) -> int:
    from sandbox import Sandbox
    from sandbox.docker_engine import describe_unenforced_limits

    clock = _Clock()
    with Sandbox(arguments.backend, containers=1, command=arguments.command) as sandbox:
        # a sandbox starts at its first use, and asking for the isolation is one
        isolation = clock.time("open the sandbox", lambda: sandbox.isolation)
        python = clock.time("open a session", sandbox.interpreter_sync)
        value = clock.time("run 6 * 7", lambda: python.run("x = 6 * 7; x")).value
        copy = clock.time("fork it", python.fork)[0]
        copied = clock.time("run x in the copy", lambda: copy.run("x")).value
        backend = sandbox.backend
    # the copy must know the variable: a fork that had lost the session's state would run code as well
    fine = value == copied == "42"
    # "docker(runc)+uid+landlock" begins with the backend; unsafe_local calls its isolation "none"
    found = isolation.partition("+")[0].partition("(")[0]
    known = {"none": "unsafe_local"}.get(found, found)
    # what a server elsewhere cannot keep, it says in its own isolation
    unenforced = [("NOT KEPT", why) for why in describe_unenforced_limits(known)] if found != "http" else []
    write_table([("BACKEND", backend), ("ISOLATION", isolation), ("ANSWER", str(value)), *clock.rows, *unenforced])
    if not fine:
        sys.stderr.write(f"error: 6 * 7 gave {value} in the session and {copied} in its copy\n")
    return 0 if fine else 1


class _Clock:
    """Measures steps, and keeps a row for each."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def time(self, what: str, act: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = act()
        self.rows.append((what, f"{1000 * (time.perf_counter() - started):.1f} ms"))
        return result


def _ps(arguments: argparse.Namespace) -> int:
    from sandbox.docker_engine import containers

    rows: list[Sequence[str]] = [("CONTAINER", "STATE", "AGE", "MEMORY", "CLIENT", "IMAGE", "HOST")]
    for one in containers(arguments.docker_host):
        client = f"{one.client} on {one.client_host or '?'}{' (gone)' if one.orphan else ''}"
        memory = f"{one.memory / (1 << 20):.0f} MiB" if one.memory else "-"
        rows.append((one.id, one.state, _span(one.age), memory, client, one.image, one.host or "-"))
    write_table(rows)
    return 0


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _prune(arguments: argparse.Namespace) -> int:
    from sandbox.docker_engine import prune

    removed = prune(arguments.all, arguments.images, arguments.docker_host)
    sys.stdout.write("".join(f"removed {one}\n" for one in removed) or "nothing to remove\n")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from sandbox import build_image

    if arguments.local:
        os.environ.pop("ARPO_SANDBOX_BASE_IMAGE", None)  # --local takes precedence over the variable
    options = {"profile": arguments.profile, "packages": arguments.packages}
    tag = build_image(arguments.base, host=arguments.docker_host, **options)
    sys.stdout.write(f"{tag}\n")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from sandbox.http.sandbox_server import serve  # type: ignore[import-not-found, unused-ignore]

    token = arguments.token or ("" if arguments.clients else os.environ.get("ARPO_SANDBOX_TOKEN", ""))
    serve(
        arguments.host,
        arguments.port,
        token,
        arguments.clients,
        arguments.idle_timeout,
        arguments.backend,
        _limits(arguments.set),
        containers=arguments.containers,
        sessions=arguments.sessions,
        profile=arguments.profile,
        packages=arguments.packages,
    )
    return 0


def _limits(settings: Sequence[str]) -> Any:
    """Return the limits with these settings, each "name=value" in YAML."""
    import yaml

    from sandbox import Limits

    known = {field.name for field in dataclasses.fields(Limits)}
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            nearest = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise ValueError(f"--set {setting}: write NAME=VALUE, with one of {', '.join(sorted(known))}{hint}")
        values[name] = yaml.safe_load(text)
    return Limits(**values)
