"""Runs untrusted Python in live sessions that keep their variables and can be forked at any time.

    async with await Sandbox.open() as sandbox:
        python = await sandbox.interpreter()
        await python.run("x = 41")
        a, b = await python.fork(2)
        print((await a.run("x + 1")).text)

A `Sandbox` is a pool of Docker containers (or of bubblewrap sandboxes, or, only on request, of plain subprocesses), on
this machine or on several. A session is a process, forked from a clean Python in milliseconds. Code that fails gives
an `Execution` with a status; a `SandboxError` says that the machinery failed. Start with `default_sandbox()`;
`check_docker()` says what is missing.

Code is isolated by: no network, no files of the machine, a read-only root, a user and a tmpfs for each session with
its forks, no capabilities, Landlock, seccomp, limits on memory, processes, disk, time and output, and a supervisor
that it cannot reach. `Sandbox.isolation` says which of these were found to work; docs/reference/sandbox-security.md has
the threat model.
"""

from sandbox.docker_engine import DockerDiagnosis, check_docker
from sandbox.errors import ForkError, SandboxError, SandboxFull, SandboxUnavailable, SessionEnded, SessionLost
from sandbox.images.build import build_image
from sandbox.interpreter import Execution, FileInfo, Interpreter, Status, SyncInterpreter
from sandbox.options import Limits
from sandbox.sandbox import Sandbox, default_sandbox

__all__ = [
    "DockerDiagnosis",
    "Execution",
    "FileInfo",
    "ForkError",
    "Interpreter",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxFull",
    "SandboxUnavailable",
    "SessionEnded",
    "SessionLost",
    "Status",
    "SyncInterpreter",
    "build_image",
    "check_docker",
    "default_sandbox",
]
