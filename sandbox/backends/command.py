"""The backend "command": the server behind any command whose stdin and stdout become its stream.

    Sandbox("command", command="docker run -i --rm --network none ... IMAGE")
    Sandbox("command", command=["ssh", "box", "docker run -i --rm --network none ... IMAGE {server}"])

The command starts a container (or what it has in its place) and runs `python3` with a short program in it, which takes
the server from standard input. The words of `python3 ...` are appended, or stand where "{server}" is; within a longer
word, and after `ssh`, they are quoted for the shell that reads them. The server finds out what isolates it
(`fit_to_container`), and a command that isolates too little is refused.

The command ends with its standard input, also when this program is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import time
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from sandbox.backends.local_process import ProcessStream, random_uids, server_config
from sandbox.errors import SandboxUnavailable
from sandbox.images.profiles import preload
from sandbox.options import SandboxOptions, command_words
from sandbox.server.bundle import BOOTSTRAP

COMMAND_VARIABLE = "ARPO_SANDBOX_COMMAND"
ROOT = "/slots"
"""Where the command's container has a file system for the sessions."""
_SERVER = "{server}"
_KNOCK, _READY = b"?", b"\nsandbox server ready\n"
_MOST_NOISE = 1 << 20
# The client knocks first: what is written before a stream is attached may be lost. Whoever waits in vain, ends.
_PROGRAM = f"""
import os, select
if not select.select([0], [], [], {{patience}})[0] or os.read(0, 1) != {_KNOCK!r}:
    os._exit(3)
os.write(1, {_READY!r})
{BOOTSTRAP.strip()}
"""


def server_words(patience: float) -> list[str]:
    """Return what has to run in the container; it ends if nobody speaks to it for `patience` seconds."""
    return ["python3", "-I", "-c", _PROGRAM.format(patience=patience)]


def with_server(command: Sequence[str], server: Sequence[str]) -> list[str]:
    """Return a command with the server's words in it."""
    words = list(command)
    if not any(_SERVER in word for word in words):
        words.append(_SERVER)
    # ssh joins its words, and a shell on the other machine parses them
    own = [shlex.join(server)] if PurePath(words[0]).name == "ssh" else list(server)
    whole = [own if word == _SERVER else [word.replace(_SERVER, shlex.join(server))] for word in words]
    return [word for part in whole for word in part]


class CommandStream(ProcessStream):
    """Bytes to and from a server behind a command, which has to answer within `start_wait` seconds."""

    def __init__(self, command: Sequence[str], isolation: str, config: dict[str, Any], start_wait: float) -> None:
        self.start_seconds = start_wait + 30  # the deadline here comes first: it knows more
        self._deadline = time.monotonic() + start_wait
        self._greeting = b""
        self._fault = ""
        super().__init__(command, isolation, config, environment=os.environ, directory=None)

    def _begin(self, greeting: bytes) -> None:
        self._greeting = greeting
        self.send(_KNOCK)

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end. The first call waits for the server, and skips what is printed before."""
        if self._greeting:
            greeting, self._greeting = self._greeting, b""
            if not self._find_server():
                self.kill()
                return b""
            with contextlib.suppress(ConnectionError):  # likewise
                self.send(greeting)
        return super().receive()

    def _find_server(self) -> bool:
        seen = b""
        while not seen.endswith(_READY):  # the server is silent until it has its greeting
            left = self._deadline - time.monotonic()
            if left <= 0 or not self._readable(left):
                self._fault = f"the command has not answered within {self.start_seconds - 30:g} s"
                return False
            data = super().receive()
            seen += data
            if not data or len(seen) > _MOST_NOISE:
                self._fault = "the command has not started the server"
                if seen:
                    self._fault += f"; it wrote {seen[-300:].decode('utf-8', 'replace').strip()!r}"
                return False
        return True

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()  # `select.select` takes only descriptors below 1024
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(min(1000 * seconds, 1e9)))

    def post_mortem(self) -> str:
        """Return what went wrong, with the exit code and the end of stderr."""
        end = super().post_mortem()
        return f"{self._fault}: {end}" if self._fault else end

    def _words(self, log: str) -> str:
        return "; ".join(line.strip() for line in log.splitlines()[-4:] if line.strip())[-800:]


def start_command(options: SandboxOptions) -> CommandStream:
    """Start the command and the server behind it.

    Raises:
        SandboxUnavailable: no command is given.
        SandboxError: there is no such program.
    """
    words = options.command or command_words(os.environ.get(COMMAND_VARIABLE, ""), COMMAND_VARIABLE)
    if not words:
        raise SandboxUnavailable(
            'the sandbox backend "command" needs a command, such as command="docker run -i --rm --network none '
            f'--read-only --tmpfs {ROOT}:exec IMAGE", or the same in {COMMAND_VARIABLE}'
        )
    config = server_config(options, ROOT, first_uid=random_uids(), fit=True, preload=preload(options.profile))
    label = f"command({PurePath(words[0]).name})"
    return CommandStream(with_server(words, server_words(options.start_wait)), label, config, options.start_wait)
