"""The Docker engines that the containers of a sandbox are spread over.

An engine is named as in DOCKER_HOST: unix:///var/run/docker.sock, tcp://host:2376 (TLS by DOCKER_TLS_VERIFY and
DOCKER_CERT_PATH), ssh://user@host:22, followed by the path of the engine's socket where it is not the usual one. For
ssh:// a tunnel is opened with the `ssh` program, its configuration and its agent; the environment variable ARPO_SSH
replaces the command, such as ARPO_SSH="ssh -F my_config".
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sandbox.errors import SandboxUnavailable

SSH_VARIABLE = "ARPO_SSH"
_SOCKET = "/var/run/docker.sock"
_PREFIX = "arpo-ssh-"
_READY = b"ready\n"
_OPEN_SECONDS = 30.0
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_log = logging.getLogger(__name__)


class Host:
    """An engine, and when to try it again after a failure.

    Args:
        name: of the engine; None is the one of the environment.

    Attributes:
        fault: why the last start there failed; empty after a start that worked.
        closed_until: no start is tried before this time, by `time.monotonic`.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.fault = ""
        self.closed_until = 0.0
        self._delay = _FIRST_DELAY
        self._tunnel: Tunnel | None = None
        self._lock = threading.Lock()

    def address(self) -> str | None:
        """Return what the Docker SDK connects to; opens a tunnel if one is needed and not open.

        Raises:
            SandboxUnavailable: the tunnel cannot be opened.
        """
        if self.name is None or not self.name.startswith("ssh://"):
            return self.name
        with self._lock:
            # under the lock, since two containers that start at once would each open a tunnel
            if self._tunnel is None or not self._tunnel.alive():
                self._close_tunnel()
                self._tunnel = Tunnel(self.name)
            return self._tunnel.address

    def failed(self, fault: str) -> None:
        """Do not try the engine for a while, longer each time."""
        self.fault = fault
        self.closed_until = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def worked(self) -> None:
        """Forget earlier failures."""
        self.fault, self.closed_until, self._delay = "", 0.0, _FIRST_DELAY

    def close(self) -> None:
        """Close the tunnel."""
        with self._lock:
            self._close_tunnel()

    def _close_tunnel(self) -> None:
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is not None:
            tunnel.close()

    def __str__(self) -> str:
        return self.name or os.environ.get("DOCKER_HOST") or "this machine"


def hosts_of(names: Sequence[str] | None) -> list[Host]:
    """Return the engines of this list, or of DOCKER_HOST, which may list several, separated by commas.

    Raises:
        ValueError: a name is not that of an engine.
    """
    if isinstance(names, str):
        raise ValueError(f"hosts={names!r}; it has to be a list, such as [{names!r}]")
    if names is None:
        given = os.environ.get("DOCKER_HOST", "")
        # one engine is left to the Docker SDK, which reads its variables itself; for ssh:// it would need paramiko
        if "," not in given and not given.startswith("ssh://"):
            return [Host(None)]
        names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise ValueError("hosts=[] names no engine; leave it out to use the one of this machine")
    for name in names:
        _check(name)
    return [Host(name) for name in names]


def _check(name: str) -> None:
    if not isinstance(name, str):
        raise ValueError(f"hosts= names engines by strings, such as 'unix:///var/run/docker.sock'; {name!r} is not one")
    parts = urlsplit(name)
    try:
        parts.port  # noqa: B018  (looking is checking)
    except ValueError as error:
        raise ValueError(f"{name!r} names no Docker engine: {error}") from error
    if parts.scheme not in ("unix", "tcp", "ssh") or not (parts.netloc or (parts.scheme == "unix" and parts.path)):
        raise ValueError(
            f"{name!r} names no Docker engine; write unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host"
        )


class Tunnel:
    """A local socket that leads to the remote engine's socket, held open by an `ssh` process.

    The process waits for the end of its standard input, which comes when this program ends, however it ends.

    Args:
        name: ssh://[user@]host[:port][/path/of/the/socket].

    Raises:
        SandboxUnavailable: ssh has failed; the message has its own words.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        _remove_stale()
        self._directory = tempfile.mkdtemp(prefix=_PREFIX)
        self.address = f"unix://{self._directory}/docker.sock"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for us: the containers are closed through the tunnel
            )
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._log.close()
            raise SandboxUnavailable(f"{name}: ssh does not start ({error}); install openssh-client") from error
        if not self._ready():
            words = self._last_words()
            self.close()
            raise SandboxUnavailable(f"{name}: no tunnel: {words}")

    def _command(self) -> list[str]:
        parts = urlsplit(self._name)
        # no questions to a user, no connection that another program owns, and an end if the tunnel cannot be made
        options = ["-T", "-o", "ExitOnForwardFailure=yes", "-o", "BatchMode=yes", "-o", "ControlPath=none"]
        options += ["-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"]
        if parts.port:
            options += ["-p", str(parts.port)]
        if parts.username:
            options += ["-l", parts.username]
        forward = ["-L", f"{self._directory}/docker.sock:{parts.path.rstrip('/') or _SOCKET}"]
        there = "echo ready; exec cat > /dev/null"
        program = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
        return [*program, *options, *forward, "--", parts.hostname or "", there]

    def _ready(self) -> bool:
        """Wait until the remote command runs, which is after the tunnel has been set up."""
        out = self._process.stdout
        if out is None:
            return False
        seen = b""
        deadline = time.monotonic() + _OPEN_SECONDS
        while _READY not in seen:  # a login script may have printed something before
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                return False
            data = os.read(out.fileno(), 4096)
            if not data:
                return False
            seen += data
        return True

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._log.seek(0)
        words = self._log.read()[-2000:].decode("utf-8", "replace").strip()
        return words or f"ssh has printed nothing within {_OPEN_SECONDS:.0f} s"

    def alive(self) -> bool:
        """Whether the `ssh` process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the `ssh` process and remove the socket."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _remove_stale() -> None:
    """Remove the sockets of programs that were killed: those that nobody listens on any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/docker.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(str(path))
            except ConnectionRefusedError:
                shutil.rmtree(path.parent, ignore_errors=True)
