"""The server as a plain subprocess: the stream that bubblewrap uses, and the backend "unsafe_local".

"unsafe_local" limits memory, files and time, and isolates nothing. It is meant for machines without Docker and
bubblewrap, and for code that you would run anyway.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sandbox.connection import START_SECONDS
from sandbox.errors import SandboxError
from sandbox.images.profiles import packages_directory, preload
from sandbox.options import SandboxOptions, parse_size, warn_of_unenforced_limits
from sandbox.server.bundle import BOOTSTRAP, greeting

_CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_END_SECONDS = 8.0
_SHARED_MEMORY, _LEAST_SHARED_MEMORY = 4 << 20, 64 << 20

SHARED_FILES = 128
"""How many files a group may have in /dev/shm when it is half full."""


class ProcessStream:
    """Bytes to and from a server that is a subprocess of this one.

    Without an `environment` it gets one that has nothing of this program; without a `directory` it starts in that of
    this program.
    """

    start_seconds = START_SECONDS

    def __init__(
        self,
        command: Sequence[str],
        isolation: str,
        config: dict[str, Any],
        unenforced: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        directory: str | None = "/",
    ) -> None:
        self.isolation = isolation
        self.unenforced = unenforced
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._log,
                    env=_CLEAN if environment is None else environment,
                    cwd=directory,
                    # Ctrl-C in a terminal is for this program, which then ends the server in order
                    start_new_session=True,
                )
            except OSError as error:
                self._socket.close()
                self._log.close()
                raise SandboxError(f"{command[0]} does not start: {error}") from error
        with contextlib.suppress(BrokenPipeError):  # it ended at once; `receive` sees the end, too
            self._begin(greeting(config))

    def _begin(self, greeting: bytes) -> None:
        self.send(greeting)

    def send(self, data: bytes) -> None:
        """Send everything."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end."""
        try:
            return self._socket.recv(1 << 18)
        except ConnectionResetError:  # it has ended before it has read everything; `post_mortem` says more
            return b""

    def post_mortem(self) -> str:
        """Return the exit code and the last line of stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # the stream may end a moment before the process
            self._process.wait(1)
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        words = self._words(self._log.read().decode("utf-8", "replace").strip())
        return f"its process ended with code {self._process.returncode}{': ' if words else ''}{words}"

    def _words(self, log: str) -> str:
        """Return what to show of the end of stderr."""
        return log.rpartition("\n")[2]

    def close(self) -> None:
        """Tell the server to end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the server by force, and what its command has started."""
        if self._process.returncode is None:  # else its number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Wait for the server's end and release its resources."""
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._socket.close()
        self._log.close()

    def abandon(self) -> None:
        """Close this process's copy of the socket."""
        self._socket.close()


def shared_memory(options: SandboxOptions) -> int:
    """Return the size of /dev/shm, in bytes: twice the shares of all groups, at most half of the memory.

    The other half of /dev/shm is for groups that take more than their share while it is not needed, and for the moment
    until they are ended.
    """
    wanted = max(2 * options.sessions * _SHARED_MEMORY, _LEAST_SHARED_MEMORY)
    return min(wanted, parse_size(options.limits.memory) // 2)


def random_uids(least: int = 1 << 20, most: int = 1 << 31) -> int:
    """Return the first of a range of users for a server's groups, chosen at random so that nothing else has them.

    The kernel counts processes by user across containers, so that two servers must not share one.
    """
    # in steps of 256: ranges of two servers, of at most 128 users each, are the same or do not overlap
    return secrets.randbelow((most - least) >> 8) * 256 + least


def base_python() -> str:
    """Return the interpreter that runs this program; for a virtual environment, the one that it was made from."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def server_config(
    options: SandboxOptions,
    root: str | None,
    *,
    first_uid: int = 0,
    chown: bool = False,
    own_user: bool = False,
    own_account: bool = False,
    fit: bool = False,
    packages: str = "",
    preload: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the configuration for a server.

    Args:
        options: of the server.
        root: where the sessions' directories go; None lets it choose a place, and means that nothing is isolated.
        first_uid: the user of the first group, others follow; 0 when all run as the server's user.
        chown: the server has to give the slots to their users itself.
        own_user: no other processes count as its user's, so that their number can be limited.
        own_account: the control group that it is in is its own.
        fit: the container was made by another program: the server finds out which users, slots and limits it has.
        packages: a directory of packages for the code, as the server sees it.
        preload: modules for the zygote to import.
    """
    return {
        "limits": asdict(options.limits),
        "memory": 0 if root is None else parse_size(options.limits.memory),
        "root": root,
        "sessions": options.sessions,
        "first_uid": first_uid,
        "chown": chown,
        "own_user": own_user,
        "own_account": own_account,
        "fit": fit,
        "harden": root is not None,
        "packages": packages,
        "preload": list(preload),
        "loopback": options.loopback,
        "shared_files": SHARED_FILES,
    }


def start_local(options: SandboxOptions) -> ProcessStream:
    """Start the server without any isolation."""
    command = [base_python(), "-I", "-c", BOOTSTRAP]
    packages = packages_directory(options.software)
    config = server_config(options, None, packages=str(packages or ""), preload=preload(options.profile))
    return ProcessStream(command, "none", config, warn_of_unenforced_limits("unsafe_local", options.limits))
