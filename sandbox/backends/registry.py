"""The backends: where a server can be started, and which one "auto" chooses.

A backend starts the server and returns a stream to it; everything else is the same for all. "auto" tries Docker, then
bubblewrap, and then gives up: it never runs anything without isolation.
"""

from __future__ import annotations

import warnings
from functools import cache

from sandbox.backends import Stream
from sandbox.backends.docker import start_docker
from sandbox.backends.http_backend import start_http
from sandbox.backends.processes import start_bubblewrap, start_command, start_local, why_no_bubblewrap
from sandbox.docker_engine import check_docker
from sandbox.errors import SandboxUnavailable
from sandbox.options import SandboxOptions


def choose(name: str) -> str:
    """Return the backend that a name stands for on this machine.

    Raises:
        SandboxUnavailable: it cannot be used here; the message says what to do.
    """
    if name in ("command", "unsafe_local"):
        return name  # chosen by name alone; what is wrong with it shows at the start
    faults: list[str] = []
    if name in ("auto", "docker"):
        diagnosis = check_docker()
        if diagnosis.state == "ok":
            return "docker"
        faults.append(str(diagnosis))
    if name in ("auto", "bubblewrap"):
        fault = why_no_bubblewrap()
        if not fault:
            return "bubblewrap"
        faults.append(fault)
    raise SandboxUnavailable("no sandbox can be opened.\n" + "\n".join(f"  - {fault}" for fault in faults))


def start(name: str, options: SandboxOptions) -> Stream:
    """Start a server with a backend that `choose` has returned.

    Raises:
        SandboxError: it does not start.
    """
    if name == "docker":
        return start_docker(options)
    if name == "http":
        return start_http(options)
    for option in ("image", "runtime", "host"):
        if getattr(options, option) is not None:
            raise ValueError(f"{option}={getattr(options, option)!r} is for the docker backend, not for {name}")
    if options.packages and name == "command":
        raise ValueError(f"packages={list(options.packages)} cannot be added to the image of a command")
    if name == "unsafe_local":
        _warn_of_unsafe()
        return start_local(options)
    return start_command(options) if name == "command" else start_bubblewrap(options)


@cache
def _warn_of_unsafe() -> None:
    warnings.warn(
        "sandbox backend 'unsafe_local' isolates nothing: the code can read every file of this user and reach the "
        "network; use it for code you would run yourself",
        RuntimeWarning,
        stacklevel=3,
    )
