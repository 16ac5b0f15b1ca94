"""`arpo sandbox`: check the sandbox, list or remove containers, build its image, serve code.

arpo sandbox check --backend docker
arpo sandbox ps
arpo sandbox prune --images
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from arpo_trainer.cli.command_options import Flag, Words, chosen, new_app, set_option, write_table
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import check_name

Backend = Literal["auto", "docker", "bubblewrap", "command", "unsafe_local"]
Profile = Literal["minimal", "math", "data"]
DockerHost = Annotated[str | None, Parameter(help="a Docker engine, written as in DOCKER_HOST (default: that)")]
Packages = Annotated[Words, Parameter(help="further packages, as pip takes them: networkx, rich==13.9.4")]
sandbox = new_app("sandbox", "check the sandbox, list or remove containers, build its image, serve code")


@sandbox.command
def check(*, backend: str | None = None, command: str | None = None) -> int:
    """Open a sandbox, run and fork a session, and print the times.

    Args:
        backend: auto, docker, bubblewrap, command, unsafe_local or the address of a sandbox server (default: ARPO_SANDBOX, else auto)
        command: of the backend command (default: the variable ARPO_SANDBOX_COMMAND)
    """  # noqa: E501
    from sandbox import Sandbox
    from sandbox.docker_engine import describe_unenforced_limits

    backend = backend or os.environ.get("ARPO_SANDBOX") or "auto"
    took: list[tuple[str, str]] = []

    def timed(step: str, act: Callable[[], Any]) -> Any:
        began, done = time.perf_counter(), act()
        took.append((step, f"{1000 * (time.perf_counter() - began):.1f} ms"))
        return done

    with Sandbox(backend, containers=1, command=command) as opened:
        # a sandbox starts at its first use, and asking for the isolation is one
        isolation = timed("open the sandbox", lambda: opened.isolation)
        python = timed("open a session", opened.interpreter_sync)
        value = timed("run 6 * 7", lambda: python.run("x = 6 * 7; x")).value
        copy = timed("fork it", python.fork)[0]
        copied = timed("run x in the copy", lambda: copy.run("x")).value
        used = opened.backend
    # "docker(runc)+uid+landlock" begins with the backend; unsafe_local calls its isolation "none"
    found = isolation.partition("+")[0].partition("(")[0]
    known = {"none": "unsafe_local"}.get(found, found)
    # what a server elsewhere cannot keep, it says in its own isolation
    unenforced = [("NOT KEPT", why) for why in describe_unenforced_limits(known)] if found != "http" else []
    write_table([("BACKEND", used), ("ISOLATION", isolation), ("ANSWER", str(value)), *took, *unenforced])
    # the copy must know the variable: a fork that had lost the session's state would run code as well
    if not value == copied == "42":
        sys.stderr.write(f"error: 6 * 7 gave {value} in the session and {copied} in its copy\n")
        return 1
    return 0


@sandbox.command
def ps(*, docker_host: DockerHost = None) -> None:
    """List the containers of all sandboxes."""
    from sandbox.docker_engine import containers

    rows: list[Sequence[str]] = [("CONTAINER", "STATE", "AGE", "CLIENT", "IMAGE", "HOST")]
    for one in containers(docker_host):
        client = f"{one.client} on {one.client_host or '?'}{' (gone)' if one.orphan else ''}"
        rows.append((one.id, one.state, _span(one.age), client, one.image, one.host or "-"))
    write_table(rows)


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@sandbox.command
def prune(*, all: Flag = False, images: Flag = False, docker_host: DockerHost = None) -> None:
    """Remove containers whose program has ended.

    Args:
        all: remove also containers in use: their sessions are lost
        images: remove also images that a newer one has replaced
        docker_host: a Docker engine
    """
    from sandbox.docker_engine import prune

    removed = prune(all, images, docker_host)
    sys.stdout.write("".join(f"removed {one}\n" for one in removed) or "nothing to remove\n")


@sandbox.command
def build(
    *,
    base: str | None = None,
    local: Flag = False,
    profile: Profile = "math",
    packages: Packages = (),
    docker_host: DockerHost = None,
) -> None:
    """Build the image, if it does not exist.

    Args:
        base: build on an image with python3, such as python:3.12-slim
        local: copy this machine's Python; needs no registry
        profile: its packages
        packages: further packages, as pip takes them
        docker_host: a Docker engine
    """
    from sandbox import build_image

    chosen({"--base": base, "--local": local})
    if local:
        os.environ.pop("ARPO_SANDBOX_BASE_IMAGE", None)  # --local takes precedence over the variable
    tag = build_image(base, host=docker_host, profile=profile, packages=list(packages))
    sys.stdout.write(f"{tag}\n")


@sandbox.command
def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    token: Annotated[str, Parameter(show_default=False)] = "",
    containers: int = 4,
    sessions: int = 64,
    clients: Path | None = None,
    idle_timeout: float = 900.0,
    backend: Backend = "auto",
    profile: Profile = "math",
    packages: Packages = (),
    settings: set_option("a limit of containers and sessions, such as session_memory=2147483648") = (),  # type: ignore[valid-type]
) -> None:
    """Serve sessions for other machines, and POST /run_code, over HTTP.

    Args:
        host: address to listen on; any but this machine's own needs a token
        port: port to listen on
        token: the bearer token of requests (default: the variable ARPO_SANDBOX_TOKEN, which other users cannot see)
        containers: maximum number of containers
        sessions: maximum number of sessions per container
        clients: instead of one token: a file with a line 'NAME TOKEN [SESSIONS]' for each client
        idle_timeout: close a session that nobody has used for so many seconds
        backend: where the code runs
        profile: packages of the code
        packages: further packages, as pip takes them
        settings: limits
    """
    from sandbox import Limits
    from sandbox.http.sandbox_server import serve  # type: ignore[import-not-found, unused-ignore]

    limits = parse_assignments(settings, "--set")
    for name in limits:
        check_name("a limit of --set", name, [entry.name for entry in dataclasses.fields(Limits)])
    token = token or ("" if clients else os.environ.get("ARPO_SANDBOX_TOKEN", ""))
    serve(
        host,
        port,
        token,
        clients,
        idle_timeout,
        backend,
        Limits(**limits),
        containers=containers,
        sessions=sessions,
        profile=profile,
        packages=list(packages),
    )
