"""Servers that are subprocesses: the backends "bubblewrap", "command" and "unsafe_local".

"unsafe_local" limits memory, files and time, and isolates nothing. It is meant for machines without Docker and
bubblewrap, and for code that you would run anyway.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from sandbox.backends import Stream
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.images.profiles import packages_directory, preload
from sandbox.options import SandboxOptions, command_words, parse_size, unenforced_limits, warn_of_unenforced_limits
from sandbox.server.bundle import BOOTSTRAP, greeting

_END_SECONDS = 8.0
_SHARED_MEMORY, _LEAST_SHARED_MEMORY = 4 << 20, 64 << 20
ROOT = "/slots"
"""Where a container has a file system for the sessions."""
SHARED_FILES = 128
"""How many files a group may have in /dev/shm when it is half full."""


class _ProcessStream(Stream):
    """Bytes to and from a server that is a subprocess of this one; None is the environment or directory of this one."""

    _environment: Mapping[str, str] | None = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    _directory: str | None = "/"

    def __init__(
        self, command: Sequence[str], isolation: str, config: dict[str, Any], unenforced: tuple[str, ...] = ()
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
                    env=self._environment,
                    cwd=self._directory,
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
        self._socket.sendall(data)

    def receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 18)
        except ConnectionResetError:  # it has ended before it has read everything; `post_mortem` says more
            return b""

    def post_mortem(self) -> str:
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
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the server by force, and what its command has started."""
        if self._process.returncode is None:  # else its number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def finish(self) -> None:
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._socket.close()
        self._log.close()

    def abandon(self) -> None:
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


def server_config(options: SandboxOptions, root: str | None, **facts: Any) -> dict[str, Any]:
    """Return the configuration for a server.

    Args:
        options: of the server.
        root: where the sessions' directories go; None lets it choose a place, and means that nothing is isolated.
        facts: what else differs from backend to backend:

            - first_uid: the user of the first group, others follow; 0 when all run as the server's user.
            - chown: the server has to give the slots to their users itself.
            - own_user: no other processes count as its user's, so that their number can be limited.
            - own_account: the control group that it is in is its own.
            - fit: the container was made by another program: the server finds out which users, slots and limits it has.
            - packages: a directory of packages for the code, as the server sees it.
            - preload: modules for the zygote to import.
    """
    defaults = {"first_uid": 0, "chown": False, "own_user": False, "own_account": False, "fit": False, "packages": ""}
    return {
        "limits": asdict(options.limits),
        "memory": 0 if root is None else parse_size(options.limits.memory),
        "root": root,
        "sessions": options.sessions,
        "harden": root is not None,
        "preload": preload(options.profile),
        "shared_files": SHARED_FILES,
        **defaults,
        **facts,
    }


def start_local(options: SandboxOptions) -> _ProcessStream:
    """Start the server without any isolation."""
    command = [base_python(), "-I", "-c", BOOTSTRAP]
    packages = packages_directory(options.software)
    config = server_config(options, None, packages=str(packages or ""))
    return _ProcessStream(command, "none", config, warn_of_unenforced_limits(unenforced_limits(None), options.limits))


# The backend "bubblewrap": the server in namespaces of its own, without any daemon.
#
# The sandbox has no network, sees only its own processes, and of the file system only the Python that runs this program
# and the system libraries, read-only. Home directories, /etc and everything else are not there. Compared with Docker it
# lacks the kernel's limit on the memory of all sessions together, which only the supervisor's watchdog enforces, and,
# unless it is started by root, a user for each group of sessions.

_SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache")
_PACKAGES = "/opt/packages"
_SYS_NICE = 1 << 23

# for root, the trial also changes the user, as the server will have to
_TRIAL = """
import os, sys
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
os.execv(sys.executable, [sys.executable, "-I", "-c", "print(6 * 7)"])
"""


@cache
def why_no_bubblewrap() -> str:
    """Try bubblewrap; return what is wrong with it and how to fix it, or nothing."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed. To fix it: sudo apt-get install bubblewrap"
    command = [*_bubblewrap_command(SandboxOptions(sessions=1)), base_python(), "-I", "-c", _TRIAL]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work: {error}"
    if trial.stdout.strip() == "42":
        return ""
    return (
        f"bubblewrap does not work here: {trial.stderr.strip()[:300] or f'exit code {trial.returncode}'}. "
        "It needs user namespaces; where AppArmor restricts them: "
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    )


def start_bubblewrap(options: SandboxOptions) -> _ProcessStream:
    """Start the server in bubblewrap.

    As root, each group gets a user of its own that is used for nothing else; otherwise there is only one user.
    """
    first = random_uids() if os.geteuid() == 0 else 0
    packages = packages_directory(options.software)
    config = server_config(
        options,
        ROOT,
        first_uid=first,
        chown=bool(first),
        own_user=not first and _counts_by_namespace(),
        packages=_PACKAGES if packages else "",
    )
    command = [*_bubblewrap_command(options, packages), base_python(), "-I", "-c", BOOTSTRAP]
    return _ProcessStream(
        command, "bubblewrap", config, warn_of_unenforced_limits(unenforced_limits(None), options.limits)
    )


def _counts_by_namespace() -> bool:
    """Whether this kernel counts a user's processes separately for each user namespace (Linux 5.14)."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= (5, 14)


def _bubblewrap_command(options: SandboxOptions, packages: Path | None = None) -> list[str]:
    namespaces = ["--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    rights = ["--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # no user namespace: root may change to the users of the groups only without one
        namespaces[:1] = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        administer = ("CAP_CHOWN", "CAP_SYS_ADMIN")  # until /proc and the slots are ready
        nice = ("CAP_SYS_NICE",) if _may_set_priorities() else ()
        for right in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", *administer, *nice):
            rights += ["--cap-add", right]
    binds = [argument for path in _needed() for argument in _bind(path)]
    if packages is not None:
        binds += [*_parents(_PACKAGES), "--ro-bind", str(packages), _PACKAGES]
    size = ["--perms", "1733", "--size", str(options.limits.disk)]
    if os.geteuid() == 0:
        # users of the groups may pass through /slots, and cannot list it
        slots = ["--perms", "0711", "--size", str(1 << 20), "--tmpfs", ROOT]
        for number in range(options.sessions):
            slots += [*size, "--tmpfs", f"{ROOT}/{number}"]
    else:
        slots = [*size, "--tmpfs", ROOT]
    slots += ["--perms", "1733", "--size", str(shared_memory(options)), "--tmpfs", "/dev/shm"]
    # sessions keep their own directory open as descriptor 200
    links = ["--symlink", "/proc/self/fd/200", "/work", "--symlink", "/work", "/tmp"]
    # bubblewrap works in this order: / becomes read-only when everything in it exists
    rest = ["--proc", "/proc", "--dev", "/dev", *slots, *links, "--remount-ro", "/", "--chdir", "/"]
    return ["bwrap", *namespaces, *rights, *binds, *rest, "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"]


def _may_set_priorities() -> bool:
    """Whether this root has the capability, which root in a container usually has not."""
    status = Path("/proc/self/status").read_text()
    held = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return bool(held & _SYS_NICE)


def _bind(path: str) -> list[str]:
    if os.path.islink(path):
        # a link such as /bin -> usr/bin stays one, so that paths mean the same as on this machine
        return ["--symlink", os.readlink(path), path]
    return [*_parents(path), "--ro-bind", path, path]


def _parents(path: str) -> list[str]:
    parents = [str(parent) for parent in reversed(PurePath(path).parents)][1:]
    return [argument for parent in parents for argument in ("--perms", "0755", "--dir", parent)]


def _needed() -> list[str]:
    """Return the directories of the system and of this Python, without its virtual environment."""
    paths = [path for path in _SYSTEM if os.path.lexists(path)]
    for path in (sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("stdlib")):
        if not any(path == one or path.startswith(one + "/") for one in paths):
            paths.append(path)
    return paths


# The backend "command": the server behind any command whose stdin and stdout become its stream.
#
#     Sandbox("command", command="docker run -i --rm --network none ... IMAGE")
#     Sandbox("command", command=["ssh", "box", "docker run -i --rm --network none ... IMAGE {server}"])
#
# The command starts a container (or what it has in its place) and runs `python3` with a short program in it, which
# takes the server from standard input. The words of `python3 ...` are appended, or stand where "{server}" is; within a
# longer word, and after `ssh`, they are quoted for the shell that reads them. The server finds out what isolates it
# (`fit_to_container`), and a command that isolates too little is refused.
#
# The command ends with its standard input, also when this program is killed.

COMMAND_VARIABLE = "ARPO_SANDBOX_COMMAND"
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


class _CommandStream(_ProcessStream):
    """Bytes to and from a server behind a command, which has to answer within `start_wait` seconds."""

    _environment = _directory = None

    def __init__(self, command: Sequence[str], isolation: str, config: dict[str, Any], start_wait: float) -> None:
        self.start_seconds = start_wait + 30  # the deadline here comes first: it knows more
        self._deadline = time.monotonic() + start_wait
        self._greeting = b""
        self._fault = ""
        super().__init__(command, isolation, config)

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
        end = super().post_mortem()
        return f"{self._fault}: {end}" if self._fault else end

    def _words(self, log: str) -> str:
        return "; ".join(line.strip() for line in log.splitlines()[-4:] if line.strip())[-800:]


def start_command(options: SandboxOptions) -> _CommandStream:
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
    config = server_config(options, ROOT, first_uid=random_uids(), fit=True)
    label = f"command({PurePath(words[0]).name})"
    return _CommandStream(with_server(words, server_words(options.start_wait)), label, config, options.start_wait)
