"""Runs untrusted Python: live sessions that keep their variables, and that can be forked in the middle.

    async with await Sandbox.open() as sandbox:
        python = await sandbox.interpreter()
        await python.run("x = 41")
        a, b = await python.fork(2)
        print((await a.run("x + 1")).text)

A `Sandbox` is one Docker container (or bubblewrap, or, by explicit name only, nothing but a subprocess); a session in
it is a process, forked from a clean Python in about a millisecond. Code that fails is an `Execution` with a status;
a `SandboxError` says that the machinery failed, and never comes from the code.

What holds the code: no network, no files of the machine, a read-only root, no capabilities, no root, limits on
memory, processes, disk, time and output, and the supervisor is out of its reach. What is not defended yet: the
sessions of one sandbox run under one user, so one can kill another (which then is a `SessionLost`), and can fill
the disk or use up the processes that they share. They can not read each other's memory or descriptors, and do not
know the names of each other's directories. Whoever needs more separation opens a sandbox per tenant.
"""

from sandbox.default import default_sandbox
from sandbox.docker_check import DockerDiagnosis, check_docker
from sandbox.errors import ForkError, SandboxError, SandboxUnavailable, SessionLost
from sandbox.execution import Execution, Status
from sandbox.image import build_image
from sandbox.interpreter import Interpreter, SyncInterpreter
from sandbox.limits import Limits
from sandbox.sandbox import Sandbox

__all__ = [
    "DockerDiagnosis",
    "Execution",
    "ForkError",
    "Interpreter",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "SessionLost",
    "Status",
    "SyncInterpreter",
    "build_image",
    "check_docker",
    "default_sandbox",
]
