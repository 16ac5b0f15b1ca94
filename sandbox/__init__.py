"""Runs untrusted Python: live sessions that keep their variables, and that can be forked in the middle.

    async with await Sandbox.open() as sandbox:
        python = await sandbox.interpreter()
        await python.run("x = 41")
        a, b = await python.fork(2)
        print((await a.run("x + 1")).text)

A `Sandbox` is a pool of Docker containers (or of bubblewraps, or, by explicit name only, of nothing but subprocesses),
on this machine or on several; a session in it is a process, forked from a clean Python in milliseconds. Code that
fails is an `Execution` with a status; a `SandboxError` says that the machinery failed. Start with
`default_sandbox()`; `check_docker()` says what is missing.

What holds the code: no network, no files of the machine, a read-only root, a user and a tmpfs for each session with
its forks, no capabilities, Landlock, seccomp, limits on memory, processes, disk, time and output, and a supervisor
that is out of reach. `Sandbox.isolation` says what was found of it; docs/reference/sandbox-security.md is
the threat model.
"""

from sandbox.config.limits import Limits
from sandbox.docker_engine.check import DockerDiagnosis, check_docker
from sandbox.errors import ForkError, SandboxError, SandboxFull, SandboxUnavailable, SessionEnded, SessionLost
from sandbox.execution import Execution, Status
from sandbox.files.directory_listing import FileInfo
from sandbox.images.build import build_image
from sandbox.interpreter import Interpreter, SyncInterpreter
from sandbox.moved_modules import MOVED
from sandbox.moved_names import moved_modules
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

moved_modules({f"sandbox.{old}": f"sandbox.{new}" for old, new in MOVED.items()})
