"""Docker engines: whether one can be used and what to do if not, those of other hosts, and what is left on them."""

from __future__ import annotations

import contextlib
import importlib.util
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.options import unenforced_limits

State = Literal["ok", "missing", "no_engine", "not_running", "not_permitted", "too_old"]
OLDEST_API = (1, 40)
"""The API of Docker Engine 19.03."""
_DAEMON_PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where the daemon may be, apart from an ordinary user's PATH."""
_WORDS = {
    "missing": "is not installed",
    "no_engine": "has no engine here, only its command line",
    "not_running": "does not answer",
    "not_permitted": "refuses this user",
    "too_old": "is too old",
}


@dataclass(frozen=True)
class DockerDiagnosis:
    """Whether Docker can be used.

    Attributes:
        state: "ok", or the problem: "missing" (nothing is installed), "no_engine" (only the command line is installed),
            "not_running", "not_permitted", "too_old".
        detail: what was found.
        cure: the command that fixes it; empty if the state is "ok".
    """

    state: State
    detail: str
    cure: str = ""

    def __str__(self) -> str:
        if self.state == "ok":
            return f"Docker answers ({self.detail})"
        return f"Docker {_WORDS[self.state]} ({self.detail}). To fix it: {self.cure}"


def check_docker(host: str | None = None) -> DockerDiagnosis:
    """Ask a Docker engine for its version; takes a few milliseconds if there is one.

    Args:
        host: as in DOCKER_HOST; None uses the one of the environment.
    """
    import docker.errors

    try:
        client = connect(host, timeout=5)
        with contextlib.closing(client):
            return _judge(client.version())
    except docker.errors.InvalidVersion as error:
        return _too_old(_first_line(error))
    except (docker.errors.DockerException, OSError) as error:
        return _explain(error, host or os.environ.get("DOCKER_HOST", ""))


def connect(host: str | None = None, timeout: float = 60) -> Any:
    """Return a client of an engine.

    Args:
        host: "unix:///path", "tcp://name:port" (TLS by DOCKER_TLS_VERIFY and DOCKER_CERT_PATH) or "ssh://name"
            (needs paramiko); None uses what DOCKER_HOST names, or the engine on this machine.
        timeout: seconds an answer may take.

    Raises:
        docker.errors.DockerException: it does not answer.
    """
    import docker
    import docker.errors

    environment = {**os.environ, "DOCKER_HOST": host} if host else dict(os.environ)
    if environment.get("DOCKER_HOST", "").startswith("ssh://") and importlib.util.find_spec("paramiko") is None:
        raise docker.errors.DockerException(
            "ssh needs paramiko: pip install 'docker[ssh]'; or forward the socket yourself "
            "(ssh -nNTL /tmp/box.sock:/var/run/docker.sock box) and name unix:///tmp/box.sock"
        )
    return docker.from_env(timeout=int(timeout), environment=environment)


def _judge(version: dict[str, Any]) -> DockerDiagnosis:
    engine, api = version.get("Version", "of unknown version"), version.get("ApiVersion", "0.0")
    # compared as numbers: as texts, 1.9 would be newer than 1.40
    if tuple(int(part) for part in api.split(".")) < OLDEST_API:
        return _too_old(f"engine {engine} has API {api}; 1.{OLDEST_API[1]} is needed")
    return DockerDiagnosis("ok", f"engine {engine}")


def _too_old(detail: str) -> DockerDiagnosis:
    return DockerDiagnosis("too_old", detail, "upgrade it to Docker Engine 19.03 or newer")


def _explain(error: BaseException, host: str) -> DockerDiagnosis:
    # before the others: the engine may well run, and starting it would not help
    if isinstance(error, PermissionError) or "Permission denied" in str(error):
        where, cure = host or "/var/run/docker.sock", "sudo usermod -aG docker $USER, then log in again"
        return DockerDiagnosis("not_permitted", f"no permission for {where}", cure)
    detail = f"{host}: {_first_line(error)}" if host else _first_line(error)
    # another machine: what is installed on this one says nothing about it
    if host and not host.startswith("unix://"):
        cure = f"start the engine there, or name another host; to test: docker -H {host} version"
        return DockerDiagnosis("not_running", detail, cure)
    if _has_daemon():
        return DockerDiagnosis("not_running", detail, "sudo systemctl start docker (without systemd: sudo dockerd &)")
    if shutil.which("docker"):
        cure = "sudo apt-get install docker.io, or start Docker Desktop, or set DOCKER_HOST to an engine elsewhere"
        return DockerDiagnosis("no_engine", f"there is a docker command, but no dockerd; {detail}", cure)
    return DockerDiagnosis("missing", "neither docker nor dockerd is on PATH", "sudo apt-get install docker.io")


def _has_daemon() -> bool:
    return bool(shutil.which("dockerd") or shutil.which("dockerd", path=os.pathsep.join(_DAEMON_PLACES)))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


# An engine is named as in DOCKER_HOST: unix:///var/run/docker.sock, tcp://host:2376 (TLS by DOCKER_TLS_VERIFY and
# DOCKER_CERT_PATH), ssh://user@host:22, followed by the path of the engine's socket where it is not the usual one. For
# ssh:// a tunnel is opened with the `ssh` program, its configuration and its agent; the environment variable ARPO_SSH
# replaces the command, such as ARPO_SSH="ssh -F my_config".

SSH_VARIABLE = "ARPO_SSH"
_SOCKET = "/var/run/docker.sock"
_PREFIX = "arpo-ssh-"
_READY = b"ready\n"
_OPEN_SECONDS = 30.0
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_log = logging.getLogger(__name__)


class Host:
    """An engine, and when to try it again after a failure; without a name it is the one of the environment.

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
                if self._tunnel is not None:
                    self._tunnel.close()
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


# What sandboxes have on engines. A container ends by itself with its client. One is left over only if it was created
# and never started, or if the engine was restarted or disconnected at the wrong moment.

_LABEL = "arpo.sandbox"
_PROFILE = "arpo.sandbox.profile"
_REPOSITORY = "arpo-sandbox"
_STARTING = 60.0


@dataclass(frozen=True)
class ContainerInfo:
    """A container of a sandbox.

    Attributes:
        host: the engine it is on, as in DOCKER_HOST; empty for the one of this machine.
        id: of the container, 12 digits.
        state: as the engine reports it, such as "running" or "created".
        age: seconds since it was created.
        image: the image it was created from.
        memory: bytes it uses; 0 where the engine does not report them.
        client: process that opened it; 0 if unknown.
        client_host: machine of that process.
        orphan: its client is gone. The client can be looked up on its own machine only; on other machines, only a
            container that was never started counts as an orphan.
    """

    host: str
    id: str
    state: str
    age: float
    image: str
    memory: int
    client: int
    client_host: str
    orphan: bool


def containers(host: str | None = None) -> list[ContainerInfo]:
    """Return the containers of all sandboxes, on one engine or on all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    return [info for one in _hosts(host) for info in _containers_of(one)]


def prune(everything: bool = False, images: bool = False, host: str | None = None) -> list[str]:
    """Remove containers without a client; returns what was removed.

    Args:
        everything: also remove those that are in use; their sessions are lost.
        images: also remove images that were replaced by a newer one of the same profile and are not in use.
        host: the engine; None uses all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    removed: list[str] = []
    for one in _hosts(host):
        unused = [info for info in _containers_of(one) if everything or info.orphan]
        with _client(one) as client:
            removed += [f"container {info.id}" for info in unused if _remove(client.api.remove_container, info.id)]
            if images:
                removed += [f"image {tag}" for tag in _old_images(client) if _remove(client.api.remove_image, tag)]
    return removed


def describe_unenforced_limits(backend: str, host: str | None = None) -> list[str]:
    """Return which limits a backend cannot enforce on this machine, one sentence each.

    Args:
        backend: its name. What lacks behind "command" is known once a server runs there: see `Sandbox.isolation`.
        host: the engine; None uses all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    if backend == "command":
        return []
    if backend != "docker":
        return list(unenforced_limits(backend).values())
    found: list[str] = []
    for one in _hosts(host):
        with _client(one) as client:
            found += unenforced_limits(backend, client.info()).values()
    return list(dict.fromkeys(found))


def _hosts(name: str | None) -> list[Host]:
    return hosts_of(None if name is None else [name])


@contextlib.contextmanager
def _client(host: Host) -> Iterator[Any]:
    import docker.errors

    try:
        with contextlib.closing(connect(host.address())) as client:
            yield client
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"the Docker engine of {host} does not answer: {error}") from error
    finally:
        host.close()


def _containers_of(host: Host) -> list[ContainerInfo]:
    with _client(host) as client:
        # `all`: also those that do not run
        found = client.api.containers(all=True, filters={"label": f"{_LABEL}=1"})
        return [_info(client, host, one) for one in sorted(found, key=lambda one: one["Created"])]


def _info(client: Any, host: Host, found: dict[str, Any]) -> ContainerInfo:
    labels = found["Labels"]
    age = max(0.0, time.time() - found["Created"])
    pid, machine = int(labels.get(f"{_LABEL}.client", 0)), labels.get(f"{_LABEL}.client_host", "")
    # its client may be about to start a container that is younger
    never_started = found["State"] == "created" and age > _STARTING
    client_gone = machine == socket.gethostname() and not client_is_alive(pid, found["Created"])
    memory = _memory(client, found["Id"]) if found["State"] == "running" else 0
    orphan = never_started or client_gone
    return ContainerInfo(
        host.name or "", found["Id"][:12], found["State"], age, found["Image"], memory, pid, machine, orphan
    )


def client_is_alive(pid: int, before: float) -> bool:
    """Whether a process exists that was started before a time; a later one only has the same number."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            booted = time.time() - float(file.read().split()[0])
    except FileNotFoundError:
        return not os.path.exists("/proc/uptime")  # macOS has no /proc at all; where there is one, the process is gone
    except ProcessLookupError:
        return False
    # 2 s for rounding: the engine reports whole seconds, and the clocks are read one after the other
    return booted + ticks / os.sysconf("SC_CLK_TCK") <= before + 2


def _memory(client: Any, container: str) -> int:
    import docker.errors

    with contextlib.suppress(docker.errors.DockerException, OSError):
        # `one_shot`: otherwise the engine waits for a second reading, to compute the use of the CPU
        usage = client.api.stats(container, stream=False, one_shot=True).get("memory_stats", {})
        return int(usage.get("usage", 0))
    return 0


def _remove(remove: Any, name: str) -> bool:
    import docker.errors

    try:
        # by force only containers: an image that is in use stays
        remove(name, force=remove.__name__ == "remove_container")
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as error:
        if error.status_code == 409:  # in use, or being removed already
            return False
        raise SandboxError(f"the Docker engine does not remove {name}: {error}") from error
    return True


def _old_images(client: Any) -> list[str]:
    """Return the tags of all images except the newest of each profile."""
    seen: set[str] = set()
    old: list[str] = []
    for image in sorted(client.api.images(name=_REPOSITORY), key=lambda image: -image["Created"]):
        profile = (image["Labels"] or {}).get(_PROFILE, "")
        if profile in seen:
            old += image["RepoTags"] or []
        seen.add(profile)
    return old
